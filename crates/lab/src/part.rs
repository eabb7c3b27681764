//! A part of the lab that runs as a separate process. It reads commands from standard input and writes reports to
//! standard output, one JSON line each. This module has the conductor's side and the part's side.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::marker::PhantomData;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context as _, Result};
use mio::Waker;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::process::ChildProcess;

/// The conductor's side of a part that accepts commands of the type `C` and writes reports of the type `R`. Dropping
/// this value ends the process.
pub(crate) struct LabPart<C, R> {
    process: ChildProcess,
    commands: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    types: PhantomData<fn(C) -> R>,
}

impl<C: Serialize, R: DeserializeOwned> LabPart<C, R> {
    /// Starts the part with this name.
    ///
    /// # Errors
    /// When the system can't start a process.
    pub(crate) fn start(name: &str) -> Result<Self> {
        let mut process = ChildProcess::start(name)?;
        let commands = process.0.stdin.take().context("the part has no standard input")?;
        let reports = BufReader::new(process.0.stdout.take().context("the part has no standard output")?).lines();
        Ok(LabPart { process, commands, reports, types: PhantomData })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a command to the part.
    ///
    /// # Errors
    /// When the part has ended.
    pub(crate) fn command(&mut self, command: &C) -> Result<()> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        self.commands.write_all(&line).context("a part of the lab has ended")?;
        Ok(self.commands.flush()?)
    }

    /// Waits for the next report.
    ///
    /// # Errors
    /// When the part has ended.
    pub(crate) fn report(&mut self) -> Result<R> {
        let line = self.reports.next().context("a part of the lab has ended")??;
        Ok(serde_json::from_str(&line)?)
    }

    /// Sends a command, and waits for its report.
    ///
    /// # Errors
    /// When the part has ended.
    pub(crate) fn ask(&mut self, command: &C) -> Result<R> {
        self.command(command)?;
        self.report()
    }
}

/// The part's side: writes a report.
///
/// # Errors
/// When the conductor has ended.
pub(crate) fn say(report: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}

/// The part's side: reads commands on a thread of its own, and wakes the poller for each. The receiver ends with
/// standard input.
///
/// # Errors
/// When the system can't start a thread.
pub(crate) fn read_commands<C: DeserializeOwned + Send + 'static>(waker: Arc<Waker>) -> Result<Receiver<C>> {
    let (sender, receiver) = channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(command) = serde_json::from_str(&line) else { break };
            if sender.send(command).is_err() {
                return;
            }
            let _ = waker.wake();
        }
        drop(sender);
        let _ = waker.wake();
    };
    std::thread::Builder::new().name("commands".into()).spawn(read).context("failed to start a thread")?;
    Ok(receiver)
}
