//! The rows that are lost when the last migration of a schema is reverted, and the programs that use the database.

use rusqlite::OptionalExtension as _;

use super::{Schema, SchemaConnection};
use crate::errors::OpenError;
use crate::migrate::{self, Migration, SchemaError};
use crate::postgres::PostgresError;

impl Schema {
    /// The tables that are dropped when the last migration is reverted, each with the number of its rows.
    ///
    /// # Errors
    /// Errors of the database, or [`SchemaError::Newer`] if a later version of this program has migrated the schema.
    pub fn rows_of_last(&self) -> Result<Vec<(String, u64)>, OpenError> {
        let (version, known) = (self.version()?, migrate::newest(self.migrations()));
        if version > known {
            return Err(SchemaError::Newer { database: self.database.name, found: version, known }.into());
        }
        let Some(last) = self.migrations().iter().find(|migration| migration.version == version) else {
            return Ok(Vec::new());
        };
        dropped(last).map(|table| Ok((table.to_owned(), self.rows(table)?))).collect()
    }

    fn rows(&self, table: &str) -> Result<u64, OpenError> {
        let count = format!("SELECT count(*) FROM {table}");
        match &self.connection {
            SchemaConnection::Sqlite { connection, path, .. } => {
                let counted = connection.query_row(&count, [], |row| row.get::<_, u64>(0)).optional();
                Ok(counted.map_err(|source| OpenError::Sqlite { path: path.clone(), source })?.unwrap_or_default())
            }
            SchemaConnection::Postgres { link, runtime } => {
                let row = runtime.block_on(link.client.query_one(&count, &[])).map_err(PostgresError::from)?;
                Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
            }
        }
    }

    /// The number of connections of other Touchline processes to this database. For a file it is 0, because the process
    /// that has the file open locks it.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn others(&self) -> Result<u64, OpenError> {
        let SchemaConnection::Postgres { link, runtime } = &self.connection else { return Ok(0) };
        let count = "SELECT count(*) FROM pg_stat_activity \
            WHERE application_name = 'touchline' AND datname = current_database() AND pid <> pg_backend_pid()";
        let row = runtime.block_on(link.client.query_one(count, &[])).map_err(PostgresError::from)?;
        Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
    }
}

/// The tables that are dropped when a migration is reverted.
fn dropped(migration: &Migration) -> impl Iterator<Item = &'static str> {
    let down: &'static str = migration.down;
    let tables = down.split(';').filter_map(|statement| statement.trim().strip_prefix("DROP TABLE "));
    tables.map(|table| table.trim().trim_start_matches("IF EXISTS "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::{PRIMARY, STATS};

    #[test]
    fn every_change_says_which_tables_go_with_it() {
        for migration in [PRIMARY.sqlite, PRIMARY.postgres, STATS.sqlite, STATS.postgres].concat() {
            let made = migration.up.lines().filter(|line| line.starts_with("CREATE TABLE ")).count();
            assert_eq!(dropped(&migration).count(), made, "{}", migration.title);
        }
    }
}
