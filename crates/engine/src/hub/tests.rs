//! Tests of the hub.

use std::sync::Arc;

use touchline_protocol::filter::Filter;
use touchline_registry::HashSeed;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

proptest! {
    /// Compares the hub with a plain map: after joins and leaves in any order the subscribers are the same, and
    /// each gets the publications that match its filter.
    #[test]
    fn subscribers_are_the_slots_that_joined_and_did_not_leave(
        steps in prop::collection::vec((0u32..6, 0u32..20, any::<bool>(), 0u32..12), 1..200)
    ) {
        let mut hub = Hub::new(HashSeed::repeatable(7));
        let mut model: BTreeMap<(u32, u32), (LocalChannel, Membership, bool, u32)> = BTreeMap::new();
        for (channel, slot, wants, filter) in steps {
            match model.remove(&(channel, slot)) {
                Some((local, membership, ..)) => { hub.leave(local, membership); hub.release(local); }
                None => {
                    let local = hub.acquire(&format!("c{channel}"));
                    let options = DeliveryOptions { membership_events: wants, delta: None, filter: wanted(filter) };
                    let membership = hub.join(local, slot, options);
                    model.insert((channel, slot), (local, membership, wants, filter));
                }
            }
            for c in 0..6 {
                let of = |fits: &dyn Fn(bool, u32) -> bool| -> Vec<u32> {
                    model.iter().filter(|((k, _), v)| *k == c && fits(v.2, v.3)).map(|((_, s), _)| *s).collect()
                };
                let Some(local) = hub.find(&format!("c{c}")) else {
                    prop_assert!(of(&|_, _| true).is_empty());
                    continue;
                };
                let mut recipients = Vec::new();
                let tags = || Tags::from([("n".to_owned(), "2".to_owned())]);
                hub.for_each_recipient(local, false, tags, |slot, _| recipients.push(slot));
                let sorted = |mut slots: Vec<u32>| { slots.sort_unstable(); slots };
                prop_assert_eq!(sorted(hub.subscribers(local).collect()), of(&|_, _| true));
                prop_assert_eq!(sorted(hub.membership_subscribers(local).collect()), of(&|wants, _| wants));
                prop_assert_eq!(sorted(recipients), of(&|_, filter| matches!(filter, 0 | 2)));
            }
        }
    }
}

/// `None` for 0; otherwise a filter that matches if the tag `n` is this number.
fn wanted(n: u32) -> Option<Arc<Filter>> {
    (n > 0).then(|| Arc::new(Filter::Tag("n".into(), touchline_protocol::filter::Comparison::Equals(n.to_string()))))
}

#[test]
fn equal_filters_share_a_group_and_a_free_group_is_used_again() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let local = hub.acquire("c");
    let groups = |hub: &Hub| hub.audience(local).filtered.as_ref().map_or(0, |filtered| filtered.groups.len());
    let join = |hub: &mut Hub, slot, filter| {
        hub.join(local, slot, DeliveryOptions { filter: wanted(filter), ..DeliveryOptions::default() })
    };
    let held: Vec<Membership> = (1..=200).map(|n| join(&mut hub, n, n)).collect();
    assert_eq!(groups(&hub), 200);
    let again: Vec<Membership> = (1..=200).map(|n| join(&mut hub, 1_000 + n, n)).collect();
    assert_eq!(groups(&hub), 200, "equal filters share a group");
    held.iter().for_each(|membership| hub.leave(local, *membership));
    assert_eq!(groups(&hub), 200);
    again[..100].iter().for_each(|membership| hub.leave(local, *membership));
    let _fresh: Vec<Membership> = (201..=300).map(|n| join(&mut hub, n, n)).collect();
    assert_eq!(groups(&hub), 200, "free groups are used again");
    assert_eq!(hub.subscriber_count(local), 200);
    again[100..].iter().for_each(|membership| hub.leave(local, *membership));
    let mut recipients = Vec::new();
    hub.for_each_recipient(
        local,
        false,
        || Tags::from([("n".to_owned(), "250".to_owned())]),
        |slot, _| recipients.push(slot),
    );
    assert_eq!(recipients, [250]);
}

#[test]
fn deltas_begin_once_there_is_a_base() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let local = hub.acquire("c");
    for (slot, delta) in [(1, None), (2, Some(false)), (3, Some(true))] {
        hub.join(local, slot, DeliveryOptions { delta, ..DeliveryOptions::default() });
    }
    let mut forms = |has_previous| {
        let mut all = Vec::new();
        hub.for_each_recipient(local, has_previous, Tags::new, |slot, form| all.push((slot, form)));
        all
    };
    assert_eq!(forms(true), [(1, DeliveryForm::Plain), (2, DeliveryForm::Whole), (3, DeliveryForm::Delta)]);
    assert_eq!(forms(true), [(1, DeliveryForm::Plain), (2, DeliveryForm::Delta), (3, DeliveryForm::Delta)]);
    assert_eq!(forms(false), [(1, DeliveryForm::Plain), (2, DeliveryForm::Whole), (3, DeliveryForm::Whole)]);
}

#[test]
fn leavers_are_recorded_once_that_is_switched_on() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let (one, two) = (hub.acquire("one"), hub.acquire("two"));
    let plain = hub.join(one, 5, DeliveryOptions::default());
    hub.leave(one, plain);
    assert_eq!(hub.leavers().count(), 0, "leavers are not recorded yet");
    hub.note_leavers();
    let (plain, other) =
        (hub.join(one, SLOT_MASK, DeliveryOptions::default()), hub.join(one, 7, DeliveryOptions::default()));
    let picky = hub.join(two, 8, DeliveryOptions { filter: wanted(1), membership_events: true, delta: Some(true) });
    hub.leave(one, plain);
    hub.leave(two, picky);
    let left: Vec<_> = hub.leavers().map(|(name, slot)| (name.to_string(), slot)).collect();
    assert_eq!(left, [("one".into(), SLOT_MASK), ("two".into(), 8)]);
    assert_eq!(hub.leavers().count(), 0, "once");
    hub.leave(one, other);
    assert_eq!(hub.leavers().count(), 1);
}

#[test]
fn a_channel_has_an_index_as_long_as_there_is_a_reference() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let (one, two) = (hub.acquire("one"), hub.acquire("two"));
    assert_eq!(hub.acquire("one"), one);
    assert_eq!((hub.capacity(), hub.at(0), hub.at(1), hub.at(2)), (2, Some(one), Some(two), None));
    assert_eq!((&**hub.name(one), &**hub.name(two)), ("one", "two"));
    hub.release(one);
    assert_eq!(hub.find("one"), Some(one), "there is another reference");
    hub.release(one);
    assert_eq!((hub.find("one"), hub.at(0), hub.at(1), hub.capacity()), (None, None, Some(two), 2));
    let three = hub.acquire("three");
    assert_eq!((three, hub.capacity(), hub.find("two")), (one, 2, Some(two)), "the index is used again");
    assert_eq!(hub.by_name.len(), 2, "a name without references is forgotten");
}

#[test]
fn each_subscriber_is_counted_and_leaves_its_own_entry() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let local = hub.acquire("c");
    let options =
        |n: u32| DeliveryOptions { filter: wanted(n % 3), membership_events: n.is_multiple_of(2), delta: None };
    let held: Vec<Membership> = (0..600).map(|n| hub.join(local, n, options(n))).collect();
    assert_eq!(hub.subscriber_count(local), 600);
    let mut left: Vec<u32> = (0..600).collect();
    for n in (0..600u32).step_by(7).chain((1..600).step_by(7)) {
        hub.leave(local, held[n as usize]);
        left.retain(|slot| *slot != n);
        let mut subscribers: Vec<u32> = hub.subscribers(local).collect();
        subscribers.sort_unstable();
        assert_eq!((subscribers, hub.subscriber_count(local)), (left.clone(), left.len()));
    }
    let mut wanting: Vec<u32> = hub.membership_subscribers(local).collect();
    wanting.sort_unstable();
    left.retain(|slot| slot.is_multiple_of(2));
    assert_eq!(wanting, left);
}

#[test]
fn memory_of_leavers_is_freed() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let local = hub.acquire("c");
    let capacity = |hub: &mut Hub| hub.audience_mut(local).group(None).capacity();
    for (most, steps) in
        [(1_024, &[(256, 1_024), (255, 510), (128, 510), (127, 254), (31, 62), (1, 62)][..]), (64, &[(1, 64)])]
    {
        hub.audience_mut(local).group(None).reserve_exact(most);
        let mut held: Vec<Membership> =
            (0..most).map(|n| hub.join(local, n as u32, DeliveryOptions::default())).collect();
        assert_eq!(capacity(&mut hub), most);
        for (left, expected) in steps {
            held.drain(*left..).for_each(|membership| hub.leave(local, membership));
            assert_eq!((hub.subscriber_count(local), capacity(&mut hub)), (*left, *expected));
        }
        held.drain(..).for_each(|membership| hub.leave(local, membership));
        *hub.audience_mut(local).group(None) = Vec::new();
    }
}

proptest! {
    /// Publishes with random exclusions. An excluded subscriber gets nothing, every other subscriber gets what its
    /// filter accepts, and only a subscriber that has the previous publication gets a delta.
    #[test]
    fn who_is_left_out_has_no_base_and_nobody_else_loses_anything(
        wanted_by in prop::collection::vec(0u32..4, 1..30),
        publications in
            prop::collection::vec((0u32..4, prop::collection::btree_set(0u32..30, 0..6), any::<bool>()), 1..40)
    ) {
        let mut hub = Hub::new(HashSeed::repeatable(7));
        let local = hub.acquire("c");
        for (slot, filter) in (0..).zip(&wanted_by) {
            // A subscriber with a filter gets no deltas.
            let delta = (*filter == 0 && slot % 2 == 0).then_some(false);
            hub.join(local, slot, DeliveryOptions { membership_events: false, delta, filter: wanted(*filter) });
        }
        let mut bases = vec![false; wanted_by.len()];
        for (tag, left_out, has_previous) in publications {
            let tags = || Tags::from([("n".to_owned(), tag.to_string())]);
            let mut got = BTreeMap::new();
            hub.for_each_recipient_but(local, has_previous, tags, |slot| left_out.contains(&slot), |slot, form| {
                assert!(got.insert(slot, form).is_none(), "each gets it once");
            });
            for (slot, filter) in (0..).zip(&wanted_by) {
                let is_due = !left_out.contains(&slot) && (*filter == 0 || *filter == tag);
                let has_deltas = *filter == 0 && slot % 2 == 0;
                let expected = is_due.then_some(match (has_deltas, bases[slot as usize] && has_previous) {
                    (false, _) => DeliveryForm::Plain,
                    (true, true) => DeliveryForm::Delta,
                    (true, false) => DeliveryForm::Whole,
                });
                prop_assert_eq!(got.get(&slot).copied(), expected, "slot {}", slot);
                bases[slot as usize] = has_deltas && is_due;
            }
        }
    }

    /// Slices of any size visit each subscriber once, and report the result of its filter.
    #[test]
    fn an_audience_is_visited_once_in_slices(
        wanted_by in prop::collection::vec(0u32..6, 0..60), most in 1usize..20, tag in 0u32..6
    ) {
        let mut hub = Hub::new(HashSeed::repeatable(7));
        let local = hub.acquire("c");
        for (slot, filter) in (0..).zip(&wanted_by) {
            hub.join(local, slot, DeliveryOptions { filter: wanted(*filter), ..DeliveryOptions::default() });
        }
        let tags = Tags::from([("n".to_owned(), tag.to_string())]);
        let (mut cursor, mut visited, mut slices) = (AudienceCursor::default(), BTreeMap::new(), 0);
        loop {
            let before = visited.len();
            let has_more = hub.visit_audience(local, &mut cursor, most, &tags, |slot, form| {
                assert!(visited.insert(slot, form.is_some()).is_none(), "each is visited once");
            });
            prop_assert!(visited.len() - before <= most);
            slices += 1;
            if !has_more {
                break;
            }
            prop_assert!(slices < 200, "it ends");
        }
        let expected: BTreeMap<u32, bool> =
            (0..).zip(wanted_by.iter().map(|filter| *filter == 0 || *filter == tag)).take(wanted_by.len()).collect();
        prop_assert_eq!(visited, expected);
    }
}

#[test]
fn a_channel_keeps_no_groups_of_filters_that_are_gone() {
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let local = hub.acquire("c");
    let join = |hub: &mut Hub, slot| {
        hub.join(local, slot, DeliveryOptions { filter: wanted(slot), ..DeliveryOptions::default() })
    };
    let first = join(&mut hub, 1);
    let others: Vec<Membership> = (2..=20_000).map(|slot| join(&mut hub, slot)).collect();
    others.into_iter().for_each(|membership| hub.leave(local, membership));
    let filtered = hub.audience(local).filtered.as_ref().expect("one filter is left");
    assert_eq!((filtered.groups.len(), filtered.len()), (1, 1));
    assert!(filtered.groups.capacity() <= 4_096);
    hub.leave(local, first);
    assert!(hub.audience(local).filtered.is_none());
}

#[test]
fn the_memory_of_channels_that_are_gone_comes_back_though_others_stay() {
    const CHANNELS: u32 = 100_000;
    let mut hub = Hub::new(HashSeed::repeatable(7));
    let subscribe = |hub: &mut Hub, number: u32| {
        let local = hub.acquire(&format!("channel {number}"));
        (local, hub.join(local, 1, DeliveryOptions::default()))
    };
    let kept = subscribe(&mut hub, 0);
    let others: Vec<_> = (1..CHANNELS).map(|number| subscribe(&mut hub, number)).collect();
    assert!(hub.capacity() >= CHANNELS && hub.by_name.capacity() >= CHANNELS as usize);
    let leave = |hub: &mut Hub, (local, membership)| {
        hub.leave(local, membership);
        hub.release(local);
    };
    others.into_iter().for_each(|one| leave(&mut hub, one));
    assert!(hub.capacity() <= 4_096 && hub.by_name.capacity() <= 8_192);
    assert_eq!(hub.find("channel 0"), Some(kept.0));
    leave(&mut hub, kept);
    assert_eq!((hub.capacity(), hub.positions.capacity(), hub.free_memberships.capacity()), (0, 0, 0));
}
