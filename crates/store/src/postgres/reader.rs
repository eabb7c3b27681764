//! Runs the read requests.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, WeakSender};
use tokio_postgres::{Client, Row};
use touchline_protocol::stream::{Epoch, Offset, Run, RunId, RunStart, Runs};

use super::address::PostgresAddress;
use super::connection::{PostgresClient, with_timeout};
use super::failure::PostgresError;
use super::{directory, facts, inbox, lease, reactions, seen};
use crate::batch::{HistoryLoad, ReadRequest, ReadResult, WriteRequest};
use crate::events::EventSink;
use crate::metrics::StoreMetrics;
use crate::publication::{KeptPublication, StoredHistory};
use crate::refusal::StoreRefusal;
use crate::rows::readable;
use crate::runs::{KnownRuns, RunBook};

/// Reads a channel and its history in one statement, so both are of the same moment. If the history is empty, it
/// returns one row without a publication. A node that catches up also gets publications beyond the channel's size that
/// are not deleted yet, because its subscribers have not received them.
const SELECT: &str = "SELECT c.epoch, c.top, c.floor, \
     p.\"offset\", p.time_ms, p.data, p.format, c.run_number, c.run_id, \
     (SELECT array_agg(r.run ORDER BY r.run) FROM touchline.channel_run r WHERE r.channel = c.id), \
     (SELECT array_agg(r.first ORDER BY r.run) FROM touchline.channel_run r WHERE r.channel = c.id) \
     FROM (SELECT touchline.channel.id, epoch, top, newest.number AS run_number, newest.id AS run_id, \
             greatest(oldest - 1, $2::bigint, \
                 CASE WHEN oldest < cut AND ($2::bigint > 0 OR oldest = 1) THEN 0 ELSE top - $3::bigint END) AS floor \
         FROM touchline.channel \
         LEFT JOIN (SELECT number, id FROM touchline.run ORDER BY number DESC LIMIT 1) newest ON true \
         WHERE name = $1) c \
     LEFT JOIN touchline.publication p ON p.channel = c.id AND p.\"offset\" > c.floor ORDER BY p.\"offset\"";

/// The interval between two checks whether the writer has read the runs.
const PAUSE: Duration = Duration::from_millis(5);

/// One of the reading tasks.
pub(super) struct PostgresReader {
    address: PostgresAddress,
    /// The connection. `None` at first and after a failure.
    link: Option<PostgresClient>,
    events: EventSink,
    writes: WeakSender<WriteRequest>,
    metrics: Arc<StoreMetrics>,
    runs: Arc<RunBook>,
}

impl PostgresReader {
    pub(super) fn new(
        address: PostgresAddress,
        events: EventSink,
        writes: WeakSender<WriteRequest>,
        metrics: Arc<StoreMetrics>,
        runs: Arc<RunBook>,
    ) -> Self {
        PostgresReader { address, link: None, events, writes, metrics, runs }
    }

    /// Serves requests until all senders are dropped.
    pub(super) async fn serve(mut self, requests: Arc<Mutex<UnboundedReceiver<ReadRequest>>>) {
        loop {
            let Some(read) = requests.lock().await.recv().await else { return };
            let result = with_timeout(self.address.timeout, self.read(&read)).await;
            let read = read.finish(&self.metrics);
            match result {
                Ok(result) => {
                    if let Some(load) = read.tell(result, &self.events) {
                        self.make(load).await;
                    }
                }
                Err(error) if error.is_of_item() => {
                    tracing::debug!(%error, "the primary database refuses a read");
                    self.link = None;
                    read.refuse(&self.events, StoreRefusal::Invalid);
                }
                Err(error) => {
                    if error.is_away() {
                        self.metrics.tell_away(&error);
                    } else {
                        tracing::warn!(%error, "the primary database could not be read");
                    }
                    self.link = None;
                    read.refuse(&self.events, StoreRefusal::Failed);
                }
            }
        }
    }

    async fn make(&self, load: HistoryLoad) {
        let unwritten = match self.writes.upgrade() {
            Some(writes) => writes.send(WriteRequest::Make(load)).await.map_err(|unwritten| unwritten.0),
            None => Err(WriteRequest::Make(load)),
        };
        if let Err(write) = unwritten {
            write.refuse(&self.events, StoreRefusal::Failed);
        }
    }

    async fn read(&mut self, read: &ReadRequest) -> Result<ReadResult, PostgresError> {
        let link = match self.link.take() {
            Some(link) if !link.client.is_closed() => link,
            _ => PostgresClient::to(&self.address).await?,
        };
        let client = &self.link.insert(link).client;
        // Before the writer has entered a run, a read could return the state of an old run.
        while self.runs.known().is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(match read {
            ReadRequest::History(load) => {
                self.metrics.loads.fetch_add(1, Relaxed);
                ReadResult::History(history(client, load, &self.runs).await?)
            }
            ReadRequest::Search(search, _) => ReadResult::Search(directory::search(client, search).await?),
            ReadRequest::InboxMessages { scope, name, behind, limit } => {
                ReadResult::InboxMessages(inbox::read(client, scope, name, *behind, *limit).await?)
            }
            ReadRequest::Reactions { after, limit, .. } => {
                ReadResult::Reactions(reactions::read(client, after, *limit).await?)
            }
            ReadRequest::InboxNames(search, _) => ReadResult::InboxNames(inbox::names(client, search).await?),
            ReadRequest::InboxPage(listing, _) => ReadResult::InboxPage(inbox::list(client, listing).await?),
            ReadRequest::Facts(listing, _) => ReadResult::Facts(facts::list(client, listing).await?),
            ReadRequest::Seen { users, after_s, .. } => ReadResult::Seen(seen::read(client, users, *after_s).await?),
        })
    }
}

/// The history of a channel. `None` = the channel does not exist.
pub(super) async fn history(
    client: &Client,
    load: &HistoryLoad,
    book: &RunBook,
) -> Result<Option<StoredHistory>, PostgresError> {
    let size = i64::try_from(load.size).unwrap_or(i64::MAX);
    let rows = client.query(SELECT, &[&&*load.channel, &(load.id.behind.0 as i64), &size]).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let number = |row: &Row, column: usize| row.get::<_, i64>(column) as u64;
    let (epoch, top, floor) = (number(first, 0), number(first, 1), number(first, 2));
    let is_kept = |row: &&Row| row.get::<_, Option<i64>>(3).is_some();
    rows.iter().filter(is_kept).try_for_each(|row| readable(i64::from(row.get::<_, i16>(6))))?;
    let kept = rows
        .iter()
        .filter(is_kept)
        .map(|row| KeptPublication {
            offset: Offset(number(row, 3)),
            time_ms: number(row, 4),
            object: Bytes::from(row.get::<_, String>(5)),
        })
        .collect();
    let numbers = |column: usize| {
        first.get::<_, Option<Vec<i64>>>(column).unwrap_or_default().into_iter().map(|number| number as u64)
    };
    let newest = Run { number: first.try_get::<_, i64>(7)? as u64, id: RunId(first.try_get::<_, i64>(8)? as u64) };
    let start = |(number, first)| RunStart { number, first: Offset(first) };
    let runs =
        Runs { known: known(client, book, newest).await?, first: numbers(9).zip(numbers(10)).map(start).collect() };
    let epoch = Epoch::from_bits(epoch).in_run(runs.current());
    Ok(Some(StoredHistory { epoch, top: Offset(top), floor: Offset(floor), kept, runs }.whole()))
}

/// The runs up to `newest`, from memory if they are known.
async fn known(client: &Client, book: &RunBook, newest: Run) -> Result<KnownRuns, PostgresError> {
    let mut known = book.known();
    if !known.contains(&newest) {
        known = lease::known(client).await?;
        book.set(KnownRuns::clone(&known));
    }
    // A run that has begun since then does not belong to the history that was read.
    let until = known.iter().position(|run| *run == newest).map_or(known.len(), |newest| newest + 1);
    Ok(if until == known.len() { known } else { known[..until].into() })
}
