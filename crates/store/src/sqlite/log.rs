//! Moves what was committed from the log to the file, beside the writer, so that no publisher waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::connect;
use crate::Figures;

/// Between two looks.
const REST: Duration = Duration::from_millis(200);
/// Pages (4 KiB) of a log that is too long: it is never empty at the moment when it is moved, so the writer has to hold still for once.
const LONG: i64 = 16_000;

/// The thread and all it owns.
pub(super) struct Log {
    path: PathBuf,
    figures: Arc<Figures>,
    is_long: Arc<AtomicBool>,
}

impl Log {
    pub(super) fn new(path: PathBuf, figures: Arc<Figures>) -> Self {
        Log { path, figures, is_long: Arc::default() }
    }

    /// Turns true when the writer has to empty the log itself.
    pub(super) fn is_long(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_long)
    }

    /// Serves until the store is closed.
    pub(super) fn serve(self) {
        let (mut connection, mut moved) = (None, 0);
        while !self.figures.is_closed.load(Relaxed) {
            std::thread::sleep(REST);
            let commits = self.figures.commits.load(Relaxed);
            if commits == moved || !self.figures.is_healthy() {
                continue;
            }
            moved = commits;
            let pages =
                |connection: &rusqlite::Connection| connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(1));
            let pages = match &connection {
                Some(connection) => pages(connection),
                None => connect(&self.path).and_then(|fresh| pages(connection.insert(fresh))),
            };
            match pages {
                Ok(pages) => self.is_long.store(pages > LONG, Relaxed),
                Err(error) => {
                    tracing::warn!(%error, "the log of the primary database could not be moved on");
                    connection = None;
                }
            }
        }
    }
}
