//! The handle of the ledger.

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

/// A handle of the ledger. Its requests are futures of a Tokio runtime; what waits for a disk does so on a thread of
/// its own. Requests of one kind wait for each other.
pub struct EventLedger {
    backend: LedgerBackend,
}

enum LedgerBackend {
    Sqlite(Box<SqliteLedger>),
    Postgres(Box<PostgresLedger>),
}

impl EventLedger {
    /// Makes a handle; nothing is opened before the first request. An SQLite file has to be open as a
    /// [`crate::Store`] in this process, whose lock keeps other processes out.
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

    /// Rings when another node may have put something into the outbox.
    pub fn bell(&self) -> Arc<Notify> {
        match &self.backend {
            LedgerBackend::Sqlite(_) => Arc::default(),
            LedgerBackend::Postgres(ledger) => Arc::clone(&ledger.bell),
        }
    }

    /// Begins a life of this node, whose endpoints are told from now on. What its earlier lives have left is told
    /// first, with `cause`, in steps. For [`LedgerCause::Restart`] while no other node is there, keys that were held
    /// get `grace` more time to come back.
    ///
    /// # Errors
    /// See [`LedgerError`]; then the node is in no life.
    pub async fn enter(&self, cause: LedgerCause) -> Result<LedgerLife, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.enter(cause).await,
            LedgerBackend::Postgres(ledger) => ledger.enter(cause).await,
        }
    }

    /// Writes a batch of a life and renews its lease, in one transaction. A batch whose number was written already only
    /// renews the lease, so a batch whose result is unknown can be sent again.
    ///
    /// # Errors
    /// See [`LedgerError`]; whether the batch was written is not known.
    pub async fn write(&self, incarnation: u64, batch: &LedgerBatch) -> Result<LedgerWrite, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.write(incarnation, batch).await,
            LedgerBackend::Postgres(ledger) => ledger.write(incarnation, batch).await,
        }
    }

    /// Gives the lease of a life up, so that other nodes need not wait for its end. Clients and keys that are left are
    /// told by whoever sweeps next.
    ///
    /// # Errors
    /// See [`LedgerError`]; the lease ends by itself.
    pub async fn leave(&self, incarnation: u64) -> Result<(), LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(_) => Ok(()),
            LedgerBackend::Postgres(ledger) => ledger.leave(incarnation).await,
        }
    }

    /// A step of what every node does for all: takes over what a life has left whose lease is over, tells keys that
    /// nobody has held for long enough, and forgets keys that were told so long ago.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn sweep(&self) -> Result<SweepReport, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.sweep().await,
            LedgerBackend::Postgres(ledger) => ledger.sweep().await,
        }
    }

    /// Shares the lanes of the endpoints of `wanted` among the nodes that have them, and returns those that this life
    /// delivers. Above its share it gives up lanes that are in `idle`: nothing may be under way in them. Names the
    /// endpoints of this node again, and looks what other nodes want: `knows` is the version that the caller has.
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

    /// Tells endpoints `state.reset` that are told all from now on: every life tells by what was new. Each is told
    /// once, whoever asks. Returns whether some were.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn settle(&self) -> Result<bool, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.settle().await,
            LedgerBackend::Postgres(ledger) => ledger.settle().await,
        }
    }

    /// Reads the oldest events of lanes that this life delivers, at most so many of each. They stay until they are
    /// finished or buried. Lanes without events, and of other lives, are left out.
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

    /// Puts events aside that cannot be delivered. Returns how many older dead letters had to go for them.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn bury(&self, lane: &OutboxLane, burials: &[Burial]) -> Result<u64, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.bury(burials).await,
            LedgerBackend::Postgres(ledger) => ledger.bury(lane, burials).await,
        }
    }

    /// Drops what is kept no longer: old dead letters, the oldest events of a lane that has too many (whose
    /// `state.reset` is in the same transaction), endpoints that no node has had for a day and their lanes after a
    /// week, and keys beyond those that are remembered.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub async fn tidy(&self) -> Result<LedgerTidying, LedgerError> {
        match &self.backend {
            LedgerBackend::Sqlite(ledger) => ledger.tidy().await,
            LedgerBackend::Postgres(ledger) => ledger.tidy().await,
        }
    }

    /// Dead letters behind a number, oldest first, at most `limit`; of one endpoint, or of all.
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

    /// Puts dead letters back into their lanes, behind what waits there. Returns how many there were.
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
