//! Moves committed pages from the log to the file in a separate thread, so that publishers do not wait for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rusqlite::{Connection, Row};

use super::connection::connect;
use crate::metrics::StoreMetrics;

/// The interval between two checks of the log.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// While the writer is busy, pages (4 KiB) are moved when at least this many wait in the log. Each page is moved once,
/// however often it was written, and every move syncs the file.
const MOVE_PAGES_MIN: i64 = 16_000;
/// The length in pages from which a log is too long. A busy writer keeps the log from ever being empty when its pages
/// are moved. The writer itself empties such a log once.
const LONG_LOG_PAGES: i64 = 32_000;
// Pages are moved before the log counts as too long.
const _: () = assert!(MOVE_PAGES_MIN < LONG_LOG_PAGES);

/// The thread with its state.
pub(super) struct WalCheckpointer {
    path: PathBuf,
    metrics: Arc<StoreMetrics>,
    is_long: Arc<AtomicBool>,
}

impl WalCheckpointer {
    pub(super) fn new(path: PathBuf, metrics: Arc<StoreMetrics>) -> Self {
        WalCheckpointer { path, metrics, is_long: Arc::default() }
    }

    /// A flag that becomes true when the writer must empty the log itself.
    pub(super) fn is_long(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_long)
    }

    /// Serves until the store is closed.
    pub(super) fn serve(self) {
        let (mut connection, mut commits) = (None, 0);
        while !self.metrics.is_closed.load(Relaxed) {
            std::thread::sleep(CHECK_INTERVAL);
            let before = std::mem::replace(&mut commits, self.metrics.commit_times.count());
            if self.metrics.is_failing() {
                continue;
            }
            if let Err(error) = self.move_pages(&mut connection, before == commits) {
                tracing::warn!(%error, "pages of the primary database's log could not be moved to its file");
                connection = None;
            }
        }
    }

    /// Moves pages to the file if enough of them wait.
    fn move_pages(&self, connection: &mut Option<Connection>, is_idle: bool) -> rusqlite::Result<()> {
        let connection = match connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.path)?),
        };
        let pages = |row: &Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
        let (all, moved) = connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], pages)?;
        if all - moved > if is_idle { 0 } else { MOVE_PAGES_MIN } {
            let (all, _) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages)?;
            self.is_long.store(all > LONG_LOG_PAGES, Relaxed);
        }
        Ok(())
    }
}
