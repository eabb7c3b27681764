//! The home of channels whose log is in the cluster.

use bytes::Bytes;
use touchline_engine::channels::{clearing, removal};
use touchline_engine::request::{Appended, BackendEvent, Loaded};
use touchline_engine::{ChannelOptions, ChannelRequest};
use touchline_protocol::stream::{Epoch, Offset, StreamPosition};

use crate::world::{
    START_MS, World, epoch, give_up, grown, history, load, loaded, payload, publish, publish_with, read, recover,
    stored, subscribe, unsubscribe,
};

const UNREACHABLE: &str = "refused: 4009 cluster unreachable";

fn at(offset: u64) -> String {
    format!(" at {offset} of {}", epoch().as_str())
}

/// A home that has one subscriber and follows the channel up to an offset.
fn following(top: u64) -> World {
    let mut world = World::in_cluster(history());
    assert_eq!(world.submit(subscribe(1)), ["waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), [r#"load a of "" behind 0"#]);
    assert_eq!(world.submit(load(loaded(0, top))), [format!("subscribed{}", at(top))]);
    world
}

#[test]
fn a_publication_goes_to_the_cluster_and_is_delivered_when_it_comes_back() {
    let mut world = following(0);
    let keyed = publish_with(7, |publish| publish.idempotency_key = "k".into());
    assert_eq!(world.submit(keyed), [r#"the cluster keeps in "", key "k": {"data":7}"#]);
    assert_eq!(world.submit_to("kept:a", publish(7)), [r#"the cluster keeps in "kept", key "": {"data":7}"#]);
    assert_eq!(world.submit(stored(0, 9)), ["to shard 0, a of 1: 9 at 9"]);
    assert_eq!(world.submit(stored(0, 9)), [""; 0], "it is here");
    assert_eq!(world.submit(stored(9, 12)), ["to shard 0, a of 1: 12 at 12"]);
    assert_eq!(world.submit(read(None)), [format!("history [9, 12]{}", at(12))]);
    assert_eq!(world.submit(ChannelRequest::HistoryRemove), [r#"the cluster removes of """#]);
    assert_eq!(world.submit_to("plain:a", ChannelRequest::HistoryRemove), ["refused: 108 not available"]);
    assert_eq!(world.submit_to("plain:a", read(None)), ["refused: 108 not available"]);
    assert_eq!(world.submit_to("nowhere:a", publish(1)), ["refused: 102 unknown channel"]);
    world.link(false);
    assert_eq!(world.submit(publish(8)), [UNREACHABLE]);
    assert_eq!(world.submit(ChannelRequest::HistoryRemove), [UNREACHABLE]);
}

#[test]
fn what_is_not_kept_is_passed_on_and_a_node_that_is_cut_off_serves_its_own() {
    let mut world = World::in_cluster(ChannelOptions::default());
    assert_eq!(world.submit(subscribe(1)), ["waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), ["subscribed"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), [""; 0], "once");
    assert_eq!(world.submit(publish(7)), ["published", r#"pass on in a: {"data":7}"#]);
    assert_eq!(world.submit(BackendEvent::Ephemeral(payload(7, START_MS))), ["to shard 0, a of 1: 7 at 0"]);
    let mut newer = payload(7, START_MS).to_vec();
    newer[0] = 3;
    assert_eq!(world.submit(BackendEvent::Ephemeral(newer.into())), ["a has a payload of format 3"]);
    assert_eq!(world.submit_to("b", BackendEvent::Ephemeral(payload(7, START_MS))), [""; 0], "no subscribers are here");
    let keyed = || publish_with(8, |publish| publish.idempotency_key = "k".into());
    assert_eq!(world.submit(keyed()), ["published", r#"pass on in a: {"data":8}"#]);
    assert_eq!(world.submit(keyed()), ["published"], "once");
    assert_eq!(world.link(false), [""; 0]);
    assert_eq!(world.submit(publish(9)), ["published", r#"pass on in a: {"data":9}"#], "the cluster returns it");
    assert_eq!(world.submit_to("b", subscribe(1)), ["subscribed"], "it is this node's alone");
    assert_eq!(world.link(true), ["follow b"], "until the link is there");
    assert_eq!(world.submit_to("b", BackendEvent::Subscribed), [""; 0]);
    assert_eq!(world.submit_to("b", unsubscribe(1)), ["done", "follow b no more"]);
}

#[test]
fn a_publication_beside_the_history_is_passed_on_too() {
    let mut world = following(3);
    let beside = publish_with(7, |publish| publish.skip_history = true);
    assert_eq!(world.submit(beside), ["published", r#"pass on in a: {"data":7}"#]);
    assert_eq!(world.submit(BackendEvent::Ephemeral(payload(7, START_MS))), ["to shard 0, a of 1: 7 at 0"]);
    assert_eq!(world.submit(BackendEvent::Ephemeral(clearing())), [""; 0]);
    assert_eq!(world.submit(read(None)), [format!("history []{}", at(3))], "the history was removed");
}

#[test]
fn changes_of_a_registry_scope_are_at_home_everywhere() {
    let mut world = World::in_cluster(ChannelOptions::default());
    assert_eq!(world.submit_to("$registry:devices", subscribe(1)), ["subscribed"]);
    assert_eq!(
        world.submit_to("$registry:devices", publish(7)),
        ["published", "to shard 0, $registry:devices of 1: 7 at 0"]
    );
}

#[test]
fn requests_wait_in_order_until_what_is_kept_is_here() {
    let mut world = World::in_cluster(history());
    assert_eq!(world.submit(read(None)), ["waits", "follow a"]);
    assert_eq!(world.submit(recover(1, 2, epoch().as_str())), ["waits"], "it is asked for already");
    assert_eq!(world.submit(load(loaded(0, 3))), [""; 0], "nothing was asked yet");
    assert_eq!(world.submit(BackendEvent::Subscribed), [r#"load a of "" behind 0"#]);
    assert_eq!(world.submit(BackendEvent::Subscribed), [""; 0]);
    assert_eq!(world.submit(subscribe(2)), ["waits"]);
    // Publications that arrive during the read are delivered after it, and only once.
    assert_eq!(world.submit(stored(3, 4)), [""; 0]);
    assert_eq!(world.submit(stored(4, 5)), [""; 0]);
    assert_eq!(
        world.submit(load(loaded(0, 4))),
        [
            format!("history [1, 2, 3, 4, 5]{}", at(5)),
            format!("subscribed{}, recovered [3, 4, 5]", at(5)),
            format!("subscribed{}", at(5))
        ]
    );
    assert_eq!(world.submit(stored(5, 6)), ["to shard 0, a of 2: 6 at 6"]);
}

#[test]
fn a_follower_that_is_behind_asks_and_gets_exactly_what_it_lacks() {
    let mut world = following(5);
    assert_eq!(world.submit(stored(7, 8)), [r#"load a of "" behind 5"#]);
    assert_eq!(world.submit(stored(8, 9)), [""; 0], "it waits behind the gap");
    assert_eq!(world.submit(subscribe(2)), ["waits"]);
    let lines = world.submit(load(loaded(5, 7)));
    let delivered = [6, 7, 8, 9].map(|offset| format!("to shard 0, a of 1: {offset} at {offset}"));
    assert_eq!(lines, [&delivered[..], &[format!("subscribed{}", at(9))]].concat());
    // Publications that overlap are delivered once.
    assert_eq!(world.submit(stored(10, 11)), [r#"load a of "" behind 9"#]);
    assert_eq!(
        world.submit(load(loaded(9, 12))),
        [10, 11, 12].map(|offset| format!("to shard 0, a of 2: {offset} at {offset}"))
    );
    // A load that an earlier cache requested is ignored.
    assert_eq!(world.submit(stored(13, 14)), [r#"load a of "" behind 12"#]);
    assert_eq!(world.submit(load(loaded(13, 14))), [""; 0]);
    assert_eq!(
        world.submit(load(loaded(12, 13))),
        [13, 14].map(|offset| format!("to shard 0, a of 2: {offset} at {offset}"))
    );
}

#[test]
fn an_answer_that_ends_too_early_is_asked_for_again() {
    let mut world = following(5);
    assert_eq!(world.submit(stored(6, 7)), [r#"load a of "" behind 5"#]);
    assert_eq!(world.submit(grown(8)), [""; 0], "it is being loaded");
    assert_eq!(
        world.submit(load(loaded(5, 6))),
        ["to shard 0, a of 1: 6 at 6", "to shard 0, a of 1: 7 at 7", r#"load a of "" behind 7"#],
        "it has eight"
    );
    assert_eq!(world.submit(load(loaded(7, 8))), ["to shard 0, a of 1: 8 at 8"]);
    assert_eq!(world.submit(grown(8)), [""; 0], "it has that");
    assert_eq!(world.submit(grown(9)), [r#"load a of "" behind 8"#]);
    assert_eq!(world.submit_to("b", grown(9)), [""; 0], "that channel has no subscribers");
}

#[test]
fn what_a_gap_can_hold_has_a_limit_and_nothing_is_lost_beyond_it() {
    let mut world = following(1);
    assert_eq!(world.submit(stored(2, 3)), [r#"load a of "" behind 1"#]);
    (3..10_100).for_each(|offset| assert_eq!(world.submit(stored(offset, offset + 1)), [""; 0]));
    // Ten thousand publications wait: 3 … 10,002. Later ones are loaded.
    let lines = world.submit(load(loaded(1, 2)));
    assert_eq!(lines.len(), 10_001 + 1);
    assert_eq!(
        lines[10_000..],
        ["to shard 0, a of 1: 10002 at 10002".to_owned(), r#"load a of "" behind 10002"#.into()]
    );
    assert_eq!(world.submit(load(loaded(10_002, 10_100))).len(), 98);
}

#[test]
fn subscribers_begin_anew_when_something_is_lost() {
    let other = Epoch::from_bits(8);
    // Another stream; or the publications between this cache and the load are gone.
    let cases = [Loaded { epoch: other, ..loaded(5, 8) }, Loaded { floor: Offset(6), ..loaded(5, 8) }];
    for lost in cases {
        let mut world = following(5);
        world.submit(stored(6, 7));
        assert_eq!(world.submit(load(lost)), ["to shard 0, a of 1: broken"]);
        // They leave and come back; the first one requests a new load.
        assert_eq!(world.submit(recover(2, 5, epoch().as_str())), ["waits", "follow a"]);
        assert_eq!(world.submit(unsubscribe(1)), ["done"]);
        assert_eq!(world.submit(BackendEvent::Subscribed), [r#"load a of "" behind 0"#]);
        let fresh = Loaded { floor: Offset(6), ..loaded(6, 8) };
        let lines = world.submit(load(Loaded { behind: Offset(0), ..fresh }));
        assert_eq!(lines, [format!("subscribed{}, nothing recovered", at(8))]);
        assert_eq!(world.submit(stored(8, 9)), ["to shard 0, a of 1: 9 at 9"]);
    }
    // A load that ends where the cache ends is enough: nothing is lost.
    let mut world = following(5);
    world.submit(stored(6, 7));
    assert_eq!(world.submit(load(Loaded { floor: Offset(5), ..loaded(5, 6) })).len(), 2);
    // A publication of another epoch has the same effect.
    let of_other =
        Appended { offset: Offset(9), previous: Offset(7), epoch: Some(other), payload: payload(9, START_MS) };
    assert_eq!(world.submit(BackendEvent::Appended(of_other)), ["to shard 0, a of 1: broken"]);
    let mut world = following(5);
    let of_same =
        Appended { offset: Offset(6), previous: Offset(5), epoch: Some(epoch()), payload: payload(6, START_MS) };
    assert_eq!(world.submit(BackendEvent::Appended(of_same)), ["to shard 0, a of 1: 6 at 6"]);
}

#[test]
fn a_cache_without_subscribers_is_made_anew_without_an_event() {
    let mut world = following(5);
    world.submit(unsubscribe(1));
    world.submit(stored(6, 7));
    let fresh = Loaded {
        kept: vec![(Offset(7), payload(7, START_MS)), (Offset(9), payload(9, START_MS))],
        floor: Offset(6),
        top: Offset(9),
        ..loaded(5, 5)
    };
    assert_eq!(world.submit(load(fresh)), [""; 0]);
    assert_eq!(world.submit(recover(1, 6, epoch().as_str())), [format!("subscribed{}, recovered [7, 9]", at(9))]);
    assert_eq!(world.submit(recover(2, 5, epoch().as_str())), [format!("subscribed{}, nothing recovered", at(9))]);
    // A stream that is full shows that publications before its first one may be missing.
    let mut world = following(0);
    world.submit(unsubscribe(1));
    world.submit(stored(6, 7));
    assert_eq!(world.submit(load(Loaded { floor: Offset(7), behind: Offset(0), ..loaded(6, 9) })), [""; 0]);
    assert_eq!(world.submit(read(None)), [format!("history [7, 8, 9]{}", at(9))]);
    assert_eq!(world.submit(recover(1, 6, "")), [format!("subscribed{}, nothing recovered", at(9))]);
    // The history may be shorter than the position says.
    let mut world = World::in_cluster(history());
    world.submit(subscribe(1));
    world.submit(BackendEvent::Subscribed);
    let empty = Loaded { kept: Vec::new(), top: Offset(12), floor: Offset(12), ..loaded(0, 0) };
    assert_eq!(world.submit(load(empty)), [format!("subscribed{}", at(12))]);
    assert_eq!(world.submit(recover(2, 12, "")), [format!("subscribed{}, recovered []", at(12))]);
    assert_eq!(world.submit(recover(3, 11, "")), [format!("subscribed{}, nothing recovered", at(12))]);
}

#[test]
fn a_failed_load_refuses_waiting_requests_and_is_repeated_after_a_moment() {
    let mut world = World::in_cluster(history());
    world.submit(subscribe(1));
    world.submit(BackendEvent::Subscribed);
    assert_eq!(world.submit(BackendEvent::Loaded(None)), [UNREACHABLE]);
    world.now_ms += 199;
    assert_eq!(world.submit(subscribe(2)), [UNREACHABLE]);
    world.now_ms += 1;
    assert_eq!(world.submit(subscribe(3)), ["waits", "follow a"]);
    // If this happens while there are subscribers, they get an event and subscribe again.
    let mut world = following(5);
    world.submit(stored(6, 7));
    assert_eq!(world.submit(BackendEvent::Loaded(None)), ["to shard 0, a of 1: broken"]);
    assert_eq!(world.submit(BackendEvent::Loaded(None)), [""; 0]);
    assert_eq!(world.submit(stored(5, 6)), [""; 0], "a publication behind a gap is not delivered");
    assert_eq!(world.submit(recover(1, 5, "")), [UNREACHABLE]);
    // Without a request nothing has failed.
    let mut world = following(5);
    assert_eq!(world.submit(BackendEvent::Loaded(None)), [""; 0]);
    assert_eq!(world.submit(recover(2, 9, epoch().as_str())), ["waits", r#"load a of "" behind 5"#]);
}

#[test]
fn a_payload_that_cannot_be_read_ends_the_cache() {
    let unreadable = || Bytes::from_static(b"\x02P");
    let mut world = following(5);
    world.submit(stored(6, 7));
    let bad = Loaded {
        kept: vec![(Offset(6), unreadable()), (Offset(7), payload(7, START_MS))],
        top: Offset(7),
        ..loaded(5, 5)
    };
    assert_eq!(world.submit(load(bad)), ["to shard 0, a of 1: broken", "a has a payload of format 2"]);
    assert_eq!(world.submit(subscribe(2)), [UNREACHABLE], "what stands behind it is not given");
    world.now_ms += 199;
    assert_eq!(world.submit(subscribe(2)), [UNREACHABLE]);
    world.now_ms += 1;
    assert_eq!(world.submit(subscribe(2)), ["waits", "follow a"]);
    // A history that was removed up to 4, by an entry of its own at 6.
    let mut world = following(5);
    let clear = Appended { offset: Offset(6), previous: Offset(5), epoch: None, payload: removal(Offset(4)).into() };
    assert_eq!(world.submit(BackendEvent::Appended(clear)), [""; 0]);
    assert_eq!(world.submit(read(None)), [format!("history []{}", at(6))]);
    assert_eq!(
        world.submit(recover(2, 4, "")),
        [format!("subscribed{}, recovered []", at(6))],
        "it has missed nothing"
    );
    assert_eq!(world.submit(recover(3, 3, "")), [format!("subscribed{}, nothing recovered", at(6))]);
}

#[test]
fn a_refused_client_that_leaves_before_it_knows_removes_no_subscriber() {
    let mut world = following(5);
    world.link(false);
    assert_eq!(world.submit_to("kept:b", subscribe(2)), [UNREACHABLE]);
    assert_eq!(world.submit_to("kept:b", subscribe(3)), [UNREACHABLE]);
    world.link(true);
    world.submit_to("kept:b", subscribe(4));
    world.submit_to("kept:b", BackendEvent::Subscribed);
    world.submit_to("kept:b", load(loaded(0, 1)));
    let audience =
        |world: &World| world.channels.active().find(|(name, _)| &***name == "kept:b").map(|(_, count)| count);
    assert_eq!((world.submit_to("kept:b", give_up(2)), audience(&world)), (vec!["done".into()], Some(1)));
    // A client that was refused and came back is a subscriber.
    world.submit_to("kept:b", subscribe(3));
    assert_eq!(audience(&world), Some(2));
    assert_eq!((world.submit_to("kept:b", give_up(3)), audience(&world)), (vec!["done".into()], Some(1)));
    assert_eq!(
        (world.submit_to("kept:b", give_up(4)), audience(&world)),
        (vec!["done".into()], None),
        "its subscribe was not refused"
    );
}

#[test]
fn a_refusal_is_remembered_for_ten_seconds() {
    for (later_ms, is_remembered) in [(9_999, true), (10_000, false)] {
        let mut world = following(5);
        world.link(false);
        world.submit_to("kept:b", subscribe(2));
        world.now_ms += later_ms;
        // Another refusal removes expired ones.
        world.submit_to("kept:b", subscribe(9));
        world.link(true);
        world.submit_to("kept:b", subscribe(4));
        world.submit_to("kept:b", BackendEvent::Subscribed);
        world.submit_to("kept:b", load(loaded(0, 1)));
        world.submit_to("kept:b", give_up(2));
        assert_eq!(world.channels.active().any(|(name, _)| &**name == "kept:b"), is_remembered, "{later_ms}");
    }
}

#[test]
fn a_link_that_comes_back_makes_every_cache_catch_up() {
    let mut world = following(5);
    for (channel, request) in
        [("plain:b", subscribe(1)), ("kept:c", subscribe(1)), ("plain:d", subscribe(1)), ("kept:e", subscribe(1))]
    {
        world.submit_to(channel, request);
    }
    world.submit_to("plain:b", BackendEvent::Subscribed);
    world.submit_to("kept:e", BackendEvent::Subscribed);
    // One channel is live, one with a history and one without wait for their subscription, and one loads.
    let mut lines = world.link(false);
    lines.sort();
    assert_eq!(lines, ["follow kept:c no more", "follow kept:e no more", UNREACHABLE, UNREACHABLE, "subscribed"]);
    let mut lines = world.link(true);
    lines.sort();
    assert_eq!(lines, ["follow plain:d", r#"load a of "" behind 4"#], "the newest that is here is compared");
    assert_eq!(world.submit_to("plain:d", BackendEvent::Subscribed), [""; 0]);
    // What was published meanwhile is delivered, and new publications wait for that.
    assert_eq!(world.submit(stored(7, 8)), [""; 0]);
    let delivered = [6, 7, 8].map(|offset| format!("to shard 0, a of 1: {offset} at {offset}"));
    assert_eq!(world.submit(load(loaded(5, 7))), delivered);
    // The link is lost and comes back during a load. The home loads again and takes the first result. Publications that
    // waited after it may have been lost meanwhile.
    assert_eq!(world.submit(stored(9, 10)), [r#"load a of "" behind 8"#]);
    world.link(false);
    assert_eq!(world.link(true), [r#"load a of "" behind 7"#]);
    assert_eq!(world.submit(load(loaded(8, 9))), ["to shard 0, a of 1: 9 at 9"]);
    let more = [10, 11].map(|offset| format!("to shard 0, a of 1: {offset} at {offset}"));
    assert_eq!(world.submit(load(loaded(8, 11))), more, "the second may know more");
}

#[test]
fn requests_that_rest_after_a_denial_are_refused_when_the_link_is_gone() {
    let mut world = following(2);
    assert_eq!(world.submit(recover(2, 5, epoch().as_str())), ["waits", r#"load a of "" behind 2"#]);
    assert_eq!(world.submit(recover(3, 4, epoch().as_str())), ["waits"]);
    let denied = format!("subscribed{}, nothing recovered, denied", at(2));
    assert_eq!(world.submit(load(loaded(2, 2))), [denied, "waits".into()]);
    assert_eq!(world.link(false), [""; 0]);
    assert_eq!(world.pass(199), [""; 0]);
    assert_eq!(world.pass(1), [UNREACHABLE]);
}

#[test]
fn a_top_that_may_be_that_of_the_stream_proves_nothing() {
    let mut world = World::in_cluster(history());
    world.submit(subscribe(1));
    world.submit(BackendEvent::Subscribed);
    assert!(!world.channels.is_live("a"));
    assert_eq!(world.submit(load(Loaded { top: Offset(9), ..loaded(0, 6) })), [format!("subscribed{}", at(9))]);
    assert!(world.channels.is_live("a") && !world.channels.is_live("b"));
    assert_eq!(world.submit(grown(4)), [r#"load a of "" behind 3"#]);
    assert_eq!(world.submit(load(Loaded { top: Offset(8), ..loaded(3, 6) })), [""; 0]);
}

#[test]
fn a_part_of_another_epoch_is_not_a_beginning() {
    let mut world = following(5);
    world.submit(unsubscribe(1));
    assert_eq!(world.submit(stored(7, 8)), [r#"load a of "" behind 5"#]);
    let other = Loaded { epoch: Epoch::from_bits(8), ..loaded(5, 8) };
    assert_eq!(world.submit(load(other)), [r#"load a of "" behind 0"#]);
}

#[test]
fn what_was_removed_is_not_lost() {
    for (until, is_lost) in [(5, false), (4, true)] {
        let mut world = following(5);
        assert_eq!(world.submit(grown(4)), [r#"load a of "" behind 3"#]);
        let removed = Loaded { kept: vec![(Offset(6), removal(Offset(until)).into())], top: Offset(6), ..loaded(3, 3) };
        let lines = world.submit(load(removed));
        let expected = [r#"to shard 0, a of 1: broken"#, r#"the stream of "" was set back in run 0"#];
        assert_eq!(lines, if is_lost { &expected[..] } else { &[] }, "{until}");
    }
}

#[test]
fn the_newest_publication_is_lost_if_it_was_read_for_and_not_let_go_of_and_is_not_there() {
    let cases = [
        ("not there, and nothing behind it", Loaded { kept: Vec::new(), top: Offset(5), ..loaded(3, 3) }, true),
        ("not there, and something behind it", Loaded { floor: Offset(3), ..loaded(5, 6) }, true),
        ("let go of", Loaded { floor: Offset(5), ..loaded(5, 6) }, false),
        ("there", loaded(3, 6), false),
    ];
    for (name, answer, is_lost) in cases {
        let mut world = following(5);
        assert_eq!(world.submit(grown(4)), [r#"load a of "" behind 3"#]);
        let lines = world.submit(load(Loaded { behind: Offset(3), ..answer }));
        assert_eq!(lines[0] == "to shard 0, a of 1: broken", is_lost, "{name}: {lines:?}");
    }
    let mut world = following(5);
    world.submit(stored(6, 7));
    let behind_it = Loaded { floor: Offset(0), ..loaded(5, 6) };
    assert_eq!(
        world.submit(load(behind_it)),
        ["to shard 0, a of 1: 6 at 6", "to shard 0, a of 1: 7 at 7"],
        "it was not read for"
    );
}

#[test]
fn a_load_from_before_a_verification_does_not_end_it() {
    for (number, is_lost) in [(1, false), (2, true)] {
        let mut world = following(5);
        assert_eq!(world.submit(grown(4)), [r#"load a of "" behind 3"#], "the second load");
        let lines = world.submit(load(Loaded { number, ..loaded(3, 3) }));
        assert_eq!(!lines.is_empty(), is_lost, "{number}: {lines:?}");
    }
}

#[test]
fn a_publication_that_is_not_here_was_let_go_of_or_is_new() {
    // The channel keeps the last five publications.
    let mut world = following(8);
    assert_eq!(world.submit(grown(2)), [r#"load a of "" behind 1"#]);
    assert_eq!(world.submit(load(loaded(1, 8))), [""; 0]);
    // The cache has received all of these publications.
    let mut world = World::in_cluster(history());
    world.submit(subscribe(1));
    world.submit(BackendEvent::Subscribed);
    let kept = [1, 2, 5].map(|offset| (Offset(offset), payload(offset, START_MS))).to_vec();
    world.submit(load(Loaded { kept, ..loaded(0, 5) }));
    assert_eq!(world.submit(grown(4)), [r#"load a of "" behind 3"#]);
    assert_eq!(world.submit(load(loaded(3, 5))).first().map(String::as_str), Some("to shard 0, a of 1: broken"));
}

#[test]
fn a_report_of_another_epoch_is_verified() {
    let other = Epoch::from_bits(8);
    for (epoch, top, is_looked_at) in [
        (other, 4, true),
        (other, 5, true),
        (epoch(), 5, false),
        (epoch(), 4, true),
        (Epoch::default(), 5, false),
        (Epoch::default(), 4, true),
    ] {
        let mut world = following(5);
        let lines = world.submit(BackendEvent::Advanced(StreamPosition { offset: Offset(top), epoch }));
        assert_eq!(!lines.is_empty(), is_looked_at, "{top} of {:?}: {lines:?}", epoch.as_str());
    }
}

#[test]
fn a_stream_that_has_grown_makes_its_own_caches_load() {
    let mut world = following(5);
    for channel in ["kept:b", "kept:c", "plain:d"] {
        world.submit_to(channel, subscribe(1));
        world.submit_to(channel, BackendEvent::Subscribed);
    }
    world.submit_to("kept:b", load(loaded(0, 2)));
    world.channels.check_namespace(&"".into());
    assert_eq!(world.rest(), [r#"check a of "" behind 5"#]);
    world.channels.check_namespace(&"kept".into());
    let mut lines = world.rest();
    lines.sort();
    assert_eq!(
        lines,
        [r#"check kept:b of "kept" behind 2"#, r#"check kept:c of "kept" behind 0"#],
        "one that loads too"
    );
    // A channel in memory, or one that is only subscribing, has nothing to load.
    world.channels.check_namespace(&"plain".into());
    world.channels.catch_up();
    assert_eq!(world.rest(), [""; 0]);
}

#[test]
fn an_unused_cache_is_dropped_after_ten_seconds() {
    // The channel is empty or not, and its publications have expired with and without subscribers.
    for (top, listened_s) in [(0, 5), (5, 5), (0, 200), (5, 200)] {
        let mut world = following(top);
        (0..listened_s).for_each(|_| assert_eq!(world.pass(1_000), [""; 0]));
        assert_eq!(world.submit(unsubscribe(1)), ["done"]);
        let mut lines = Vec::new();
        for second in 1..=22 {
            lines.extend(world.pass(1_000).into_iter().map(|line| format!("{line} after {second} s")));
        }
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let late = line
            .strip_prefix("follow a no more after ")
            .and_then(|rest| rest.strip_suffix(" s"))
            .map(str::parse::<u32>);
        // The channel is checked every ten seconds while there are subscribers.
        assert!(matches!(late, Some(Ok(10..=20))), "{line}, {top} {listened_s}");
        assert!(world.channels.is_empty());
    }
}

#[test]
fn so_many_refusals_are_remembered_and_the_oldest_is_forgotten_first() {
    const MOST: u32 = 100_000;
    let mut world = following(5);
    world.link(false);
    (0..=MOST).for_each(|slot| drop(world.submit_to("kept:b", subscribe(slot))));
    world.link(true);
    let subscriber = MOST + 1;
    world.submit_to("kept:b", subscribe(subscriber));
    world.submit_to("kept:b", BackendEvent::Subscribed);
    world.submit_to("kept:b", load(loaded(0, 1)));
    let is_active = |world: &World| world.channels.active().any(|(name, _)| &**name == "kept:b");
    for slot in [1, MOST] {
        world.submit_to("kept:b", give_up(slot));
        assert!(is_active(&world), "{slot} was refused");
    }
    world.submit_to("kept:b", give_up(0));
    assert!(!is_active(&world), "that one is not remembered");
}

#[test]
fn a_client_that_is_refused_again_is_remembered_from_the_second_time_on() {
    let mut world = following(5);
    world.link(false);
    world.submit_to("kept:b", subscribe(2));
    world.now_ms += 5_000;
    world.submit_to("kept:b", subscribe(2));
    world.now_ms += 5_000;
    // The first one is too old, and is removed.
    world.submit_to("kept:b", subscribe(9));
    world.link(true);
    world.submit_to("kept:b", subscribe(4));
    world.submit_to("kept:b", BackendEvent::Subscribed);
    world.submit_to("kept:b", load(loaded(0, 1)));
    world.submit_to("kept:b", give_up(2));
    assert!(world.channels.active().any(|(name, _)| &**name == "kept:b"), "the subscriber is left alone");
}

#[test]
fn a_quiet_channel_keeps_its_place_while_publications_of_others_come_and_go() {
    // Nothing of the channel is kept, and the stream has dropped everything up to 84.
    let quiet = |behind: u64, is_aged: bool| Loaded {
        behind: Offset(behind),
        top: Offset(90),
        floor: Offset(84),
        is_aged,
        ..loaded(90, 90)
    };
    let minute = 60_000;
    for (is_aged, away_ms, is_kept) in
        [(true, 1_000, true), (true, minute - 10_000, false), (true, minute, false), (false, 1_000, false)]
    {
        let mut world = following(5);
        // However long this lasted, new publications are delivered.
        world.pass(10 * minute);
        world.submit(load(Loaded { top: Offset(5), ..quiet(0, true) }));
        world.link(false);
        world.pass(away_ms);
        assert_eq!(world.link(true).len(), 1, "it is read again");
        let told = world.submit(load(quiet(5, is_aged)));
        assert_eq!(told.is_empty(), is_kept, "{is_aged} after {away_ms} ms: {told:?}");
        if is_kept {
            assert_eq!(world.submit(recover(2, 5, epoch().as_str())), [format!("subscribed{}, recovered []", at(90))]);
        }
    }
    // A client that is ahead does not affect the subscribers, however far ahead it is.
    let mut world = following(5);
    world.pass(10 * minute);
    assert_eq!(world.submit(recover(2, 80, epoch().as_str())), ["waits", r#"load a of "" behind 5"#]);
    assert_eq!(world.submit(load(quiet(5, true))), [format!("subscribed{}, recovered []", at(90))]);
}

#[test]
fn expired_publications_are_dropped_while_there_are_subscribers() {
    let mut world = following(0);
    // The channel is checked while it is empty.
    (0..20).for_each(|_| assert_eq!(world.pass(1_000), [""; 0]));
    world.submit(stored(0, 5));
    (0..60).for_each(|_| assert_eq!(world.pass(1_000), [""; 0]));
    world.link(false);
    assert_eq!(world.link(true), [r#"load a of "" behind 5"#], "nothing is left that could be compared");
}
