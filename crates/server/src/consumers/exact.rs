//! Publications into durable channels that come from rows of the primary database itself. Each is stored in the same
//! transaction that deletes its row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use tokio::sync::oneshot;
use touchline_engine::channels::DurablePublication;
use touchline_protocol::Error;
use touchline_store::outbox::RowClaim;
use touchline_store::{Append, RowAppends, RowsRefusal, Store, StoreRefusal};

use super::command::AskedCall;
use super::outcome::EntryOutcome;
use crate::api::{CallFailure, durable_publication};
use crate::backend::store::refused;
use crate::node::Node;

/// After this many claims in a row that the primary database does not see, the outbox counts as in another database. A
/// single claim may have been lost while this node stood still.
const UNSEEN_CLAIMS: u32 = 2;

/// What is known of one partition: whether its outbox is in the primary database.
#[derive(Debug, Default)]
pub(super) struct ExactMode {
    unseen: AtomicU32,
    is_off: AtomicBool,
    /// The log has reported that the outbox is in the primary database.
    is_told: AtomicBool,
}

/// Stores the rows of one claim.
pub(super) struct ExactRows<'a> {
    pub(super) consumer: &'a str,
    pub(super) mode: &'a ExactMode,
    pub(super) claim: RowClaim,
    /// The ids of the rows, in their order.
    pub(super) ids: Vec<i64>,
}

/// A row whose publication is to be stored.
pub(super) struct ExactRow {
    /// The index of the entry.
    pub(super) index: usize,
    pub(super) channel: String,
    /// The same publication as an operation.
    pub(super) call: AskedCall,
    publication: DurablePublication,
}

/// Rows with their outcomes; None = the row is to be carried out like any other.
type ExactOutcomes = Vec<(ExactRow, Option<EntryOutcome>)>;

impl ExactRows<'_> {
    /// Reads a publication; None = it is to be carried out like any other.
    ///
    /// # Errors
    /// The outcome of a publication that cannot be stored.
    pub(super) fn prepare(
        &self,
        node: &Node,
        index: usize,
        channel: &str,
        call: &AskedCall,
    ) -> Result<Option<ExactRow>, EntryOutcome> {
        let is_durable = || node.generation().session.namespaces.resolve(channel).is_ok_and(|options| options.durable);
        let can_take = || node.store().is_some_and(Store::takes_rows);
        if self.mode.is_off.load(Relaxed) || !can_take() || !is_durable() {
            return Ok(None);
        }
        if node.is_overloaded() {
            return Err(EntryOutcome::Retry(Error::TOO_MANY_REQUESTS.to_string()));
        }
        match durable_publication(node, &call.params) {
            Ok(Some((channel, publication))) => Ok(Some(ExactRow { index, channel, call: call.clone(), publication })),
            Ok(None) => Ok(None),
            Err(CallFailure::Temporary(error)) => Err(EntryOutcome::Retry(error.to_string())),
            Err(CallFailure::Final(why)) => Err(EntryOutcome::Failed(why)),
        }
    }

    /// Stores rows, in their order, and deletes them.
    pub(super) async fn append(&self, node: &Arc<Node>, mut rows: Vec<ExactRow>) -> ExactOutcomes {
        let mut outcomes = Vec::with_capacity(rows.len());
        while !rows.is_empty() {
            let refusal = match self.try_append(node, &rows).await {
                Ok(()) => {
                    self.mode.unseen.store(0, Relaxed);
                    if !self.mode.is_told.swap(true, Relaxed) {
                        let consumer = self.consumer;
                        tracing::info!(consumer, "its publications in durable channels are stored exactly once");
                    }
                    rows.iter().for_each(|row| count(node, row));
                    outcomes.extend(rows.drain(..).map(|row| (row, Some(EntryOutcome::Gone))));
                    continue;
                }
                Err(refusal) => refusal,
            };
            let outcome = match refusal {
                RowsRefusal::Invalid(bad) if !bad.is_empty() => {
                    let is_bad = |row: &mut ExactRow| bad.contains(&self.ids[row.index]);
                    let why = EntryOutcome::Failed(refused(StoreRefusal::Invalid).to_string());
                    let told = outcomes.len();
                    outcomes.extend(rows.extract_if(.., is_bad).map(|row| (row, Some(why.clone()))));
                    if outcomes.len() > told {
                        continue;
                    }
                    Some(EntryOutcome::Retry(refused(StoreRefusal::Failed).to_string()))
                }
                RowsRefusal::Invalid(_) => Some(EntryOutcome::Retry(refused(StoreRefusal::Failed).to_string())),
                RowsRefusal::Store(refusal) => Some(EntryOutcome::Retry(refused(refusal).to_string())),
                RowsRefusal::OtherDatabase if self.mode.unseen.fetch_add(1, Relaxed) + 1 < UNSEEN_CLAIMS => {
                    Some(EntryOutcome::Retry("the primary database does not see the claim on these rows".to_owned()))
                }
                RowsRefusal::OtherDatabase => self.give_up("it is not in the primary database"),
                RowsRefusal::NotPermitted(why) => {
                    self.give_up(&format!("{why}: GRANT SELECT, DELETE on the outbox to the user of store.primary.url"))
                }
            };
            outcomes.extend(rows.drain(..).map(|row| (row, outcome.clone())));
        }
        outcomes
    }

    /// Stops storing rows exactly once: from now on they are carried out like any other command.
    fn give_up(&self, why: &str) -> Option<EntryOutcome> {
        if !self.mode.is_off.swap(true, Relaxed) {
            let consumer = self.consumer;
            tracing::info!(
                consumer,
                "its publications in durable channels are stored at least once, not exactly: {why}"
            );
        }
        None
    }

    async fn try_append(&self, node: &Arc<Node>, rows: &[ExactRow]) -> Result<(), RowsRefusal> {
        let Some(store) = node.store() else { return Err(RowsRefusal::OtherDatabase) };
        let (sender, result) = oneshot::channel();
        let done = move |result| {
            let _ = sender.send(result);
        };
        store.append_rows(RowAppends {
            claim: self.claim.clone(),
            rows: rows.iter().map(|row| (self.ids[row.index], append_of(row))).collect(),
            done: Box::new(done),
        });
        result.await.unwrap_or(Err(StoreRefusal::Failed.into()))
    }
}

/// Counts a stored publication.
fn count(node: &Node, row: &ExactRow) {
    let namespaces = &node.generation().session.namespaces;
    let counts = node.metrics_here().sessions.of_channel(namespaces, &row.channel);
    counts.published(row.publication.payload.len());
}

fn append_of(row: &ExactRow) -> Append {
    let publication = row.publication.clone();
    Append {
        channel: row.channel.as_str().into(),
        payload: publication.payload.into(),
        time_ms: publication.time_ms,
        key: publication.idempotency_key,
        version: publication.version,
        version_epoch: publication.version_epoch,
        retention: publication.retention,
        done: Box::new(|_| ()),
    }
}
