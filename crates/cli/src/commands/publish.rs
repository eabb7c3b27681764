//! `touchline publish CHANNEL JSON`: publishes through the server API.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Value as Json, json};

use crate::arguments::PublishArguments;
use crate::client::api::ApiClient;

/// Publishes and prints the result.
pub(crate) fn run(arguments: &PublishArguments) -> Result<ExitCode> {
    let data = read_data(&arguments.data)?;
    let api = ApiClient::from_arguments(&arguments.api)?;
    let result =
        api.call("publish", &json!({"channel": arguments.channel, "data": data})).context("failed to publish")?;
    writeln!(std::io::stdout(), "{result}")?;
    Ok(ExitCode::SUCCESS)
}

fn read_data(text: &str) -> Result<Json> {
    let mut piped = String::new();
    let text = if text == "-" {
        std::io::stdin().read_to_string(&mut piped).context("failed to read standard input")?;
        piped.as_str()
    } else {
        text
    };
    serde_json::from_str(text)
        .with_context(|| format!("the publication is not JSON (text needs its own quotes: '\"{}\"')", text.trim()))
}
