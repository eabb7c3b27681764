//! `touchline migrate status | up | down`: schemas by hand.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use touchline_store::Schema;
use touchline_store::migrate::{PRIMARY, STATS};

use crate::arguments::{CONFIG_VARIABLE, Database, MigrateAction, MigrateArguments};
use crate::config::{self, Sources};

/// Does it, and shows what is there then. `status` fails if something is not made yet.
pub(crate) fn run(arguments: &MigrateArguments) -> Result<ExitCode> {
    let file = arguments.config.clone().or_else(|| std::env::var_os(CONFIG_VARIABLE).map(Into::into));
    let sources = Sources { file, variables: config::process_variables(), ..Sources::default() };
    let (configuration, _) = config::read(&sources).into_result()?;
    let store = &configuration.settings.store;
    let (database, url, tls_ca) = match arguments.database {
        Database::Primary => (&PRIMARY, &store.primary.url, &store.primary.tls_ca),
        Database::Stats => (&STATS, &store.stats.url, &store.stats.tls_ca),
    };
    let name = database.name;
    let url = url.parse().with_context(|| format!("store.{name}.url"))?;
    let mut schema = Schema::open(database, &url, tls_ca)?;
    let newest = schema.migrations().last().map_or(0, |last| last.version);
    match arguments.action {
        MigrateAction::Status => {}
        MigrateAction::Up => schema.go_to(newest)?,
        MigrateAction::Down => schema.go_to(schema.version()?.saturating_sub(1))?,
    }
    let version = schema.version()?;
    let mut out = std::io::stdout().lock();
    for migration in schema.migrations() {
        let state = if migration.version <= version { "made" } else { "not made" };
        writeln!(out, "{name} {:>3}  {state:<8}  {}", migration.version, migration.title)?;
    }
    if version > newest {
        writeln!(out, "{name} {version:>3}  made by a newer program")?;
    }
    let is_fine = arguments.action != MigrateAction::Status || version == newest;
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
