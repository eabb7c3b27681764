//! The command line of the scenarios about HTTP, and of programs that they compare with.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::numbers::at_least_one;

/// A program to compare Touchline with, and its name.
#[derive(Debug, Clone)]
pub(crate) struct NamedProgram {
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
}

impl FromStr for NamedProgram {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, words) = text.split_once('=').context("is not NAME=COMMAND")?;
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        words.first().context("has no command")?;
        Ok(NamedProgram { name: name.to_owned(), words })
    }
}

impl NamedProgram {
    /// Checks that the program exists, before the lab spends minutes on the other measurements.
    ///
    /// # Errors
    /// When the program does not exist.
    pub(crate) fn find(&self) -> Result<()> {
        let program = self.words.first().map_or("", String::as_str);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = if program.contains('/') {
            Path::new(program).is_file()
        } else {
            std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
        };
        is_there.then_some(()).with_context(|| format!("--rival {}: there is no program {program}", self.name))
    }
}

/// Options of `http`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HttpOptions {
    /// Program that embeds Touchline and answers `/?value=…`: the example `echo` of touchline-server.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) echo: PathBuf,
    /// Another server that gives the same answers and prints its address, such as those of crates/lab/rivals/http.
    #[arg(long = "rival", value_name = "NAME=COMMAND")]
    pub(crate) rivals: Vec<NamedProgram>,
    /// Connections per second of each step of the sweep. After the first step that a server cannot keep up with, it
    /// gets no further steps.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PER_SECOND",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        default_value = "200,400,800,1200,3000,5000,8000,12000"
    )]
    pub(crate) rates: Vec<u32>,
    /// Connections per step, at least as many as arrive within two seconds.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Requests per connection of the sweep.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) calls: u32,
    /// Number of requests of the closed loop.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub(crate) requests: u64,
    /// Concurrent connections of the closed loop.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) at_once: u32,
    /// File for the chart of the sweep, SVG.
    #[arg(long, value_name = "FILE", value_parser = crate::output_file::writable)]
    pub(crate) chart: Option<PathBuf>,
}

/// Options of `waiting`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitingOptions {
    /// Number of clients that call.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 1_000)]
    pub(crate) callers: usize,
    /// Calls per client, all at the same time.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) calls: usize,
    /// Time after which a call is answered, seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600), default_value_t = 10)]
    pub(crate) delay: u64,
    /// Another program in which the same number of tasks wait, such as those of crates/lab/rivals/waiting.
    #[arg(long = "rival", value_name = "NAME=COMMAND")]
    pub(crate) rivals: Vec<NamedProgram>,
}
