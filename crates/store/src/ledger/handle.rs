//! The handle of the event ledger.

use std::sync::Arc;

use tokio::sync::Notify;

use super::types::{
    Burial, DeadLetter, LedgerBatch, LedgerCause, LedgerError, LedgerLife, LedgerOptions, LedgerShare, LedgerTidying,
    LedgerWrite, OutboxLane, SweepReport, WaitingEvent,
};
use crate::errors::OpenError;
use crate::postgres::PostgresAddress;
use crate::postgres::ledger::PostgresLedger;
use crate::settings::DatabaseUrl;
use crate::sqlite::ledger::SqliteLedger;

/// A handle of the ledger. Its requests are futures of a Tokio runtime. Requests that wait for a disk run on a separate
/// thread. Requests of one kind wait for each other.
pub struct EventLedger {
    backend: LedgerBackend,
}

enum LedgerBackend {
    Sqlite(Box<SqliteLedger>),
    Postgres(Box<PostgresLedger>),
}

impl EventLedger {
    /// Creates a handle. Nothing is opened before the first request. An SQLite file must be open as a [`crate::Store`]
    /// in this process, because the store's lock keeps other processes out.
    ///
    /// # Errors
    /// See [`OpenError`]: the address cannot be used.
    pub fn new(options: LedgerOptions) -> Result<Self, OpenError> {
        let backend = match options.url.clone() {
            DatabaseUrl::Sqlite(path) => LedgerBackend::Sqlite(Box::new(SqliteLedger::new(path, options))),
            DatabaseUrl::Postgres(url) => {
                let address = PostgresAddress::new(&url, &options.tls_ca, options.timeout)?;
                LedgerBackend::Postgres(Box::new(PostgresLedger::new(address, options)))
            }
        };
        Ok(EventLedger { backend })
    }

    /// A notifier that fires when another node may have put events into the outbox.
    pub fn bell(&self) -> Arc<Notify> {
        match &self.backend {
            LedgerBackend::Sqlite(_) => Arc::default(),
            LedgerBackend::Postgres(ledger) => Arc::clone(&ledger.bell),
        }
    }

    /// Begins a life of this node. From now on its endpoints get events. What its earlier lives have left is reported
    /// first, with `cause`, in steps. With [`LedgerCause::Restart`] and no other node present, keys that were held have
    /// `grace` more time to return.
    ///
    /// # Errors
    /// See [`LedgerError`]. The node then has no life.
    pub async fn enter(&self, cause: LedgerCause) -> Result<LedgerLife, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.enter(cause).await,
            LedgerBackend::Postgres(ledger) => ledger.enter(cause).await,
        }
    }

    /// Writes a batch of a life and renews its lease, in one transaction. A batch whose number is already written only
    /// renews the lease. So a batch whose result is unknown can be sent again.
    ///
    /// # Errors
    /// See [`LedgerError`]. It is unknown whether the batch was written.
    pub async fn write(&self, incarnation: u64, batch: &LedgerBatch) -> Result<LedgerWrite, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.write(incarnation, batch).await,
            LedgerBackend::Postgres(ledger) => ledger.write(incarnation, batch).await,
        }
    }

    /// Gives up the lease of a life, so that other nodes need not wait until it ends. The next node that sweeps reports
    /// the clients and keys that are left.
    ///
    /// # Errors
    /// See [`LedgerError`]. The lease then ends by itself.
    pub async fn leave(&self, incarnation: u64) -> Result<(), LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(_) => Ok(()),
            LedgerBackend::Postgres(ledger) => ledger.leave(incarnation).await,
        }
    }

    /// Performs one step of the work that every node does for all nodes. It takes over what a life with an ended lease
    /// has left. It reports keys that no client has held for long enough, and forgets keys that were reported long ago.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn sweep(&self) -> Result<SweepReport, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.sweep().await,
            LedgerBackend::Postgres(ledger) => ledger.sweep().await,
        }
    }

    /// Shares the lanes of the endpoints in `wanted` among the nodes that have these endpoints, and returns the lanes
    /// that this life delivers. If it has more than its share, it gives up lanes in `idle`, which must have no event in
    /// delivery. It also registers this node's endpoints again, and reads the wishes of other nodes. `knows` is the
    /// version of the wishes that the caller has.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn share(
        &self,
        incarnation: u64,
        (wanted, idle): (&[OutboxLane], &[OutboxLane]),
        knows: u64,
    ) -> Result<LedgerShare, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.share(wanted, knows).await,
            LedgerBackend::Postgres(ledger) => ledger.share(incarnation, (wanted, idle), knows).await,
        }
    }

    /// Sends `state.reset` to new endpoints once every life writes events by their wishes. Each endpoint gets it once,
    /// whichever node calls. Returns whether any endpoint got it.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn settle(&self) -> Result<bool, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.settle().await,
            LedgerBackend::Postgres(ledger) => ledger.settle().await,
        }
    }

    /// Reads the oldest events of lanes that this life delivers, with a maximum number for each lane. They stay until
    /// they are finished or buried. Lanes without events and lanes of other lives are omitted.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn fetch(
        &self,
        incarnation: u64,
        wanted: &[(OutboxLane, u32)],
    ) -> Result<Vec<(OutboxLane, Vec<WaitingEvent>)>, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.fetch(wanted).await,
            LedgerBackend::Postgres(ledger) => ledger.fetch(incarnation, wanted).await,
        }
    }

    /// Deletes events that were delivered.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn finish(&self, lane: &OutboxLane, ids: &[u64]) -> Result<(), LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.finish(ids).await,
            LedgerBackend::Postgres(ledger) => ledger.finish(lane, ids).await,
        }
    }

    /// Moves events that cannot be delivered to the dead letters. Returns how many older dead letters were removed for
    /// them.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn bury(&self, lane: &OutboxLane, burials: &[Burial]) -> Result<u64, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.bury(burials).await,
            LedgerBackend::Postgres(ledger) => ledger.bury(lane, burials).await,
        }
    }

    /// Deletes what is no longer kept. This includes old dead letters, and keys beyond the maximum that are remembered.
    /// It also includes the oldest events of a lane that has too many; their `state.reset` is in the same transaction.
    /// Endpoints go after a day in which no node had them, and their lanes after a week.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn tidy(&self) -> Result<LedgerTidying, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.tidy().await,
            LedgerBackend::Postgres(ledger) => ledger.tidy().await,
        }
    }

    /// Returns at most `limit` dead letters after a number, oldest first, of one endpoint or of all.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn dead_letters(
        &self,
        endpoint: Option<&str>,
        behind: u64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.dead_letters(endpoint, behind, limit).await,
            LedgerBackend::Postgres(ledger) => ledger.dead_letters(endpoint, behind, limit).await,
        }
    }

    /// Moves dead letters back into their lanes, after the events that wait there. Returns how many there were.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn retry_dead(&self, ids: &[u64]) -> Result<u64, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.retry_dead(ids).await,
            LedgerBackend::Postgres(ledger) => ledger.retry_dead(ids).await,
        }
    }

    /// Deletes dead letters. Returns how many there were.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn drop_dead(&self, ids: &[u64]) -> Result<u64, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.drop_dead(ids).await,
            LedgerBackend::Postgres(ledger) => ledger.drop_dead(ids).await,
        }
    }
}
