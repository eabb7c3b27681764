//! Moves what was committed from the log to the file, beside the writer, so that no publisher waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rusqlite::{Connection, Row};

use super::connect;
use crate::StoreMetrics;

/// Between two looks.
const REST: Duration = Duration::from_millis(200);
/// Pages (4 KiB) that wait in the log until they are worth moving while the writer is busy: each page is moved once,
/// however often it was written, and the disk has to sync the file.
const MANY: i64 = 16_000;
/// Pages of a log that is too long: it is never empty at the moment when it is moved, so the writer has to hold still
/// for once.
const LONG: i64 = 32_000;

/// The thread and all it owns.
pub(super) struct Log {
    path: PathBuf,
    figures: Arc<StoreMetrics>,
    is_long: Arc<AtomicBool>,
}

impl Log {
    pub(super) fn new(path: PathBuf, figures: Arc<StoreMetrics>) -> Self {
        Log { path, figures, is_long: Arc::default() }
    }

    /// Turns true when the writer has to empty the log itself.
    pub(super) fn is_long(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_long)
    }

    /// Serves until the store is closed.
    pub(super) fn serve(self) {
        let (mut connection, mut commits) = (None, 0);
        while !self.figures.is_closed.load(Relaxed) {
            std::thread::sleep(REST);
            let before = std::mem::replace(&mut commits, self.figures.commits.load(Relaxed));
            if self.figures.is_failing() {
                continue;
            }
            if let Err(error) = self.look(&mut connection, before == commits) {
                tracing::warn!(%error, "the log of the primary database could not be moved on");
                connection = None;
            }
        }
    }

    /// Moves what is worth it.
    fn look(&self, connection: &mut Option<Connection>, is_idle: bool) -> rusqlite::Result<()> {
        let connection = match connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.path)?),
        };
        let pages = |row: &Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        let (all, moved) = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], pages)?;
        if all - moved > if is_idle { 0 } else { MANY } {
            let (all, _) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages)?;
            self.is_long.store(all > LONG, Relaxed);
        }
        Ok(())
    }
}
