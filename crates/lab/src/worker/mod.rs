//! A process that holds subscribers: one thread, one poller. Orders come as JSON lines on standard input, reports go
//! out on standard output.

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
use crate::transport::Transport;
use crate::wire::Dialect;
use opening::Opening;
use subscriber::{Subscriber, SubscriberResult};

/// The token of the thread that reads orders; subscribers count from zero.
const ORDERS: Token = Token(usize::MAX);
const SCRATCH_SIZE: usize = 256 * 1024;
const PROGRESS: Duration = Duration::from_millis(250);

/// What a worker is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerCommand {
    /// Who to be, once, before anything else.
    Become(WorkerSpec),
    /// Open all subscribers, so many at a time. Those that have been here before recover what they missed.
    Open { concurrency: usize },
    /// So many more publications are coming to each subscriber.
    Expect { each: u64, patience_ms: u64 },
    /// Let each subscriber register a name of its own in the scope `lab`.
    Register { patience_ms: u64 },
    /// Close all subscribers.
    Close,
}

/// The subscribers of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerSpec {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) dialect: Dialect,
    pub(crate) way: Transport,
    pub(crate) connections: usize,
    /// The channel of each subscriber is `prefix` and the remainder of its number by `channels`.
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    /// Number of the first subscriber.
    pub(crate) first: usize,
    /// Second octet of the addresses that they come from: 127.x.0.1 and on.
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

/// What a worker says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// So many done of so many.
    Progress { done: u64, total: u64 },
    /// Everybody is in, or has failed.
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
    /// All that was expected has come, or patience is over.
    Delivered { delivered: u64, wrongs: Wrongs, times: Vec<(u64, u64)>, reads: u64 },
    /// So many have registered a name in so much time.
    Registered { registered: u64, seconds: f64 },
    /// Everybody has left; what went wrong since the last report.
    Closed { wrongs: Wrongs },
}

/// Obeys until standard input ends.
pub(crate) fn run() -> Result<()> {
    let poll = Poll::new()?;
    let orders = read_orders(Arc::new(Waker::new(poll.registry(), ORDERS)?))?;
    let Ok(WorkerCommand::Become(crowd)) = orders.recv() else { return Ok(()) };
    Worker::new(crowd, poll).obey(&orders)
}

/// Reads orders on a thread of their own, and wakes the poller for each.
fn read_orders(waker: Arc<Waker>) -> Result<Receiver<WorkerCommand>> {
    let (sender, receiver) = channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str(&line) else { break };
            if sender.send(order).is_err() {
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
    crowd: WorkerSpec,
    poll: Poll,
    subscribers: Vec<Subscriber>,
    tokens: Vec<String>,
    /// Epoch of the channels' histories, for recovery.
    epoch: String,
    opening: Option<Opening>,
    /// How often the crowd has come.
    visits: usize,
    /// When an expectation is given up.
    patience: Option<Instant>,
    ledger: Ledger,
    reads: u64,
    registering: Option<Registering>,
    told: Instant,
}

/// Registrations under way.
struct Registering {
    began: Instant,
    until: Instant,
    missing: u64,
    registered: u64,
}

impl Worker {
    fn new(crowd: WorkerSpec, poll: Poll) -> Self {
        let tokens = match &crowd.token_secret {
            Some(secret) => {
                (0..crowd.connections).map(|index| crate::token::sign(secret, crowd.first + index)).collect()
            }
            None => Vec::new(),
        };
        let subscribers = (0..crowd.connections).map(|_| Subscriber::default()).collect();
        let told = Instant::now();
        Worker {
            crowd,
            poll,
            subscribers,
            tokens,
            epoch: String::new(),
            opening: None,
            visits: 0,
            patience: None,
            ledger: Ledger::default(),
            reads: 0,
            registering: None,
            told,
        }
    }

    fn obey(mut self, orders: &Receiver<WorkerCommand>) -> Result<()> {
        let mut events = Events::with_capacity(1_024);
        let mut scratch = vec![0; SCRATCH_SIZE];
        loop {
            match self.poll.poll(&mut events, Some(PROGRESS)) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                if event.token() != ORDERS {
                    self.serve(event.token().0, &mut scratch);
                }
            }
            loop {
                match orders.try_recv() {
                    Ok(order) => self.begin(order)?,
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.open_more();
            self.tell()?;
        }
    }

    fn begin(&mut self, order: WorkerCommand) -> Result<()> {
        match order {
            WorkerCommand::Become(_) => {}
            WorkerCommand::Open { concurrency } => {
                self.ledger.reset();
                self.opening = Some(Opening::new(concurrency));
                self.visits += 1;
            }
            WorkerCommand::Expect { each, patience_ms } => {
                self.ledger.reset();
                self.reads = 0;
                self.patience = Some(Instant::now() + Duration::from_millis(patience_ms));
                for subscriber in self.subscribers.iter_mut().filter(|subscriber| subscriber.is_live()) {
                    self.ledger.expect(&mut subscriber.progress, each);
                }
                say(&Report::Expecting)?;
            }
            WorkerCommand::Register { patience_ms } => self.register(Duration::from_millis(patience_ms)),
            WorkerCommand::Close => {
                self.subscribers.iter_mut().for_each(Subscriber::close);
                say(&Report::Closed { wrongs: std::mem::take(&mut self.ledger.wrongs) })?;
            }
        }
        Ok(())
    }

    fn register(&mut self, patience: Duration) {
        let began = Instant::now();
        let mut registering = Registering { began, until: began + patience, missing: 0, registered: 0 };
        for (index, subscriber) in self.subscribers.iter_mut().enumerate() {
            registering.missing += u64::from(subscriber.register(self.crowd.first + index).is_ok());
        }
        self.registering = Some(registering);
    }

    /// Lets one subscriber read what has come.
    fn serve(&mut self, index: usize, scratch: &mut [u8]) {
        let Some(subscriber) = self.subscribers.get_mut(index) else { return };
        let was_opening = subscriber.is_opening();
        let scene = subscriber::WorkerContext {
            crowd: &self.crowd,
            index,
            token: self.tokens.get(index).map(String::as_str),
            ledger: &mut self.ledger,
            epoch: &mut self.epoch,
            reads: &mut self.reads,
        };
        match subscriber.serve(scratch, scene) {
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
            if let Err(error) = self.subscribers[index].dial(&self.crowd, index, self.visits, self.poll.registry()) {
                opening.failed(format!("dial: {error}"));
            }
        }
    }

    /// Says what is done, and now and then how far it is.
    fn tell(&mut self) -> Result<()> {
        if let Some(opening) = self.opening.as_mut()
            && opening.is_over(self.subscribers.len())
        {
            let report = opening.report(&mut self.ledger);
            self.opening = None;
            return say(&report);
        }
        if let Some(end) = self.patience
            && (self.ledger.is_complete() || Instant::now() > end)
        {
            self.patience = None;
            for subscriber in &mut self.subscribers {
                self.ledger.settle(&mut subscriber.progress);
            }
            let wrongs = std::mem::take(&mut self.ledger.wrongs);
            let Ledger { delivered, ref times, .. } = self.ledger;
            return say(&Report::Delivered { delivered, wrongs, times: times.to_pairs(), reads: self.reads });
        }
        if let Some(Registering { began, registered, .. }) =
            self.registering.take_if(|r| r.missing == 0 || Instant::now() > r.until)
        {
            return say(&Report::Registered { registered, seconds: began.elapsed().as_secs_f64() });
        }
        if self.told.elapsed() > PROGRESS {
            self.told = Instant::now();
            if let Some(opening) = &self.opening {
                return say(&Report::Progress {
                    done: opening.finished() as u64,
                    total: self.subscribers.len() as u64,
                });
            }
            if self.patience.is_some() {
                return say(&Report::Progress { done: self.ledger.delivered, total: self.ledger.expected });
            }
        }
        Ok(())
    }
}

fn say(report: &Report) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}
