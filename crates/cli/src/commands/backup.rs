//! `touchline backup COPY` and `touchline restore COPY`: copies of an SQLite database.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use touchline_store::migrate::{self, PRIMARY, STATS};
use touchline_store::{DatabaseUrl, copies};

use crate::arguments::{BackupArguments, DatabaseChoice};
use crate::client::api::configured;

/// Copies the database into a new file. The server may run during the copy.
pub(crate) fn backup(arguments: &BackupArguments) -> Result<ExitCode> {
    let (path, _) = database(arguments)?;
    let size = copies::backup(&path, &arguments.copy)?;
    let copy = arguments.copy.display();
    writeln!(std::io::stdout(), "{copy}: a copy of {}, {size} bytes, checked", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces the database by a copy. The server must not run.
pub(crate) fn restore(arguments: &BackupArguments) -> Result<ExitCode> {
    let (path, database) = database(arguments)?;
    let kept = copies::restore(&arguments.copy, &path, database)?;
    let mut out = std::io::stdout().lock();
    let path = path.canonicalize().unwrap_or(path);
    writeln!(out, "{} is restored from {}", path.display(), arguments.copy.display())?;
    match kept {
        Some(kept) => writeln!(out, "the old database is kept as {}", kept.canonicalize().unwrap_or(kept).display())?,
        None => writeln!(out, "there was no database before")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The file of the SQLite database in the configuration, and its schema.
fn database(arguments: &BackupArguments) -> Result<(std::path::PathBuf, &'static migrate::Database)> {
    let settings = configured(arguments.config.as_deref())?;
    let (database, url) = match arguments.database {
        DatabaseChoice::Primary => (&PRIMARY, &settings.store.primary.url),
        DatabaseChoice::Stats => (&STATS, &settings.store.stats.url),
    };
    let (name, schema) = (database.name, database.schema);
    match url.parse().with_context(|| format!("store.{name}.url"))? {
        DatabaseUrl::Sqlite(path) => Ok((path, database)),
        DatabaseUrl::Postgres(_) => bail!(
            "store.{name}.url is PostgreSQL, which has its own tools: \
             `pg_dump --format=custom --file=copy.dump DATABASE` makes a copy of the whole database \
             (the schema {schema} and the function touchline_publish), \
             `pg_restore --clean --if-exists --dbname=DATABASE copy.dump` puts it back while no node runs"
        ),
    }
}
