//! Changes of what a shard holds, until the thread that tells them has room: a change that is undone before is none, so
//! there are never more than keys that are held or were.

use std::collections::BTreeMap;

use super::state_key::StateKey;

/// What has changed since it was last taken.
#[derive(Debug, Default)]
pub struct HeldChanges(BTreeMap<StateKey, bool>);

impl HeldChanges {
    /// Notes a change.
    pub fn note(&mut self, key: StateKey, is_held: bool) {
        // It can only be undone: a key is not held twice.
        if self.0.remove(&key).is_none() {
            self.0.insert(key, is_held);
        }
    }

    /// Notes that a key is held whose changes were passed over so far.
    pub fn note_found(&mut self, key: StateKey) {
        self.0.entry(key).or_insert(true);
    }

    /// Takes one change; `None` = there is none.
    pub fn take(&mut self) -> Option<(StateKey, bool)> {
        self.0.pop_first()
    }

    /// Puts a change back that could not be told.
    pub fn put_back(&mut self, key: StateKey, is_held: bool) {
        self.0.insert(key, is_held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_undone_is_none() {
        let mut changes = HeldChanges::default();
        let user = |name: &str| StateKey::User(name.into());
        for (name, is_held) in [("ann", true), ("bob", false), ("ann", false), ("eve", true), ("bob", true)] {
            changes.note(user(name), is_held);
        }
        assert_eq!(changes.take(), Some((user("eve"), true)));
        assert_eq!(changes.take(), None);
        changes.note(user("eve"), false);
        changes.put_back(user("bob"), true);
        assert_eq!(changes.take(), Some((user("bob"), true)));
        assert_eq!(changes.take(), Some((user("eve"), false)));
    }
}
