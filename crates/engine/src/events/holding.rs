//! The keys that a node holds. A user may have connections on several shards.

use std::collections::HashMap;

use touchline_registry::{FoldState, HashSeed, spare_capacity};

use super::state_key::StateKey;

/// The numbers of the shards that hold each key.
#[derive(Debug)]
pub struct NodeHolding {
    shards: HashMap<StateKey, Vec<u16>, FoldState>,
}

impl NodeHolding {
    /// An empty value: nothing is held. `seed`: the seed for hashes of users and channels, which clients choose.
    pub fn new(seed: HashSeed) -> Self {
        NodeHolding { shards: HashMap::with_hasher(seed.fold()) }
    }

    /// The keys that the node holds.
    pub fn keys(&self) -> impl Iterator<Item = &StateKey> {
        self.shards.keys()
    }

    /// Notes whether a shard now holds a key. Returns whether the node holds it, if that has changed.
    pub fn note(&mut self, key: &StateKey, shard: u16, is_held: bool) -> Option<bool> {
        if is_held {
            let shards = self.shards.entry(key.clone()).or_default();
            let is_first = shards.is_empty();
            if !shards.contains(&shard) {
                shards.push(shard);
            }
            return is_first.then_some(true);
        }
        let shards = self.shards.get_mut(key)?;
        shards.retain(|other| *other != shard);
        if !shards.is_empty() {
            return None;
        }
        self.shards.remove(key);
        if let Some(capacity) = spare_capacity(self.shards.len(), self.shards.capacity()) {
            self.shards.shrink_to(capacity);
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_held_from_the_first_shard_to_the_last() {
        let mut holding = NodeHolding::new(HashSeed::repeatable(1));
        let ann = StateKey::User("ann".into());
        assert_eq!(holding.note(&ann, 0, true), Some(true));
        assert_eq!(holding.note(&ann, 1, true), None);
        assert_eq!(holding.note(&StateKey::Channel("ann".into()), 1, true), Some(true));
        assert_eq!(holding.note(&ann, 0, false), None);
        assert_eq!(holding.note(&ann, 0, false), None);
        assert_eq!(holding.note(&ann, 1, false), Some(false));
        assert_eq!(holding.note(&ann, 1, false), None);
    }
}
