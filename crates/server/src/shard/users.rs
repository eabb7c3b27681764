//! The connections of each user on this shard: a table of users whose connections are linked through their slots.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use touchline_engine::events::{HeldChanges, StateKey};
use touchline_registry::spare_capacity;

use super::connections::{Connections, NONE};
use crate::runtime::connected_users::ConnectedUsers;

/// Finds connections by user, with a few bytes for each connection.
pub(super) struct Users {
    hasher: DefaultHashBuilder,
    /// The first connection of each user.
    first: HashTable<u32>,
    /// Counts the users of all shards.
    connected_users: Arc<ConnectedUsers>,
    /// Users that got their first connection here, or lost their last; None = such changes are not noted.
    held: Option<HeldChanges>,
}

impl Users {
    /// Makes an empty table. `notes_held`: whether [`Users::held_changes`] reports changes.
    pub(super) fn new(connected_users: Arc<ConnectedUsers>, notes_held: bool) -> Self {
        let held = notes_held.then(HeldChanges::default);
        Users { hasher: DefaultHashBuilder::default(), first: HashTable::new(), connected_users, held }
    }

    /// Notes changes from now on. Users that are already connected count as newly connected.
    pub(super) fn note_held(&mut self, connections: &Connections) {
        if self.held.is_some() {
            return;
        }
        let mut held = HeldChanges::default();
        for connection in self.first.iter().filter_map(|slot| connections.get(*slot)) {
            held.note(StateKey::User(connection.session.user().into()), true);
        }
        self.held = Some(held);
    }

    /// Lists a connection under its session's user.
    pub(super) fn insert(&mut self, slot: u32, connections: &mut Connections) {
        let Users { hasher, first, connected_users, held } = self;
        let Some(user) = connections.get(slot).map(|c| c.session.user()) else { return };
        let hash = hasher.hash_one(user);
        let is_same = |&other: &u32| connections.get(other).is_some_and(|c| c.session.user() == user);
        let next = match first.find_mut(hash, is_same) {
            Some(head) => std::mem::replace(head, slot),
            None => {
                connected_users.enter(user);
                if let Some(held) = held {
                    held.note(StateKey::User(user.into()), true);
                }
                first.insert_unique(hash, slot, |&s| {
                    connections.get(s).map_or(0, |c| hasher.hash_one(c.session.user()))
                });
                NONE
            }
        };
        if next != NONE
            && let Some(neighbour) = connections.get_mut(next)
        {
            neighbour.previous_of_user = slot;
        }
        if let Some(connection) = connections.get_mut(slot) {
            connection.next_of_user = next;
            connection.previous_of_user = NONE;
            connection.is_listed = true;
        }
    }

    /// Removes a connection from its user's list. Returns whether it was the user's last one here.
    pub(super) fn remove(&mut self, slot: u32, connections: &mut Connections) -> bool {
        let Some(connection) = connections.get_mut(slot).filter(|c| c.is_listed) else { return false };
        connection.is_listed = false;
        let (previous, next) = (connection.previous_of_user, connection.next_of_user);
        let hash = self.hasher.hash_one(connection.session.user());
        if let Some(neighbour) = (next != NONE).then(|| connections.get_mut(next)).flatten() {
            neighbour.previous_of_user = previous;
        }
        if let Some(neighbour) = (previous != NONE).then(|| connections.get_mut(previous)).flatten() {
            neighbour.next_of_user = next;
        } else if let Ok(mut entry) = self.first.find_entry(hash, |&head| head == slot) {
            if next == NONE {
                entry.remove();
                if let Some(capacity) = spare_capacity(self.first.len(), self.first.capacity()) {
                    let hash_of = |&s: &u32| connections.get(s).map_or(0, |c| self.hasher.hash_one(c.session.user()));
                    self.first.shrink_to(capacity, hash_of);
                }
                if let Some(connection) = connections.get(slot) {
                    let user = connection.session.user();
                    self.connected_users.leave(user);
                    if let Some(held) = &mut self.held {
                        held.note(StateKey::User(user.into()), false);
                    }
                }
                return true;
            }
            *entry.get_mut() = next;
        }
        false
    }

    /// The slot of one connection of the user, which links to the user's others; [`NONE`] = the user has none.
    pub(super) fn first_of(&self, user: &str, connections: &Connections) -> u32 {
        let is_it = |&head: &u32| connections.get(head).is_some_and(|c| c.session.user() == user);
        self.first.find(self.hasher.hash_one(user), is_it).copied().unwrap_or(NONE)
    }

    /// Users that got their first connection here, or lost their last; None = such changes are not noted.
    pub(super) fn held_changes(&mut self) -> Option<&mut HeldChanges> {
        self.held.as_mut()
    }

    /// The slots of the user's connections.
    pub(super) fn connections_of(&self, user: &str, connections: &Connections) -> Vec<u32> {
        let mut next = self.first_of(user, connections);
        let mut slots = Vec::new();
        while next != NONE {
            slots.push(next);
            next = connections.get(next).map_or(NONE, |c| c.next_of_user);
        }
        slots
    }
}
