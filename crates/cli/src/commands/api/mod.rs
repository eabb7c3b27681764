//! `touchline api OPERATION FIELD=VALUE …`: calls any operation of the server API.

mod request;
mod text;

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use touchline_server::{OperationDescription, operations};

use crate::api_arguments::{CallArguments, OperationArguments};
use crate::client::api::ApiClient;

/// Exit code of a command with wrong arguments, as in clap.
const TYPED_WRONGLY: u8 = 2;

/// Calls the operation and prints its result, or lists all operations.
pub(crate) fn run(arguments: &CallArguments) -> Result<ExitCode> {
    match &arguments.call {
        None => list(),
        Some((operation, arguments)) => call(operation, arguments),
    }
}

fn list() -> Result<ExitCode> {
    let width = operations().map(|operation| operation.name.len()).max().unwrap_or_default();
    let mut out = std::io::stdout().lock();
    for operation in operations() {
        writeln!(out, "{:<width$}  {}", operation.name, operation.summary)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn call(operation: &OperationDescription, arguments: &OperationArguments) -> Result<ExitCode> {
    let whole = arguments.data.as_deref().map(read_data).transpose()?;
    let body = match request::body(operation, whole, &arguments.fields) {
        Ok(body) => body,
        Err(fault) => {
            eprintln!("touchline: {fault}\n\nFor more information, try 'touchline api {} --help'.", operation.name);
            return Ok(ExitCode::from(TYPED_WRONGLY));
        }
    };
    let api = ApiClient::from_arguments(&arguments.api)?;
    let answer = api.answer(operation.name, body)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        out.write_all(&answer)?;
        writeln!(out)?;
    }
    let result = api.result_of(&answer)?;
    if !arguments.json {
        write!(out, "{}", text::of(&result))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of a whole request: from the command line, from a file, or from standard input.
fn read_data(typed: &str) -> Result<String> {
    if typed == "-" {
        let mut piped = String::new();
        std::io::stdin().read_to_string(&mut piped).context("failed to read standard input")?;
        return Ok(piped);
    }
    match typed.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("failed to read {file}")),
        None => Ok(typed.to_owned()),
    }
}
