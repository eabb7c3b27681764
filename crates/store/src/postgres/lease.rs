//! The run of the database in which this node writes, and the node's lease. The leases show whether other nodes listen
//! to this node's notifications. They also show the first node that there are no others.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Client;
use touchline_protocol::stream::{Run, RunId};

use super::failure::PostgresError;
use crate::runs::{self, KnownRuns};

/// The interval between two renewals. A lease lasts four times as long (`touchline.renew`).
const RENEWAL: Duration = Duration::from_secs(5);

/// The lease of this node.
#[derive(Debug)]
pub(super) struct Lease {
    node: String,
    /// The number of renewals. If the database remembers fewer, it was set back. 0 = never renewed.
    beat: i64,
    renew_at: Instant,
}

impl Lease {
    pub(super) fn new(node: String) -> Self {
        Lease { node, beat: 0, renew_at: Instant::now() }
    }

    /// Registers the node on a new connection. A new run begins if the database may have been set back, or if the
    /// current run is `bad_run` (0 = none). Returns all runs that the database remembers.
    pub(super) async fn enter(&mut self, client: &Client, bad_run: RunId) -> Result<KnownRuns, PostgresError> {
        let enter = "SELECT touchline.enter($1, $2, $3, $4)";
        let row =
            client.query_one(enter, &[&self.node, &self.beat, &(runs::new_id().0 as i64), &(bad_run.0 as i64)]).await?;
        self.beat = row.get(0);
        self.renew_at = Instant::now() + RENEWAL;
        known(client).await
    }

    /// Deletes the lease, so that other nodes need not wait until it expires.
    pub(super) async fn leave(&self, client: &Client) -> Result<(), PostgresError> {
        client.execute("DELETE FROM touchline.lease WHERE node = $1", &[&self.node]).await?;
        Ok(())
    }

    /// Renews the lease if that is due. Returns false if the lease had expired, so that other nodes may have written
    /// without notifying this one. It also returns false if the database has lost renewals, because then it was set
    /// back.
    pub(super) async fn renew(&mut self, client: &Client) -> Result<bool, PostgresError> {
        if Instant::now() < self.renew_at {
            return Ok(true);
        }
        let row = client.query_one("SELECT touchline.renew($1, $2)", &[&self.node, &self.beat]).await?;
        let was_live = row.get::<_, Option<bool>>(0) == Some(true);
        if was_live {
            self.beat += 1;
            self.renew_at = Instant::now() + RENEWAL;
        }
        Ok(was_live)
    }
}

/// All runs that the database remembers.
pub(super) async fn known(client: &Client) -> Result<KnownRuns, PostgresError> {
    let rows = client.query("SELECT number, id FROM touchline.run ORDER BY number", &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Run { number: row.get::<_, i64>(0) as u64, id: RunId(row.get::<_, i64>(1) as u64) })
        .collect())
}
