//! Empty channels with history: only a few of them are kept, and a channel that a client needs is never removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use touchline_engine::request::{ClientPosition, History, Publish, Recover, Subscribe};
use touchline_engine::{ChannelOptions, ChannelRequest, ChannelSettings, Channels, ConnectionId, Namespaces, Response};
use touchline_protocol::Error;
use touchline_protocol::publication::Content;
use touchline_protocol::stream::{ChannelName, Epoch, Offset};
use touchline_registry::HashSeed;

const NOW_MS: u64 = 1_700_000_000_000;
const META_TTL_MS: u64 = 3_600_000;

fn channels(most: usize) -> Channels {
    let options = ChannelOptions {
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        force_recovery: true,
        ..ChannelOptions::default()
    };
    let settings = ChannelSettings {
        without_namespace: options,
        empty_channels_max: most,
        history_meta_ttl: Duration::from_millis(META_TTL_MS),
        ..ChannelSettings::default()
    };
    Channels::new(Arc::new(Namespaces::new(settings)), 1, 7, HashSeed::repeatable(7))
}

fn subscriber(slot: u32) -> ConnectionId {
    ConnectionId { shard: 0, slot, generation: 1 }
}

/// Subscribes. Returns the channel's epoch, and whether the client recovered.
fn subscribe(channels: &mut Channels, name: &str, slot: u32, from: Option<Epoch>, now_ms: u64) -> (Epoch, bool) {
    let recover = from.map(|epoch| Recover {
        offset: Offset(0),
        epoch: epoch.as_str().into(),
        mode: Default::default(),
        limit: 100,
        size_max: usize::MAX,
    });
    let request = ChannelRequest::Subscribe(Box::new(Subscribe { connection: subscriber(slot), recover }));
    match channels.execute(&name.into(), request, now_ms) {
        Response::Subscribed(subscribed) => (subscribed.position.epoch, subscribed.recovered.flatten().is_some()),
        other => panic!("{other:?}"),
    }
}

fn leave(channels: &mut Channels, name: &str, slot: u32, now_ms: u64) {
    let request = ChannelRequest::Unsubscribe { connection: subscriber(slot), is_answered: true };
    assert!(matches!(channels.execute(&name.into(), request, now_ms), Response::Done));
}

fn ask(channels: &mut Channels, name: &str, since: Option<(u64, &str)>, now_ms: u64) -> Option<Epoch> {
    let since = since.map(|(offset, epoch)| ClientPosition { offset: Offset(offset), epoch: epoch.into() });
    let request = ChannelRequest::History(Box::new(History { since, ..History::default() }));
    match channels.execute(&name.into(), request, now_ms) {
        Response::History { position, .. } => Some(position.epoch),
        Response::Refused(_) => None,
        other => panic!("{other:?}"),
    }
}

fn publish(channels: &mut Channels, name: &str, now_ms: u64) -> u64 {
    let content = Content { data: Bytes::from_static(b"1"), ..Content::default() };
    match channels.execute(
        &name.into(),
        ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() })),
        now_ms,
    ) {
        Response::Published(Some(position)) => position.offset.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reading_ever_new_channels_keeps_few_of_them() {
    let mut channels = channels(100);
    let mut epochs = Vec::new();
    for n in 0..10_000u64 {
        let name = format!("c{n}");
        let now_ms = NOW_MS + n;
        if n % 3 == 0 {
            epochs.push(ask(&mut channels, &name, None, now_ms).expect("there is a history"));
        } else if n % 3 == 1 {
            // A position of another epoch is refused, and creates no more than a read does.
            assert_eq!(ask(&mut channels, &name, Some((1, "other")), now_ms), None);
            epochs.push(Epoch::default());
        } else {
            epochs.push(subscribe(&mut channels, &name, 1, None, now_ms).0);
            leave(&mut channels, &name, 1, now_ms);
        }
        assert!(channels.len() <= 100, "{} after {n}", channels.len());
        if n % 1_000 == 0 {
            channels.expire(now_ms);
        }
    }
    let now_ms = NOW_MS + 20_000;
    assert_eq!(
        subscribe(&mut channels, "c9998", 1, Some(epochs[9_998]), now_ms),
        (epochs[9_998], true),
        "a client that returns soon misses nothing"
    );
    let (epoch, recovered) = subscribe(&mut channels, "c2", 1, Some(epochs[2]), now_ms);
    assert!(epoch != epochs[2] && !recovered, "a client that returns late does not recover");
}

#[test]
fn none_are_kept_where_none_may_be() {
    let mut channels = channels(0);
    ask(&mut channels, "a", None, NOW_MS);
    subscribe(&mut channels, "b", 1, None, NOW_MS);
    assert_eq!(channels.len(), 1);
    leave(&mut channels, "b", 1, NOW_MS);
    assert_eq!(channels.len(), 0);
}

#[test]
fn an_empty_channel_is_forgotten_in_time_too() {
    let mut channels = channels(100);
    ask(&mut channels, "a", None, NOW_MS);
    for step in [1_000, 2_000, META_TTL_MS - 1] {
        channels.expire(NOW_MS + step);
        assert_eq!(channels.len(), 1);
    }
    channels.expire(NOW_MS + META_TTL_MS);
    assert_eq!(channels.len(), 0);
}

#[test]
fn a_channel_that_was_published_to_is_kept_and_goes_in_its_time() {
    let mut channels = channels(1);
    subscribe(&mut channels, "a", 1, None, NOW_MS);
    // Enough time has passed that its expiry was checked while there was nothing to expire.
    channels.expire(NOW_MS + 5_000);
    assert_eq!(publish(&mut channels, "a", NOW_MS + 5_000), 1);
    leave(&mut channels, "a", 1, NOW_MS + 6_000);
    assert!((0..100).all(|n| ask(&mut channels, &format!("other{n}"), None, NOW_MS + 7_000).is_some()));
    assert_eq!(channels.len(), 2);
    for second in 7..3_000 {
        channels.expire(NOW_MS + second * 1_000);
    }
    assert_eq!(publish(&mut channels, "a", NOW_MS + 3_000_000), 2, "its position outlives its publications");
    for second in 3_000..3_000 + META_TTL_MS / 1_000 + 120 {
        channels.expire(NOW_MS + second * 1_000);
    }
    assert_eq!(channels.len(), 0);
}

#[test]
fn there_are_so_many_channels_and_no_more() {
    let mut channels = channels(100).limited(3);
    let refused = |response: Response| matches!(response, Response::Refused(Error::LIMIT_EXCEEDED));
    subscribe(&mut channels, "heard", 1, None, NOW_MS);
    publish(&mut channels, "told", NOW_MS);
    ask(&mut channels, "looked at", None, NOW_MS);
    // An empty channel is removed to make room.
    subscribe(&mut channels, "new", 2, None, NOW_MS);
    assert_eq!(channels.len(), 3);
    let name: ChannelName = "more".into();
    let recover = None;
    assert!(refused(channels.execute(
        &name,
        ChannelRequest::Subscribe(Box::new(Subscribe { connection: subscriber(3), recover })),
        NOW_MS
    )));
    assert!(refused(channels.execute(&name, ChannelRequest::Publish(Box::default()), NOW_MS)));
    assert!(refused(channels.execute(&name, ChannelRequest::History(Box::default()), NOW_MS)));
    // Existing channels continue. A refused client that leaves before it gets the refusal removes no subscriber.
    leave(&mut channels, "new", 2, NOW_MS);
    subscribe(&mut channels, "more", 4, None, NOW_MS);
    let left = ChannelRequest::Unsubscribe { connection: subscriber(3), is_answered: false };
    assert!(matches!(channels.execute(&name, left, NOW_MS), Response::Done));
    assert_eq!(channels.active().map(|(_, subscribers)| subscribers).sum::<u64>(), 2);
    assert_eq!(publish(&mut channels, "told", NOW_MS), 2);
    assert_eq!(channels.len(), 3);
}

proptest! {
    /// Whatever happens in whatever order, channels with subscribers or publications keep their epoch, and the number
    /// of other channels stays within the limit.
    #[test]
    fn what_is_needed_never_goes(steps in prop::collection::vec((0u32..40, 0u32..4, 0u64..3_000), 1..400)) {
        const MOST: usize = 5;
        let mut channels = channels(MOST);
        // For each channel: its epoch, whether it has a subscriber, and whether something was published.
        let mut model: BTreeMap<u32, (Epoch, bool, bool)> = BTreeMap::new();
        let mut now_ms = NOW_MS;
        for (number, act, later_ms) in steps {
            now_ms += later_ms;
            let name = format!("c{number}");
            let known = model.get(&number).copied();
            let (mut is_heard, mut is_published) =
                known.map_or((false, false), |(_, heard, published)| (heard, published));
            let is_needed = is_heard || is_published;
            match act {
                0 if is_heard => {
                    leave(&mut channels, &name, number, now_ms);
                    is_heard = false;
                }
                0 => {
                    subscribe(&mut channels, &name, number, None, now_ms);
                    is_heard = true;
                }
                1 => {
                    publish(&mut channels, &name, now_ms);
                    is_published = true;
                }
                2 => channels.expire(now_ms),
                _ => {}
            }
            let needed = model
                .iter()
                .filter(|(other, (_, heard, published))| **other != number && (*heard || *published))
                .count();
            prop_assert!(channels.len() <= needed + 1 + MOST);
            let epoch = ask(&mut channels, &name, None, now_ms).expect("there is a history");
            if is_needed && let Some((before, ..)) = known {
                prop_assert_eq!(epoch, before);
            }
            model.insert(number, (epoch, is_heard, is_published));
        }
    }
}
