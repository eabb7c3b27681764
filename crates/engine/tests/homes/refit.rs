//! Changed options for channels that are in use.

use std::sync::Arc;
use std::time::Duration;

use touchline_engine::request::BackendEvent;
use touchline_engine::{ChannelOptions, ChannelSettings, Namespace, Namespaces};

use crate::world::START_MS;
use crate::world::{
    EPOCHS, World, give_up, history, load, loaded, payload, publish, read, stored, subscribe, unsubscribe,
};

/// Changes the options of channels without a namespace, and adds or removes the namespace `kept`.
fn change(world: &mut World, options: ChannelOptions, has_kept: bool) -> Vec<String> {
    let kept = Namespace { name: "kept".into(), options: history() };
    let namespaces = if has_kept { vec![kept] } else { Vec::new() };
    let settings = ChannelSettings { without_namespace: options, namespaces, ..ChannelSettings::default() };
    world.channels.set_namespaces(Arc::new(Namespaces::new(settings)), world.now_ms);
    world.rest()
}

#[test]
fn a_log_in_memory_begins_and_ends_where_it_is() {
    let mut world = World::alone(ChannelOptions::default());
    assert_eq!(world.submit(subscribe(1)), ["subscribed"]);
    assert_eq!(world.submit(publish(6)), ["published", "to shard 0, a of 1: 6 at 0"]);
    assert_eq!(change(&mut world, history(), true), [""; 0]);
    let epoch = EPOCHS[0];
    assert_eq!(world.submit(publish(7)), [format!("published at 1 of {epoch}"), "to shard 0, a of 1: 7 at 1".into()]);
    assert_eq!(world.submit(read(None)), [format!("history [1] at 1 of {epoch}")]);
    assert_eq!(change(&mut world, ChannelOptions { history_size: 1, ..history() }, true), [""; 0]);
    assert_eq!(world.submit(publish(8)), [format!("published at 2 of {epoch}"), "to shard 0, a of 1: 8 at 2".into()]);
    assert_eq!(world.submit(read(None)), [format!("history [2] at 2 of {epoch}")], "it is shorter");
    assert_eq!(change(&mut world, ChannelOptions::default(), true), [""; 0]);
    assert_eq!(world.submit(publish(9)), ["published", "to shard 0, a of 1: 9 at 0"]);
    assert_eq!(world.submit(read(None)), ["refused: 108 not available"]);
    assert_eq!(world.submit(unsubscribe(1)), ["done"]);
    assert!(world.channels.is_empty());
}

#[test]
fn what_is_too_old_or_too_much_goes_at_once() {
    let mut world = World::alone(history());
    let epoch = EPOCHS[0];
    for data in 1..=4 {
        world.submit(publish(data));
        world.now_ms += 1_000;
    }
    change(&mut world, ChannelOptions { history_size: 3, ..history() }, true);
    assert_eq!(world.submit(read(None)), [format!("history [2, 3, 4] at 4 of {epoch}")]);
    let short = ChannelOptions { history_ttl: Duration::from_millis(2_500), ..history() };
    change(&mut world, short.clone(), true);
    assert_eq!(world.submit(read(None)), [format!("history [3, 4] at 4 of {epoch}")]);
    world.now_ms += 2_000;
    world.channels.expire(world.now_ms);
    assert_eq!(world.submit(read(None)), [format!("history [] at 4 of {epoch}")]);
    change(&mut world, history(), true);
    world.submit(publish(5));
    world.now_ms += 59_000;
    assert_eq!(world.submit(read(None)), [format!("history [5] at 5 of {epoch}")], "it is longer again");
}

#[test]
fn what_nobody_subscribes_to_goes_with_its_log() {
    let mut world = World::alone(history());
    assert_eq!(world.submit(publish(7)).len(), 1);
    assert_eq!(world.submit(read(None)).len(), 1);
    assert_eq!(world.submit_to("b", read(None)).len(), 1);
    assert_eq!(world.channels.len(), 2);
    change(&mut world, ChannelOptions::default(), true);
    assert!(world.channels.is_empty());
    world.channels.expire(world.now_ms + 3_600_000);
    change(&mut world, history(), true);
    assert_eq!(world.submit(subscribe(1)).len(), 1);
}

#[test]
fn subscribers_of_a_namespace_that_is_gone_leave() {
    let mut world = World::alone(history());
    assert_eq!(world.submit_to("kept:a", subscribe(1)).len(), 1);
    change(&mut world, history(), false);
    assert_eq!(world.submit_to("kept:a", publish(7)), ["refused: 102 unknown channel"]);
    assert_eq!(world.submit_to("kept:a", subscribe(2)), ["refused: 102 unknown channel"]);
    assert_eq!(world.submit_to("kept:a", give_up(2)), ["refused: 102 unknown channel"], "it was never in");
    assert_eq!(world.channels.active().count(), 1);
    assert_eq!(world.submit_to("kept:a", unsubscribe(1)), ["done"]);
    assert!(world.channels.is_empty());
}

#[test]
fn where_the_cluster_keeps_the_log_subscribers_begin_anew() {
    let mut world = World::in_cluster(ChannelOptions::default());
    assert_eq!(world.submit(subscribe(1)), ["waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), ["subscribed"]);
    assert_eq!(change(&mut world, history(), true), ["to shard 0, a of 1: broken"]);
    assert_eq!(world.submit(unsubscribe(1)), ["done"]);
    assert_eq!(world.submit(subscribe(1)), ["waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), [r#"load a of "" behind 0"#]);
    let subscribed = world.submit(load(loaded(0, 3)));
    assert_eq!(subscribed.len(), 1);
    assert_eq!(world.submit(stored(3, 4)), ["to shard 0, a of 1: 4 at 4"]);
    assert_eq!(change(&mut world, ChannelOptions { history_size: 2, ..history() }, true), [""; 0], "it only cuts");
    assert_eq!(world.submit(stored(4, 5)), ["to shard 0, a of 1: 5 at 5"]);
    assert_eq!(change(&mut world, ChannelOptions::default(), true), ["to shard 0, a of 1: broken"]);
    assert_eq!(world.submit(subscribe(2)), ["waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), ["subscribed"]);
    assert_eq!(world.submit(BackendEvent::Ephemeral(payload(7, START_MS))), ["to shard 0, a of 2: 7 at 0"]);
}

#[test]
fn who_waits_for_a_log_is_judged_anew() {
    let mut world = World::in_cluster(history());
    assert_eq!(world.submit(subscribe(1)), ["waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), [r#"load a of "" behind 0"#]);
    let options = ChannelOptions { history_ttl: Duration::ZERO, ..history() };
    assert_eq!(change(&mut world, options, true), ["follow a no more", "waits", "follow a"]);
    assert_eq!(world.submit(BackendEvent::Subscribed), ["subscribed"]);
    assert_eq!(world.submit_to("kept:a", subscribe(1)), ["waits", "follow kept:a"]);
    assert_eq!(change(&mut world, history(), false).last().map(String::as_str), Some("refused: 102 unknown channel"));
}
