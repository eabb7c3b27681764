//! The connections of the ledger.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::address::PostgresAddress;
use super::connection::{PostgresClient, with_timeout};
use super::failure::PostgresError;
use crate::ledger::types::OutboxEvent;
use crate::migrate::PRIMARY;

/// Every statement of the ledger has an index. The planner does not know that while the tables are small or new. It
/// would keep a plan that reads all of a table that has since grown.
const PLANS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

/// Listens to the notifications of `touchline.event_put`.
const LISTEN: &str = "LISTEN touchline_events";

/// A connection with its prepared statements.
pub(super) struct LedgerLink {
    client: PostgresClient,
    statements: HashMap<&'static str, Statement>,
    /// The time limit of each statement.
    timeout: Duration,
}

/// The connection of one kind of work, lent for one request. It is closed unless it is kept. Closing it rolls back
/// everything that was not committed.
pub(super) struct LinkLoan<'d> {
    place: MutexGuard<'d, Option<LedgerLink>>,
    pub(super) link: LedgerLink,
}

impl<'d> LinkLoan<'d> {
    /// Lends the connection, or opens it. `bell` is notified when other nodes have put events into the outbox. `None` =
    /// no one waits for them.
    pub(super) async fn of(
        desk: &'d Mutex<Option<LedgerLink>>,
        (address, migrates): (&PostgresAddress, bool),
        bell: Option<&Arc<Notify>>,
    ) -> Result<Self, PostgresError> {
        let mut place = desk.lock().await;
        let link = match place.take() {
            Some(link) if !link.client.client.is_closed() => link,
            _ => LedgerLink::to(address, migrates, bell).await?,
        };
        Ok(LinkLoan { place, link })
    }

    /// Keeps the connection for the next request, because this request has succeeded.
    pub(super) fn keep(mut self) {
        *self.place = Some(self.link);
    }
}

impl LedgerLink {
    async fn to(address: &PostgresAddress, migrates: bool, bell: Option<&Arc<Notify>>) -> Result<Self, PostgresError> {
        let heard = bell.cloned();
        let ring = move |_| heard.iter().for_each(|bell| bell.notify_one());
        let mut client = PostgresClient::listening(address, ring).await?;
        client.check(&PRIMARY, migrates).await?;
        client.client.batch_execute(PLANS).await?;
        if bell.is_some() {
            client.client.batch_execute(LISTEN).await?;
        }
        Ok(LedgerLink { client, statements: HashMap::new(), timeout: address.timeout })
    }

    /// Runs statements without parameters, such as the begin and the end of a transaction.
    pub(super) async fn run(&self, sql: &str) -> Result<(), PostgresError> {
        with_timeout(self.timeout, async { Ok(self.client.client.batch_execute(sql).await?) }).await
    }

    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PostgresError> {
        let statement = self.statement(sql).await?;
        with_timeout(self.timeout, async { Ok(self.client.client.query(&statement, parameters).await?) }).await
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn count(
        &mut self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, PostgresError> {
        let statement = self.statement(sql).await?;
        with_timeout(self.timeout, async { Ok(self.client.client.execute(&statement, parameters).await?) }).await
    }

    async fn statement(&mut self, sql: &'static str) -> Result<Statement, PostgresError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = with_timeout(self.timeout, async { Ok(self.client.client.prepare(sql).await?) }).await?;
        Ok(self.statements.entry(sql).or_insert(prepared).clone())
    }

    /// Puts events into the outbox, for each endpoint that wants them. Their ids rise in their order. The transaction
    /// takes no further lock afterwards.
    pub(super) async fn put(&mut self, events: &[OutboxEvent]) -> Result<(), PostgresError> {
        if events.is_empty() {
            return Ok(());
        }
        let words: Vec<Option<&str>> = events.iter().map(|event| event.word).collect();
        let namespaces: Vec<Option<&str>> = events.iter().map(|event| event.namespace.as_deref()).collect();
        let places: Vec<i64> = events.iter().map(|event| event.place as i64).collect();
        let bodies: Vec<&str> = events.iter().map(|event| &*event.body).collect();
        let put = "SELECT touchline.event_put($1, $2, $3, $4)";
        self.query(put, &[&words, &namespaces, &places, &bodies]).await.map(drop)
    }
}
