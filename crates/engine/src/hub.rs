//! Which connections of one shard listen to which channel.
//!
//! Each listener holds a [`Membership`]; giving it back is O(1), whatever the size of the channel.

use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// A channel of this shard, valid while somebody holds a reference to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalChannel(u32);

/// A listener's place in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership(u32);

#[derive(Debug, Clone, Copy)]
struct Member {
    /// The connection's slot; the high bit is set if it wants join and leave events.
    slot: u32,
    membership: u32,
}

const WANTS_MEMBERSHIP_EVENTS: u32 = 1 << 31;

#[derive(Debug)]
struct Audience {
    name: Arc<str>,
    references: u32,
    members: Vec<Member>,
}

/// The listeners of one shard.
#[derive(Debug, Default)]
pub struct Hub {
    hasher: DefaultHashBuilder,
    by_name: HashTable<u32>,
    audiences: Vec<Option<Audience>>,
    free: Vec<u32>,
    /// Where each membership stands in its channel's list.
    positions: Vec<u32>,
    free_memberships: Vec<u32>,
    /// Channels and slots that have left them, if somebody wants to know.
    leavers: Option<Vec<(Arc<str>, u32)>>,
}

impl Hub {
    /// Notes from now on who leaves.
    pub fn note_leavers(&mut self) {
        self.leavers = Some(Vec::new());
    }

    /// Channels, and slots that have left them since the last call.
    pub fn leavers(&mut self) -> impl Iterator<Item = (Arc<str>, u32)> {
        self.leavers.iter_mut().flat_map(|leavers| leavers.drain(..))
    }

    /// One more than the highest index of a channel.
    pub fn capacity(&self) -> u32 {
        self.audiences.len() as u32
    }

    /// The channel of an index, if there is one.
    pub fn at(&self, index: u32) -> Option<LocalChannel> {
        self.audiences.get(index as usize).and_then(Option::as_ref).map(|_| LocalChannel(index))
    }

    /// Refers to a channel by name; every reference must be given back by [`Hub::release`].
    pub fn acquire(&mut self, name: &str) -> LocalChannel {
        if let Some(found) = self.find(name) {
            self.audience_mut(found).references += 1;
            return found;
        }
        let audience = Audience { name: name.into(), references: 1, members: Vec::new() };
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

    /// Gives a reference back; the last one forgets the channel.
    pub fn release(&mut self, channel: LocalChannel) {
        let audience = self.audience_mut(channel);
        audience.references -= 1;
        if audience.references > 0 {
            return;
        }
        debug_assert!(audience.members.is_empty(), "members hold references");
        let hash = hash_of(&self.hasher, &self.audiences, channel.0);
        if let Ok(entry) = self.by_name.find_entry(hash, |&i| i == channel.0) {
            entry.remove();
        }
        self.audiences[channel.0 as usize] = None;
        self.free.push(channel.0);
    }

    /// The channel of a name, if anybody here refers to it.
    pub fn find(&self, name: &str) -> Option<LocalChannel> {
        let Hub { hasher, by_name, audiences, .. } = self;
        let is_it = |&i: &u32| audiences[i as usize].as_ref().is_some_and(|a| &*a.name == name);
        by_name.find(hasher.hash_one(name), is_it).map(|&i| LocalChannel(i))
    }

    /// The channel's name.
    pub fn name(&self, channel: LocalChannel) -> &Arc<str> {
        &self.audience(channel).name
    }

    /// Adds a listener: from now on it is in [`Hub::listeners`].
    pub fn join(&mut self, channel: LocalChannel, slot: u32, wants_membership_events: bool) -> Membership {
        debug_assert!(slot < WANTS_MEMBERSHIP_EVENTS);
        let membership = self.free_memberships.pop().unwrap_or_else(|| {
            self.positions.push(0);
            u32::try_from(self.positions.len() - 1).expect("memberships fit into memory, so into 32 bits")
        });
        let flag = if wants_membership_events { WANTS_MEMBERSHIP_EVENTS } else { 0 };
        let members = &mut self.audience_mut(channel).members;
        let position = members.len() as u32;
        members.push(Member { slot: slot | flag, membership });
        self.positions[membership as usize] = position;
        Membership(membership)
    }

    /// Takes a listener away.
    pub fn leave(&mut self, channel: LocalChannel, membership: Membership) {
        let position = self.positions[membership.0 as usize] as usize;
        let members = &mut self.audience_mut(channel).members;
        debug_assert_eq!(members[position].membership, membership.0);
        let slot = members.swap_remove(position).slot & !WANTS_MEMBERSHIP_EVENTS;
        let moved = members.get(position).map(|member| member.membership);
        if members.len() * 4 < members.capacity() && members.capacity() > 64 {
            members.shrink_to(members.len() * 2);
        }
        if let Some(moved) = moved {
            self.positions[moved as usize] = position as u32;
        }
        self.free_memberships.push(membership.0);
        if self.leavers.is_some() {
            let name = Arc::clone(self.name(channel));
            self.leavers.iter_mut().for_each(|leavers| leavers.push((Arc::clone(&name), slot)));
        }
    }

    /// The slots of all listeners.
    pub fn listeners(&self, channel: LocalChannel) -> impl ExactSizeIterator<Item = u32> {
        self.audience(channel).members.iter().map(|member| member.slot & !WANTS_MEMBERSHIP_EVENTS)
    }

    /// The slots of the listeners who want join and leave events.
    pub fn membership_listeners(&self, channel: LocalChannel) -> impl Iterator<Item = u32> {
        let wanting = self.audience(channel).members.iter().filter(|m| m.slot & WANTS_MEMBERSHIP_EVENTS != 0);
        wanting.map(|member| member.slot & !WANTS_MEMBERSHIP_EVENTS)
    }

    fn audience(&self, channel: LocalChannel) -> &Audience {
        self.audiences[channel.0 as usize].as_ref().expect("a reference keeps its channel")
    }

    fn audience_mut(&mut self, channel: LocalChannel) -> &mut Audience {
        self.audiences[channel.0 as usize].as_mut().expect("a reference keeps its channel")
    }
}

fn hash_of(hasher: &DefaultHashBuilder, audiences: &[Option<Audience>], index: u32) -> u64 {
    audiences[index as usize].as_ref().map_or(0, |audience| hasher.hash_one(&*audience.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a plain map: whatever joins and leaves in whatever order, the listeners are exactly those.
        #[test]
        fn listeners_are_those_who_joined_and_did_not_leave(steps in prop::collection::vec((0u32..6, 0u32..20, any::<bool>()), 1..200)) {
            let mut hub = Hub::default();
            let mut model: BTreeMap<(u32, u32), (LocalChannel, Membership, bool)> = BTreeMap::new();
            for (channel, slot, wants) in steps {
                match model.remove(&(channel, slot)) {
                    Some((local, membership, _)) => { hub.leave(local, membership); hub.release(local); }
                    None => {
                        let local = hub.acquire(&format!("c{channel}"));
                        let membership = hub.join(local, slot, wants);
                        model.insert((channel, slot), (local, membership, wants));
                    }
                }
                for c in 0..6 {
                    let expected: Vec<u32> = model.keys().filter(|(k, _)| *k == c).map(|(_, s)| *s).collect();
                    let wanting: Vec<u32> = model.iter().filter(|((k, _), v)| *k == c && v.2).map(|((_, s), _)| *s).collect();
                    let local = hub.find(&format!("c{c}"));
                    let mut found: Vec<u32> = local.map(|l| hub.listeners(l).collect()).unwrap_or_default();
                    let mut told: Vec<u32> = local.map(|l| hub.membership_listeners(l).collect()).unwrap_or_default();
                    found.sort_unstable();
                    told.sort_unstable();
                    prop_assert_eq!(&found, &expected);
                    prop_assert_eq!(&told, &wanting);
                    prop_assert_eq!(local.is_some(), !expected.is_empty());
                }
            }
        }
    }
}
