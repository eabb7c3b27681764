//! Where databases lie: what is made here is for this account only.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Result};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Rights of the owner only, of a directory and of a file.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// What every account of the machine may read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Makes a directory if it is not there. Those above it, which may hold other things, are made with the rights that are
/// usual.
pub(super) fn make_directory(path: &Path) -> Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    // As a recursive one it does not mind a directory that is there.
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// Opens a file that is only locked, made if need be.
pub(super) fn open_lock(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(FILE).open(path)
}

/// What a file of SQLite begins with.
const HEAD: &[u8; 16] = b"SQLite format 3\0";

/// Whether a database is at this path, or could be made there. Nothing is made.
pub(crate) fn inspect(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.len() > 0 && !is_in_use(path) && !is_database(path)? => {
            Err(std::io::Error::new(ErrorKind::InvalidData, "it is there, and no SQLite database"))
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

/// Whether a node has this database. Then the file is not opened: to close it would give up the locks that SQLite holds
/// on it in this process.
fn is_in_use(path: &Path) -> bool {
    File::open(path.with_extension("lock"))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn is_database(path: &Path) -> Result<bool> {
    let mut head = [0; HEAD.len()];
    let length = File::open(path)?.take(HEAD.len() as u64).read(&mut head)?;
    Ok(head[..length] == HEAD[..])
}

/// Makes a database's file if it is not there. SQLite gives the log and the index beside it the same rights. Of one
/// that was there before, and that everybody may read, a warning is logged: its rights are its owner's business.
pub(crate) fn make_database(path: &Path) -> Result<()> {
    // Never opened when it is there: to close a file gives up all locks that SQLite holds on it in this process.
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
