//! Runs the read requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender};

use rusqlite::{Connection, OptionalExtension as _};
use touchline_lock::Lock;
use touchline_protocol::stream::{Epoch, Offset, RunStart, Runs};

use super::connection::connect;
use super::failure::{note_damage, unreadable};
use super::queue::next;
use super::{directory, facts, inbox, reactions, seen};
use crate::batch::{HistoryLoad, ReadRequest, ReadResult, WriteRequest};
use crate::clock::now_ms;
use crate::events::EventSink;
use crate::metrics::StoreMetrics;
use crate::panics::caught;
use crate::publication::{KeptPublication, StoredHistory};
use crate::refusal::StoreRefusal;
use crate::rows::{intact, readable};
use crate::runs::KnownRuns;

/// One of the reading threads.
pub(super) struct SqliteReader {
    path: PathBuf,
    /// The connection. `None` at first and after a failure.
    connection: Option<Connection>,
    events: EventSink,
    writes: SyncSender<WriteRequest>,
    metrics: Arc<StoreMetrics>,
    runs: KnownRuns,
}

impl SqliteReader {
    pub(super) fn new(
        path: PathBuf,
        events: EventSink,
        writes: SyncSender<WriteRequest>,
        metrics: Arc<StoreMetrics>,
        runs: KnownRuns,
    ) -> Self {
        SqliteReader { path, connection: None, events, writes, metrics, runs }
    }

    /// Serves requests until all senders are dropped.
    pub(super) fn serve(mut self, requests: &Lock<Receiver<ReadRequest>>) {
        while let Some(read) = next(requests) {
            let result = caught(|| self.read(&read)).unwrap_or_else(|panicked| Err(unreadable(panicked)));
            let read = read.finish(&self.metrics);
            match result {
                Ok(result) => {
                    if let Some(load) = read.tell(result, &self.events)
                        && let Err(unwritten) = self.writes.send(WriteRequest::Make(load))
                    {
                        unwritten.0.refuse(&self.events, StoreRefusal::Failed);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the primary database could not be read");
                    note_damage(&error, &self.metrics);
                    self.connection = None;
                    read.refuse(&self.events, StoreRefusal::Failed);
                }
            }
        }
    }

    fn read(&mut self, read: &ReadRequest) -> rusqlite::Result<ReadResult> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.path)?,
        };
        let connection = self.connection.insert(connection);
        Ok(match read {
            ReadRequest::History(load) => {
                self.metrics.loads.fetch_add(1, Relaxed);
                ReadResult::History(history(connection, load, &self.runs)?)
            }
            ReadRequest::Search(search, _) => ReadResult::Search(directory::search(connection, search)?),
            ReadRequest::InboxMessages { scope, name, behind, limit } => {
                ReadResult::InboxMessages(inbox::read(connection, scope, name, *behind, *limit, now_ms())?)
            }
            ReadRequest::Reactions { after, limit, .. } => {
                ReadResult::Reactions(reactions::read(connection, after, *limit)?)
            }
            ReadRequest::InboxNames(search, _) => ReadResult::InboxNames(inbox::names(connection, search, now_ms())?),
            ReadRequest::InboxPage(listing, _) => ReadResult::InboxPage(inbox::list(connection, listing, now_ms())?),
            ReadRequest::Facts(listing, _) => ReadResult::Facts(facts::list(connection, listing)?),
            ReadRequest::Seen { users, after_s, .. } => ReadResult::Seen(seen::read(connection, users, *after_s)?),
        })
    }
}

/// The history of a channel, read within one transaction so that all of it is of the same moment. `None` = the channel
/// does not exist.
pub(super) fn history(
    connection: &Connection,
    load: &HistoryLoad,
    known: &KnownRuns,
) -> rusqlite::Result<Option<StoredHistory>> {
    let transaction = connection.unchecked_transaction()?;
    let mut select = transaction.prepare_cached("SELECT id, epoch, top, oldest FROM channel WHERE name = ?1")?;
    let row = select.query_row([&*load.channel], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)? as u64, row.get::<_, u64>(2)?, row.get::<_, u64>(3)?))
    });
    let Some((id, epoch, top, oldest)) = row.optional()? else { return Ok(None) };
    let first = oldest.max((top + 1).saturating_sub(load.size as u64));
    let floor = load.id.behind.0.max(first.saturating_sub(1));
    let mut first = transaction.prepare_cached("SELECT run, first FROM channel_run WHERE channel = ?1 ORDER BY run")?;
    let first = first
        .query_map([id], |row| Ok(RunStart { number: row.get(0)?, first: Offset(row.get(1)?) }))?
        .collect::<rusqlite::Result<_>>()?;
    let select =
        "SELECT offset, time_ms, data, format FROM publication WHERE channel = ?1 AND offset > ?2 ORDER BY offset";
    let mut select = transaction.prepare_cached(select)?;
    let kept = select.query_map((id, floor), |row| {
        readable(row.get(3)?).map_err(unreadable)?;
        let offset: u64 = row.get(0)?;
        let place = || format!("channel {:?}, offset {offset},", load.channel);
        let object = intact(row.get(2)?, place).map_err(unreadable)?;
        Ok(KeptPublication { offset: Offset(offset), time_ms: row.get(1)?, object })
    })?;
    let kept = kept.collect::<rusqlite::Result<_>>()?;
    let runs = Runs { known: KnownRuns::clone(known), first };
    let epoch = Epoch::from_bits(epoch).in_run(runs.current());
    Ok(Some(StoredHistory { epoch, top: Offset(top), floor: Offset(floor), kept, runs }.whole()))
}
