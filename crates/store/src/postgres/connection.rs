//! Connections to PostgreSQL, and migrations of its schema.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::parts::refusal_of;
use crate::migrate::{self, Database, SchemaError};
use crate::panics::{Panicked, caught_in};
use crate::{NewerRow, OpenError};

/// The advisory lock of a process that changes the schema: "touchlin" as a number.
const LOCK: i64 = 0x746f_7563_686c_696e;

/// The address of PostgreSQL, with its login and TLS settings.
#[derive(Clone)]
pub(crate) struct PostgresAddress {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// How long a request may take before the connection is given up.
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration may hold a password, which the `Debug` of `Config` does not show.
        f.debug_tuple("Address").field(&self.config).finish()
    }
}

/// What went wrong with PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// PostgreSQL returned an error, or the connection broke.
    #[error("{}", reason(.0))]
    Database(#[from] tokio_postgres::Error),
    /// PostgreSQL cannot be reached, or refuses the login.
    #[error("{address}: {}", reason(.source))]
    Unreachable {
        /// Host, port and database.
        address: String,
        /// The client's error.
        source: tokio_postgres::Error,
    },
    /// PostgreSQL did not answer in time.
    #[error("no answer in time")]
    TimedOut(#[from] tokio::time::error::Elapsed),
    /// The schema has another version than this program.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A later version of this program wrote the row.
    #[error(transparent)]
    Newer(#[from] NewerRow),
    /// A defect of this program.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl Failure {
    /// Whether the failure may end by itself: the server is away, starts, stops or is full. PostgreSQL would repeat any
    /// other refusal.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Failure::Database(error) | Failure::Unreachable { source: error, .. } => {
                error.code().is_none_or(|code| code.code().starts_with("57") || code.code().starts_with("53"))
            }
            Failure::TimedOut(_) => true,
            Failure::Schema(_) | Failure::Newer(_) | Failure::Panicked(_) => false,
        }
    }

    /// Whether the failure may be of one item of a batch only: without that item the others can be written.
    pub(crate) fn is_of_item(&self) -> bool {
        matches!(self, Failure::Database(error) if refusal_of(error).is_some())
    }
}

/// Runs a request with a time limit, and catches its panic.
pub(super) async fn with_timeout<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(timeout, caught_in(work)).await??
}

/// The error with its source: the error alone says no more than "db error".
fn reason(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

impl From<Failure> for OpenError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Schema(error) => OpenError::Schema(error),
            other => OpenError::Postgres(other.to_string()),
        }
    }
}

impl PostgresAddress {
    /// Reads `postgres://user:password@host/database?…`. Over the network TLS is required unless the address says
    /// `sslmode=disable`; `tls_ca` holds certificates of authorities (PEM) besides the system's, empty = none.
    pub(crate) fn new(url: &str, tls_ca: &str, timeout: Duration) -> Result<Self, OpenError> {
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| OpenError::Postgres(reason(&error)))?;
        config.application_name("touchline").connect_timeout(timeout).keepalives_idle(Duration::from_secs(5));
        let is_local = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            Host::Unix(_) => true,
        });
        let wants_tls = match config.get_ssl_mode() {
            SslMode::Disable => false,
            SslMode::Require => true,
            _ => !is_local,
        };
        config.ssl_mode(if wants_tls { SslMode::Require } else { SslMode::Disable });
        let tls = if wants_tls { Some(tls(tls_ca)?) } else { None };
        if config.get_hosts().is_empty() {
            return Err(OpenError::Postgres(
                "the URL names no host: postgres://USER:PASSWORD@HOST/DATABASE".to_owned(),
            ));
        }
        Ok(PostgresAddress { config, tls, timeout })
    }

    /// Hosts, ports and the database, for error texts: neither user nor password.
    fn name(&self) -> String {
        let port = |index: usize| {
            self.config.get_ports().get(index).or(self.config.get_ports().first()).copied().unwrap_or(5_432)
        };
        let host = |(index, host): (usize, &Host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<String> = self.config.get_hosts().iter().enumerate().map(host).collect();
        format!("{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }
}

fn tls(tls_ca: &str) -> Result<MakeRustlsConnect, OpenError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if !tls_ca.is_empty() {
        let unusable = || OpenError::Postgres("tls_ca holds an authority that can't be used".to_owned());
        for certificate in CertificateDer::pem_slice_iter(tls_ca.as_bytes()) {
            roots.add(certificate.map_err(|_| unusable())?).map_err(|_| unusable())?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| OpenError::Postgres(error.to_string()))?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// A connection to PostgreSQL.
pub(crate) struct PostgresClient {
    pub(crate) client: Client,
}

impl PostgresClient {
    /// Connects.
    pub(crate) async fn to(address: &PostgresAddress) -> Result<Self, Failure> {
        PostgresClient::listening(address, |_| {}).await
    }

    /// Connects, and calls a function with the payload of every notification.
    pub(crate) async fn listening(
        address: &PostgresAddress,
        on_notification: impl FnMut(String) + Send + 'static,
    ) -> Result<Self, Failure> {
        let unreachable = |source| Failure::Unreachable { address: address.name(), source };
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
        let settings = format!(
            // A node that is frozen within a transaction must not keep its locks: other nodes wait for them.
            "SET synchronous_commit = on; SET statement_timeout = {timeout}; \
             SET idle_in_transaction_session_timeout = {timeout}; SET client_min_messages = warning",
            timeout = address.timeout.as_millis()
        );
        client.batch_execute(&settings).await?;
        Ok(PostgresClient { client })
    }

    /// Checks that the schema has this program's version, after bringing it up to date if `migrates` is set.
    pub(crate) async fn check(&mut self, database: &Database, migrates: bool) -> Result<(), Failure> {
        let newest = migrate::newest(database.postgres);
        if migrates && self.version(database).await? <= newest {
            self.go_to(database, newest).await?;
        }
        Ok(migrate::check(database.name, database.postgres, self.version(database).await?)?)
    }

    /// The schema's version; 0 = empty.
    pub(crate) async fn version(&self, database: &Database) -> Result<u32, Failure> {
        let table = format!("{}.migration", database.schema);
        let is_there = self.client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?;
        if !is_there.get::<_, bool>(0) {
            return Ok(0);
        }
        let version = self.client.query_one(&format!("SELECT coalesce(max(version), 0) FROM {table}"), &[]).await?;
        Ok(u32::try_from(version.get::<_, i32>(0)).unwrap_or_default())
    }

    /// Makes the changes up to a version that are not made yet, or takes back those above it. A process that comes
    /// second finds that done.
    pub(crate) async fn go_to(&mut self, database: &Database, wanted: u32) -> Result<(), Failure> {
        loop {
            // A change may take long, and so may the change of another process before it.
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

    /// Makes or takes back one change within a transaction; false = the schema already has the wanted version.
    async fn step(&mut self, database: &Database, wanted: u32) -> Result<bool, Failure> {
        let schema = database.schema;
        let table = format!(
            "CREATE SCHEMA IF NOT EXISTS {schema}; \
             CREATE TABLE IF NOT EXISTS {schema}.migration \
             (version int PRIMARY KEY, title text NOT NULL, made_at timestamptz NOT NULL DEFAULT now())"
        );
        self.client.batch_execute(&table).await?;
        let found = self.version(database).await?;
        let number = if found < wanted { found + 1 } else { found };
        let Some(migration) =
            database.postgres.iter().find(|migration| migration.version == number).filter(|_| found != wanted)
        else {
            return Ok(false);
        };
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
    // The client notices the end by itself.
    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            on_notification(notification.payload().to_owned());
        }
    }
}
