//! The size of a database file: its pages, its free pages, and the log beside it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use super::connection::BUSY;
use crate::growth::SizeReading;

/// While the disk is short, a log of at least this size is emptied, bytes.
pub(super) const LOG_WORTH: u64 = 1_024 * 1_024;
/// How long the writer waits for readers when it empties the log.
const EMPTY_TIMEOUT: Duration = Duration::from_millis(100);

/// The path of a file's log.
pub(crate) fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// The free space of a path's file system that this account may use, bytes. `None` = the system does not report it.
pub(crate) fn disk_free(path: &Path) -> Option<u64> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = rustix::fs::statvfs(directory).ok()?;
    // Some file systems do not report their number of blocks; then they do not report free blocks either.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Looks at a file. Also returns the size of its log in bytes.
pub(super) fn look(connection: &Connection, path: &Path) -> rusqlite::Result<(SizeReading, u64)> {
    let number = |pragma: &str| connection.prepare_cached(pragma)?.query_row([], |row| row.get::<_, u64>(0));
    let page_size = number("PRAGMA page_size")?;
    let pages = number("PRAGMA page_count")?.saturating_mul(page_size);
    let log = std::fs::metadata(log_of(path)).map_or(0, |found| found.len());
    let file = std::fs::metadata(path).map_or(0, |found| found.len());
    let reading = SizeReading {
        held: pages.saturating_add(log),
        reusable: number("PRAGMA freelist_count")?.saturating_mul(page_size),
        is_exact: true,
        disk_free: disk_free(path),
        // All other pages of the log have their places in the file already.
        to_move: pages.saturating_sub(file),
        nodes: 1,
    };
    Ok((reading, log))
}

/// Moves all pages of the log to the file and empties the log. Returns false if it is not empty because of a reader.
pub(super) fn empty_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(EMPTY_TIMEOUT)?;
    let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    connection.busy_timeout(BUSY)?;
    Ok(emptied? == 0)
}

#[cfg(test)]
mod tests {
    use super::super::connection::connect;
    use super::*;

    #[test]
    fn what_the_log_adds_to_the_file_is_known_until_it_is_moved() {
        let directory = std::env::temp_dir().join(format!("touchline-store-log-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory is made");
        let path = directory.join("p.db");
        let connection = connect(&path).expect("it opens");
        connection.execute_batch("CREATE TABLE held (bytes BLOB)").expect("it is written");
        assert!(empty_log(&connection).expect("it is moved"));
        let (before, log) = look(&connection, &path).expect("it is read");
        assert_eq!((before.to_move, log), (0, 0));
        for _ in 0..20 {
            connection.execute("INSERT INTO held VALUES (randomblob(100000))", []).expect("it is written");
        }
        let (waiting, log) = look(&connection, &path).expect("it is read");
        assert!(waiting.to_move > 2_000_000 && waiting.to_move <= log, "{waiting:?} with {log} in the log");
        assert!(empty_log(&connection).expect("it is moved"));
        let (after, log) = look(&connection, &path).expect("it is read");
        assert_eq!((after.to_move, log), (0, 0));
        assert_eq!(after.held - before.held, waiting.to_move, "so much the file has grown");
        drop(connection);
        std::fs::remove_dir_all(&directory).expect("it is removed");
    }
}
