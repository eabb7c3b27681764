//! Nodes with clients, on one or several ledgers at once: random scripts, and the properties that must hold after them.

use std::collections::BTreeMap;

use fastrand::Rng;
use touchline_engine::events::StateKey;
use touchline_engine::ledger::{BookLimits, LedgerBook};
use touchline_registry::HashSeed;
use touchline_store::ledger::{LedgerBatch, LedgerCause, LedgerWrite};

use super::desk::{DELAY, Desk, GRACE, LEASE, Scribe, Told};

const USERS: [&str; 3] = ["ann", "bob", "cid"];
const CHANNELS: [&str; 3] = ["chat:1", "chat:2", "news"];

/// A process of a node.
struct Process {
    node: &'static str,
    book: LedgerBook<String, String>,
    incarnation: u64,
    /// The number of the last batch of the life.
    number: u64,
    /// The true state: client ids with their users and channels.
    clients: BTreeMap<String, (StateKey, StateKey)>,
    has_lived: bool,
    is_frozen: bool,
    is_cut: bool,
}

impl Process {
    fn new(node: &'static str) -> Self {
        Process {
            node,
            book: LedgerBook::new(BookLimits { batch: 4, waiting: 40 }, HashSeed::repeatable(1)),
            incarnation: 0,
            number: 0,
            clients: BTreeMap::new(),
            has_lived: false,
            is_frozen: false,
            is_cut: false,
        }
    }

    fn holds(&self, key: &StateKey) -> bool {
        self.clients.values().any(|(user, channel)| user == key || channel == key)
    }
}

/// All nodes, and the ledgers that they write to, each in the same way.
pub(crate) struct World<'d> {
    desks: Vec<&'d mut dyn Desk>,
    processes: Vec<Option<Process>>,
    nodes: &'static [&'static str],
    random: Rng,
    serial: u64,
    /// The number of reported events that have been checked.
    checked: usize,
    /// True if keys beyond the maximum are forgotten, so that generations have gaps.
    forgets: bool,
}

impl<'d> World<'d> {
    pub(crate) fn new(desks: Vec<&'d mut dyn Desk>, nodes: &'static [&'static str], seed: u64) -> Self {
        let random = Rng::with_seed(seed);
        let processes = nodes.iter().map(|_| None).collect();
        let forgets = !seed.is_multiple_of(2);
        let mut world = World { desks, processes, nodes, random, serial: 0, checked: 0, forgets };
        (0..nodes.len()).for_each(|at| world.start(at));
        world
    }

    /// Sends the same request to all ledgers, which must give the same answer.
    fn ask<T: PartialEq + std::fmt::Debug>(&mut self, request: impl Fn(&mut dyn Desk) -> T) -> T {
        let mut answers: Vec<T> = self.desks.iter_mut().map(|desk| request(&mut **desk)).collect();
        let last = answers.pop().expect("there is a ledger");
        assert!(answers.iter().all(|answer| *answer == last), "{answers:?} {last:?}");
        last
    }

    fn start(&mut self, at: usize) {
        let node = self.nodes[at];
        self.ask(|desk| desk.start(node));
        self.processes[at] = Some(Process::new(node));
    }

    fn some(&mut self) -> Option<&mut Process> {
        let at = self.random.usize(..self.processes.len());
        self.processes[at].as_mut()
    }

    fn connect(&mut self) {
        self.serial += 1;
        let client = format!("c{}", self.serial);
        let user = StateKey::User(self.random.choice(USERS).expect("there are users").into());
        let channel = StateKey::Channel(self.random.choice(CHANNELS).expect("there are channels").into());
        let Some(process) = self.some().filter(|process| !process.is_frozen) else { return };
        process.book.connect(client.clone().into(), format!("about-{client}"));
        for held in [&user, &channel] {
            if !process.holds(held) {
                process.book.hold(held.clone());
            }
        }
        process.clients.insert(client, (user, channel));
    }

    fn disconnect(&mut self) {
        let pick = self.random.usize(..);
        let Some(process) = self.some().filter(|process| !process.is_frozen) else { return };
        if process.clients.is_empty() {
            return;
        }
        let client = process.clients.keys().nth(pick % process.clients.len()).expect("it is one of them").clone();
        let (user, channel) = process.clients.remove(&client).expect("it is one of them");
        process.book.disconnect(&client, "left".to_owned());
        for held in [user, channel] {
            if !process.holds(&held) {
                process.book.release(&held);
            }
        }
    }

    /// A node begins a life, writes a batch, or renews its lease. `is_told` = the node receives the result.
    fn write(&mut self, at: usize, is_told: bool) {
        let Some(mut process) = self.processes[at].take() else { return };
        if process.is_frozen || process.is_cut {
            return self.processes[at] = Some(process);
        }
        let node = process.node;
        if !process.book.is_in() {
            let cause = if process.has_lived { LedgerCause::NodeDown } else { LedgerCause::Restart };
            let incarnation = self.ask(|desk| desk.enter(node, cause));
            if is_told {
                process.book.enter();
                process.has_lived = true;
                (process.incarnation, process.number) = (incarnation, 0);
            }
        } else {
            let batch = match process.book.next_batch() {
                Some(batch) => Scribe::batch(&batch),
                None => LedgerBatch { number: process.number, ..LedgerBatch::default() },
            };
            let incarnation = process.incarnation;
            let written = self.ask(|desk| desk.write(node, incarnation, &batch));
            match written {
                LedgerWrite::Written if is_told => {
                    process.number = batch.number;
                    process.book.written();
                }
                LedgerWrite::Lapsed if is_told => process.book.lapse(),
                _ => {}
            }
        }
        self.processes[at] = Some(process);
    }

    /// Any living node sweeps.
    fn sweep(&mut self) {
        let node = self.some().filter(|process| !process.is_frozen && !process.is_cut).map(|process| process.node);
        if let Some(node) = node {
            self.ask(|desk| desk.sweep(node));
            self.check_sweep();
        }
    }

    fn tidy(&mut self) {
        let node = self.some().filter(|process| !process.is_frozen && !process.is_cut).map(|process| process.node);
        node.into_iter().for_each(|node| self.ask(|desk| desk.tidy(node)));
    }

    /// P4: no key is reported as gone too early, or while a node that has reported it may still hold it.
    fn check_sweep(&mut self) {
        let told = self.desks[0].told();
        let now_ms = self.desks[0].now_ms();
        for event in &told[self.checked..] {
            let Told::Key { generation, time_ms, empty, .. } = event else { continue };
            let Some((since_ms, _)) = empty else { continue };
            assert!(generation % 2 == 0 && since_ms + DELAY.as_millis() as u64 <= *time_ms && *time_ms <= now_ms);
        }
        self.checked = told.len();
    }

    /// Performs one step of a script.
    pub(crate) fn step(&mut self) {
        let at = self.random.usize(..self.processes.len());
        match self.random.u32(..100) {
            0..=21 => self.connect(),
            22..=39 => self.disconnect(),
            40..=61 => self.write(at, true),
            62..=65 => self.write(at, false),
            66..=75 => self.sweep(),
            76..=77 if self.forgets => self.tidy(),
            78..=91 => {
                let ms = *self.random.choice(&[10, 200, 1_000, 3_000, 8_000]).expect("there are times");
                self.ask(|desk| desk.advance(ms));
            }
            92..=93 => self.kill(at),
            94..=95 if self.processes[at].is_none() => self.start(at),
            96..=97 => self.some().into_iter().for_each(|process| process.is_frozen = !process.is_frozen),
            98 => self.some().into_iter().for_each(|process| process.is_cut = !process.is_cut),
            99 => self.stop(at),
            _ => self.other(),
        }
    }

    fn other(&mut self) {
        self.serial += 1;
        let what = format!("o{}", self.serial);
        if let Some(process) = self.some().filter(|process| !process.is_frozen) {
            process.book.tell(what);
        }
    }

    fn kill(&mut self, at: usize) {
        let node = self.nodes[at];
        if self.processes[at].take().is_some() {
            self.ask(|desk| desk.kill(node));
        }
    }

    /// Stops a node in order: its clients leave before.
    fn stop(&mut self, at: usize) {
        let Some(process) = self.processes[at].as_ref() else { return };
        let (node, incarnation) = (process.node, process.incarnation);
        if process.book.is_in() && process.clients.is_empty() && process.book.is_settled() && !process.is_cut {
            self.ask(|desk| desk.leave(node, incarnation));
            self.kill(at);
        }
    }

    /// Ends all disturbances, and waits long enough without events.
    pub(crate) fn quiet(&mut self) {
        for at in 0..self.processes.len() {
            match &mut self.processes[at] {
                Some(process) => (process.is_frozen, process.is_cut) = (false, false),
                // At least one node must be present.
                None if at == 0 => self.start(0),
                None => {}
            }
        }
        for second in (0..=(DELAY + LEASE + GRACE).as_secs() + 6).step_by(3) {
            // At first there is much to write; later the leases are renewed.
            for _ in 0..if second < 12 { 15 } else { 1 } {
                (0..self.processes.len()).for_each(|at| self.write(at, true));
            }
            let node = self.nodes[0];
            self.ask(|desk| desk.sweep(node));
            self.check_sweep();
            self.ask(|desk| desk.advance(3_000));
        }
    }

    /// Checks P1, P2, P3, P5, P6, and that all ledgers have reported the same.
    pub(crate) fn check(&mut self) {
        let streams: Vec<_> = self.desks.iter_mut().map(|desk| streams(&desk.told())).collect();
        assert!(streams.windows(2).all(|pair| pair[0] == pair[1]), "{streams:#?}");
        let (keys, clients) = &streams[0];
        let is_held = |key: &StateKey| self.processes.iter().flatten().any(|process| process.holds(key));
        for (key, told) in keys {
            let generations: Vec<u64> = told.iter().map(|(generation, ..)| *generation).collect();
            if self.forgets {
                let is_next = |pair: &[u64]| pair[0] < pair[1] && pair[0] % 2 != pair[1] % 2;
                assert!(generations.windows(2).all(is_next) && generations[0] % 2 == 1, "{key:?}: {generations:?}");
            } else {
                let whole = (1..=generations.len() as u64).collect::<Vec<_>>();
                assert_eq!(generations, whole, "{key:?} has a gap or twice");
            }
            assert_eq!(generations.len() % 2 == 1, is_held(key), "the last told of {key:?} is the state");
        }
        for process in self.processes.iter().flatten() {
            for (user, channel) in process.clients.values() {
                assert!(keys.contains_key(user) && keys.contains_key(channel), "what is held was told");
            }
        }
        for (client, told) in clients {
            let is_alternating = told.iter().enumerate().all(|(at, is_here)| *is_here == (at % 2 == 0));
            assert!(is_alternating, "{client}: {told:?}");
            let is_here = self.processes.iter().flatten().any(|process| process.clients.contains_key(client));
            assert_eq!(told.len() % 2 == 1, is_here, "{client}: {told:?}");
        }
    }
}

type KeyStream = BTreeMap<StateKey, Vec<(u64, u64, Option<(u64, LedgerCause)>)>>;
type ClientStream = BTreeMap<String, Vec<bool>>;

/// The reported events of each key and of each client, in the order of the outbox.
fn streams(told: &[Told]) -> (KeyStream, ClientStream) {
    let (mut keys, mut clients) = (KeyStream::new(), ClientStream::new());
    for event in told {
        match event {
            Told::Key { key, generation, time_ms, empty } => {
                keys.entry(key.clone()).or_default().push((*generation, *time_ms, *empty));
            }
            Told::Connected { client } => clients.entry(client.clone()).or_default().push(true),
            Told::Disconnected { client, .. } => clients.entry(client.clone()).or_default().push(false),
            Told::Other { .. } | Told::Reset => {}
        }
    }
    (keys, clients)
}
