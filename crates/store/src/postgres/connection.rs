//! Connections to PostgreSQL, and the migrations of its schema.

use std::cmp::Ordering;
use std::time::Duration;

use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::address::PostgresAddress;
use super::failure::PostgresError;
use crate::migrate::{self, Database, Migration};
use crate::panics::caught_in;

/// The advisory lock for changing the schema: "touchlin" as a number.
const LOCK: i64 = 0x746f_7563_686c_696e;

/// Runs a request with a time limit and catches its panic.
pub(crate) async fn with_timeout<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    tokio::time::timeout(timeout, caught_in(work)).await??
}

/// A connection to PostgreSQL.
pub(crate) struct PostgresClient {
    pub(crate) client: Client,
}

impl PostgresClient {
    /// Connects to the server and configures the session.
    pub(crate) async fn to(address: &PostgresAddress) -> Result<Self, PostgresError> {
        PostgresClient::listening(address, |_| {}).await
    }

    /// Connects, and calls a function with the payload of every notification.
    pub(crate) async fn listening(
        address: &PostgresAddress,
        on_notification: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, PostgresError> {
        let link = PostgresClient::bare(address, on_notification).await?;
        let settings = format!(
            // A node that freezes within a transaction must not keep its locks, because other nodes wait for them.
            "SET synchronous_commit = on; SET statement_timeout = {timeout}; \
             SET idle_in_transaction_session_timeout = {timeout}; SET client_min_messages = warning",
            timeout = address.timeout.as_millis()
        );
        link.client.batch_execute(&settings).await?;
        Ok(link)
    }

    /// Connects without session settings. A transaction pooler would share such settings with other clients.
    pub(crate) async fn bare(
        address: &PostgresAddress,
        on_notification: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, PostgresError> {
        let unreachable = |source| PostgresError::Unreachable { address: address.name(), source };
        let client = match &address.tls {
            Some(tls) => {
                let connected = tokio::time::timeout(address.timeout, address.config.connect(tls.clone())).await?;
                let (client, connection) = connected.map_err(unreachable)?;
                tokio::spawn(drive(connection, on_notification));
                client
            }
            None => {
                let connected = tokio::time::timeout(address.timeout, address.config.connect(NoTls)).await?;
                let (client, connection) = connected.map_err(unreachable)?;
                tokio::spawn(drive(connection, on_notification));
                client
            }
        };
        Ok(PostgresClient { client })
    }

    /// Checks that the schema has this program's version. If `migrates` is set, the schema is migrated first.
    pub(crate) async fn check(&mut self, database: &Database, migrates: bool) -> Result<(), PostgresError> {
        let newest = migrate::newest(database.postgres);
        if migrates && self.version(database).await? <= newest {
            self.go_to(database, newest).await?;
        }
        Ok(migrate::check(database.name, database.postgres, self.version(database).await?)?)
    }

    /// The version of the schema. 0 = the schema is empty.
    pub(crate) async fn version(&self, database: &Database) -> Result<u32, PostgresError> {
        let table = format!("{}.migration", database.schema);
        let is_there = self.client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?;
        if !is_there.get::<_, bool>(0) {
            return Ok(0);
        }
        let version = self.client.query_one(&format!("SELECT coalesce(max(version), 0) FROM {table}"), &[]).await?;
        Ok(u32::try_from(version.get::<_, i32>(0)).unwrap_or_default())
    }

    /// Applies the missing migrations up to a version, or reverts the migrations above it. If another process has done
    /// this already, nothing happens.
    pub(crate) async fn go_to(&mut self, database: &Database, wanted: u32) -> Result<(), PostgresError> {
        loop {
            // A migration may take long, and so may the migration of another process before it.
            self.client
                .batch_execute(&format!("BEGIN; SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({LOCK})"))
                .await?;
            let made = self.step(database, wanted).await;
            self.client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
            if !made? {
                return Ok(());
            }
        }
    }

    /// Applies or reverts one migration within a transaction. Returns false if the schema already has the wanted
    /// version.
    async fn step(&mut self, database: &Database, wanted: u32) -> Result<bool, PostgresError> {
        let schema = database.schema;
        let table = format!(
            "CREATE SCHEMA IF NOT EXISTS {schema}; \
             CREATE TABLE IF NOT EXISTS {schema}.migration \
             (version int PRIMARY KEY, title text NOT NULL, made_at timestamptz NOT NULL DEFAULT now())"
        );
        self.client.batch_execute(&table).await?;
        let found = self.version(database).await?;
        let is_next = |migration: &&Migration| match found.cmp(&wanted) {
            Ordering::Less => (found + 1..=wanted).contains(&migration.version),
            Ordering::Equal => false,
            Ordering::Greater => migration.version == found,
        };
        let Some(migration) = database.postgres.iter().find(is_next) else { return Ok(false) };
        let version = i32::try_from(migration.version).unwrap_or(i32::MAX);
        if found < wanted {
            self.client.batch_execute(migration.up).await?;
            let made = format!("INSERT INTO {schema}.migration (version, title) VALUES ($1, $2)");
            self.client.execute(&made, &[&version, &migration.title]).await?;
        } else {
            self.client.batch_execute(migration.down).await?;
            self.client.execute(&format!("DELETE FROM {schema}.migration WHERE version = $1"), &[&version]).await?;
        }
        Ok(true)
    }
}

/// Runs a connection until it ends.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, mut on_notification: impl FnMut(String))
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    // The client notices by itself that the connection has ended.
    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            on_notification(notification.payload().to_owned());
        }
    }
}
