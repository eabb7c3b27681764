//! Versioned migrations of a schema. They are embedded and applied in order, each in a separate transaction, up and
//! down.
//!
//! Hand-written: `rusqlite_migration` supports only SQLite, and `refinery` cannot downgrade.

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

/// One migration of a schema.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The number of the migration, from 1 on.
    pub version: u32,
    /// A short description of the migration's purpose.
    pub title: &'static str,
    /// The SQL that applies the migration.
    pub up: &'static str,
    /// The SQL that reverts the migration.
    pub down: &'static str,
}

/// One of Touchline's databases, and the migrations of its schema.
#[derive(Debug)]
pub struct Database {
    /// The name of the database in messages.
    pub name: &'static str,
    /// The name of its schema in PostgreSQL.
    pub schema: &'static str,
    /// The migrations for SQLite.
    pub sqlite: &'static [Migration],
    /// The same migrations for PostgreSQL.
    pub postgres: &'static [Migration],
}

/// The database for data that must not be lost.
pub static PRIMARY: Database = Database {
    name: "primary",
    schema: "touchline",
    sqlite: &[
        Migration {
            version: 1,
            title: "durable history",
            up: include_str!("migrations/primary/sqlite_1_up.sql"),
            down: include_str!("migrations/primary/sqlite_1_down.sql"),
        },
        Migration {
            version: 2,
            title: "channel directory and inbox",
            up: include_str!("migrations/primary/sqlite_2_up.sql"),
            down: include_str!("migrations/primary/sqlite_2_down.sql"),
        },
        Migration {
            version: 3,
            title: "shared facts",
            up: include_str!("migrations/primary/sqlite_3_up.sql"),
            down: include_str!("migrations/primary/sqlite_3_down.sql"),
        },
        Migration {
            version: 4,
            title: "lifecycle events",
            up: include_str!("migrations/primary/sqlite_4_up.sql"),
            down: include_str!("migrations/primary/sqlite_4_down.sql"),
        },
        Migration {
            version: 5,
            title: "when users were connected last",
            up: include_str!("migrations/primary/sqlite_5_up.sql"),
            down: include_str!("migrations/primary/sqlite_5_down.sql"),
        },
        Migration {
            version: 6,
            title: "endpoints of lifecycle events",
            up: include_str!("migrations/primary/sqlite_6_up.sql"),
            down: include_str!("migrations/primary/sqlite_6_down.sql"),
        },
        Migration {
            version: 7,
            title: "totals of reactions",
            up: include_str!("migrations/primary/sqlite_7_up.sql"),
            down: include_str!("migrations/primary/sqlite_7_down.sql"),
        },
    ],
    postgres: &[
        Migration {
            version: 1,
            title: "durable history",
            up: include_str!("migrations/primary/postgres_1_up.sql"),
            down: include_str!("migrations/primary/postgres_1_down.sql"),
        },
        Migration {
            version: 2,
            title: "channel directory and inbox",
            up: include_str!("migrations/primary/postgres_2_up.sql"),
            down: include_str!("migrations/primary/postgres_2_down.sql"),
        },
        Migration {
            version: 3,
            title: "shared facts",
            up: include_str!("migrations/primary/postgres_3_up.sql"),
            down: include_str!("migrations/primary/postgres_3_down.sql"),
        },
        Migration {
            version: 4,
            title: "lifecycle events",
            up: include_str!("migrations/primary/postgres_4_up.sql"),
            down: include_str!("migrations/primary/postgres_4_down.sql"),
        },
        Migration {
            version: 5,
            title: "when users were connected last",
            up: include_str!("migrations/primary/postgres_5_up.sql"),
            down: include_str!("migrations/primary/postgres_5_down.sql"),
        },
        Migration {
            version: 6,
            title: "endpoints of lifecycle events",
            up: include_str!("migrations/primary/postgres_6_up.sql"),
            down: include_str!("migrations/primary/postgres_6_down.sql"),
        },
        Migration {
            version: 7,
            title: "totals of reactions",
            up: include_str!("migrations/primary/postgres_7_up.sql"),
            down: include_str!("migrations/primary/postgres_7_down.sql"),
        },
    ],
};

/// The database for statistics. It is large, and its loss is acceptable.
pub static STATS: Database = Database {
    name: "stats",
    schema: "touchline_stats",
    sqlite: &[Migration {
        version: 1,
        title: "connections, events, audience and traffic",
        up: include_str!("migrations/stats/sqlite_1_up.sql"),
        down: include_str!("migrations/stats/sqlite_1_down.sql"),
    }],
    postgres: &[Migration {
        version: 1,
        title: "connections, events, audience and traffic",
        up: include_str!("migrations/stats/postgres_1_up.sql"),
        down: include_str!("migrations/stats/postgres_1_down.sql"),
    }],
};

/// The schema's version does not fit this program.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A later version of this program has migrated the schema.
    #[error(
        "the schema of the {database} database is version {found}, and this program knows {known}: \
         run the newer program, or downgrade the schema with its `migrate down`"
    )]
    Newer {
        /// The name of the database.
        database: &'static str,
        /// The version of the schema in the database.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The schema must be migrated first.
    #[error(
        "the schema of the {database} database is version {found}, and this program needs {known}: \
         run `touchline migrate up`, or set store.migrate"
    )]
    Older {
        /// The name of the database.
        database: &'static str,
        /// The version of the schema in the database.
        found: u32,
        /// The version that this program needs.
        known: u32,
    },
}

/// The version of the schema. 0 = the schema is empty.
///
/// # Errors
/// Errors of SQLite.
pub fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let is_there = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'touchline_migration'";
    if connection.query_row(is_there, [], |_| Ok(())).optional()?.is_none() {
        return Ok(0);
    }
    connection.query_row("SELECT coalesce(max(version), 0) FROM touchline_migration", [], |row| row.get(0))
}

/// Checks that a version is the newest one of a list of migrations.
///
/// # Errors
/// See [`SchemaError`].
pub fn check(database: &'static str, migrations: &[Migration], found: u32) -> Result<(), SchemaError> {
    let known = newest(migrations);
    match found {
        _ if found > known => Err(SchemaError::Newer { database, found, known }),
        _ if found < known => Err(SchemaError::Older { database, found, known }),
        _ => Ok(()),
    }
}

/// The number of the last migration. 0 = the list is empty.
pub fn newest(migrations: &[Migration]) -> u32 {
    migrations.last().map_or(0, |last| last.version)
}

/// Applies the missing migrations up to a version, or reverts the migrations above it. If another process has done this
/// already, nothing happens.
///
/// # Errors
/// Errors of SQLite. The schema is then at the last migration that succeeded.
pub fn go_to(connection: &mut Connection, migrations: &[Migration], wanted: u32) -> rusqlite::Result<()> {
    loop {
        // The version is read under the lock, so that two processes that start at once do not apply a migration twice.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS touchline_migration \
             (version INTEGER PRIMARY KEY, title TEXT NOT NULL, made_at TEXT NOT NULL) STRICT",
        )?;
        let found = version(&transaction)?;
        let step = if found < wanted {
            migrations.iter().find(|migration| (found + 1..=wanted).contains(&migration.version))
        } else if found > wanted {
            migrations.iter().find(|migration| migration.version == found)
        } else {
            None
        };
        let Some(migration) = step else { return transaction.commit() };
        if found < wanted {
            transaction.execute_batch(migration.up)?;
            let made = "INSERT INTO touchline_migration (version, title, made_at) VALUES (?1, ?2, datetime('now'))";
            transaction.execute(made, (migration.version, migration.title))?;
        } else {
            transaction.execute_batch(migration.down)?;
            transaction.execute("DELETE FROM touchline_migration WHERE version = ?1", [migration.version])?;
        }
        transaction.commit()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[Migration] = &[
        Migration { version: 1, title: "one", up: "CREATE TABLE one (a)", down: "DROP TABLE one" },
        Migration { version: 2, title: "two", up: "CREATE TABLE two (a)", down: "DROP TABLE two" },
    ];

    #[test]
    fn changes_are_made_and_taken_back_in_order() {
        let mut connection = Connection::open_in_memory().expect("a database in memory opens");
        for wanted in [1, 2, 2, 0, 2, 1, 0] {
            go_to(&mut connection, TWO, wanted).expect("the changes are good");
            assert_eq!(version(&connection), Ok(wanted));
            let count = "SELECT count(*) FROM sqlite_schema WHERE name IN ('one', 'two')";
            assert_eq!(connection.query_row(count, [], |row| row.get(0)), Ok(wanted));
        }
    }

    #[test]
    fn a_change_that_fails_leaves_nothing_behind() {
        let bad = [
            TWO[0],
            Migration { version: 2, title: "bad", up: "CREATE TABLE half (a); CREATE TABLE one (a)", down: "" },
        ];
        let mut connection = Connection::open_in_memory().expect("a database in memory opens");
        assert!(go_to(&mut connection, &bad, 2).is_err());
        assert_eq!(version(&connection), Ok(1));
        assert_eq!(
            connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'half'", [], |row| row.get(0)),
            Ok(0)
        );
    }

    #[test]
    fn a_schema_must_have_the_version_of_the_program() {
        assert_eq!(check("primary", TWO, 2), Ok(()));
        assert_eq!(check("primary", TWO, 3), Err(SchemaError::Newer { database: "primary", found: 3, known: 2 }));
        assert_eq!(check("primary", TWO, 1), Err(SchemaError::Older { database: "primary", found: 1, known: 2 }));
    }

    #[test]
    fn embedded_migrations_go_up_and_down() {
        let mut connection = Connection::open_in_memory().expect("a database in memory opens");
        for database in [&PRIMARY, &STATS] {
            for wanted in [newest(database.sqlite), 0, newest(database.sqlite), 0] {
                go_to(&mut connection, database.sqlite, wanted).expect("the changes are good");
            }
            assert_eq!(newest(database.sqlite), newest(database.postgres));
        }
    }
}
