//! `touchline explain`: the rules that decide whether a client may do something, one by one.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};
use touchline_server::{
    ChannelAction, ExplainedAction, ExplainedStep, StepVerdict, TokenTrial, TriedAction, TriedClient, try_action,
};

use crate::arguments::{ExplainAction, ExplainArguments};
use crate::client::api::configured;

/// The exit code if a backend decides.
const ASKED: u8 = 3;

/// A note about what the command does not check.
const UNKNOWN: &str = "explain calls no backend, and does not know bans, rates or other connections.";

/// The action could not be decided, because the configuration or an argument is missing or faulty. The exit code is 2,
/// as for arguments that cannot be parsed.
#[derive(Debug)]
pub(crate) struct Undecided;

impl fmt::Display for Undecided {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("nothing could be decided")
    }
}

/// Prints the steps and the decision. The exit code is 0 if the action is permitted, 1 if it is refused, and 3 if a
/// backend decides.
///
/// # Errors
/// [`Undecided`] with its cause.
pub(crate) fn run(arguments: &ExplainArguments) -> Result<ExitCode> {
    explain(arguments).context(Undecided)
}

fn explain(arguments: &ExplainArguments) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let action = action_of(arguments)?;
    let client = TriedClient {
        user: arguments.user.as_deref(),
        token: arguments.token.as_deref().unwrap_or_default(),
        subscription_token: arguments.subscription_token.as_deref().unwrap_or_default(),
        is_subscribed: arguments.subscribed,
        is_local: false,
    };
    let trial = TokenTrial::new(configured(arguments.config.as_deref())?)?;
    let tried = try_action(&trial, &client, &action, now.as_millis() as u64)?;
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", json_of(&tried))?;
    } else {
        for (number, step) in tried.steps.iter().enumerate() {
            writeln!(out, "{:>2}. {:<26} {}{}", number + 1, step.rule.name(), said(&step.says), shown(step))?;
        }
        writeln!(out, "{}", conclusion(&tried))?;
        writeln!(out, "{UNKNOWN}")?;
    }
    Ok(match tried.verdict {
        StepVerdict::Allowed | StepVerdict::Nothing => ExitCode::SUCCESS,
        StepVerdict::Refused { .. } => ExitCode::FAILURE,
        StepVerdict::Asked { .. } => ExitCode::from(ASKED),
    })
}

fn action_of(arguments: &ExplainArguments) -> Result<ExplainedAction<'_>> {
    let channel = arguments.channel.as_str();
    let is_about_channel = !matches!(arguments.action, ExplainAction::Connect | ExplainAction::Rpc);
    if is_about_channel && channel.is_empty() {
        bail!("--channel is missing: this action is about a channel");
    }
    if arguments.action == ExplainAction::Rpc && arguments.method.is_empty() {
        bail!("--method is missing: this action calls a method");
    }
    if serde_json::from_str::<IgnoredAny>(&arguments.data).is_err() {
        bail!("--data is not JSON");
    }
    if arguments.user.as_deref().is_some_and(|user| user.chars().any(char::is_control)) {
        bail!("--user has control characters, which a user id cannot have");
    }
    let in_channel = |action| ExplainedAction::InChannel { action, channel };
    Ok(match arguments.action {
        ExplainAction::Connect => ExplainedAction::Connect { token: arguments.token.as_deref().unwrap_or_default() },
        ExplainAction::Subscribe => {
            let token = arguments.subscription_token.as_deref().unwrap_or_default();
            ExplainedAction::Subscribe { channel, token }
        }
        ExplainAction::Publish => in_channel(ChannelAction::Publish),
        ExplainAction::History => in_channel(ChannelAction::History),
        ExplainAction::Presence => in_channel(ChannelAction::Presence),
        ExplainAction::Rpc => ExplainedAction::Rpc { method: &arguments.method, data: &arguments.data },
    })
}

/// The verdict of a step in words.
fn said(says: &StepVerdict) -> String {
    match says {
        StepVerdict::Nothing => "does not decide".to_owned(),
        StepVerdict::Allowed => "allows".to_owned(),
        StepVerdict::Refused { code, cause, .. } => format!("refuses ({code}): {cause}"),
        StepVerdict::Asked { hook, backend } => format!("asks the backend {backend:?} (hook {})", hook.name()),
    }
}

/// The keys and claims that a step uses.
fn shown(step: &ExplainedStep) -> String {
    let facts: Vec<String> = step.facts.iter().map(|fact| format!("{} = {}", fact.name, fact.value)).collect();
    if facts.is_empty() { String::new() } else { format!("  [{}]", facts.join(", ")) }
}

fn conclusion(tried: &TriedAction) -> String {
    match (&tried.verdict, &tried.backend) {
        (StepVerdict::Allowed | StepVerdict::Nothing, _) => "allowed".to_owned(),
        (StepVerdict::Refused { code, is_disconnect: false, cause }, _) => {
            format!("refused with error {code}: {cause}")
        }
        (StepVerdict::Refused { code, cause, .. }, _) => format!("refused with disconnect {code}: {cause}"),
        (StepVerdict::Asked { .. }, Some((section, address))) => format!("{address} ({section}) decides"),
        (StepVerdict::Asked { .. }, None) => "a backend decides".to_owned(),
    }
}

fn verdict_json(says: &StepVerdict) -> Json {
    match says {
        StepVerdict::Nothing => json!({ "says": "nothing" }),
        StepVerdict::Allowed => json!({ "says": "allows" }),
        StepVerdict::Refused { code, is_disconnect, cause } => {
            json!({ "says": "refuses", "code": code, "disconnect": is_disconnect, "cause": cause })
        }
        StepVerdict::Asked { hook, backend } => json!({ "says": "asks", "hook": hook.name(), "backend": backend }),
    }
}

fn json_of(tried: &TriedAction) -> Json {
    let steps = tried.steps.iter().map(|step| {
        let facts = step.facts.iter().map(|fact| (fact.name.to_string(), fact.value.clone()));
        let mut json = verdict_json(&step.says);
        json["rule"] = step.rule.name().into();
        json["facts"] = Json::Object(facts.collect());
        json
    });
    let mut verdict = verdict_json(&tried.verdict);
    if let Some((section, address)) = &tried.backend {
        verdict["section"] = section.as_str().into();
        verdict["address"] = address.as_str().into();
    }
    json!({ "steps": steps.collect::<Vec<_>>(), "verdict": verdict })
}
