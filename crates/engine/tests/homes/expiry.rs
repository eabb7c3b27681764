//! When a home drops publications, positions and whole channels.

use std::time::Duration;

use touchline_engine::ChannelOptions;

use crate::world::{EPOCHS, World, history, publish, read, recover, subscribe, unsubscribe};

const SECOND: u64 = 1_000;

fn with_meta_ttl(seconds: u64) -> ChannelOptions {
    ChannelOptions { history_meta_ttl: Duration::from_secs(seconds), ..history() }
}

#[test]
fn a_publication_is_kept_for_its_time_and_its_position_longer() {
    let mut world = World::alone(with_meta_ttl(100));
    world.submit(publish(1));
    world.pass(60 * SECOND - 1);
    let at = format!("at 1 of {}", EPOCHS[0]);
    assert_eq!(world.submit(recover(1, 0, "")), [format!("subscribed {at}, recovered [1]")]);
    world.submit(unsubscribe(1));
    world.pass(1);
    assert_eq!(world.submit(recover(1, 0, "")), [format!("subscribed {at}, nothing recovered")]);
    assert_eq!(world.submit(recover(2, 1, "")), [format!("subscribed {at}, recovered []")]);
}

#[test]
fn an_unused_position_is_forgotten_after_its_time() {
    for is_subscribed in [false, true] {
        let mut world = World::alone(with_meta_ttl(100));
        world.submit(publish(1));
        if is_subscribed {
            world.submit(subscribe(1));
        }
        // The time begins with the last use: a publication, or the end of the last subscription.
        for _ in 0..99 {
            world.pass(SECOND);
        }
        if is_subscribed {
            for _ in 0..50 {
                world.pass(SECOND);
            }
            assert_eq!(world.channels.len(), 1, "it is used");
            world.submit(unsubscribe(1));
            for _ in 0..99 {
                world.pass(SECOND);
            }
        }
        world.pass(SECOND - 1);
        assert_eq!(world.channels.len(), 1, "{is_subscribed}");
        world.pass(1);
        assert_eq!(world.channels.len(), 0, "{is_subscribed}");
        assert_eq!(world.submit(publish(2)), [format!("published at 1 of {}", EPOCHS[1])], "a new life");
    }
}

#[test]
fn reading_keeps_a_position_alive() {
    let mut world = World::alone(with_meta_ttl(100));
    world.submit(publish(1));
    for _ in 0..5 {
        (0..80).for_each(|_| drop(world.pass(SECOND)));
        assert_eq!(world.submit(read(None)).len(), 1);
    }
    assert_eq!(world.channels.len(), 1);
    (0..101).for_each(|_| drop(world.pass(SECOND)));
    assert_eq!(world.channels.len(), 0);
}

#[test]
fn the_common_time_is_that_of_channels_without_their_own() {
    let mut world =
        World::with(history(), 1, |settings| settings.history_meta_ttl = Duration::from_secs(70), |channels| channels);
    world.submit(publish(1));
    (0..69).for_each(|_| drop(world.pass(SECOND)));
    world.pass(SECOND - 1);
    assert_eq!(world.channels.len(), 1);
    world.pass(1);
    assert_eq!(world.channels.len(), 0);
}

#[test]
fn publications_go_one_after_another() {
    let mut world = World::alone(with_meta_ttl(1_000));
    for data in 1..=3 {
        world.submit(publish(data));
        world.pass(10 * SECOND);
    }
    // No request arrives meanwhile.
    let kept = |world: &mut World| world.submit(read(None)).remove(0);
    let at = format!("at 3 of {}", EPOCHS[0]);
    world.pass(29 * SECOND);
    assert_eq!(kept(&mut world), format!("history [1, 2, 3] {at}"));
    for (seconds, left) in [(1, "[2, 3]"), (9, "[2, 3]"), (1, "[3]"), (10, "[]")] {
        world.pass(seconds * SECOND);
        assert_eq!(kept(&mut world), format!("history {left} {at}"));
    }
    // One more, after everything has expired.
    world.pass(500 * SECOND);
    world.submit(publish(4));
    world.pass(59 * SECOND);
    assert_eq!(kept(&mut world), format!("history [4] at 4 of {}", EPOCHS[0]));
}

#[test]
fn so_many_empty_channels_are_kept_and_the_oldest_goes_first() {
    let look = |world: &mut World, name: &str| world.submit_to(name, read(None)).remove(0);
    let mut world = World::with(with_meta_ttl(100), 2, |settings| settings.empty_channels_max = 3, |channels| channels);
    // The limit is three for two shards, so two apply here.
    for (name, epoch) in [("a", EPOCHS[0]), ("b", EPOCHS[1])] {
        assert_eq!(look(&mut world, name), format!("history [] at 0 of {epoch}"));
    }
    assert_eq!(world.channels.len(), 2);
    // A channel that is read again becomes the youngest.
    look(&mut world, "a");
    look(&mut world, "c");
    assert_eq!(world.channels.len(), 2);
    assert_eq!(look(&mut world, "a"), format!("history [] at 0 of {}", EPOCHS[0]), "b has gone");
    world.now_ms += 50 * SECOND;
    look(&mut world, "c");
    (0..49).for_each(|_| drop(world.pass(SECOND)));
    world.pass(SECOND - 1);
    assert_eq!(world.channels.len(), 2);
    world.pass(1);
    assert_eq!(world.channels.len(), 1, "a's time is over");
    (0..50).for_each(|_| drop(world.pass(SECOND)));
    assert_eq!(world.channels.len(), 0);
    ["d", "e"].iter().for_each(|name| drop(look(&mut world, name)));
    assert_eq!(world.channels.len(), 2, "channels that were used in time are not counted");
}

#[test]
fn a_position_goes_with_its_last_publication_at_the_earliest() {
    let short = Duration::from_millis(60_500);
    let mut world = World::alone(ChannelOptions { history_ttl: short, ..with_meta_ttl(10) });
    world.submit(publish(1));
    (0..60).for_each(|_| drop(world.pass(SECOND)));
    world.pass(499);
    assert_eq!(world.channels.len(), 1);
    world.pass(1);
    assert_eq!(world.channels.len(), 0, "it is looked at when the publication is due, and no more often");
}
