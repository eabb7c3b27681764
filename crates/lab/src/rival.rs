//! A program to compare Touchline with. The lab reads the lines that it prints.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process::ChildProcess;
use crate::stat::listens;

/// A program that runs. It ends when this is dropped.
pub(crate) struct Rival {
    process: ChildProcess,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Rival {
    /// Starts a program. Its standard input stays open until this value is dropped.
    ///
    /// # Errors
    /// When the system can't start it.
    pub(crate) fn start(words: &[String]) -> Result<Self> {
        let (program, words) = words.split_first().context("a program has a name")?;
        let mut command = Command::new(program);
        let child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("failed to start {program}"))?;
        let mut process = ChildProcess::of(child, program);
        let output = process.0.stdout.take().context("the program has no standard output")?;
        Ok(Rival { process, lines: BufReader::new(output).lines() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// When the program has ended.
    pub(crate) fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("a program beside the server has ended")??)
    }

    /// The address that a server prints first.
    ///
    /// # Errors
    /// When it prints something else.
    pub(crate) fn address(&mut self) -> Result<SocketAddr> {
        let line = self.line()?;
        let address: SocketAddr =
            line.trim().parse().with_context(|| format!("a program does not print its address but {line:?}"))?;
        if !listens(self.pid(), address.port()) {
            bail!("the program that was started does not listen at {address} itself: a shell can `exec` the server");
        }
        Ok(address)
    }
}
