//! The files of databases. Files and directories that are made here are for this account only.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Result};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The modes of new directories and files: rights for the owner only.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The right of every account of the machine to read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Makes a directory if it does not exist. Its parents, which may hold other files, are made with the usual rights.
pub(super) fn make_directory(path: &Path) -> Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    // Recursive, so that a directory that exists is not an error.
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// Opens a file that is only locked; it is made if it does not exist.
pub(super) fn open_lock(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(FILE).open(path)
}

/// The first bytes of an SQLite file.
const HEAD: &[u8; 16] = b"SQLite format 3\0";

/// Whether a database is at this path, or could be made there. Nothing is made.
pub(crate) fn inspect(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.len() > 0 && !is_in_use(path) && !is_database(path)? => {
            Err(std::io::Error::new(ErrorKind::InvalidData, "the file exists and is not an SQLite database"))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match path.ancestors().skip(1).find(|above| above.exists()) {
                Some(above) if !above.is_dir() => Err(ErrorKind::NotADirectory.into()),
                _ => Ok(()),
            }
        }
        Err(error) => Err(error),
    }
}

/// Whether a node uses this database. Then the file must not be opened: closing it would release the locks that SQLite
/// holds on it in this process.
fn is_in_use(path: &Path) -> bool {
    File::open(path.with_extension("lock"))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn is_database(path: &Path) -> Result<bool> {
    let mut head = [0; HEAD.len()];
    let length = File::open(path)?.take(HEAD.len() as u64).read(&mut head)?;
    Ok(head[..length] == HEAD[..])
}

/// Makes a database's file if it does not exist. SQLite gives the log and the index beside it the same rights. A file
/// that exists and that every account may read is logged as a warning: its rights are left to its owner.
pub(crate) fn make_database(path: &Path) -> Result<()> {
    // A file that exists is never opened: closing it would release all locks that SQLite holds on it in this process.
    match OpenOptions::new().create_new(true).write(true).mode(FILE).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            if std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & READABLE_BY_OTHERS != 0) {
                tracing::warn!(path = %path.display(), "everybody on this machine can read this database (chmod 600)");
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}
