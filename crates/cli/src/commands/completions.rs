//! `touchline completions SHELL`: a shell asks the program itself what can be typed, so it completes what this version
//! has.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::arguments::{Arguments, CompletionsArguments, Shell};

/// Names the shell that asks what can be typed.
const VARIABLE: &str = "TOUCHLINE_COMPLETE";
const NAME: &str = "touchline";

/// Prints what the shell is to run once.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<ExitCode> {
    let shell: &dyn EnvCompleter = match arguments.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell that asks, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}
