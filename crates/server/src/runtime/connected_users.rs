//! The number of users connected to a node. Each user counts once, however many shards it has connections to.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashTable;
use touchline_lock::Lock;

/// The number of parts of the table. Each part has a lock, so that shards seldom wait for each other.
const PARTS: usize = 1_024;

/// Counts the users of a node. It keeps only a hash of each user, 42 bits. With a million users, two users count as one
/// on about one node of ten. A node with one shard keeps no table.
#[derive(Debug)]
pub(crate) struct ConnectedUsers {
    hasher: RandomState,
    /// One entry for each user and shard.
    parts: Box<[Lock<HashTable<u32>>]>,
    users: AtomicU64,
}

impl ConnectedUsers {
    pub(crate) fn new(shards: usize) -> Self {
        let parts = if shards > 1 { PARTS } else { 0 };
        let parts = std::iter::repeat_with(Lock::default).take(parts).collect();
        ConnectedUsers { hasher: RandomState::new(), parts, users: AtomicU64::new(0) }
    }

    /// The number of users with a connection to any shard.
    pub(crate) fn users(&self) -> u64 {
        self.users.load(Relaxed)
    }

    /// Counts a user's first connection to a shard.
    pub(crate) fn enter(&self, user: &str) {
        let is_new = self.with(user, |part, mark| {
            let is_new = part.find(spread(mark), |other| *other == mark).is_none();
            part.insert_unique(spread(mark), mark, |other| spread(*other));
            is_new
        });
        self.users.fetch_add(is_new.unwrap_or(true).into(), Relaxed);
    }

    /// Counts the end of a user's last connection to a shard.
    pub(crate) fn leave(&self, user: &str) {
        let is_gone = self.with(user, |part, mark| {
            if let Ok(entry) = part.find_entry(spread(mark), |other| *other == mark) {
                entry.remove();
            }
            if part.is_empty() {
                *part = HashTable::new();
            }
            part.find(spread(mark), |other| *other == mark).is_none()
        });
        self.users.fetch_sub(is_gone.unwrap_or(true).into(), Relaxed);
    }

    fn with<T>(&self, user: &str, change: impl FnOnce(&mut HashTable<u32>, u32) -> T) -> Option<T> {
        if self.parts.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(user);
        let part = &self.parts[hash as usize % PARTS];
        Some(change(&mut part.lock(), (hash >> 32) as u32))
    }
}

/// Spreads a hash over 64 bits, because the table uses the high bits too.
fn spread(mark: u32) -> u64 {
    u64::from(mark).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_counts_once_until_it_has_left_every_shard() {
        let users = ConnectedUsers::new(4);
        for user in ["ann", "ann", "bob", ""] {
            users.enter(user);
        }
        assert_eq!(users.users(), 3);
        users.leave("ann");
        assert_eq!(users.users(), 3);
        users.leave("ann");
        users.leave("");
        assert_eq!(users.users(), 1);
    }

    #[test]
    fn a_node_with_one_shard_counts_without_a_table() {
        let users = ConnectedUsers::new(1);
        users.enter("ann");
        users.enter("bob");
        users.leave("ann");
        assert_eq!(users.users(), 1);
    }
}
