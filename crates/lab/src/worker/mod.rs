//! A process that holds subscribers: one thread, one poller. It reads commands as JSON lines from standard input and
//! writes reports to standard output.

mod opening;
mod subscriber;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mio::{Events, Poll, Token, Waker};
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Wrongs};
use crate::transport::ClientTransport;
use crate::wire::Dialect;
use opening::Opener;
use subscriber::{Subscriber, SubscriberResult};

/// The poller's token of the thread that reads commands; subscribers count from zero.
const COMMANDS: Token = Token(usize::MAX);
const SCRATCH_SIZE: usize = 256 * 1024;
const PROGRESS: Duration = Duration::from_millis(250);

/// A command to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerCommand {
    /// The worker's specification: sent once, before any other command.
    Become(WorkerSpec),
    /// Open all subscribers, `concurrency` at a time. Subscribers that were open before recover what they missed.
    Open { concurrency: usize },
    /// Each subscriber will get `each` more publications.
    Expect { each: u64, timeout_ms: u64 },
    /// Let each subscriber register a name of its own in the scope `lab`.
    Register { timeout_ms: u64 },
    /// Close all subscribers.
    Close,
}

/// The specification of a worker: its subscribers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerSpec {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) dialect: Dialect,
    pub(crate) transport: ClientTransport,
    pub(crate) connections: usize,
    /// The channel of each subscriber is `prefix` and the remainder of its number by `channels`.
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    /// Number of the first subscriber.
    pub(crate) first: usize,
    /// Second octet of the addresses from which they connect: 127.x.0.1 and on.
    pub(crate) network: u8,
    pub(crate) data_size: usize,
    pub(crate) token_secret: Option<String>,
}

impl WorkerSpec {
    fn channel(&self, index: usize) -> String {
        channel_name(&self.prefix, (self.first + index) % self.channels)
    }
}

/// Name of a channel of the lab.
pub(crate) fn channel_name(prefix: &str, number: usize) -> String {
    format!("{prefix}{number}")
}

/// A report of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerReport {
    /// How many steps are done, of how many.
    Progress { done: u64, total: u64 },
    /// Each subscriber is open or has failed.
    Opened {
        open: usize,
        failed: usize,
        first_failure: Option<String>,
        recovered: u64,
        wrongs: Wrongs,
        times: Vec<(u64, u64)>,
        seconds: f64,
    },
    /// An expectation is noted: publications may come.
    Expecting,
    /// All expected publications have arrived, or the time is over.
    Delivered { delivered: u64, wrongs: Wrongs, times: Vec<(u64, u64)>, reads: u64 },
    /// How many subscribers have registered a name, and how long that took.
    Registered { registered: u64, seconds: f64 },
    /// All subscribers are closed; `wrongs` are those since the last report.
    Closed { wrongs: Wrongs },
}

/// Runs commands until standard input ends.
pub(crate) fn run() -> Result<()> {
    let poll = Poll::new()?;
    let commands = read_commands(Arc::new(Waker::new(poll.registry(), COMMANDS)?))?;
    let Ok(WorkerCommand::Become(spec)) = commands.recv() else { return Ok(()) };
    Worker::new(spec, poll).run_commands(&commands)
}

/// Reads commands on a thread of its own, and wakes the poller for each.
fn read_commands(waker: Arc<Waker>) -> Result<Receiver<WorkerCommand>> {
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
    std::thread::Builder::new().name("orders".into()).spawn(read).context("failed to start a thread")?;
    Ok(receiver)
}

struct Worker {
    spec: WorkerSpec,
    poll: Poll,
    subscribers: Vec<Subscriber>,
    tokens: Vec<String>,
    /// Epoch of the channels' histories, for recovery.
    epoch: String,
    opening: Option<Opener>,
    /// How many times the subscribers have been opened.
    rounds: usize,
    /// When the worker stops waiting for expected publications. None = it waits for none.
    timeout: Option<Instant>,
    ledger: Ledger,
    reads: u64,
    registering: Option<Registering>,
    reported_at: Instant,
}

/// Registrations under way.
struct Registering {
    began: Instant,
    until: Instant,
    missing: u64,
    registered: u64,
}

impl Worker {
    fn new(spec: WorkerSpec, poll: Poll) -> Self {
        let tokens = match &spec.token_secret {
            Some(secret) => (0..spec.connections).map(|index| crate::token::sign(secret, spec.first + index)).collect(),
            None => Vec::new(),
        };
        let subscribers = (0..spec.connections).map(|_| Subscriber::default()).collect();
        let reported_at = Instant::now();
        Worker {
            spec,
            poll,
            subscribers,
            tokens,
            epoch: String::new(),
            opening: None,
            rounds: 0,
            timeout: None,
            ledger: Ledger::default(),
            reads: 0,
            registering: None,
            reported_at,
        }
    }

    fn run_commands(mut self, commands: &Receiver<WorkerCommand>) -> Result<()> {
        let mut events = Events::with_capacity(1_024);
        let mut scratch = vec![0; SCRATCH_SIZE];
        loop {
            match self.poll.poll(&mut events, Some(PROGRESS)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                if event.token() != COMMANDS {
                    self.serve(event.token().0, &mut scratch);
                }
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.begin(command)?,
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.open_more();
            self.report_progress()?;
        }
    }

    fn begin(&mut self, command: WorkerCommand) -> Result<()> {
        match command {
            WorkerCommand::Become(_) => {}
            WorkerCommand::Open { concurrency } => {
                self.ledger.reset();
                self.opening = Some(Opener::new(concurrency));
                self.rounds += 1;
            }
            WorkerCommand::Expect { each, timeout_ms } => {
                self.ledger.reset();
                self.reads = 0;
                self.timeout = Some(Instant::now() + Duration::from_millis(timeout_ms));
                for subscriber in self.subscribers.iter_mut().filter(|subscriber| subscriber.is_live()) {
                    self.ledger.expect(&mut subscriber.progress, each);
                }
                say(&WorkerReport::Expecting)?;
            }
            WorkerCommand::Register { timeout_ms } => self.register(Duration::from_millis(timeout_ms)),
            WorkerCommand::Close => {
                self.subscribers.iter_mut().for_each(Subscriber::close);
                say(&WorkerReport::Closed { wrongs: std::mem::take(&mut self.ledger.wrongs) })?;
            }
        }
        Ok(())
    }

    fn register(&mut self, timeout: Duration) {
        let began = Instant::now();
        let mut registering = Registering { began, until: began + timeout, missing: 0, registered: 0 };
        for (index, subscriber) in self.subscribers.iter_mut().enumerate() {
            registering.missing += u64::from(subscriber.register(self.spec.first + index).is_ok());
        }
        self.registering = Some(registering);
    }

    /// Lets one subscriber read the bytes that have arrived.
    fn serve(&mut self, index: usize, scratch: &mut [u8]) {
        let Some(subscriber) = self.subscribers.get_mut(index) else { return };
        let was_opening = subscriber.is_opening();
        let context = subscriber::WorkerContext {
            spec: &self.spec,
            index,
            token: self.tokens.get(index).map(String::as_str),
            ledger: &mut self.ledger,
            epoch: &mut self.epoch,
            reads: &mut self.reads,
        };
        match subscriber.serve(scratch, context) {
            SubscriberResult::Nothing => {}
            SubscriberResult::Open => {
                if let Some(opening) = self.opening.as_mut() {
                    opening.done(subscriber.opened_us());
                }
            }
            SubscriberResult::Registered => {
                if let Some(registering) = self.registering.as_mut() {
                    registering.missing -= 1;
                    registering.registered += 1;
                }
            }
            SubscriberResult::Failed(why) => {
                subscriber.close();
                match self.opening.as_mut() {
                    Some(opening) if was_opening => opening.failed(why),
                    _ => self.ledger.wrongs.closed += 1,
                }
            }
        }
    }

    fn open_more(&mut self) {
        let Some(opening) = self.opening.as_mut() else { return };
        while let Some(index) = opening.next(self.subscribers.len()) {
            if let Err(error) = self.subscribers[index].dial(&self.spec, index, self.rounds, self.poll.registry()) {
                opening.failed(format!("dial: {error}"));
            }
        }
    }

    /// Reports what is done, and the progress once every [`PROGRESS`].
    fn report_progress(&mut self) -> Result<()> {
        if let Some(opening) = self.opening.as_mut()
            && opening.is_over(self.subscribers.len())
        {
            let report = opening.report(&mut self.ledger);
            self.opening = None;
            return say(&report);
        }
        if let Some(end) = self.timeout
            && (self.ledger.is_complete() || Instant::now() > end)
        {
            self.timeout = None;
            for subscriber in &mut self.subscribers {
                self.ledger.end_round(&mut subscriber.progress);
            }
            let wrongs = std::mem::take(&mut self.ledger.wrongs);
            let Ledger { delivered, ref times, .. } = self.ledger;
            return say(&WorkerReport::Delivered { delivered, wrongs, times: times.to_pairs(), reads: self.reads });
        }
        if let Some(Registering { began, registered, .. }) =
            self.registering.take_if(|r| r.missing == 0 || Instant::now() > r.until)
        {
            return say(&WorkerReport::Registered { registered, seconds: began.elapsed().as_secs_f64() });
        }
        if self.reported_at.elapsed() > PROGRESS {
            self.reported_at = Instant::now();
            if let Some(opening) = &self.opening {
                return say(&WorkerReport::Progress {
                    done: opening.finished() as u64,
                    total: self.subscribers.len() as u64,
                });
            }
            if self.timeout.is_some() {
                return say(&WorkerReport::Progress { done: self.ledger.delivered, total: self.ledger.expected });
            }
        }
        Ok(())
    }
}

fn say(report: &WorkerReport) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}
