//! Positions that a node does not have yet, or that its log backend no longer has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use touchline_engine::channels::{BackendCommand, DurablePublication, Submitted};
use touchline_engine::request::{
    Appended, BackendEvent, ChannelEvent, ClientPosition, History, Loaded, Recover, Subscribe, WaitingRequest,
};
use touchline_engine::{
    ChannelOptions, ChannelRequest, ChannelSettings, Channels, ConnectionId, Namespaces, RecoveryMode, Response,
};
use touchline_protocol::Error;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, Run, RunId, RunStart, Runs, StreamPosition};
use touchline_registry::HashSeed;

const NOW: u64 = 1_000_000;

fn channels(durable: bool) -> Channels {
    let history_ttl = Duration::from_secs(3_600);
    let history = ChannelOptions { history_size: 100, history_ttl, durable, ..ChannelOptions::default() };
    let settings = ChannelSettings { without_namespace: history, ..ChannelSettings::default() };
    let channels = Channels::new(Arc::new(Namespaces::new(settings)), 1, 1, HashSeed::repeatable(7));
    if durable { channels.with_store() } else { channels.in_cluster() }
}

fn name() -> ChannelName {
    "a".into()
}

fn epoch() -> Epoch {
    Epoch::from_bits(7)
}

fn object(time_ms: u64) -> Bytes {
    DurablePublication::payload(time_ms, br#"{"data":1}"#)
}

/// Builds runs from their numbers and ids, and from where they begin in the channel.
fn runs(known: &[(u64, u64)], first: &[(u64, u64)]) -> Runs {
    let known = known.iter().map(|&(number, id)| Run { number, id: RunId(id) }).collect();
    let first = first.iter().map(|&(number, first)| RunStart { number, first: Offset(first) }).collect();
    Runs { known, first }
}

/// The publication that is kept at an offset.
fn kept(offset: u64, time_ms: u64) -> (Offset, Bytes) {
    (Offset(offset), object(time_ms))
}

fn loaded(behind: u64, top: u64) -> Loaded {
    let kept = (behind + 1..=top).map(|offset| kept(offset, NOW)).collect();
    Loaded {
        epoch: epoch(),
        behind: Offset(behind),
        number: u64::MAX,
        kept,
        top: Offset(top),
        floor: Offset(behind),
        is_aged: false,
        runs: Runs::default(),
    }
}

fn subscribe(slot: u32, recover: Option<u64>, epoch: Epoch) -> ChannelRequest {
    let recover = recover.map(|offset| Recover {
        offset: Offset(offset),
        epoch: epoch.as_str().into(),
        mode: RecoveryMode::Stream,
        limit: 100,
        size_max: usize::MAX,
    });
    ChannelRequest::Subscribe(Box::new(Subscribe {
        connection: ConnectionId { shard: 0, slot, generation: 0 },
        recover,
    }))
}

/// A node of a cluster that follows the channel and has it up to an offset.
fn at(top: u64) -> Channels {
    let mut channels = channels(false);
    channels.set_linked(true, NOW);
    assert!(matches!(channels.submit(&name(), subscribe(0, None, epoch()), NOW), Submitted::Wait(_)));
    channels.apply(&name(), BackendEvent::Subscribed, NOW);
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(loaded(0, top)))), NOW);
    channels.submit(&name(), subscribe(0, None, epoch()), NOW);
    channels.take_ready();
    channels.backend_commands();
    channels
}

/// The recovered offsets (`None` = not recovered), and the cost of the reply.
fn recovered(outcome: Submitted) -> (Option<Vec<u64>>, u32) {
    let Submitted::Done(response) = outcome else { panic!("{outcome:?}") };
    let work = response.work();
    let Response::Subscribed(subscribed) = response else { panic!("{response:?}") };
    let found = subscribed.recovered.expect("it was asked for");
    (found.map(|found| found.iter().map(|publication| publication.offset.0).collect()), work)
}

#[test]
fn a_node_that_is_behind_queries_once_for_all_requests_that_are_ahead() {
    let mut channels = at(5);
    let waiting: Vec<_> = (1..=20)
        .map(|slot| match channels.submit(&name(), subscribe(slot, Some(5 + u64::from(slot) % 5 + 1), epoch()), NOW) {
            Submitted::Wait(request) => request,
            other => panic!("{other:?}"),
        })
        .collect();
    let asked = channels.backend_commands();
    assert!(
        matches!(&asked[..], [BackendCommand::Load { load: LoadId { behind: Offset(5), .. }, .. }]),
        "one query for all: {asked:?}"
    );
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(loaded(5, 10)))), NOW);
    assert_eq!(channels.take_ready().len(), 1);
    for (slot, request) in (1..).zip(waiting) {
        let from = 5 + slot % 5 + 1;
        assert_eq!(recovered(channels.submit(&name(), request, NOW)).0, Some((from + 1..=10).collect()));
    }
}

/// The number of the load that was requested after an offset.
fn asked(channels: &mut Channels, behind: u64) -> u64 {
    match channels.backend_commands()[..] {
        [BackendCommand::Load { load: LoadId { behind: from, number }, .. }] if from == Offset(behind) => number,
        ref acts => panic!("{acts:?}"),
    }
}

fn waits(outcome: Submitted) -> WaitingRequest {
    let Submitted::Wait(request) = outcome else { panic!("{outcome:?}") };
    request
}

#[test]
fn a_denial_is_for_requests_from_before_the_query_and_the_next_query_waits_a_moment() {
    let mut channels = at(5);
    let first = waits(channels.submit(&name(), subscribe(1, Some(9), epoch()), NOW));
    let number = asked(&mut channels, 5);
    let second = waits(channels.submit(&name(), subscribe(2, Some(7), epoch()), NOW));
    assert!(channels.backend_commands().is_empty(), "one query at a time");
    // A load that was requested before the first request is not its result.
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(Loaded { number: number - 1, ..loaded(5, 5) }))), NOW);
    let first = waits(channels.submit(&name(), first, NOW));
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(Loaded { number, ..loaded(5, 5) }))), NOW);
    assert_eq!(channels.take_ready().len(), 2);
    assert_eq!(recovered(channels.submit(&name(), first, NOW)), (None, 1));
    let second = waits(channels.submit(&name(), second, NOW));
    let third = waits(channels.submit(&name(), subscribe(3, Some(9_999), epoch()), NOW + 199));
    channels.expire(NOW + 199);
    assert!(channels.backend_commands().is_empty() && channels.take_ready().is_empty(), "no query is repeated so soon");
    assert_eq!(
        recovered(channels.submit(&name(), subscribe(4, Some(5), epoch()), NOW + 199)),
        (Some(vec![]), 0),
        "others are not charged"
    );
    channels.expire(NOW + 200);
    assert_eq!(channels.take_ready().len(), 1);
    let second = waits(channels.submit(&name(), second, NOW + 200));
    let third = waits(channels.submit(&name(), third, NOW + 200));
    let number = asked(&mut channels, 5);
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(Loaded { number, ..loaded(5, 7) }))), NOW + 200);
    assert_eq!(recovered(channels.submit(&name(), second, NOW + 200)), (Some(vec![]), 0), "it is there by now");
    assert_eq!(recovered(channels.submit(&name(), third, NOW + 200)), (None, 1));
}

/// A store with several readers, whose results arrive in any order.
struct Readers {
    channels: Channels,
    now_ms: u64,
    top: u64,
    asked: Vec<(u64, u64)>,
    read: Vec<Loaded>,
    waiting: Vec<(WaitingRequest, u64)>,
    slots: u32,
    denied: usize,
}

/// An offset that no store will ever have.
const NEVER: u64 = 1_000_000;

impl Readers {
    fn come(&mut self, offset: u64) {
        self.slots += 1;
        self.submit(subscribe(self.slots, Some(offset), epoch()), offset);
        self.settle();
    }

    fn submit(&mut self, request: impl Into<WaitingRequest>, offset: u64) {
        match self.channels.submit(&name(), request, self.now_ms) {
            Submitted::Wait(request) => self.waiting.push((request, offset)),
            done => match recovered(done).0 {
                None => {
                    assert_eq!(offset, NEVER, "that is there, and was denied");
                    self.denied += 1;
                }
                Some(found) => {
                    assert!(found.iter().copied().eq((offset + 1..).take(found.len())), "{found:?} behind {offset}")
                }
            },
        }
    }

    fn tell(&mut self, event: BackendEvent) {
        self.channels.apply(&name(), event, self.now_ms);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let is_ready = !self.channels.take_ready().is_empty();
            for (request, offset) in if is_ready { std::mem::take(&mut self.waiting) } else { Vec::new() } {
                self.submit(request, offset);
            }
            for act in self.channels.backend_commands() {
                let BackendCommand::LoadStored { load: LoadId { behind, number }, .. } = act else { panic!("{act:?}") };
                self.asked.push((behind.0, number));
            }
            if !is_ready {
                return;
            }
        }
    }

    fn step(&mut self, (kind, which): (u8, usize)) {
        match kind {
            0 | 1 => self.top += 1,
            2 => self.tell(BackendEvent::Advanced(StreamPosition { offset: Offset(self.top), epoch: epoch() })),
            3 => self.come(self.top),
            4 => self.come(NEVER),
            5 | 6 if !self.asked.is_empty() => {
                let (behind, number) = self.asked.swap_remove(which % self.asked.len());
                self.read.push(Loaded { number, ..loaded(behind, self.top) });
            }
            7 | 8 if !self.read.is_empty() => {
                let loaded = self.read.swap_remove(which % self.read.len());
                self.tell(BackendEvent::Loaded(Some(Box::new(loaded))));
            }
            _ => {
                self.now_ms += 100;
                self.channels.expire(self.now_ms);
                self.settle();
            }
        }
    }
}

proptest! {
    #[test]
    fn nobody_whose_offset_exists_is_denied_whoever_else_asks(
        steps in prop::collection::vec((0_u8..10, 0_usize..9), 1..80),
    ) {
        let (asked, read, waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut readers =
            Readers { channels: channels(true), now_ms: NOW, top: 0, asked, read, waiting, slots: 0, denied: 0 };
        for step in steps {
            readers.step(step);
        }
        // Every request gets its reply in the end, even one for an offset that never arrives, no matter how many others
        // arrive meanwhile.
        readers.come(NEVER);
        for round in 0..100 {
            if round < 20 {
                readers.come(NEVER);
            }
            for kind in [5, 7, 5, 7, 9] {
                readers.step((kind, 0));
            }
        }
        prop_assert!(readers.waiting.is_empty(), "{:?}", readers.waiting);
        prop_assert!(readers.denied > 20);
    }
}

#[test]
fn a_node_that_is_cut_off_or_not_answered_refuses_for_now() {
    let unreachable = |outcome| matches!(outcome, Submitted::Done(Response::Refused(Error::CLUSTER_UNREACHABLE)));
    let mut channels = at(5);
    let Submitted::Wait(request) = channels.submit(&name(), subscribe(1, Some(9), epoch()), NOW) else {
        panic!("it is not known")
    };
    channels.apply(&name(), BackendEvent::Loaded(None), NOW);
    assert_eq!(channels.take_ready().len(), 1, "the waiting request gets an error");
    assert!(unreachable(channels.submit(&name(), request, NOW)), "the log did not answer");
    channels.backend_commands();
    let Submitted::Wait(request) = channels.submit(&name(), subscribe(1, Some(9), epoch()), NOW + 500) else {
        panic!("it is asked again")
    };
    channels.set_linked(false, NOW);
    assert_eq!(channels.take_ready().len(), 1, "the waiting request gets an error");
    assert!(unreachable(channels.submit(&name(), request, NOW + 500)));
    assert_eq!(
        recovered(channels.submit(&name(), subscribe(2, Some(4), epoch()), NOW)).0,
        Some(vec![5]),
        "what is here is given"
    );
    assert!(
        !channels.deliveries().any(|(_, delivery)| matches!(delivery.event, ChannelEvent::Broken)),
        "subscribers are not affected"
    );
}

#[test]
fn a_payload_of_a_later_version_is_refused_and_not_passed_over() {
    let mut channels = at(5);
    let mut newer = object(NOW).to_vec();
    newer[0] = 3;
    let stored = Appended { offset: Offset(6), previous: Offset(5), epoch: Some(epoch()), payload: newer.into() };
    channels.apply(&name(), BackendEvent::Appended(stored), NOW);
    let told = channels.backend_commands();
    assert!(matches!(&told[..], [BackendCommand::Unreadable { unreadable, .. }] if unreadable.format == 3));
    assert!(
        channels.deliveries().any(|(_, delivery)| matches!(delivery.event, ChannelEvent::Broken)),
        "subscribers know"
    );
    let outcome = channels.submit(&name(), subscribe(1, Some(5), epoch()), NOW);
    assert!(matches!(outcome, Submitted::Done(Response::Refused(Error::CLUSTER_UNREACHABLE))), "{outcome:?}");
}

#[test]
fn a_store_that_has_less_than_a_node_remembers_begins_a_new_run() {
    let of_run = |run: u64, behind: u64, top: u64, first: Vec<(u64, u64)>| {
        let known: Vec<_> = (1..=run).map(|number| (number, number + 40)).collect();
        Loaded { epoch: epoch().in_run(RunId(run + 40)), runs: runs(&known, &first), ..loaded(behind, top.max(behind)) }
    };
    let mut channels = channels(true);
    assert!(matches!(channels.submit(&name(), subscribe(0, None, epoch()), NOW), Submitted::Wait(_)));
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(of_run(1, 0, 10, vec![(1, 1)])))), NOW);
    channels.submit(&name(), subscribe(0, None, epoch()), NOW);
    channels.backend_commands();
    channels.catch_up();
    assert!(matches!(
        &channels.backend_commands()[..],
        [BackendCommand::LoadStored { load: LoadId { behind: Offset::START, .. }, .. }]
    ));
    let shorter = Loaded { top: Offset(6), ..of_run(1, 10, 10, vec![(1, 1)]) };
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(shorter))), NOW);
    assert!(matches!(
        &channels.backend_commands()[..],
        [BackendCommand::BeginRun { lost: RunId(41), first: Offset(7), .. }]
    ));
    assert!(
        channels.deliveries().any(|(_, delivery)| matches!(delivery.event, ChannelEvent::Broken)),
        "subscribers begin anew"
    );
    // The second run assigns 7 and 8.
    let Submitted::Wait(request) = channels.submit(&name(), subscribe(1, Some(6), epoch().in_run(RunId(41))), NOW)
    else {
        panic!("it is not known")
    };
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(of_run(2, 0, 8, vec![(1, 1), (2, 7)])))), NOW);
    assert_eq!(recovered(channels.submit(&name(), request, NOW)).0, Some(vec![7, 8]));
    for (offset, run, expected) in
        [(7, 41, None), (10, 41, None), (7, 42, Some(vec![8])), (3, 42, Some((4..=8).collect()))]
    {
        let outcome = channels.submit(&name(), subscribe(2, Some(offset), epoch().in_run(RunId(run))), NOW);
        assert_eq!(recovered(outcome).0, expected, "{offset} of run {run}");
    }
}

/// A node with a subscriber that has a durable channel up to 10, in run 41.
fn durable_at_10() -> Channels {
    let mut channels = channels(true);
    assert!(matches!(channels.submit(&name(), subscribe(0, None, epoch()), NOW), Submitted::Wait(_)));
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(of_run_41(0, 10)))), NOW);
    channels.submit(&name(), subscribe(0, None, epoch()), NOW);
    channels.take_ready();
    channels.backend_commands();
    channels
}

fn of_run_41(behind: u64, top: u64) -> Loaded {
    let runs = runs(&[(1, 41)], &[(1, 1)]);
    Loaded { epoch: epoch().in_run(RunId(41)), runs, ..loaded(behind, top) }
}

fn is_broken(channels: &mut Channels) -> bool {
    channels.deliveries().any(|(_, delivery)| matches!(delivery.event, ChannelEvent::Broken))
}

#[test]
fn an_offset_that_is_given_a_second_time_shows_that_the_store_was_set_back() {
    let append = |time_ms| Appended {
        offset: Offset(6),
        previous: Offset(5),
        epoch: Some(epoch().in_run(RunId(41))),
        payload: object(time_ms),
    };
    let mut channels = durable_at_10();
    channels.apply(&name(), BackendEvent::Appended(append(NOW)), NOW);
    assert!(!is_broken(&mut channels) && channels.backend_commands().is_empty(), "it has been read before it was told");
    channels.apply(&name(), BackendEvent::Appended(append(NOW + 1)), NOW);
    assert!(
        matches!(
            &channels.backend_commands()[..],
            [BackendCommand::BeginRun { lost: RunId(41), first: Offset(6), .. }]
        ),
        "from the lowest offset that was seen on"
    );
    assert!(is_broken(&mut channels), "subscribers begin anew");
    // The node does not trust what the log says in the same run, because positions of it may be lost.
    let request = waits(channels.submit(&name(), subscribe(1, Some(10), epoch().in_run(RunId(41))), NOW));
    assert!(matches!(
        &channels.backend_commands()[..],
        [BackendCommand::LoadStored { load: LoadId { behind: Offset::START, .. }, .. }]
    ));
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(of_run_41(0, 12)))), NOW);
    let outcome = channels.submit(&name(), request, NOW);
    assert!(matches!(outcome, Submitted::Done(Response::Refused(Error::STORE_UNAVAILABLE))), "{outcome:?}");
    let request = waits(channels.submit(&name(), subscribe(1, Some(10), epoch().in_run(RunId(41))), NOW + 200));
    let runs = runs(&[(1, 41), (2, 42)], &[(1, 1), (2, 6)]);
    let in_new_run = Loaded { epoch: epoch().in_run(RunId(42)), runs, ..loaded(0, 12) };
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(in_new_run))), NOW + 200);
    assert_eq!(recovered(channels.submit(&name(), request, NOW + 200)).0, None);
}

#[test]
fn a_report_that_contradicts_the_cache_is_verified() {
    // Another epoch; fewer publications than here; the same number of publications, but other ones.
    let other_life = Loaded { epoch: epoch().in_run(RunId(42)), ..loaded(10, 11) };
    let others = Loaded { kept: (6..=12).map(|offset| kept(offset, NOW + 1)).collect(), ..of_run_41(5, 12) };
    let cases = [
        (epoch().in_run(RunId(42)), 11, 10, other_life, None),
        (
            epoch().in_run(RunId(41)),
            6,
            5,
            Loaded { kept: vec![kept(6, NOW)], top: Offset(6), ..of_run_41(5, 6) },
            Some(7),
        ),
        (epoch().in_run(RunId(41)), 6, 5, others, Some(6)),
        (epoch().in_run(RunId(41)), 6, 5, of_run_41(5, 10), Some(0)),
    ];
    for (life, top, behind, answer, lost_from) in cases {
        let mut channels = durable_at_10();
        channels.apply(&name(), BackendEvent::Advanced(StreamPosition { offset: Offset(top), epoch: life }), NOW);
        let asked = channels.backend_commands();
        assert!(matches!(asked[..], [BackendCommand::LoadStored { load, .. }] if load.behind.0 == behind), "{top}");
        channels.apply(&name(), BackendEvent::Advanced(StreamPosition { offset: Offset(top), epoch: life }), NOW);
        assert!(channels.backend_commands().is_empty(), "one look at a time");
        channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(answer))), NOW);
        let acts = channels.backend_commands();
        match lost_from {
            Some(0) => {
                assert!(!is_broken(&mut channels), "it only came late");
                assert!(
                    matches!(&acts[..], [BackendCommand::LoadStored { .. }]),
                    "what came meanwhile is looked at: {acts:?}"
                );
            }
            lost_from => {
                assert!(is_broken(&mut channels), "{lost_from:?}");
                let told = acts.iter().find_map(|act| {
                    if let BackendCommand::BeginRun { lost: RunId(41), first, .. } = act { Some(first.0) } else { None }
                });
                assert_eq!(told, lost_from);
            }
        }
    }
}

#[test]
fn a_stream_that_went_on_from_an_earlier_state_is_seen_when_the_link_comes_back() {
    let mut channels = at(5);
    channels.set_linked(false, NOW);
    channels.set_linked(true, NOW);
    let number = asked(&mut channels, 4);
    let others = Loaded { kept: (5..=7).map(|offset| kept(offset, NOW + 1)).collect(), number, ..loaded(4, 7) };
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(others))), NOW);
    assert!(is_broken(&mut channels));
    assert!(matches!(&channels.backend_commands()[..], [BackendCommand::BeginStreamRun { lost: RunId(0), .. }]));
}

#[test]
fn a_history_is_read_from_where_it_is_whole() {
    let mut channels = Channels::new(
        Arc::new(Namespaces::new(ChannelSettings {
            without_namespace: ChannelOptions {
                history_size: 3,
                history_ttl: Duration::from_secs(60),
                ..ChannelOptions::default()
            },
            ..ChannelSettings::default()
        })),
        1,
        1,
        HashSeed::repeatable(7),
    );
    (0..5).for_each(|_| drop(channels.submit(&name(), ChannelRequest::Publish(Box::default()), NOW)));
    let mut read = |offset: u64, reverse: bool| {
        let history = History {
            since: Some(ClientPosition { offset: Offset(offset), epoch: "".into() }),
            reverse,
            ..History::default()
        };
        match channels.submit(&name(), ChannelRequest::History(Box::new(history)), NOW) {
            Submitted::Done(Response::History { publications, .. }) => {
                Some(publications.iter().map(|p| p.offset.0).collect::<Vec<_>>())
            }
            Submitted::Done(Response::Refused(Error::UNRECOVERABLE_POSITION)) => None,
            other => panic!("{other:?}"),
        }
    };
    let forward = (0..=6).map(|offset| read(offset, false)).collect::<Vec<_>>();
    assert_eq!(
        forward,
        [Some(vec![3, 4, 5]), None, Some(vec![3, 4, 5]), Some(vec![4, 5]), Some(vec![5]), Some(vec![]), None]
    );
    assert_eq!(read(5, true), Some(vec![4, 3]), "what is before it is given as far as it is kept");
}

#[test]
fn a_run_that_another_node_has_begun_ends_the_one_before_where_the_store_has_others() {
    let mut channels = durable_at_10();
    channels.catch_up();
    assert!(
        matches!(
            &channels.backend_commands()[..],
            [BackendCommand::LoadStored { load: LoadId { behind: Offset::START, .. }, .. }]
        ),
        "all that is here is compared"
    );
    // The stream was restored to 5, and 6 to 12 were assigned again before the second run began.
    let given_again = |offset: u64| kept(offset, if offset > 5 { NOW + 1 } else { NOW });
    let of_second = || {
        let runs = runs(&[(1, 41), (2, 42)], &[(1, 1)]);
        Loaded { epoch: epoch().in_run(RunId(42)), runs, kept: (1..=12).map(given_again).collect(), ..loaded(0, 12) }
    };
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(of_second()))), NOW);
    assert!(is_broken(&mut channels));
    assert!(matches!(
        &channels.backend_commands()[..],
        [BackendCommand::BeginRun { lost: RunId(41), first: Offset(6), .. }]
    ));
    let request = waits(channels.submit(&name(), subscribe(1, Some(10), epoch().in_run(RunId(41))), NOW));
    channels.apply(&name(), BackendEvent::Loaded(Some(Box::new(of_second()))), NOW);
    assert_eq!(recovered(channels.submit(&name(), request, NOW)).0, None, "the store may not know it yet");
    let whole = channels.submit(&name(), subscribe(2, Some(5), epoch().in_run(RunId(41))), NOW);
    assert_eq!(recovered(whole).0, Some((6..=12).collect()));
}
