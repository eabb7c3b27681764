//! The home of durable channels, whose log is in a store.

use std::time::Duration;

use touchline_engine::channels::DurablePublication;
use touchline_engine::request::{BackendEvent, Loaded};
use touchline_engine::{ChannelOptions, ChannelRequest, Channels};
use touchline_protocol::stream::{Offset, RunId};

use crate::world::{
    START_MS, World, epoch, grown, history, load, loaded, publish, publish_with, read, recover, runs, stored,
    subscribe, unsubscribe,
};

const UNAVAILABLE: &str = "refused: 4010 store unavailable";

fn at(offset: u64) -> String {
    format!(" at {offset} of {}", epoch().as_str())
}

/// A home that has one subscriber and has the channel up to an offset.
fn following(top: u64) -> World {
    let mut world = World::with_store(history());
    assert_eq!(world.submit(subscribe(1)), ["waits", "load a behind 0"]);
    assert_eq!(world.submit(load(loaded(0, top))), [format!("subscribed{}", at(top))]);
    world
}

#[test]
fn a_publication_goes_to_the_store_with_all_that_it_must_know() {
    let mut world = World::with_store(ChannelOptions { history_meta_ttl: Duration::from_secs(90), ..history() });
    let request = publish_with(7, |publish| {
        (publish.idempotency_key, publish.version, publish.version_epoch) = ("k".into(), 3, "e".into());
    });
    let expected = r#"the store keeps 5 for 60000 and 90000 ms, at 1000000, key "k", version 3 of "e": {"data":7}"#;
    assert_eq!(world.submit(request), [expected]);
    assert_eq!(world.submit(ChannelRequest::HistoryRemove), ["the store removes"]);
    assert!(world.channels.is_empty(), "a home without subscribers keeps nothing");
    // A channel that is not durable belongs to this home alone.
    assert_eq!(world.submit_to("kept:a", publish(1)).len(), 1);
    assert_eq!(world.submit_to("kept:a", subscribe(1)).len(), 1);
    assert_eq!(world.submit_to("kept:a", ChannelRequest::HistoryRemove), ["done"]);
    // A publication that skips the history is delivered at once.
    let mut world = following(2);
    let beside = publish_with(8, |publish| publish.skip_history = true);
    assert_eq!(world.submit(beside), ["published", "to shard 0, a of 1: 8 at 0"]);
}

#[test]
fn what_is_stored_is_delivered_and_what_has_grown_is_loaded() {
    let mut world = following(2);
    assert_eq!(world.submit(stored(2, 3)), ["to shard 0, a of 1: 3 at 3"]);
    assert_eq!(world.submit(grown(3)), [""; 0]);
    // The report is late, or the store was restored to an earlier state: the home checks which.
    assert_eq!(world.submit(grown(2)), ["load a behind 1"]);
    assert_eq!(world.submit(load(loaded(1, 3))), [""; 0], "nothing is lost");
    assert_eq!(world.submit(grown(5)), ["load a behind 3"]);
    assert_eq!(world.submit(grown(6)), [""; 0], "one query at a time");
    let lines = world.submit(load(loaded(3, 5)));
    assert_eq!(lines, ["to shard 0, a of 1: 4 at 4", "to shard 0, a of 1: 5 at 5", "load a behind 5"]);
    assert_eq!(world.submit(load(loaded(5, 6))), ["to shard 0, a of 1: 6 at 6"]);
    // Other nodes may have stored publications without a report: every cache of a durable channel loads, and no other
    // cache.
    world.submit_to("kept:b", subscribe(1));
    world.channels.catch_up();
    assert_eq!(world.rest(), ["load a behind 1"], "all five that are here are compared");
    assert_eq!(world.submit(load(loaded(1, 6))), [""; 0], "there was nothing");
}

#[test]
fn a_store_that_fails_refuses_for_a_moment() {
    let mut world = World::with_store(history());
    assert_eq!(world.submit(read(None)), ["waits", "load a behind 0"]);
    assert_eq!(world.submit(subscribe(1)), ["waits"]);
    assert_eq!(world.submit(BackendEvent::Loaded(None)), [UNAVAILABLE, UNAVAILABLE]);
    world.now_ms += 199;
    assert_eq!(world.submit(read(None)), [UNAVAILABLE]);
    world.now_ms += 1;
    assert_eq!(world.submit(read(None)), ["waits", "load a behind 0"]);
    // A query for a client that is ahead has the same result.
    let mut world = following(2);
    assert_eq!(world.submit(recover(2, 4, epoch().as_str())), ["waits", "load a behind 2"]);
    assert_eq!(world.submit(BackendEvent::Loaded(None)), [UNAVAILABLE]);
    world.now_ms += 199;
    assert_eq!(world.submit(recover(2, 4, epoch().as_str())), [UNAVAILABLE]);
    world.now_ms += 1;
    assert_eq!(world.submit(recover(2, 4, epoch().as_str())), ["waits", "load a behind 2"]);
    assert_eq!(world.submit(load(loaded(2, 4))).last(), Some(&format!("subscribed{}, recovered []", at(4))));
}

#[test]
fn a_client_ahead_of_all_that_there_is_is_denied_by_the_store_alone_which_is_asked_once_in_a_while() {
    let mut world = following(2);
    let ahead = |offset: u64| recover(2, offset, epoch().as_str());
    assert_eq!(world.submit(ahead(5)), ["waits", "load a behind 2"]);
    assert_eq!(world.submit(ahead(4)), ["waits"], "one query at a time");
    let denied = format!("subscribed{}, nothing recovered, denied", at(3));
    // The store has three. A request that arrived after the query may know more than the store had then.
    assert_eq!(world.submit(load(loaded(2, 3))), ["to shard 0, a of 1: 3 at 3", &denied, "waits"]);
    // The store may now have what it did not have a moment ago. So no request is denied from memory, and the store is
    // not queried again at once.
    world.now_ms += 199;
    assert_eq!(world.submit(ahead(9)), ["waits"]);
    world.channels.expire(world.now_ms);
    assert_eq!(world.rest(), [""; 0]);
    world.now_ms += 1;
    world.channels.expire(world.now_ms);
    assert_eq!(world.rest(), ["waits", "waits", "load a behind 3"]);
    // A request for what the store has is not ahead.
    let lines = world.submit(load(loaded(3, 4)));
    let denied = format!("subscribed{}, nothing recovered, denied", at(4));
    assert_eq!(lines, ["to shard 0, a of 2: 4 at 4".into(), format!("subscribed{}, recovered []", at(4)), denied]);
    world.now_ms += 200;
    assert_eq!(
        world.submit(read(Some((9, epoch().as_str())))),
        ["waits", "load a behind 4"],
        "a read of the history queries too"
    );
    assert_eq!(world.submit(load(loaded(4, 4))), ["refused: 112 unrecoverable position"]);
}

#[test]
fn a_store_that_was_set_back_is_told_and_everybody_begins_anew() {
    let runs = || runs(&[(1, 41)], &[(1, 1)]);
    let of_run =
        |behind: u64, top: u64| Loaded { epoch: epoch().in_run(RunId(41)), runs: runs(), ..loaded(behind, top) };
    for is_subscribed in [true, false] {
        let mut world = World::with_store(history());
        world.submit(subscribe(1));
        assert_eq!(
            world.submit(load(of_run(0, 6))),
            [format!("subscribed at 6 of {}", epoch().in_run(RunId(41)).as_str())]
        );
        if !is_subscribed {
            world.submit(unsubscribe(1));
        }
        world.submit(grown(7));
        let shorter = Loaded { top: Offset(5), ..of_run(6, 6) };
        let broken = is_subscribed.then_some("to shard 0, a of 1: broken".to_owned());
        let expected: Vec<String> = broken.into_iter().chain(["a was set back in run 41 from 6 on".into()]).collect();
        assert_eq!(world.submit(load(shorter)), expected);
        assert_eq!(world.channels.len(), usize::from(is_subscribed));
    }
    // A log that ends at the requested offset has lost nothing.
    let mut world = World::with_store(history());
    world.submit(subscribe(1));
    world.submit(load(of_run(0, 6)));
    world.submit(grown(7));
    assert_eq!(world.submit(load(of_run(6, 6))), [""; 0]);
    // A cluster's stream has positions that publications of other channels took, so it was not restored to an earlier
    // state.
    let mut world = World::in_cluster(history());
    world.submit(subscribe(1));
    world.submit(BackendEvent::Subscribed);
    world.submit(load(of_run(0, 6)));
    assert_eq!(world.submit(stored(8, 9)), [r#"load a of "" behind 6"#]);
    let shorter = Loaded { top: Offset(5), ..of_run(6, 6) };
    assert_eq!(world.submit(load(shorter)), [r#"load a of "" behind 6"#]);
}

#[test]
fn a_store_that_has_less_than_it_had_when_all_caught_up_was_set_back() {
    let mut world = following(2);
    world.channels.catch_up();
    assert_eq!(world.rest(), ["load a behind 0"]);
    assert_eq!(
        world.submit(load(loaded(0, 1))),
        ["to shard 0, a of 1: broken".to_owned(), "a was set back in run 0 from 2 on".into()]
    );
}

#[test]
fn what_a_store_has_lost_is_not_believed_for_ten_seconds() {
    for (later_ms, is_believed) in [(0, false), (9_999, false), (10_000, true)] {
        let mut world = following(2);
        world.channels.catch_up();
        world.submit(load(loaded(0, 1)));
        world.now_ms += later_ms;
        assert_eq!(world.submit(subscribe(2)), ["waits", "load a behind 0"]);
        let answer = if is_believed { format!("subscribed{}", at(1)) } else { UNAVAILABLE.into() };
        assert_eq!(world.submit(load(loaded(0, 1))).last(), Some(&answer), "{later_ms}");
    }
}

#[test]
fn a_verification_without_a_result_is_repeated() {
    let mut world = following(2);
    assert_eq!(world.submit(grown(1)), ["load a behind 0"]);
    assert_eq!(world.submit(grown(1)), [""; 0], "one look at a time");
    assert_eq!(world.submit(BackendEvent::Loaded(None)), [""; 0]);
    assert_eq!(world.submit(grown(1)), ["load a behind 0"]);
}

#[test]
fn a_verification_ends_with_its_own_load_and_not_with_an_earlier_one() {
    for (number, next) in [(1, &[][..]), (2, &["load a behind 0"])] {
        let mut world = following(2);
        assert_eq!(world.submit(grown(1)), ["load a behind 0"], "the second load");
        assert_eq!(world.submit(load(Loaded { number, ..loaded(0, 2) })), [""; 0]);
        assert_eq!(world.submit(grown(1)), next, "{number}");
    }
}

#[test]
fn one_query_is_for_the_highest_of_all_waiting_requests() {
    // The store has as much as all requests need, or less: then it is not queried again at once.
    for (top, next) in [(9, &["waits", "load a behind 9"][..]), (8, &["waits"])] {
        let mut world = World::with_store(history());
        world.submit(subscribe(1));
        assert_eq!(world.submit(recover(2, 4, epoch().as_str())), ["waits"]);
        assert_eq!(world.submit(recover(3, 9, epoch().as_str())), ["waits"]);
        assert_eq!(world.submit(load(loaded(0, 2)))[1..], ["waits", "waits", "load a behind 2"].map(String::from));
        world.submit(load(loaded(2, top)));
        assert_eq!(world.submit(recover(4, 20, epoch().as_str())), next, "{top}");
    }
}

#[test]
fn a_store_has_all_offsets_up_to_its_top_even_if_it_keeps_less() {
    let mut world = World::with_store(history());
    world.submit(subscribe(1));
    assert_eq!(world.submit(load(Loaded { top: Offset(9), ..loaded(0, 6) })), [format!("subscribed{}", at(9))]);
    assert_eq!(world.submit(grown(4)), ["load a behind 3"]);
    let shorter = Loaded { top: Offset(8), ..loaded(3, 6) };
    assert_eq!(world.submit(load(shorter)), ["to shard 0, a of 1: broken", "a was set back in run 0 from 9 on"]);
}

#[test]
fn a_publication_tells_where_the_run_before_it_ended() {
    let mut world = World::with_store(history());
    world.submit(subscribe(1));
    // The second run has begun, and has assigned no offset in this channel.
    let runs = runs(&[(1, 41), (2, 42)], &[(1, 1)]);
    world.submit(load(Loaded { epoch: epoch().in_run(RunId(42)), runs, ..loaded(0, 6) }));
    let at = |offset: u64| format!("subscribed at {offset} of {}", epoch().in_run(RunId(42)).as_str());
    let of_first = |offset: u64| recover(2, offset, epoch().in_run(RunId(41)).as_str());
    assert_eq!(world.submit(of_first(6)), [format!("{}, recovered []", at(6))]);
    assert_eq!(world.submit(stored(5, 6)), [""; 0], "a word that comes late is of the first run");
    assert_eq!(world.submit(of_first(6)), [format!("{}, recovered []", at(6))]);
    world.submit(stored(6, 7));
    assert_eq!(world.submit(of_first(6)), [format!("{}, recovered [7]", at(7))]);
    assert_eq!(world.submit(of_first(7)), [format!("{}, nothing recovered", at(7))], "the first run did not give that");
}

#[test]
fn a_room_for_so_many_channels_is_for_those_of_the_store_too() {
    let mut world = World::with(
        ChannelOptions { durable: true, ..history() },
        1,
        |settings| settings.empty_channels_max = 0,
        |channels| Channels::with_store(channels).limited(1),
    );
    assert_eq!(world.submit(subscribe(1)), ["waits", "load a behind 0"]);
    assert_eq!(world.submit_to("b", subscribe(1)), ["refused: 106 limit exceeded"]);
    assert_eq!(world.submit(load(loaded(0, 1))).len(), 1);
}

#[test]
fn publications_are_kept_for_their_time_from_when_they_were_published() {
    let mut world = World::with_store(history());
    world.submit(subscribe(1));
    let old = DurablePublication::payload(START_MS - 59_000, br#"{"data":1}"#);
    let kept = Loaded {
        kept: vec![(Offset(1), old), (Offset(2), DurablePublication::payload(START_MS, br#"{"data":2}"#))],
        ..loaded(0, 2)
    };
    world.submit(load(kept));
    world.pass(999);
    assert_eq!(world.submit(read(None)), [format!("history [1, 2]{}", at(2))]);
    world.pass(1);
    assert_eq!(world.submit(read(None)), [format!("history [2]{}", at(2))]);
}
