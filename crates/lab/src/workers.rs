//! The workers of a scenario, commanded as one.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::ledger::{Times, Wrongs};
use crate::process::{ChildProcess, LOOK_INTERVAL, ensure_all_run, resident_bytes};
use crate::transport::ClientTransport;
use crate::wire::Dialect;
use crate::worker::{SubscriberRequest, WorkerCommand, WorkerReport, WorkerSpec};

/// Maximum number of subscribers of one worker, below the limit of 20,000 open files of a process.
pub(crate) const PER_WORKER: usize = 16_500;
/// A worker that reports nothing for so long counts as failed.
const SILENCE: Duration = Duration::from_secs(120);

/// The plan of all workers together.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The servers that subscribers are spread over.
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) path: String,
    pub(crate) dialect: Dialect,
    pub(crate) transport: ClientTransport,
    pub(crate) connections: usize,
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    pub(crate) data_size: usize,
    pub(crate) token_secret: Option<String>,
    /// Tokens have an id, and the time of their issue.
    pub(crate) has_token_ids: bool,
    /// Whether they subscribe. Those that do not are open once they are connected.
    pub(crate) is_subscribing: bool,
    /// Whether the progress is shown on standard error.
    pub(crate) shows_progress: bool,
}

impl Plan {
    /// Number of subscribers per server; the last server may have fewer.
    pub(crate) fn share(&self) -> usize {
        self.connections.div_ceil(self.servers.len())
    }
}

/// The result of opening all subscribers.
#[derive(Debug, Default)]
pub(crate) struct OpenedConnections {
    pub(crate) failed: usize,
    pub(crate) first_failure: Option<String>,
    pub(crate) recovered: u64,
    /// Among them the connections that were closed while others were opened.
    pub(crate) wrongs: Wrongs,
    /// Why the first of those was closed.
    pub(crate) first_closing: Option<String>,
    pub(crate) times: Times,
    pub(crate) seconds: f64,
}

impl OpenedConnections {
    /// Whether all that were opened stayed so.
    ///
    /// # Errors
    /// How many were closed while others were opened.
    pub(crate) fn ensure_none_closed(&self) -> Result<()> {
        match (self.wrongs.closed, &self.first_closing) {
            (0, _) => Ok(()),
            (closed, why) => bail!(
                "{closed} connections were closed while others were opened; the first: {}",
                why.as_deref().unwrap_or_default()
            ),
        }
    }
}

/// The result of a round of publications.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) count: u64,
    pub(crate) wrongs: Wrongs,
    /// Why the first connection ended that should not have.
    pub(crate) first_closing: Option<String>,
    pub(crate) times: Times,
    pub(crate) reads: u64,
}

impl Delivered {
    /// Adds the results of another round of the same subscribers.
    pub(crate) fn add(&mut self, other: Delivered) {
        self.count += other.count;
        self.wrongs.add(other.wrongs);
        self.first_closing = self.first_closing.take().or(other.first_closing);
        self.times.add(&other.times);
        self.reads += other.reads;
    }
}

/// The workers: their processes, and their reports.
pub(crate) struct Workers {
    workers: Vec<(ChildProcess, ChildStdin)>,
    reports: Receiver<(usize, WorkerReport)>,
    /// Reports that came before they were asked for: a worker that expects nothing has all at once.
    early: VecDeque<(usize, WorkerReport)>,
    shows_progress: bool,
}

impl Workers {
    /// Starts as many workers as the connections need.
    ///
    /// # Errors
    /// When one can't be started.
    pub(crate) fn start(plan: &Plan) -> Result<Self> {
        let (sender, reports) = channel();
        let mut workers = Vec::new();
        let share = plan.share();
        let mut first = 0;
        for (group, server) in plan.servers.iter().enumerate() {
            let end = plan.connections.min((group + 1) * share);
            while first < end {
                let connections = (end - first).min(share.div_ceil(share.div_ceil(PER_WORKER)));
                let mut part = ChildProcess::start("worker")?;
                let mut commands = part.0.stdin.take().context("the worker has no standard input")?;
                let spec = WorkerSpec {
                    server: *server,
                    path: plan.path.clone(),
                    dialect: plan.dialect,
                    transport: plan.transport,
                    connections,
                    prefix: plan.prefix.clone(),
                    channels: plan.channels,
                    first,
                    network: network(),
                    data_size: plan.data_size,
                    token_secret: plan.token_secret.clone(),
                    has_token_ids: plan.has_token_ids,
                    is_subscribing: plan.is_subscribing,
                };
                send_command(&mut commands, &WorkerCommand::Become(spec))?;
                let lines = BufReader::new(part.0.stdout.take().context("the worker has no standard output")?).lines();
                let (sender, number) = (sender.clone(), workers.len());
                std::thread::spawn(move || {
                    for line in lines.map_while(Result::ok) {
                        let Ok(report) = serde_json::from_str(&line) else { break };
                        if sender.send((number, report)).is_err() {
                            break;
                        }
                    }
                });
                workers.push((part, commands));
                first += connections;
            }
        }
        Ok(Workers { workers, reports, early: VecDeque::new(), shows_progress: plan.shows_progress })
    }

    /// Opens all subscribers, `concurrency` at a time over all workers.
    pub(crate) fn open(&mut self, concurrency: usize) -> Result<OpenedConnections> {
        let each = concurrency.div_ceil(self.workers.len());
        self.command(&WorkerCommand::Open { concurrency: each })?;
        let mut all = OpenedConnections::default();
        self.gather("opening", |report| {
            let WorkerReport::Opened {
                failed, first_failure, recovered, wrongs, first_closing, times, seconds, ..
            } = report
            else {
                return Some(report);
            };
            all.first_closing = all.first_closing.take().or(first_closing);
            all.failed += failed;
            all.first_failure = all.first_failure.take().or(first_failure);
            all.recovered += recovered;
            all.wrongs.add(wrongs);
            all.times.add_pairs(&times);
            all.seconds = all.seconds.max(seconds);
            None
        })?;
        Ok(all)
    }

    /// Opens all subscribers.
    ///
    /// # Errors
    /// When one of them fails to open, or is closed while others are opened.
    pub(crate) fn open_all(&mut self, concurrency: usize) -> Result<OpenedConnections> {
        let opened = self.open(concurrency)?;
        if opened.failed > 0 {
            // A server that has ended refuses all of them.
            ensure_all_run()?;
            bail!(
                "{} connections failed to open; the first: {}",
                opened.failed,
                opened.first_failure.unwrap_or_default()
            );
        }
        opened.ensure_none_closed()?;
        Ok(opened)
    }

    /// Announces that each subscriber will get `each` more publications, and waits until all workers have noted it.
    pub(crate) fn expect(&mut self, each: usize, timeout: Duration) -> Result<()> {
        self.command(&WorkerCommand::Expect { each: each as u64, timeout_ms: timeout.as_millis() as u64 })?;
        self.gather("expecting", |report| Some(report).filter(|report| !matches!(report, WorkerReport::Expecting)))
    }

    /// Waits for the announced publications.
    pub(crate) fn delivered(&mut self) -> Result<Delivered> {
        let mut all = Delivered::default();
        self.gather("delivered", |report| {
            let WorkerReport::Delivered { delivered, wrongs, first_closing, times, reads } = report else {
                return Some(report);
            };
            all.count += delivered;
            all.first_closing = all.first_closing.take().or(first_closing);
            all.wrongs.add(wrongs);
            all.times.add_pairs(&times);
            all.reads += reads;
            None
        })?;
        Ok(all)
    }

    /// Lets each subscriber send a request. Returns how many are answered, and the seconds that it took.
    pub(crate) fn ask(&mut self, request: SubscriberRequest, timeout: Duration) -> Result<(u64, f64)> {
        self.command(&WorkerCommand::Ask { request, timeout_ms: timeout.as_millis() as u64 })?;
        let (mut count, mut longest) = (0, 0f64);
        self.gather("asking", |report| {
            let WorkerReport::Answered { answered, seconds } = report else { return Some(report) };
            count += answered;
            longest = longest.max(seconds);
            None
        })?;
        Ok((count, longest))
    }

    /// Closes all subscribers. Returns the errors since the last report.
    pub(crate) fn close(&mut self) -> Result<Wrongs> {
        self.command(&WorkerCommand::Close)?;
        let mut all = Wrongs::default();
        self.gather("closing", |report| {
            let WorkerReport::Closed { wrongs } = report else { return Some(report) };
            all.add(wrongs);
            None
        })?;
        Ok(all)
    }

    /// Memory of all of them, bytes.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        self.workers.iter().map(|(process, _)| resident_bytes(process.pid())).sum()
    }

    fn command(&mut self, command: &WorkerCommand) -> Result<()> {
        self.workers.iter_mut().try_for_each(|(_, commands)| send_command(commands, command))
    }

    /// Waits for one report of each worker, while all processes of the lab run. `take` gives a report back that is not
    /// the awaited one.
    fn gather(&mut self, what: &str, mut take: impl FnMut(WorkerReport) -> Option<WorkerReport>) -> Result<()> {
        let mut missing = self.workers.len();
        let mut progress = vec![(0, 0); missing];
        for (worker, report) in std::mem::take(&mut self.early) {
            match take(report) {
                Some(other) => self.early.push_back((worker, other)),
                None => missing -= 1,
            }
        }
        let (mut heard, mut looked) = (Instant::now(), Instant::now());
        while missing > 0 {
            if looked.elapsed() >= LOOK_INTERVAL {
                looked = Instant::now();
                ensure_all_run().with_context(|| format!("while {what}"))?;
            }
            match self.reports.recv_timeout(LOOK_INTERVAL) {
                Ok((worker, WorkerReport::Progress { done, total })) => {
                    heard = Instant::now();
                    progress[worker] = (done, total);
                    self.show(what, progress.iter().map(|p| p.0).sum(), progress.iter().map(|p| p.1).sum());
                }
                Ok((worker, report)) => match take(report) {
                    Some(other) => self.early.push_back((worker, other)),
                    None => missing -= 1,
                },
                Err(RecvTimeoutError::Timeout) if heard.elapsed() <= SILENCE => {}
                Err(_) => bail!("a worker reports nothing while {what}"),
            }
        }
        Ok(())
    }

    fn show(&self, what: &str, done: u64, total: u64) {
        if self.shows_progress && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K  {what} {done}/{total}\r");
        }
    }
}

fn send_command(commands: &mut ChildStdin, command: &WorkerCommand) -> Result<()> {
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    commands.write_all(&line).context("a worker has ended")?;
    Ok(commands.flush()?)
}

/// The second octet of a loopback network. Each worker gets another one, and each process starts with another one,
/// because closed connections keep their ports for a minute.
pub(crate) fn network() -> u8 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1 + ((std::process::id() + NEXT.fetch_add(1, Relaxed)) % 250) as u8
}
