//! What a node holds: a user may have connections on several shards.

use std::collections::HashMap;

use touchline_registry::{FoldState, HashSeed};

use super::state_key::StateKey;

/// The shards that hold each key, by their numbers.
#[derive(Debug)]
pub struct NodeHolding {
    shards: HashMap<StateKey, Vec<u16>, FoldState>,
}

impl NodeHolding {
    /// Nothing is held. `seed`: of the hashes of users and channels, which clients choose.
    pub fn new(seed: HashSeed) -> Self {
        NodeHolding { shards: HashMap::with_hasher(seed.fold()) }
    }

    /// What the node holds.
    pub fn keys(&self) -> impl Iterator<Item = &StateKey> {
        self.shards.keys()
    }

    /// Whether a shard holds a key has changed. Returns whether the node holds it, if that has changed.
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
