//! The event loop of a process of roaming clients: it carries commands out, lets clients read, sends those that have
//! waited to another node, and reports.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::{Events, Poll, Token, Waker};

use super::backoff::delay;
use super::client::{ConnectionEnd, ReadOutcome, RoamingClient};
use super::messages::{RoamingCommand, RoamingReport, RoamingSpec};
use super::window::ClientWindow;
use crate::part::{read_commands, say};
use crate::process::now_us;

/// The poller's token of the thread that reads commands; clients count from zero.
const COMMANDS: Token = Token(usize::MAX);
const SCRATCH_SIZE: usize = 256 * 1024;
/// Longest wait of the poller.
const TURN: Duration = Duration::from_millis(100);
/// Time between two checks whether all clients have their publications.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum time until all clients are subscribed at first.
const OPEN_PATIENCE: Duration = Duration::from_secs(60);
/// The disconnect code of a node that drains.
const SHUTDOWN: u16 = 3_001;

/// Runs commands until standard input ends.
///
/// # Errors
/// When the system refuses a poller, or the conductor has ended.
pub(crate) fn run() -> Result<()> {
    let poll = Poll::new()?;
    let commands = read_commands(Arc::new(Waker::new(poll.registry(), COMMANDS)?))?;
    let Ok(RoamingCommand::Become(spec)) = commands.recv() else { return Ok(()) };
    RoamingWorker::new(spec, poll).run_commands(&commands)
}

struct RoamingWorker {
    spec: RoamingSpec,
    poll: Poll,
    clients: Vec<RoamingClient>,
    /// Clients that are subscribed.
    live: usize,
    /// Clients that have begun to connect for the first time.
    begun: usize,
    opening: Option<InitialOpening>,
    settling: Option<Settling>,
    window: ClientWindow,
    /// Clients that wait, and when each is due. An entry whose client is due at another time is out of date.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The address that the last client chose. The next client uses the next address.
    cursor: usize,
    first_failure: Option<String>,
    looked: Instant,
}

/// The opening of all clients.
struct InitialOpening {
    concurrency: usize,
    until: Instant,
}

/// The end of a window that is waited for.
struct Settling {
    /// The last number of each channel.
    due: Vec<u64>,
    until: Instant,
}

impl RoamingWorker {
    fn new(spec: RoamingSpec, poll: Poll) -> Self {
        RoamingWorker {
            clients: (0..spec.connections).map(|_| RoamingClient::default()).collect(),
            cursor: spec.first,
            spec,
            poll,
            live: 0,
            begun: 0,
            opening: None,
            settling: None,
            window: ClientWindow::default(),
            waiting: BinaryHeap::new(),
            first_failure: None,
            looked: Instant::now(),
        }
    }

    fn run_commands(mut self, commands: &Receiver<RoamingCommand>) -> Result<()> {
        let mut events = Events::with_capacity(1_024);
        let mut scratch = vec![0; SCRATCH_SIZE];
        loop {
            match self.poll.poll(&mut events, Some(self.pause())) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in events.iter().filter(|event| event.token() != COMMANDS) {
                self.serve(event.token().0, &mut scratch);
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.begin(command)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.open_more();
            self.wake();
            self.report()?;
        }
    }

    /// How long the poller may wait.
    fn pause(&self) -> Duration {
        let next = self.waiting.peek().map(|Reverse((due, _))| due.saturating_duration_since(Instant::now()));
        let most = if self.settling.is_some() || self.opening.is_some() { LOOK } else { TURN };
        next.map_or(most, |next| next.min(most))
    }

    fn begin(&mut self, command: RoamingCommand) -> Result<()> {
        match command {
            RoamingCommand::Become(_) => {}
            RoamingCommand::Open { concurrency } => {
                self.opening = Some(InitialOpening { concurrency, until: Instant::now() + OPEN_PATIENCE });
            }
            RoamingCommand::Begin { leaving } => {
                self.window.begin(leaving);
                let mut held = 0;
                for client in &mut self.clients {
                    let is_leaving = leaving == Some(client.node);
                    client.is_staying = client.is_live() && !is_leaving;
                    held += u64::from(client.is_live() && is_leaving);
                }
                say(&RoamingReport::Begun { held })?;
            }
            RoamingCommand::Settle { due, timeout_ms } => {
                self.settling = Some(Settling { due, until: Instant::now() + Duration::from_millis(timeout_ms) });
            }
        }
        Ok(())
    }

    /// Lets one client read the bytes that have arrived.
    fn serve(&mut self, index: usize, scratch: &mut [u8]) {
        let Some(client) = self.clients.get_mut(index) else { return };
        let was_live = client.is_live();
        match client.read(scratch, &self.spec, index, &mut self.window) {
            Ok(ReadOutcome::Nothing) => {}
            Ok(ReadOutcome::Subscribed) => self.window.back(now_us()),
            Ok(ReadOutcome::Refused) => {
                self.window.refused();
                self.wait(index, true);
            }
            Err(end) => self.end(index, was_live, &end),
        }
        let is_live = self.clients[index].is_live();
        self.live = self.live + usize::from(is_live) - usize::from(was_live);
    }

    /// A connection has ended: notes why, and when the client tries again.
    fn end(&mut self, index: usize, was_live: bool, end: &ConnectionEnd) {
        let client = &mut self.clients[index];
        client.close();
        match end.code {
            Some(SHUTDOWN) if was_live => self.window.told(client.node, now_us()),
            _ if was_live => self.window.cut(&end.why),
            _ => {
                self.window.refused();
                self.first_failure.get_or_insert_with(|| end.why.clone());
            }
        }
        if !end.is_final() {
            self.wait(index, !was_live);
        }
    }

    /// A client waits as an SDK does. `has_failed`: it was not subscribed since it waited last.
    fn wait(&mut self, index: usize, has_failed: bool) {
        let client = &mut self.clients[index];
        let due = Instant::now() + delay(client.failed, fastrand::u64(..));
        client.failed += u32::from(has_failed);
        client.due = Some(due);
        self.waiting.push(Reverse((due, index)));
    }

    fn open_more(&mut self) {
        let Some(opening) = &self.opening else { return };
        let concurrency = opening.concurrency;
        while self.begun < self.clients.len() && self.begun.saturating_sub(self.live) < concurrency {
            self.begun += 1;
            self.dial_next(self.begun - 1, None);
        }
    }

    /// Clients that have waited long enough try again.
    fn wake(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, index))) = self.waiting.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            self.waiting.pop();
            let client = &mut self.clients[index];
            if client.due != Some(due) {
                continue;
            }
            if client.is_connected() {
                if let Err(error) = client.subscribe(&self.spec, index) {
                    self.end(index, false, &error.into());
                }
            } else {
                let left = client.node;
                self.dial_next(index, Some(left));
            }
        }
    }

    /// Connects a client to the next node in turn, but not to the node that it has left.
    fn dial_next(&mut self, index: usize, left: Option<usize>) {
        let nodes = self.spec.addresses.len();
        self.cursor = (self.cursor + 1) % nodes;
        if left == Some(self.cursor) {
            self.cursor = (self.cursor + 1) % nodes;
        }
        if let Err(error) = self.clients[index].dial(&self.spec, index, self.cursor, self.poll.registry()) {
            self.end(index, false, &error.into());
        }
    }

    /// Reports finished commands, and commands that timed out.
    fn report(&mut self) -> Result<()> {
        if let Some(opening) = &self.opening
            && (self.live == self.clients.len() || Instant::now() > opening.until)
        {
            self.opening = None;
            return say(&RoamingReport::Opened { open: self.live, first_failure: self.first_failure.take() });
        }
        if self.settling.is_none() || self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let Some(settling) = self.settling.take_if(|settling| {
            let due = |index: usize| settling.due[(self.spec.first + index) % settling.due.len()];
            let is_complete = |(index, client): (usize, &RoamingClient)| client.is_live() && client.last >= due(index);
            self.clients.iter().enumerate().all(is_complete) || Instant::now() > settling.until
        }) else {
            return Ok(());
        };
        for (index, client) in self.clients.iter_mut().enumerate() {
            let due = settling.due[(self.spec.first + index) % settling.due.len()];
            client.last = self.window.end(client.last, due, client.is_live());
        }
        say(&RoamingReport::Settled(self.window.take()))
    }
}
