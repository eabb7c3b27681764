//! Whenever a request waits, something is under way that will answer it. Random days of one channel whose log is
//! replaced by others. Loads are answered late, in any order, or not at all, and no later request helps.

use proptest::prelude::*;
use touchline_engine::channels::{BackendCommand, Submitted};
use touchline_engine::request::{BackendEvent, ChannelEvent, Loaded, WaitingRequest};
use touchline_engine::{ChannelRequest, Channels, Response};
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, StreamPosition};

use crate::world::{START_MS, World, connection, epoch, history, load, loaded, read, recover};

#[derive(Debug, Clone, Copy)]
enum Change {
    /// A publication is appended to the log.
    Append,
    /// Another log with this length replaces the log.
    Replace(u64),
    /// Another node reports an offset where the log ends, or ended.
    Report(u64),
    /// A client continues from after this offset of a log. It stays, or only reads.
    Come { offset: u64, of: OfLog, stays: bool },
    /// A subscriber leaves the channel.
    Leave,
    /// The log backend reads for one of the loads.
    Read(usize),
    /// One of the results arrives, or is lost.
    Arrive { which: usize, fails: bool },
    /// Reports may have been lost.
    Miss,
    /// The link is established or lost.
    Link(bool),
    /// Time passes, milliseconds.
    Pass(u64),
}

/// The log that a client's position belongs to.
#[derive(Debug, Clone, Copy)]
enum OfLog {
    Present,
    Before,
    /// The client does not name a log, so any log counts.
    Unsaid,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let of = prop_oneof![3 => Just(OfLog::Present), 1 => Just(OfLog::Before), 3 => Just(OfLog::Unsaid)];
    let come = (0_u64..7, of, prop::bool::weighted(0.2));
    let arrive = (0_usize..4, prop::bool::weighted(0.1));
    let change = prop_oneof![
        2 => Just(Change::Append),
        2 => (0_u64..4).prop_map(Change::Replace),
        3 => (0_u64..5).prop_map(Change::Report),
        6 => come.prop_map(|(offset, of, stays)| Change::Come { offset, of, stays }),
        1 => Just(Change::Leave),
        8 => (0_usize..4).prop_map(Change::Read),
        8 => arrive.prop_map(|(which, fails)| Change::Arrive { which, fails }),
        1 => Just(Change::Miss),
        1 => any::<bool>().prop_map(Change::Link),
        3 => prop_oneof![Just(150), Just(2_000), Just(11_000)].prop_map(Change::Pass),
    ];
    prop::collection::vec(change, 1..60)
}

/// A request to the log backend, and its result once it was read.
enum UnderWay {
    Interest,
    Asked(LoadId),
    Read(Box<Loaded>),
}

struct Replaced {
    channels: Channels,
    name: ChannelName,
    is_durable: bool,
    is_linked: bool,
    now_ms: u64,
    /// The number of the present log, and its last offset.
    log: (u64, u64),
    under_way: Vec<UnderWay>,
    waiting: Vec<WaitingRequest>,
    subscribed: Vec<u32>,
    slots: u32,
}

impl Replaced {
    fn new(is_durable: bool) -> Self {
        let world = if is_durable { World::with_store(history()) } else { World::in_cluster(history()) };
        let (under_way, waiting, subscribed) = Default::default();
        let name = "a".into();
        Replaced {
            channels: world.channels,
            name,
            is_durable,
            is_linked: true,
            now_ms: START_MS,
            log: (0, 3),
            under_way,
            waiting,
            subscribed,
            slots: 0,
        }
    }

    fn epoch(&self, number: u64) -> Epoch {
        if number == 0 { epoch() } else { Epoch::from_bits(1_000 + number) }
    }

    fn submit(&mut self, request: impl Into<WaitingRequest>) {
        let request = request.into();
        let subscriber = request.request().subscriber();
        match self.channels.submit(&self.name, request, self.now_ms) {
            Submitted::Wait(request) => self.waiting.push(request),
            Submitted::Done(Response::Subscribed(_)) => {
                self.subscribed.extend(subscriber.map(|connection| connection.slot));
            }
            Submitted::Done(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Does the same as a shard.
    fn settle(&mut self) {
        loop {
            let broken =
                self.channels.deliveries().filter(|(_, delivery)| matches!(delivery.event, ChannelEvent::Broken));
            let gone = if broken.count() > 0 { std::mem::take(&mut self.subscribed) } else { Vec::new() };
            gone.into_iter().for_each(|slot| self.leave(slot));
            let is_ready = !self.channels.take_ready().is_empty();
            let again = if is_ready { std::mem::take(&mut self.waiting) } else { Vec::new() };
            again.into_iter().for_each(|request| self.submit(request));
            for command in self.channels.backend_commands() {
                match command {
                    BackendCommand::SetInterest { is_wanted: true, .. } => self.under_way.push(UnderWay::Interest),
                    BackendCommand::Load { load, .. } | BackendCommand::LoadStored { load, .. } => {
                        self.under_way.push(UnderWay::Asked(load));
                    }
                    // A check may get no answer.
                    _ => {}
                }
            }
            if !is_ready {
                return;
            }
        }
    }

    fn leave(&mut self, slot: u32) {
        self.submit(ChannelRequest::Unsubscribe { connection: connection(0, slot), is_answered: true });
    }

    fn apply(&mut self, event: BackendEvent) {
        self.channels.apply(&self.name, event, self.now_ms);
    }

    fn read(&mut self, which: usize) {
        let (number, top) = self.log;
        let epoch = self.epoch(number);
        if let Some(UnderWay::Asked(LoadId { behind, number })) = self.under_way.get(which) {
            let result = Loaded { epoch, behind: *behind, number: *number, ..loaded(behind.0.min(top), top) };
            self.under_way[which] = UnderWay::Read(Box::new(result));
        }
    }

    fn arrive(&mut self, which: usize, fails: bool) {
        self.read(which);
        if which < self.under_way.len() {
            match self.under_way.remove(which) {
                UnderWay::Interest => self.apply(BackendEvent::Subscribed),
                UnderWay::Read(result) if !fails => self.apply(load(*result)),
                UnderWay::Read(_) | UnderWay::Asked(_) => self.apply(BackendEvent::Loaded(None)),
            }
        }
    }

    fn change(&mut self, change: Change) {
        let number = self.log.0;
        match change {
            Change::Append => self.log.1 += 1,
            Change::Replace(top) => self.log = (number + 1, top),
            Change::Report(offset) => {
                let report = StreamPosition { offset: Offset(offset), epoch: self.epoch(number) };
                self.apply(BackendEvent::Advanced(report));
            }
            Change::Come { offset, of, stays } => {
                let epoch = match of {
                    OfLog::Present => Some(self.epoch(number)),
                    OfLog::Before => Some(self.epoch(number.saturating_sub(1))),
                    OfLog::Unsaid => None,
                };
                let epoch = epoch.as_ref().map_or("", Epoch::as_str);
                self.slots += 1;
                self.submit(if stays { recover(self.slots, offset, epoch) } else { read(Some((offset, epoch))) });
            }
            Change::Leave => {
                if let Some(slot) = self.subscribed.pop() {
                    self.leave(slot);
                }
            }
            Change::Read(which) => self.read(which),
            Change::Arrive { which, fails } => self.arrive(which, fails),
            Change::Miss if self.is_durable => self.channels.catch_up(),
            Change::Link(is_linked) if !self.is_durable && self.is_linked != is_linked => {
                // Everything under way is lost with the link.
                self.under_way.clear();
                self.is_linked = is_linked;
                self.channels.set_linked(is_linked, self.now_ms);
            }
            Change::Miss | Change::Link(_) => {}
            Change::Pass(ms) => {
                self.now_ms += ms;
                self.channels.expire(self.now_ms);
            }
        }
        self.settle();
        if !self.is_linked {
            self.under_way.clear();
        }
        // A client that waits for the time of the next query also has something that ends its wait.
        if self.under_way.is_empty() && !self.waiting.is_empty() {
            self.now_ms += 200;
            self.channels.expire(self.now_ms);
            self.settle();
        }
        let is_answered = self.waiting.is_empty() || self.is_linked && !self.under_way.is_empty();
        assert!(is_answered, "{change:?}: nothing is under way for {:?}", self.waiting);
    }

    /// Answers everything under way, in the order of the requests.
    fn answer_all(&mut self) {
        let mut answers = 0;
        while !self.under_way.is_empty() {
            self.change(Change::Arrive { which: 0, fails: false });
            answers += 1;
            assert!(answers < 1_000, "it has an end");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn what_is_under_way_answers_all_that_wait(is_durable: bool, changes in changes()) {
        let mut day = Replaced::new(is_durable);
        changes.into_iter().for_each(|change| day.change(change));
        day.answer_all();
        prop_assert!(day.waiting.is_empty(), "{:?}", day.waiting);
    }
}

#[test]
fn a_query_whose_log_was_replaced_meanwhile_is_repeated() {
    let mut day = Replaced::new(true);
    day.change(Change::Come { offset: 0, of: OfLog::Present, stays: false });
    day.answer_all();
    // A report of the first offset contradicts the cache: the log is checked from there on.
    day.change(Change::Report(1));
    day.change(Change::Come { offset: 5, of: OfLog::Unsaid, stays: false });
    assert_eq!((day.under_way.len(), day.waiting.len()), (2, 1), "the check and the query");
    day.change(Change::Replace(1));
    day.change(Change::Arrive { which: 0, fails: false });
    assert_eq!(day.waiting.len(), 1, "the check does not answer it");
    // The query asked for what follows an offset that the cache no longer has.
    day.change(Change::Arrive { which: 0, fails: false });
    day.answer_all();
    assert!(day.waiting.is_empty(), "{:?}", day.waiting);
}

#[test]
fn a_load_that_takes_longer_than_an_unused_cache_lives_answers_all_the_same() {
    let mut day = Replaced::new(true);
    day.change(Change::Come { offset: 0, of: OfLog::Present, stays: false });
    (0..8).for_each(|_| day.change(Change::Pass(2_000)));
    assert_eq!(day.waiting.len(), 1);
    day.answer_all();
    assert!(day.waiting.is_empty(), "{:?}", day.waiting);
}
