//! The home of channels whose log is in memory.

use std::sync::Arc;

use touchline_engine::request::{ClientPosition, History, Recover, Subscribe};
use touchline_engine::{ChannelOptions, ChannelRequest, Channels, RecoveryMode};
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::Offset;

use crate::world::{
    EPOCHS, World, connection, history, publish, publish_with, read, recover, recover_with, subscribe, unsubscribe,
};

#[test]
fn publications_have_one_order_and_reach_each_shard_that_has_subscribers() {
    let mut world = World::with(history(), 3, |_| {}, |channels| channels);
    let [first, second, _] = EPOCHS;
    for (shard, slot) in [(0, 1), (2, 1), (2, 2)] {
        let request =
            ChannelRequest::Subscribe(Box::new(Subscribe { connection: connection(shard, slot), recover: None }));
        assert_eq!(world.submit(request), [format!("subscribed at 0 of {first}")]);
    }
    assert_eq!(
        world.submit(publish(7)),
        [
            format!("published at 1 of {first}"),
            "to shard 0, a of 3: 7 at 1".into(),
            "to shard 2, a of 3: 7 at 1".into()
        ]
    );
    assert_eq!(world.submit(unsubscribe(1)), ["done"]);
    assert_eq!(world.submit(publish(8)), [format!("published at 2 of {first}"), "to shard 2, a of 2: 8 at 2".into()]);
    // Another channel has an epoch of its own.
    assert_eq!(world.submit_to("b", publish(9)), [format!("published at 1 of {second}")]);
    let mut active: Vec<_> =
        world.channels.active().map(|(name, subscribers)| (name.to_string(), subscribers)).collect();
    active.sort();
    assert_eq!((active, world.channels.len(), world.channels.is_empty()), (vec![("a".into(), 2)], 2, false));
}

#[test]
fn a_channel_without_history_keeps_nothing_and_is_gone_with_its_last_subscriber() {
    let mut world = World::alone(ChannelOptions::default());
    assert_eq!(world.submit(publish(7)), ["published"]);
    assert!(world.channels.is_empty(), "there are no subscribers");
    assert_eq!(world.submit(subscribe(1)), ["subscribed"]);
    assert_eq!(world.submit(publish(8)), ["published", "to shard 0, a of 1: 8 at 0"]);
    assert_eq!(world.submit(recover(2, 0, "")), ["subscribed"], "there is nothing to recover");
    for request in [read(None), ChannelRequest::HistoryRemove] {
        assert_eq!(world.submit(request), ["refused: 108 not available"]);
    }
    assert_eq!(world.submit(unsubscribe(1)), ["done"]);
    assert_eq!(world.channels.len(), 1);
    assert_eq!(world.submit(unsubscribe(2)), ["done"]);
    assert!(world.channels.is_empty());
    assert_eq!(world.submit(unsubscribe(2)), ["done"]);
    assert_eq!(world.submit_to("nowhere:a", publish(1)), ["refused: 102 unknown channel"]);
}

#[test]
fn joins_and_leaves_reach_the_subscribers_of_a_channel_that_is_known() {
    let mut world = World::alone(history());
    let push = || ChannelRequest::Announce(Arc::new(EncodedPush::encode(10, |out| out.extend_from_slice(b"\"ann\""))));
    assert_eq!(world.submit(push()), ["done"]);
    assert!(world.channels.is_empty(), "a word about it does not make a channel");
    world.submit(subscribe(1));
    assert_eq!(world.submit(push()), ["done", r#"to shard 0, a of 1: {"push":"ann"}"#]);
}

#[test]
fn what_is_kept_is_read_from_any_position() {
    let mut world = World::alone(history());
    (1..=7).for_each(|data| drop(world.submit(publish(data))));
    let epoch = EPOCHS[0];
    let at = format!("at 7 of {epoch}");
    let cases = [
        (read(None), format!("history [3, 4, 5, 6, 7] {at}")),
        (read(Some((5, epoch))), format!("history [6, 7] {at}")),
        (read(Some((5, ""))), format!("history [6, 7] {at}")),
        (read(Some((5, "other"))), "refused: 112 unrecoverable position".into()),
    ];
    for (request, expected) in cases {
        assert_eq!(world.submit(request), [expected]);
    }
    let mut ask = |limit: Option<usize>, since: Option<u64>, reverse: bool, size_max: Option<usize>| {
        let since = since.map(|offset| ClientPosition { offset: Offset(offset), epoch: epoch.into() });
        world.submit(ChannelRequest::History(Box::new(History { limit, since, reverse, size_max }))).remove(0)
    };
    assert_eq!(ask(Some(0), None, false, None), format!("history [] {at}"));
    assert_eq!(ask(Some(2), None, false, None), format!("history [3, 4] {at}"));
    assert_eq!(ask(Some(2), None, true, None), format!("history [7, 6] {at}"));
    assert_eq!(ask(None, Some(6), true, None), format!("history [5, 4, 3] {at}"));
    assert_eq!(ask(None, Some(1), true, None), format!("history [] {at}"));
    assert_eq!(ask(None, Some(0), true, None), "refused: 107 bad request", "nothing is before the first");
    assert_eq!(
        ask(None, Some(0), false, None),
        format!("history [3, 4, 5, 6, 7] {at}"),
        "from the beginning of what there is"
    );
    assert_eq!(ask(None, Some(1), false, None), "refused: 112 unrecoverable position", "2 is gone");
    assert_eq!(ask(None, Some(2), false, None), format!("history [3, 4, 5, 6, 7] {at}"));
    assert_eq!(ask(None, Some(7), false, None), format!("history [] {at}"));
    assert_eq!(ask(None, Some(8), false, None), "refused: 112 unrecoverable position", "it was never given");
    // A size limit admits at least one publication. Here two fit exactly, or one of the two.
    let publication = |data| {
        touchline_protocol::Publication::encode(
            "a",
            &touchline_protocol::publication::Content { data, ..Default::default() },
            Some(touchline_protocol::publication::LogPosition {
                offset: Offset(3),
                epoch,
                time_ms: crate::world::START_MS,
            }),
        )
    };
    let size = publication("3".into()).size();
    assert_eq!(ask(None, None, false, Some(0)), format!("history [3] {at}"));
    assert_eq!(ask(None, None, false, Some(2 * size)), format!("history [3, 4] {at}"));
    assert_eq!(ask(None, None, false, Some(2 * size - 1)), format!("history [3] {at}"));
    assert_eq!(world.submit(ChannelRequest::HistoryRemove), ["done"]);
    assert_eq!(world.submit(read(None)), [format!("history [] {at}")], "the position stays");
    assert_eq!(world.submit(publish(8)), [format!("published at 8 of {epoch}")]);
    assert_eq!(world.submit_to("b", ChannelRequest::HistoryRemove), ["done"]);
    assert_eq!(world.channels.len(), 1);
}

#[test]
fn a_returning_subscriber_gets_exactly_what_it_missed() {
    let mut world = World::alone(history());
    (1..=7).for_each(|data| drop(world.submit(publish(data))));
    let epoch = EPOCHS[0];
    let at = format!("subscribed at 7 of {epoch}");
    for (offset, from, expected) in [
        (2, epoch, "recovered [3, 4, 5, 6, 7]"),
        (1, epoch, "nothing recovered"),
        (6, epoch, "recovered [7]"),
        (7, epoch, "recovered []"),
        (8, epoch, "nothing recovered"),
        (6, "", "recovered [7]"),
        (6, "other", "nothing recovered"),
    ] {
        assert_eq!(world.submit(recover(1, offset, from)), [format!("{at}, {expected}")], "{offset} of {from}");
        world.submit(unsubscribe(1));
    }
    let size = |world: &mut World, size_max: usize, limit: usize, mode: RecoveryMode| {
        let lines =
            world.submit(recover_with(1, Recover { offset: Offset(5), epoch: epoch.into(), mode, limit, size_max }));
        world.submit(unsubscribe(1));
        lines
    };
    for (limit, expected) in [(2, "recovered [6, 7]"), (1, "nothing recovered")] {
        assert_eq!(size(&mut world, usize::MAX, limit, RecoveryMode::Stream), [format!("{at}, {expected}")]);
    }
    assert_eq!(size(&mut world, usize::MAX, 2, RecoveryMode::Cache), [format!("{at}, recovered [7]")]);
    let one = {
        let mut bytes = 0;
        while size(&mut world, bytes, 2, RecoveryMode::Stream)[0].ends_with("nothing recovered") {
            bytes += 1;
        }
        bytes
    };
    assert_eq!(one % 2, 0, "both are of one size");
    let request =
        Recover { offset: Offset(6), epoch: epoch.into(), mode: RecoveryMode::Stream, limit: 9, size_max: one / 2 };
    assert_eq!(world.submit(recover_with(1, request)), [format!("{at}, recovered [7]")]);
}

#[test]
fn an_expired_publication_is_not_delivered_any_more() {
    let mut world = World::alone(history());
    let until_ms = world.now_ms + 100;
    world.submit(publish_with(1, |publish| publish.content.expires_ms = until_ms));
    world.submit(publish(2));
    world.now_ms = until_ms - 1;
    let at = format!("at 2 of {}", EPOCHS[0]);
    assert_eq!(world.submit(read(None)), [format!("history [1, 2] {at}")]);
    assert_eq!(world.submit(recover(1, 0, "")), [format!("subscribed {at}, recovered [1, 2]")]);
    world.now_ms = until_ms;
    assert_eq!(world.submit(read(None)), [format!("history [2] {at}")]);
    assert_eq!(world.submit(recover(2, 0, "")), [format!("subscribed {at}, recovered [2]")]);
}

#[test]
fn a_version_at_or_below_the_last_is_dropped() {
    let mut world = World::alone(history());
    world.submit(subscribe(1));
    let mut send = |version: u64, epoch: &str| {
        let lines = world.submit(publish_with(1, |publish| {
            (publish.version, publish.version_epoch) = (version, epoch.into());
        }));
        lines.len() == 2
    };
    // Each case says whether the publication is delivered. Versions compare within an epoch of the application; 0 is
    // none.
    let cases = [
        (5, "", true),
        (5, "", false),
        (4, "", false),
        (6, "", true),
        (1, "x", true),
        (1, "x", false),
        (2, "x", true),
        (1, "", true),
        (0, "", true),
        (1, "", false),
    ];
    for (version, epoch, is_delivered) in cases {
        assert_eq!(send(version, epoch), is_delivered, "{version} of {epoch:?}");
    }
    let published = world.submit(publish_with(1, |publish| publish.version = 1));
    assert_eq!(published, [format!("published at 6 of {}", EPOCHS[0])], "the position of the last one");
}

#[test]
fn a_key_is_remembered_for_five_minutes_and_gives_the_first_result() {
    for is_kept in [true, false] {
        let mut world = World::alone(if is_kept { history() } else { ChannelOptions::default() });
        world.submit(subscribe(1));
        let at =
            |offset: u64| if is_kept { format!("published at {offset} of {}", EPOCHS[0]) } else { "published".into() };
        let send = |world: &mut World, key: &str| {
            world.submit(publish_with(1, |publish| publish.idempotency_key = key.into()))
        };
        assert_eq!(send(&mut world, "k")[0], at(1));
        assert_eq!(send(&mut world, "k"), [at(1)], "nothing is published");
        assert_eq!(send(&mut world, "l")[0], at(2));
        assert_eq!(send(&mut world, "").len() + send(&mut world, "").len(), 4, "without a key each one counts");
        world.now_ms += 5 * 60 * 1_000 - 1;
        assert_eq!(send(&mut world, "k"), [at(1)]);
        world.now_ms += 1;
        assert_eq!(send(&mut world, "k")[0], at(5));
        assert_eq!(send(&mut world, "k"), [at(5)]);
    }
}

#[test]
fn changes_are_offered_where_the_one_before_is_known_to_subscribers() {
    let options = |kept: ChannelOptions| ChannelOptions { allowed_delta_types: vec!["fossil".into()], ..kept };
    let mut world = World::alone(options(history()));
    world.submit(subscribe(1));
    let send = |world: &mut World, data: u32, skip_history: bool| {
        world.submit(publish_with(data, |publish| publish.skip_history = skip_history)).remove(1)
    };
    assert_eq!(send(&mut world, 1, false), "to shard 0, a of 1: 1 at 1");
    assert_eq!(send(&mut world, 2, false), "to shard 0, a of 1: 2 at 2, a change of 1");
    // A publication outside the history is neither a delta nor the base of one.
    assert_eq!(send(&mut world, 3, true), "to shard 0, a of 1: 3 at 0");
    assert_eq!(send(&mut world, 4, false), "to shard 0, a of 1: 4 at 3");
    assert_eq!(send(&mut world, 5, false), "to shard 0, a of 1: 5 at 4, a change of 4");
    let mut world = World::alone(options(ChannelOptions::default()));
    world.submit(subscribe(1));
    assert_eq!(send(&mut world, 1, false), "to shard 0, a of 1: 1 at 0");
    assert_eq!(send(&mut world, 2, false), "to shard 0, a of 1: 2 at 0, a change of 1");
    let mut world = World::alone(history());
    world.submit(subscribe(1));
    assert_eq!(send(&mut world, 1, false), "to shard 0, a of 1: 1 at 1");
    assert_eq!(send(&mut world, 2, false), "to shard 0, a of 1: 2 at 2", "deltas are not allowed here");
}

#[test]
fn audiences_are_told_with_their_peaks_since_the_last_time() {
    let mut world = World::with(history(), 1, |_| {}, Channels::counting_audiences);
    let told = |world: &mut World| {
        let mut told: Vec<_> = world
            .channels
            .take_subscriber_counts()
            .into_iter()
            .map(|(name, counts)| (name.to_string(), counts))
            .collect();
        told.sort();
        told
    };
    let named = |name: &str, now: u64, peak: u64| (name.to_owned(), (now, peak));
    assert_eq!(told(&mut world), []);
    (1..=3).for_each(|slot| drop(world.submit(subscribe(slot))));
    world.submit(unsubscribe(1));
    world.submit_to("plain:b", subscribe(1));
    world.submit_to("plain:b", subscribe(2));
    world.submit_to("plain:b", unsubscribe(1));
    world.submit_to("plain:b", unsubscribe(2));
    world.submit_to("plain:b", subscribe(1));
    assert_eq!(told(&mut world), [named("a", 2, 3), named("plain:b", 1, 2)]);
    world.submit_to("plain:b", unsubscribe(1));
    assert_eq!(told(&mut world), [named("a", 2, 2), named("plain:b", 0, 1)], "what is there counts from the beginning");
    world.submit(unsubscribe(2));
    world.submit(unsubscribe(3));
    world.submit(publish(1));
    assert_eq!(told(&mut world), [named("a", 0, 2)]);
    assert_eq!(told(&mut world), []);
    // If audiences are not counted, a channel is forgotten together with its audience.
    let mut world = World::alone(ChannelOptions::default());
    world.submit(subscribe(1));
    world.submit(unsubscribe(1));
    assert_eq!(told(&mut world), []);
}

#[test]
fn what_keeps_nothing_needs_no_room() {
    let mut world = World::with(history(), 1, |_| {}, |channels| channels.limited(1));
    world.submit(subscribe(1));
    assert_eq!(world.submit_to("b", publish(1)), ["refused: 106 limit exceeded"]);
    assert_eq!(world.submit_to("b", publish_with(1, |publish| publish.skip_history = true)), ["published"]);
    assert_eq!(world.submit_to("plain:b", publish(1)), ["published"]);
}
