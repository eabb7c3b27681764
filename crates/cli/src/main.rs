//! The `touchline` binary: it parses the arguments and runs one command. Without arguments it serves the demo.
//!
//! Each command is a file in `commands/`. A command reads the configuration through `touchline-config`, and then starts
//! a node (`touchline-server`), calls the server API of a running node, or changes a database (`touchline-store`).
//!
//! The rules of channels, clients and nodes are not here. No command has a rule of its own about what is valid:
//! `check`, `explain` and `token` ask the code that a node uses.
//!
//! `docs/reference/command-line.md` has every command and option. It is generated from `arguments.rs`.
//!
//! # Where to begin
//!
//! 1. `arguments.rs`: the commands and their options, with their help.
//! 2. `commands/serve.rs`: the start of a node, from its configuration to its end.
//! 3. `configuration_source.rs`: where the configuration of a command comes from.
//! 4. `client/`: how commands call the server API.
//!
//! # What never happens
//!
//! - No command prints a secret, except those that make one: `genconfig` and `token`.
//! - No command sends a request to a server that the arguments or the configuration do not name.
//! - No broken pipe counts as a failure: `touchline watch … | head` ends well.

mod api_arguments;
mod arguments;
mod built;
mod client;
#[cfg(test)]
mod command_examples;
#[cfg(test)]
mod command_line_page;
mod commands;
mod configuration_source;
mod demo;
mod descriptors;
mod logging;
mod mistakes;
mod operator_arguments;
mod secret;
mod service_manager;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Result, bail};
use arguments::{Arguments, CliCommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The allocator of static binaries (ADR 24). Code in C (SQLite, TLS) still uses the allocator of the C library.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::completions::answer();
    match run(Arguments::read()) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("touchline: {}", touchline_config::redact(&causes(&error)));
            match error.downcast_ref::<commands::explain::Undecided>() {
                Some(_) => ExitCode::from(2),
                None => ExitCode::FAILURE,
            }
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.meant() {
        CliCommand::Serve(arguments) => commands::serve::run(arguments),
        CliCommand::Check(arguments) => commands::check::run(&arguments),
        CliCommand::PrintConfig(arguments) => commands::print_config::run(&arguments),
        CliCommand::Health(arguments) => commands::health::run(&arguments),
        CliCommand::Genconfig(arguments) => commands::genconfig::run(&arguments),
        CliCommand::Configschema => commands::configschema::run(),
        CliCommand::Token(arguments) => commands::token::run(&arguments),
        CliCommand::Explain(arguments) => commands::explain::run(&arguments),
        CliCommand::Publish(arguments) => commands::publish::run(&arguments),
        CliCommand::Events(arguments) => commands::events::run(&arguments),
        CliCommand::Report(arguments) => commands::overview::report(&arguments),
        CliCommand::Top(arguments) => commands::overview::top(&arguments),
        CliCommand::Trace(arguments) => commands::trace::run(&arguments),
        CliCommand::Api(arguments) => commands::api::run(&arguments),
        CliCommand::Watch(arguments) => commands::watch::run(&arguments),
        CliCommand::Match(arguments) => commands::match_replay::run(&arguments),
        CliCommand::Migrate(arguments) => commands::migrate::run(&arguments),
        CliCommand::Backup(arguments) => commands::backup::backup(&arguments),
        CliCommand::Restore(arguments) => commands::backup::restore(&arguments),
        CliCommand::Compact(arguments) => commands::compact::run(&arguments),
        CliCommand::Lab { .. } => {
            bail!("the lab is a program of its own: run touchline-lab, which packages install beside touchline")
        }
        CliCommand::Completions(arguments) => commands::completions::run(&arguments),
        CliCommand::Version => commands::version::run(),
    }
}

/// The text of an error and its causes. A cause is left out if the text already contains it.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Whether the error means that the reader of standard output has closed it (`touchline watch … | head -1`). Without
/// this check another broken pipe would count too.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_pipe) && has_no_reader(&io::stdout())
}

/// Whether a pipe no longer has a reader.
fn has_no_reader(pipe: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_has_no_reader_when_its_other_end_is_closed() {
        let (reader, writer) = io::pipe().expect("the system has pipes");
        assert!(!has_no_reader(&writer));
        drop(reader);
        assert!(has_no_reader(&writer));
        assert!(!has_no_reader(&std::fs::File::open("/dev/null").expect("it is there")));
    }
}
