//! A database's schema by hand: what `touchline migrate` shows and changes.

use std::fs::File;

use crate::migrate::{self, Migration, PRIMARY_SQLITE, SchemaError};
use crate::sqlite::{self, lock};
use crate::{OpenError, Url};

/// The schema of a database that nobody else has open.
pub struct Schema {
    connection: rusqlite::Connection,
    path: String,
    _lock: File,
}

impl Schema {
    /// Opens the database at an address, made if need be.
    ///
    /// # Errors
    /// See [`OpenError`]; a running node keeps it to itself.
    pub fn open(url: &Url) -> Result<Self, OpenError> {
        let Url::Sqlite(path) = url;
        let lock = lock(path)?;
        let path_text = path.display().to_string();
        let connection = sqlite::connect(path).map_err(|source| OpenError::Sqlite { path: path_text.clone(), source })?;
        Ok(Schema { connection, path: path_text, _lock: lock })
    }

    /// Its version; 0 = empty.
    ///
    /// # Errors
    /// The database's.
    pub fn version(&self) -> Result<u32, OpenError> {
        migrate::version(&self.connection).map_err(|source| self.failed(source))
    }

    /// All changes that this program knows, in order.
    pub fn migrations(&self) -> &'static [Migration] {
        PRIMARY_SQLITE
    }

    /// Makes or takes back changes, up to a version.
    ///
    /// # Errors
    /// The database's, or [`SchemaError::Newer`] if a later program has been here.
    pub fn go_to(&mut self, version: u32) -> Result<(), OpenError> {
        let (found, known) = (self.version()?, migrate::newest(self.migrations()));
        if found > known {
            return Err(SchemaError::Newer { database: "primary", found, known }.into());
        }
        migrate::go_to(&mut self.connection, PRIMARY_SQLITE, version).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> OpenError {
        OpenError::Sqlite { path: self.path.clone(), source }
    }
}
