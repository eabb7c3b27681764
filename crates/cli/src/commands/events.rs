//! `touchline events`: resumes event endpoints, and manages dead letters.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value as Json, json};
use touchline_protocol::Error;

use crate::arguments::{DeadAction, DeadChoiceArguments, DeadListArguments, EventsAction, EventsArguments};
use crate::client::api::{ApiClient, ApiRefusal};

/// Runs a subcommand of `events` and prints its result.
pub(crate) fn run(arguments: &EventsArguments) -> Result<ExitCode> {
    match &arguments.action {
        EventsAction::Resume(resume) => {
            let api = ApiClient::from_arguments(&resume.api)?;
            api.call("events_resume", &json!({"endpoint": resume.endpoint})).context("failed to resume")?;
            Ok(ExitCode::SUCCESS)
        }
        EventsAction::Dead { action: DeadAction::List(list) } => print_page(list),
        EventsAction::Dead { action: DeadAction::Retry(choice) } => act("events_dead_retry", "sent again", choice),
        EventsAction::Dead { action: DeadAction::Drop(choice) } => act("events_dead_drop", "deleted", choice),
    }
}

/// Prints each dead letter as one line of JSON, and the cursor of the next page.
fn print_page(list: &DeadListArguments) -> Result<ExitCode> {
    let api = ApiClient::from_arguments(&list.api)?;
    let endpoint = list.endpoint.as_deref().unwrap_or_default();
    let request = json!({"endpoint": endpoint, "limit": list.limit, "cursor": list.cursor});
    let result = kept(api.call("events_dead", &request)).context("failed to list dead letters")?;
    let mut out = std::io::stdout();
    for letter in result["letters"].as_array().into_iter().flatten() {
        writeln!(out, "{letter}")?;
    }
    if let Some(cursor) = result["cursor"].as_u64() {
        eprintln!("there are more: add --cursor {cursor}");
    }
    Ok(ExitCode::SUCCESS)
}

fn act(operation: &str, what: &str, choice: &DeadChoiceArguments) -> Result<ExitCode> {
    let api = ApiClient::from_arguments(&choice.api)?;
    let request = json!({"ids": choice.ids, "endpoint": choice.endpoint.as_deref().unwrap_or_default()});
    let result = kept(api.call(operation, &request)).context("failed")?;
    writeln!(std::io::stdout(), "{} {what}", result["count"])?;
    Ok(ExitCode::SUCCESS)
}

/// Explains the refusal of a server without durable events, which keeps no dead letters.
fn kept(answer: Result<Json>) -> Result<Json> {
    let is_not_kept = |error: &ApiRefusal| error.code() == u64::from(Error::NOT_AVAILABLE.code);
    match answer {
        Err(error) if error.downcast_ref().is_some_and(is_not_kept) => bail!(
            "this server only counts dead letters (touchline_events_dead_total) and logs them: \
             it has no durable endpoint of events"
        ),
        answer => answer,
    }
}
