//! The `touchline` binary: what was typed, what it means, do it.

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
mod operator_arguments;
mod secret;
mod service_manager;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::Result;
use arguments::{Arguments, CliCommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// That of static binaries (ADR 24); what is written in C (SQLite, TLS) keeps the C library's.
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
        CliCommand::Lab(arguments) => {
            // Servers and workers that the lab starts take over what this process may open.
            descriptors::raise();
            touchline_lab::run(arguments)
        }
        CliCommand::Completions(arguments) => commands::completions::run(&arguments),
        CliCommand::Version => commands::version::run(),
    }
}

/// An error and what caused it, each text once: some texts name their cause already.
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

/// Whether the reader of standard output has closed it (`touchline watch … | head -1`). Another pipe may have broken.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_pipe) && has_no_reader(&io::stdout())
}

/// Whether a pipe has no reader any more.
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
