//! The subscribers of one shard: which connections get the events of which channel.
//!
//! Each subscriber has a [`Membership`]. Ending it takes O(1) time, whatever the size of the channel.

mod audience;
mod delivery;
mod dropping;
mod filtered;
mod local;
mod subscriber;
#[cfg(test)]
mod tests;

use std::hash::BuildHasher;

use hashbrown::{HashMap, HashTable};
use touchline_protocol::publication::Tags;
use touchline_protocol::stream::ChannelName;
use touchline_registry::{FoldState, HashSeed, SipState, Slab, spare_capacity};

pub use audience::AudienceCursor;
pub use delivery::{DeliveryForm, DeliveryOptions};
use filtered::Filtered;
use local::LocalSubscribers;
use subscriber::{ChannelSubscriber, HAS_LAST, SLOT_MASK, WANTS_DELTA, WANTS_MEMBERSHIP_EVENTS};

/// The index of a channel on this shard. It is valid while there is a reference to the channel ([`Hub::acquire`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalChannel(u32);

/// A subscriber's entry in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership(u32);

/// The subscribers of one shard.
#[derive(Debug)]
pub struct Hub {
    hasher: FoldState,
    by_name: HashTable<u32>,
    audiences: Slab<LocalSubscribers>,
    /// The index of each membership in its channel's list.
    positions: Vec<u32>,
    free_memberships: Vec<u32>,
    /// The memberships with a filter, each with the index of its filter's group in the audience.
    filtered: HashMap<u32, u32, FoldState>,
    /// The hash of filters.
    filter_hasher: SipState,
    /// The channels with the slots that have left them, for [`Hub::leavers`]; `None` = they are not recorded.
    leavers: Option<Vec<(ChannelName, u32)>>,
}

impl Hub {
    /// A hub without subscribers. `seed` seeds the hashes of channels and filters, which clients choose.
    pub fn new(seed: HashSeed) -> Self {
        let hasher = seed.fold();
        Hub {
            hasher,
            by_name: HashTable::new(),
            audiences: Slab::default(),
            positions: Vec::new(),
            free_memberships: Vec::new(),
            filtered: HashMap::with_hasher(hasher),
            filter_hasher: seed.sip(),
            leavers: None,
        }
    }

    /// Records from now on which slots leave which channels.
    pub fn note_leavers(&mut self) {
        self.leavers = Some(Vec::new());
    }

    /// Removes and returns channels with the slots that have left them since the last call.
    pub fn leavers(&mut self) -> impl Iterator<Item = (ChannelName, u32)> {
        self.leavers.iter_mut().flat_map(|leavers| leavers.drain(..))
    }

    /// A number above the indices of all channels.
    pub fn capacity(&self) -> u32 {
        self.audiences.end()
    }

    /// The channel with an index; `None` = there is no such channel.
    pub fn at(&self, index: u32) -> Option<LocalChannel> {
        self.audiences.get(index).map(|_| LocalChannel(index))
    }

    /// Takes a reference to a channel by name. The caller must release each reference with [`Hub::release`].
    pub fn acquire(&mut self, name: &str) -> LocalChannel {
        if let Some(known) = self.find(name) {
            self.audience_mut(known).references += 1;
            return known;
        }
        let index = self.audiences.insert(LocalSubscribers::new(name));
        let Hub { hasher, by_name, audiences, .. } = self;
        by_name.insert_unique(hasher.hash_one(name), index, |&i| hasher.hash_one(&*audiences[i].name));
        LocalChannel(index)
    }

    /// Releases a reference. When the last one is released, the channel is forgotten.
    pub fn release(&mut self, channel: LocalChannel) {
        let audience = self.audience_mut(channel);
        audience.references -= 1;
        if audience.references > 0 {
            return;
        }
        debug_assert!(audience.all().next().is_none(), "members hold references");
        let Hub { hasher, by_name, audiences, .. } = self;
        if let Ok(entry) = by_name.find_entry(hasher.hash_one(&*audiences[channel.0].name), |&i| i == channel.0) {
            entry.remove();
        }
        audiences.remove(channel.0);
        if let Some(capacity) = spare_capacity(by_name.len(), by_name.capacity()) {
            by_name.shrink_to(capacity, |&i| hasher.hash_one(&*audiences[i].name));
        }
    }

    /// The channel with this name; `None` = there is no reference to it.
    pub fn find(&self, name: &str) -> Option<LocalChannel> {
        let Hub { hasher, by_name, audiences, .. } = self;
        let is_it = |&i: &u32| &*audiences[i].name == name;
        by_name.find(hasher.hash_one(name), is_it).map(|&i| LocalChannel(i))
    }

    /// The name of a channel.
    pub fn name(&self, channel: LocalChannel) -> &ChannelName {
        &self.audience(channel).name
    }

    /// Adds a subscriber to a channel. From now on it gets the channel's events.
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
        let audience = &mut self.audiences[channel.0];
        let new = || Box::new(Filtered::new(self.filter_hasher));
        let group = options.filter.map(|filter| audience.filtered.get_or_insert_with(new).enter(filter));
        let members = audience.group(group);
        self.positions[membership as usize] = members.len() as u32;
        members.push(ChannelSubscriber { slot: slot | flags, membership });
        if let Some(group) = group {
            self.filtered.insert(membership, group);
        }
        Membership(membership)
    }

    /// Removes a subscriber from a channel.
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
            && filtered.leave(group)
        {
            audience.filtered = None;
        }
        if let Some(moved) = moved {
            self.positions[moved as usize] = position as u32;
        }
        self.free_memberships.push(membership.0);
        if self.free_memberships.len() == self.positions.len() && spare_capacity(0, self.positions.capacity()).is_some()
        {
            (self.positions, self.free_memberships) = (Vec::new(), Vec::new());
        }
        if self.leavers.is_some() {
            let name = self.name(channel).clone();
            self.leavers.iter_mut().for_each(|leavers| leavers.push((name.clone(), slot)));
        }
    }

    /// The number of subscribers of a channel.
    pub fn subscriber_count(&self, channel: LocalChannel) -> usize {
        let audience = self.audience(channel);
        audience.members.len() + audience.filtered.as_ref().map_or(0, |filtered| filtered.len())
    }

    /// The slots of all subscribers of a channel.
    pub fn subscribers(&self, channel: LocalChannel) -> impl Iterator<Item = u32> {
        self.audience(channel).all().map(ChannelSubscriber::slot)
    }

    /// Calls `to` for each recipient of a publication. `has_previous`: whether the previous publication is known.
    /// `tags` is called once, if there are filters; each filter is evaluated once.
    pub fn for_each_recipient(
        &mut self,
        channel: LocalChannel,
        has_previous: bool,
        tags: impl FnOnce() -> Tags,
        to: impl FnMut(u32, DeliveryForm),
    ) {
        self.for_each_recipient_but(channel, has_previous, tags, |_| false, to);
    }

    /// The same without the subscribers whose slots are excluded. An excluded subscriber that gets deltas no longer has
    /// a base for the next one, so it gets the next publication whole.
    pub fn for_each_recipient_but(
        &mut self,
        channel: LocalChannel,
        has_previous: bool,
        tags: impl FnOnce() -> Tags,
        is_left_out: impl Fn(u32) -> bool,
        to: impl FnMut(u32, DeliveryForm),
    ) {
        self.audience_mut(channel).for_each_recipient(has_previous, tags, is_left_out, to);
    }

    /// Visits about `most` subscribers, starting at a cursor, which moves. `to` is called with a slot and the form in
    /// which the subscriber would get a publication with these tags; `None` = its filter excludes the publication.
    /// Deltas count as whole publications. Returns whether there are more subscribers.
    ///
    /// Subscribers may join and leave between two calls. A subscriber that stays is visited at most once. If it takes
    /// over the index of a subscriber that left, it may not be visited.
    pub fn visit_audience(
        &self,
        channel: LocalChannel,
        cursor: &mut AudienceCursor,
        most: usize,
        tags: &Tags,
        to: impl FnMut(u32, Option<DeliveryForm>),
    ) -> bool {
        self.audience(channel).visit_some(cursor, most, tags, to)
    }

    /// The slots of the subscribers that want join and leave events.
    pub fn membership_subscribers(&self, channel: LocalChannel) -> impl Iterator<Item = u32> {
        self.audience(channel).all().filter(|m| m.slot & WANTS_MEMBERSHIP_EVENTS != 0).map(ChannelSubscriber::slot)
    }

    fn audience(&self, channel: LocalChannel) -> &LocalSubscribers {
        &self.audiences[channel.0]
    }

    fn audience_mut(&mut self, channel: LocalChannel) -> &mut LocalSubscribers {
        &mut self.audiences[channel.0]
    }
}
