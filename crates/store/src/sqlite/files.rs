//! The files of databases. Files and directories that are created here are accessible only to this account.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Result};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The modes of new directories and files: access for the owner only.
const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The permission that lets every account of the machine read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Creates a directory if it does not exist. Its parents, which may contain other files, get the usual permissions.
pub(super) fn make_directory(path: &Path) -> Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    // Recursive, so that an existing directory is not an error.
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(path)
}

/// Opens the lock file, and creates it if it does not exist. A new one gets the owner of the database, if there is a
/// database. Otherwise a compaction as root would lock out the account of the node.
pub(super) fn open_lock(path: &Path, database: &Path) -> Result<File> {
    match OpenOptions::new().create_new(true).write(true).mode(FILE).open(path) {
        Ok(lock) => {
            let (new, found) = (lock.metadata()?, std::fs::metadata(database));
            if let Ok(found) = found.as_ref()
                && (new.uid(), new.gid()) != (found.uid(), found.gid())
            {
                // Only root may do this. Another account that got this far has access through its group.
                let _ = std::os::unix::fs::fchown(&lock, Some(found.uid()), Some(found.gid()));
            }
            Ok(lock)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().create(true).truncate(false).write(true).mode(FILE).open(path)
        }
        Err(error) => Err(error),
    }
}

/// The first bytes of an SQLite file.
const HEAD: &[u8; 16] = b"SQLite format 3\0";

/// Whether a database is at this path, or could be created there. Nothing is created.
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

/// Whether a node uses this database. If so, the file must not be opened: closing it would release the locks that
/// SQLite holds on it in this process.
fn is_in_use(path: &Path) -> bool {
    File::open(path.with_extension("lock"))
        .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn is_database(path: &Path) -> Result<bool> {
    let mut head = [0; HEAD.len()];
    let length = File::open(path)?.take(HEAD.len() as u64).read(&mut head)?;
    Ok(head[..length] == HEAD[..])
}

/// Creates a database's file if it does not exist. SQLite gives the same permissions to the log and the index beside
/// it. An existing file that every account may read causes a logged warning; its permissions are left to its owner.
pub(crate) fn make_database(path: &Path) -> Result<()> {
    // An existing file is never opened here: closing it would release all locks that SQLite holds on it in this
    // process.
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
