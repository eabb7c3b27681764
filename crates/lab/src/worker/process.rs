//! The event loop of a worker: it carries commands out, lets subscribers read, and reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::{Events, Poll, Token, Waker};

use super::messages::{SubscriberRequest, WorkerCommand, WorkerReport, WorkerSpec};
use super::opening::Opener;
use super::subscriber::{Subscriber, SubscriberResult, WorkerContext};
use crate::ledger::Ledger;
use crate::part::{read_commands, say};

/// The poller's token of the thread that reads commands; subscribers count from zero.
const COMMANDS: Token = Token(usize::MAX);
const SCRATCH_SIZE: usize = 256 * 1024;
const PROGRESS: Duration = Duration::from_millis(250);

/// Runs commands until standard input ends.
pub(crate) fn run() -> Result<()> {
    let poll = Poll::new()?;
    let commands = read_commands(Arc::new(Waker::new(poll.registry(), COMMANDS)?))?;
    let Ok(WorkerCommand::Become(spec)) = commands.recv() else { return Ok(()) };
    Worker::new(spec, poll).run_commands(&commands)
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
    asking: Option<OpenRequests>,
    /// Why the first connection ended that should not have, since the last report of deliveries.
    first_closing: Option<String>,
    reported_at: Instant,
}

/// Requests in progress.
struct OpenRequests {
    began: Instant,
    until: Instant,
    missing: u64,
    answered: u64,
}

impl Worker {
    fn new(spec: WorkerSpec, poll: Poll) -> Self {
        let tokens = match &spec.token_secret {
            Some(secret) => (0..spec.connections)
                .map(|index| crate::token::sign(secret, spec.first + index, spec.has_token_ids))
                .collect(),
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
            asking: None,
            first_closing: None,
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
                self.first_closing = None;
                self.opening = Some(Opener::new(concurrency));
                self.rounds += 1;
            }
            WorkerCommand::Expect { each, timeout_ms } => {
                self.ledger.begin_round();
                self.reads = 0;
                self.timeout = Some(Instant::now() + Duration::from_millis(timeout_ms));
                for subscriber in self.subscribers.iter_mut().filter(|subscriber| subscriber.is_live()) {
                    self.ledger.expect(&mut subscriber.progress, each);
                }
                say(&WorkerReport::Expecting)?;
            }
            WorkerCommand::Ask { request, timeout_ms } => self.ask(&request, Duration::from_millis(timeout_ms)),
            WorkerCommand::Close => {
                self.subscribers.iter_mut().for_each(Subscriber::close);
                say(&WorkerReport::Closed { wrongs: std::mem::take(&mut self.ledger.wrongs) })?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, request: &SubscriberRequest, timeout: Duration) {
        let began = Instant::now();
        let mut asking = OpenRequests { began, until: began + timeout, missing: 0, answered: 0 };
        for (index, subscriber) in self.subscribers.iter_mut().enumerate() {
            let asked = subscriber.ask(request, self.spec.first + index, self.spec.transport);
            asking.missing += u64::from(asked.is_ok());
        }
        self.asking = Some(asking);
    }

    /// Lets one subscriber read the bytes that have arrived.
    fn serve(&mut self, index: usize, scratch: &mut [u8]) {
        let Some(subscriber) = self.subscribers.get_mut(index) else { return };
        let was_opening = subscriber.is_opening();
        let context = WorkerContext {
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
            SubscriberResult::Answered => {
                if let Some(asking) = self.asking.as_mut() {
                    asking.missing -= 1;
                    asking.answered += 1;
                }
            }
            SubscriberResult::Failed(why) => {
                subscriber.close();
                match self.opening.as_mut() {
                    Some(opening) if was_opening => opening.failed(why),
                    _ => {
                        self.ledger.wrongs.closed += 1;
                        self.first_closing.get_or_insert(why);
                    }
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

    /// Reports finished commands, and the progress once every [`PROGRESS`].
    fn report_progress(&mut self) -> Result<()> {
        if let Some(opening) = self.opening.as_mut()
            && opening.is_over(self.subscribers.len(), || stages(&self.subscribers))
        {
            let report = opening.report(&mut self.ledger, self.first_closing.take());
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
            let (times, reads, first_closing) = (times.to_pairs(), self.reads, self.first_closing.take());
            return say(&WorkerReport::Delivered { delivered, wrongs, first_closing, times, reads });
        }
        if let Some(OpenRequests { began, answered, .. }) =
            self.asking.take_if(|asking| asking.missing == 0 || Instant::now() > asking.until)
        {
            return say(&WorkerReport::Answered { answered, seconds: began.elapsed().as_secs_f64() });
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
            if let Some(OpenRequests { missing, answered, .. }) = &self.asking {
                return say(&WorkerReport::Progress { done: *answered, total: answered + missing });
            }
        }
        Ok(())
    }
}

/// How many subscribers are how far.
fn stages(subscribers: &[Subscriber]) -> String {
    let mut stages = BTreeMap::new();
    for subscriber in subscribers {
        *stages.entry(subscriber.stage_name()).or_insert(0) += 1;
    }
    let words: Vec<_> = stages.iter().map(|(stage, count)| format!("{count} {stage}")).collect();
    words.join(", ")
}
