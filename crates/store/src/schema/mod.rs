//! Manual control of a database's schema: what `touchline migrate` shows and changes.

mod contents;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::errors::OpenError;
use crate::migrate::{self, Database, Migration, SchemaError};
use crate::postgres::{PostgresAddress, PostgresClient, PostgresError};
use crate::settings::DatabaseUrl;
use crate::sqlite::connection::{connect, lock};
use crate::sqlite::files::make_database;

/// The time limit for any PostgreSQL statement except migrations.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An open database, to show or change its schema.
pub struct Schema {
    database: &'static Database,
    connection: SchemaConnection,
}

enum SchemaConnection {
    /// A file that no other process has open, or that is only read.
    Sqlite {
        connection: Connection,
        path: String,
        _lock: Option<File>,
    },
    Postgres {
        link: PostgresClient,
        runtime: tokio::runtime::Runtime,
    },
}

impl Schema {
    /// Opens the database at an address. A file that does not exist is created. `tls_ca` is as in
    /// [`crate::PrimaryOptions::tls_ca`].
    ///
    /// # Errors
    /// See [`OpenError`]. It also fails while a node runs on the file, because the node locks it.
    pub fn open(database: &'static Database, url: &DatabaseUrl, tls_ca: &str) -> Result<Self, OpenError> {
        match url {
            DatabaseUrl::Sqlite(path) => Schema::of_file(database, path),
            DatabaseUrl::Postgres(url) => Schema::of_server(database, url, tls_ca),
        }
    }

    /// Opens the database at an address only to read it. Nothing is created or changed, and nodes may run. A file that
    /// does not exist counts as an empty database.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn inspect(database: &'static Database, url: &DatabaseUrl, tls_ca: &str) -> Result<Self, OpenError> {
        match url {
            DatabaseUrl::Sqlite(path) => {
                let found = if path.exists() { open_to_read(path) } else { Connection::open_in_memory() };
                let path = path.display().to_string();
                let connection = found.map_err(|source| OpenError::Sqlite { path: path.clone(), source })?;
                Ok(Schema { database, connection: SchemaConnection::Sqlite { connection, path, _lock: None } })
            }
            DatabaseUrl::Postgres(url) => Schema::of_server(database, url, tls_ca),
        }
    }

    fn of_server(database: &'static Database, url: &str, tls_ca: &str) -> Result<Self, OpenError> {
        let of_system = |source| OpenError::Thread { work: "PostgreSQL", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(of_system)?;
        let link = runtime.block_on(PostgresClient::to(&PostgresAddress::new(url, tls_ca, TIMEOUT)?))?;
        Ok(Schema { database, connection: SchemaConnection::Postgres { link, runtime } })
    }

    fn of_file(database: &'static Database, path: &Path) -> Result<Self, OpenError> {
        let lock = lock(path)?;
        let path_text = path.display().to_string();
        make_database(path).map_err(|source| OpenError::File { path: path_text.clone(), source })?;
        let connection = connect(path).map_err(|source| OpenError::Sqlite { path: path_text.clone(), source })?;
        let connection = SchemaConnection::Sqlite { connection, path: path_text, _lock: Some(lock) };
        Ok(Schema { database, connection })
    }

    /// The version of the schema. 0 = the schema is empty.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn version(&self) -> Result<u32, OpenError> {
        match &self.connection {
            SchemaConnection::Sqlite { connection, path, .. } => {
                migrate::version(connection).map_err(|source| OpenError::Sqlite { path: path.clone(), source })
            }
            SchemaConnection::Postgres { link, runtime } => Ok(runtime.block_on(link.version(self.database))?),
        }
    }

    /// All migrations that this program knows, in order.
    pub fn migrations(&self) -> &'static [Migration] {
        match &self.connection {
            SchemaConnection::Sqlite { .. } => self.database.sqlite,
            SchemaConnection::Postgres { .. } => self.database.postgres,
        }
    }

    /// Applies or reverts migrations until the schema has this version.
    ///
    /// # Errors
    /// Errors of the database, or [`SchemaError::Newer`] if a later version of this program has migrated the schema.
    pub fn go_to(&mut self, version: u32) -> Result<(), OpenError> {
        let migrations = self.migrations();
        let (found, known) = (self.version()?, migrate::newest(migrations));
        if found > known {
            return Err(SchemaError::Newer { database: self.database.name, found, known }.into());
        }
        match &mut self.connection {
            SchemaConnection::Sqlite { connection, path, .. } => migrate::go_to(connection, migrations, version)
                .map_err(|source| OpenError::Sqlite { path: path.clone(), source }),
            SchemaConnection::Postgres { link, runtime } => {
                runtime.block_on(link.go_to(self.database, version)).map_err(|failure: PostgresError| failure.into())
            }
        }
    }
}

/// Opens a file to read it. A file without a write-ahead log is not being written, so it is opened as immutable.
/// Otherwise SQLite creates files beside a database even to read it.
fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        return Connection::open_with_flags(path, flags);
    }
    let escaped: String = path.to_string_lossy().chars().map(escape_in_uri).collect();
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags | OpenFlags::SQLITE_OPEN_URI)
}

/// A character of a path, escaped for a URI of SQLite.
fn escape_in_uri(c: char) -> String {
    match c {
        '%' => "%25".to_owned(),
        '?' => "%3f".to_owned(),
        '#' => "%23".to_owned(),
        other => other.to_string(),
    }
}
