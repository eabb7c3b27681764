//! `touchline compact`: returns the space of deleted rows to the disk.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use touchline_config::Settings;
use touchline_store::migrate::{Database, PRIMARY, STATS};
use touchline_store::{DatabaseUrl, compact};

use crate::arguments::{CompactArguments, DatabaseChoice};
use crate::client::api::configured;

/// Compacts the databases of a configuration, one after the other, and prints the size of each before and after. It
/// stops at the first database that is refused.
pub(crate) fn run(arguments: &CompactArguments) -> Result<ExitCode> {
    let settings = configured(arguments.config.as_deref())?;
    for database in chosen(arguments.database, &settings) {
        let (url, tls_ca) = match database.name {
            name if name == STATS.name => (&settings.store.stats.url, &settings.store.stats.tls_ca),
            _ => (&settings.store.primary.url, &settings.store.primary.tls_ca),
        };
        let name = database.name;
        let url: DatabaseUrl = url.parse().with_context(|| format!("store.{name}.url"))?;
        let tls_ca = touchline_server::read_pem(&format!("store.{name}.tls_ca"), tls_ca)?;
        if matches!(url, DatabaseUrl::Postgres(_)) {
            let locks = match arguments.full {
                true => "rewrites each table if no node is connected; a table is locked meanwhile",
                false => "makes the space of deleted rows available for new rows; reads and writes continue",
            };
            eprintln!("touchline: {name}: PostgreSQL {locks}");
        }
        let compacted = compact(database, &url, &tls_ca, arguments.full)?;
        let (before, after) = (compacted.before, compacted.after);
        let mut out = std::io::stdout();
        writeln!(out, "{name}: {before} bytes before, {after} bytes now")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The databases to compact: the one in the arguments, or all that the server opens.
fn chosen(choice: Option<DatabaseChoice>, settings: &Settings) -> Vec<&'static Database> {
    match choice {
        Some(DatabaseChoice::Primary) => vec![&PRIMARY],
        Some(DatabaseChoice::Stats) => vec![&STATS],
        None => {
            let stats = settings.store.stats.enabled.then_some(&STATS);
            std::iter::once(&PRIMARY).chain(stats).collect()
        }
    }
}
