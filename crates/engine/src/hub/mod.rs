//! The subscribers of one shard: which connections get the events of which channel.
//!
//! Each subscriber holds a [`Membership`]; ending it is O(1), whatever the size of the channel.

mod filtered;

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;

use filtered::Filtered;
use touchline_protocol::filter::Filter;
use touchline_protocol::publication::Tags;
use touchline_protocol::stream::ChannelName;

/// The index of a channel on this shard, valid while there is a reference to it ([`Hub::acquire`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalChannel(u32);

/// A subscriber's entry in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership(u32);

#[derive(Debug, Clone, Copy)]
struct ChannelSubscriber {
    /// The connection's slot; the highest bits are the `WANTS_` flags and [`HAS_LAST`].
    slot: u32,
    membership: u32,
}

impl ChannelSubscriber {
    fn slot(self) -> u32 {
        self.slot & SLOT_MASK
    }
}

const WANTS_MEMBERSHIP_EVENTS: u32 = 1 << 31;
const WANTS_DELTA: u32 = 1 << 30;
/// The subscriber has the last publication, the base of the next delta.
const HAS_LAST: u32 = 1 << 29;
const SLOT_MASK: u32 = HAS_LAST - 1;

/// Which events a subscriber gets, and in which form.
#[derive(Debug, Clone, Default)]
pub struct DeliveryOptions {
    /// The subscriber gets join and leave events.
    pub membership_events: bool,
    /// `Some` = publications come as deltas to the previous one; true if the subscriber has the last one.
    pub delta: Option<bool>,
    /// Only publications whose tags match; `None` = all.
    pub filter: Option<Arc<Filter>>,
}

/// The form in which a subscriber gets a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryForm {
    /// The publication itself.
    Plain,
    /// The whole publication as text, the base of later deltas.
    Whole,
    /// A delta to the previous publication.
    Delta,
}

#[derive(Debug)]
struct LocalSubscribers {
    name: ChannelName,
    references: u32,
    members: Vec<ChannelSubscriber>,
    /// The subscribers with a filter; `None` = there are none.
    filtered: Option<Box<Filtered>>,
}

impl LocalSubscribers {
    fn group(&mut self, group: Option<u32>) -> &mut Vec<ChannelSubscriber> {
        let LocalSubscribers { members, filtered, .. } = self;
        group.and_then(|group| filtered.as_mut()?.members(group)).unwrap_or(members)
    }

    fn all(&self) -> impl Iterator<Item = ChannelSubscriber> {
        self.members.iter().chain(self.filtered.iter().flat_map(|filtered| filtered.all())).copied()
    }
}

/// The subscribers of one shard.
#[derive(Debug, Default)]
pub struct Hub {
    hasher: DefaultHashBuilder,
    by_name: HashTable<u32>,
    audiences: Vec<Option<LocalSubscribers>>,
    free: Vec<u32>,
    /// The index of each membership in its channel's list.
    positions: Vec<u32>,
    free_memberships: Vec<u32>,
    /// Memberships with a filter, and the index of the filter's group in the audience.
    filtered: HashMap<u32, u32>,
    /// Channels and slots that have left them, for [`Hub::leavers`]; `None` = they are not recorded.
    leavers: Option<Vec<(ChannelName, u32)>>,
}

impl Hub {
    /// Records from now on which slots leave which channels.
    pub fn note_leavers(&mut self) {
        self.leavers = Some(Vec::new());
    }

    /// Channels, and slots that have left them since the last call.
    pub fn leavers(&mut self) -> impl Iterator<Item = (ChannelName, u32)> {
        self.leavers.iter_mut().flat_map(|leavers| leavers.drain(..))
    }

    /// One more than the highest index of a channel.
    pub fn capacity(&self) -> u32 {
        self.audiences.len() as u32
    }

    /// The channel with an index; `None` = there is no such channel.
    pub fn at(&self, index: u32) -> Option<LocalChannel> {
        self.audiences.get(index as usize).and_then(Option::as_ref).map(|_| LocalChannel(index))
    }

    /// Takes a reference to a channel by name. [`Hub::release`] must release each reference.
    pub fn acquire(&mut self, name: &str) -> LocalChannel {
        if let Some(known) = self.find(name) {
            self.audience_mut(known).references += 1;
            return known;
        }
        let audience = LocalSubscribers { name: name.into(), references: 1, members: Vec::new(), filtered: None };
        let index = match self.free.pop() {
            Some(index) => {
                self.audiences[index as usize] = Some(audience);
                index
            }
            None => {
                self.audiences.push(Some(audience));
                u32::try_from(self.audiences.len() - 1).expect("channels fit into memory, so into 32 bits")
            }
        };
        let Hub { hasher, by_name, audiences, .. } = self;
        by_name.insert_unique(hasher.hash_one(name), index, |&i| hash_of(hasher, audiences, i));
        LocalChannel(index)
    }

    /// Releases a reference. With the last one the channel is forgotten.
    pub fn release(&mut self, channel: LocalChannel) {
        let audience = self.audience_mut(channel);
        audience.references -= 1;
        if audience.references > 0 {
            return;
        }
        debug_assert!(audience.all().next().is_none(), "members hold references");
        let hash = hash_of(&self.hasher, &self.audiences, channel.0);
        if let Ok(entry) = self.by_name.find_entry(hash, |&i| i == channel.0) {
            entry.remove();
        }
        self.audiences[channel.0 as usize] = None;
        self.free.push(channel.0);
    }

    /// The channel with a name; `None` = there is no reference to it.
    pub fn find(&self, name: &str) -> Option<LocalChannel> {
        let Hub { hasher, by_name, audiences, .. } = self;
        let is_it = |&i: &u32| audiences[i as usize].as_ref().is_some_and(|a| &*a.name == name);
        by_name.find(hasher.hash_one(name), is_it).map(|&i| LocalChannel(i))
    }

    /// The channel's name.
    pub fn name(&self, channel: LocalChannel) -> &ChannelName {
        &self.audience(channel).name
    }

    /// Adds a subscriber: from now on it gets the channel's events.
    pub fn join(&mut self, channel: LocalChannel, slot: u32, options: DeliveryOptions) -> Membership {
        debug_assert!(slot <= SLOT_MASK);
        let membership = self.free_memberships.pop().unwrap_or_else(|| {
            self.positions.push(0);
            u32::try_from(self.positions.len() - 1).expect("memberships fit into memory, so into 32 bits")
        });
        let mut flags = if options.membership_events { WANTS_MEMBERSHIP_EVENTS } else { 0 };
        if let Some(has_last) = options.delta {
            flags |= WANTS_DELTA | if has_last { HAS_LAST } else { 0 };
        }
        let audience = self.audiences[channel.0 as usize].as_mut().expect("a reference keeps its channel");
        let group = options.filter.map(|filter| audience.filtered.get_or_insert_default().group_of(filter));
        let members = audience.group(group);
        self.positions[membership as usize] = members.len() as u32;
        members.push(ChannelSubscriber { slot: slot | flags, membership });
        if let Some(group) = group {
            self.filtered.insert(membership, group);
        }
        Membership(membership)
    }

    /// Removes a subscriber.
    pub fn leave(&mut self, channel: LocalChannel, membership: Membership) {
        let position = self.positions[membership.0 as usize] as usize;
        let group = if self.filtered.is_empty() { None } else { self.filtered.remove(&membership.0) };
        let audience = self.audience_mut(channel);
        let members = audience.group(group);
        debug_assert_eq!(members[position].membership, membership.0);
        let slot = members.swap_remove(position).slot();
        let moved = members.get(position).map(|member| member.membership);
        if members.len() * 4 < members.capacity() && members.capacity() > 64 {
            members.shrink_to(members.len() * 2);
        }
        if let (Some(group), Some(filtered)) = (group, &mut audience.filtered)
            && filtered.free_if_empty(group)
        {
            audience.filtered = None;
        }
        if let Some(moved) = moved {
            self.positions[moved as usize] = position as u32;
        }
        self.free_memberships.push(membership.0);
        if self.leavers.is_some() {
            let name = self.name(channel).clone();
            self.leavers.iter_mut().for_each(|leavers| leavers.push((name.clone(), slot)));
        }
    }

    /// The number of subscribers.
    pub fn subscriber_count(&self, channel: LocalChannel) -> usize {
        let audience = self.audience(channel);
        audience.members.len() + audience.filtered.as_ref().map_or(0, |filtered| filtered.len())
    }

    /// The slots of all subscribers.
    pub fn subscribers(&self, channel: LocalChannel) -> impl Iterator<Item = u32> {
        self.audience(channel).all().map(ChannelSubscriber::slot)
    }

    /// Calls `to` for each recipient of a publication. `has_previous`: the previous publication is known. `tags` is
    /// called once, if there are filters; each filter is evaluated once.
    pub fn for_each_recipient(
        &mut self,
        channel: LocalChannel,
        has_previous: bool,
        tags: impl FnOnce() -> Tags,
        mut to: impl FnMut(u32, DeliveryForm),
    ) {
        let audience = self.audience_mut(channel);
        let mut visit = |member: &mut ChannelSubscriber| {
            let form = match member.slot & (WANTS_DELTA | HAS_LAST) {
                0 | HAS_LAST => DeliveryForm::Plain,
                WANTS_DELTA => DeliveryForm::Whole,
                _ if has_previous => DeliveryForm::Delta,
                _ => DeliveryForm::Whole,
            };
            if form == DeliveryForm::Whole {
                member.slot |= HAS_LAST;
            }
            to(member.slot(), form);
        };
        audience.members.iter_mut().for_each(&mut visit);
        let Some(filtered) = &mut audience.filtered else { return };
        let tags = tags();
        for (filter, members) in filtered.groups_mut() {
            if filter.fits(&tags) {
                members.iter_mut().for_each(&mut visit);
            }
        }
    }

    /// The slots of the subscribers that want join and leave events.
    pub fn membership_subscribers(&self, channel: LocalChannel) -> impl Iterator<Item = u32> {
        self.audience(channel).all().filter(|m| m.slot & WANTS_MEMBERSHIP_EVENTS != 0).map(ChannelSubscriber::slot)
    }

    fn audience(&self, channel: LocalChannel) -> &LocalSubscribers {
        self.audiences[channel.0 as usize].as_ref().expect("a reference keeps its channel")
    }

    fn audience_mut(&mut self, channel: LocalChannel) -> &mut LocalSubscribers {
        self.audiences[channel.0 as usize].as_mut().expect("a reference keeps its channel")
    }
}

fn hash_of(hasher: &DefaultHashBuilder, audiences: &[Option<LocalSubscribers>], index: u32) -> u64 {
    audiences[index as usize].as_ref().map_or(0, |audience| hasher.hash_one(&*audience.name))
}

#[cfg(test)]
mod tests {
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
            let mut hub = Hub::default();
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

    /// `None` for 0, else a filter that matches if the tag `n` is this number.
    fn wanted(n: u32) -> Option<Arc<Filter>> {
        (n > 0)
            .then(|| Arc::new(Filter::Tag("n".into(), touchline_protocol::filter::Comparison::Equals(n.to_string()))))
    }

    #[test]
    fn equal_filters_share_a_group_and_a_free_group_is_used_again() {
        let mut hub = Hub::default();
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
        let mut hub = Hub::default();
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
        let mut hub = Hub::default();
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
        let mut hub = Hub::default();
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
        let mut hub = Hub::default();
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
        let mut hub = Hub::default();
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
}
