//! `touchline migrate status | up | down`: shows and changes the schema of a database.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use touchline_store::Schema;
use touchline_store::migrate::{PRIMARY, STATS};

use crate::arguments::{DatabaseChoice, MigrateAction, MigrateArguments};
use crate::client::api::configured;

/// Runs the action and prints the state of each change. `status` fails if a change is not applied yet.
pub(crate) fn run(arguments: &MigrateArguments) -> Result<ExitCode> {
    let settings = configured(arguments.config.as_deref())?;
    let store = &settings.store;
    let (database, url, tls_ca) = match arguments.database {
        DatabaseChoice::Primary => (&PRIMARY, &store.primary.url, &store.primary.tls_ca),
        DatabaseChoice::Stats => (&STATS, &store.stats.url, &store.stats.tls_ca),
    };
    let name = database.name;
    let url = url.parse().with_context(|| format!("store.{name}.url"))?;
    let tls_ca = &touchline_server::read_pem(&format!("store.{name}.tls_ca"), tls_ca)?;
    let mut schema = match arguments.action {
        MigrateAction::Status => Schema::inspect(database, &url, tls_ca)?,
        MigrateAction::Up | MigrateAction::Down => Schema::open(database, &url, tls_ca)?,
    };
    let newest = schema.migrations().last().map_or(0, |last| last.version);
    match arguments.action {
        MigrateAction::Status => {}
        MigrateAction::Up => schema.go_to(newest)?,
        MigrateAction::Down if !go_down(&mut schema, arguments.yes)? => return Ok(ExitCode::FAILURE),
        MigrateAction::Down => {}
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

/// Undoes the last change if its data may be deleted; otherwise prints what would be deleted. Returns whether the
/// change was undone.
fn go_down(schema: &mut Schema, is_sure: bool) -> Result<bool> {
    let version = schema.version()?;
    if version == 0 {
        return Ok(true);
    }
    let nodes = schema.others()?;
    if nodes > 0 {
        bail!("{nodes} connections of running nodes use this database: stop them first");
    }
    for (table, rows) in schema.rows_of_last()? {
        eprintln!("touchline: {table}: {rows} rows {}", if is_sure { "are deleted" } else { "would be deleted" });
    }
    if !is_sure {
        eprintln!(
            "touchline: nothing was changed. Make a backup, then use --yes to delete these tables and their rows"
        );
        return Ok(false);
    }
    schema.go_to(version - 1)?;
    Ok(true)
}
