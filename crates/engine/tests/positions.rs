//! Positions that a node does not have yet, or that its log backend has no more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_engine::channels::{KeeperAct, Outcome, Storing};
use touchline_engine::request::{Epoch, Event, Loaded, Recover, Runs, Stored, Subscribe};
use touchline_engine::{ChannelOptions, ChannelSettings, Channels, ConnectionId, Namespaces, RecoveryMode, Request, Response};
use touchline_protocol::Error;

const NOW: u64 = 1_000_000;

fn channels(durable: bool) -> Channels {
    let history_ttl = Duration::from_secs(3_600);
    let history = ChannelOptions { history_size: 100, history_ttl, durable, ..ChannelOptions::default() };
    let settings = ChannelSettings { without_namespace: history, ..ChannelSettings::default() };
    let channels = Channels::new(Arc::new(Namespaces::new(settings)), 1, 1);
    if durable { channels.with_store() } else { channels.in_cluster() }
}

fn name() -> Arc<str> {
    "a".into()
}

fn epoch() -> Epoch {
    Epoch::from_bits(7)
}

fn object(time_ms: u64) -> Bytes {
    Storing::payload(time_ms, br#"{"data":1}"#)
}

fn loaded(behind: u64, top: u64) -> Loaded {
    let kept = (behind + 1..=top).map(|offset| (offset, object(NOW))).collect();
    Loaded { epoch: epoch(), behind, kept, top, floor: behind, runs: Runs::default() }
}

fn subscribe(slot: u32, recover: Option<u64>, epoch: Epoch) -> Request {
    let recover = recover.map(|offset| Recover {
        offset,
        epoch: epoch.as_str().into(),
        mode: RecoveryMode::Stream,
        limit: 100,
        size_max: usize::MAX,
    });
    Request::Subscribe(Box::new(Subscribe { connection: ConnectionId { shard: 0, slot, generation: 0 }, recover }))
}

/// A node of a cluster that follows the channel and has it up to an offset.
fn at(top: u64) -> Channels {
    let mut channels = channels(false);
    channels.set_linked(true);
    assert!(matches!(channels.submit(&name(), subscribe(0, None, epoch()), NOW), Outcome::Wait(_)));
    channels.submit(&name(), Request::Interested, NOW);
    channels.submit(&name(), Request::Loaded(Some(Box::new(loaded(0, top)))), NOW);
    channels.submit(&name(), subscribe(0, None, epoch()), NOW);
    channels.take_ready();
    channels.keeper_acts();
    channels
}

/// Offsets recovered, none = not recovered, and what the answer costs.
fn recovered(outcome: Outcome) -> (Option<Vec<u64>>, u32) {
    let Outcome::Done(response) = outcome else { panic!("{outcome:?}") };
    let work = response.work();
    let Response::Subscribed(subscribed) = response else { panic!("{response:?}") };
    let found = subscribed.recovered.expect("it was asked for");
    (found.map(|found| found.iter().map(|publication| publication.offset).collect()), work)
}

#[test]
fn a_node_that_is_behind_asks_once_for_all_who_are_ahead() {
    let mut channels = at(5);
    let waiting: Vec<_> = (1..=20)
        .map(|slot| match channels.submit(&name(), subscribe(slot, Some(5 + u64::from(slot) % 5 + 1), epoch()), NOW) {
            Outcome::Wait(request) => request,
            other => panic!("{other:?}"),
        })
        .collect();
    let asked = channels.keeper_acts();
    assert!(matches!(&asked[..], [KeeperAct::Load(_, _, 5)]), "one question for all: {asked:?}");
    channels.submit(&name(), Request::Loaded(Some(Box::new(loaded(5, 10)))), NOW);
    assert_eq!(channels.take_ready().len(), 1);
    for (slot, request) in (1..).zip(waiting) {
        let from = 5 + slot % 5 + 1;
        assert_eq!(recovered(channels.submit(&name(), request, NOW)).0, Some((from + 1..=10).collect()));
    }
}

#[test]
fn what_was_just_denied_is_denied_from_memory_for_a_moment_and_charged() {
    let mut channels = at(5);
    let Outcome::Wait(request) = channels.submit(&name(), subscribe(1, Some(9), epoch()), NOW) else { panic!("it is not known") };
    channels.keeper_acts();
    channels.submit(&name(), Request::Loaded(Some(Box::new(loaded(5, 5)))), NOW);
    assert_eq!(recovered(channels.submit(&name(), request, NOW)), (None, 1));
    assert_eq!(recovered(channels.submit(&name(), subscribe(2, Some(9_999), epoch()), NOW + 199)), (None, 1));
    assert!(channels.keeper_acts().is_empty(), "nobody is asked again");
    assert_eq!(recovered(channels.submit(&name(), subscribe(3, Some(5), epoch()), NOW + 199)), (Some(vec![]), 0), "others are not charged");
    assert!(matches!(channels.submit(&name(), subscribe(4, Some(8), epoch()), NOW + 199), Outcome::Wait(_)), "less may be there by now");
    channels.submit(&name(), Request::Loaded(Some(Box::new(loaded(5, 8)))), NOW + 199);
    assert!(
        matches!(channels.submit(&name(), subscribe(4, Some(9), epoch()), NOW + 199), Outcome::Wait(_)),
        "what was had says nothing of more"
    );
}

#[test]
fn a_node_that_is_cut_off_or_not_answered_refuses_for_now() {
    let unreachable = |outcome| matches!(outcome, Outcome::Done(Response::Refused(Error::CLUSTER_UNREACHABLE)));
    let mut channels = at(5);
    let Outcome::Wait(request) = channels.submit(&name(), subscribe(1, Some(9), epoch()), NOW) else { panic!("it is not known") };
    channels.submit(&name(), Request::Loaded(None), NOW);
    assert_eq!(channels.take_ready().len(), 1, "whoever waits is told");
    assert!(unreachable(channels.submit(&name(), request, NOW)), "the log did not answer");
    channels.keeper_acts();
    let Outcome::Wait(request) = channels.submit(&name(), subscribe(1, Some(9), epoch()), NOW + 500) else { panic!("it is asked again") };
    channels.set_linked(false);
    assert_eq!(channels.take_ready().len(), 1, "whoever waits is told");
    assert!(unreachable(channels.submit(&name(), request, NOW + 500)));
    assert_eq!(recovered(channels.submit(&name(), subscribe(2, Some(4), epoch()), NOW)).0, Some(vec![5]), "what is here is given");
    assert!(!channels.deliveries().any(|(_, delivery)| matches!(delivery.event, Event::Broken)), "who listens is left alone");
}

#[test]
fn a_payload_of_a_later_version_is_refused_and_not_passed_over() {
    let mut channels = at(5);
    let mut newer = object(NOW).to_vec();
    newer[0] = 2;
    let stored = Stored { offset: 6, previous: 5, epoch: Some(epoch()), payload: newer.into() };
    channels.submit(&name(), Request::Stored(stored), NOW);
    assert!(matches!(&channels.keeper_acts()[..], [KeeperAct::Unreadable(_, unreadable)] if unreadable.format == 2));
    assert!(channels.deliveries().any(|(_, delivery)| matches!(delivery.event, Event::Broken)), "subscribers know");
    let outcome = channels.submit(&name(), subscribe(1, Some(5), epoch()), NOW);
    assert!(matches!(outcome, Outcome::Done(Response::Refused(Error::CLUSTER_UNREACHABLE))), "{outcome:?}");
}

#[test]
fn a_store_that_has_less_than_a_node_remembers_begins_a_new_run() {
    let of_run = |run: u64, behind: u64, top: u64, first: Vec<(u64, u64)>| {
        let known = (1..=run).map(|number| (number, number + 40)).collect();
        Loaded { epoch: epoch().in_run(run + 40), runs: Runs { known, first }, ..loaded(behind, top.max(behind)) }
    };
    let mut channels = channels(true);
    assert!(matches!(channels.submit(&name(), subscribe(0, None, epoch()), NOW), Outcome::Wait(_)));
    channels.submit(&name(), Request::Loaded(Some(Box::new(of_run(1, 0, 10, vec![(1, 1)])))), NOW);
    channels.submit(&name(), subscribe(0, None, epoch()), NOW);
    channels.keeper_acts();
    channels.catch_up();
    assert!(matches!(&channels.keeper_acts()[..], [KeeperAct::LoadStored(_, 10)]));
    let shorter = Loaded { top: 6, ..of_run(1, 10, 10, vec![(1, 1)]) };
    channels.submit(&name(), Request::Loaded(Some(Box::new(shorter))), NOW);
    assert!(matches!(&channels.keeper_acts()[..], [KeeperAct::SetBack(41)]));
    assert!(channels.deliveries().any(|(_, delivery)| matches!(delivery.event, Event::Broken)), "subscribers begin anew");
    // The second run gives 7 and 8.
    let Outcome::Wait(request) = channels.submit(&name(), subscribe(1, Some(6), epoch().in_run(41)), NOW) else {
        panic!("it is not known")
    };
    channels.submit(&name(), Request::Loaded(Some(Box::new(of_run(2, 0, 8, vec![(1, 1), (2, 7)])))), NOW);
    assert_eq!(recovered(channels.submit(&name(), request, NOW)).0, Some(vec![7, 8]));
    for (offset, run, expected) in [(7, 41, None), (10, 41, None), (7, 42, Some(vec![8])), (3, 42, Some((4..=8).collect()))] {
        let outcome = channels.submit(&name(), subscribe(2, Some(offset), epoch().in_run(run)), NOW);
        assert_eq!(recovered(outcome).0, expected, "{offset} of run {run}");
    }
}
