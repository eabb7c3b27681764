//! Changes of what a shard holds, kept until the reporting thread has room. If a change is undone before that, both
//! disappear. So there are never more entries than keys that are or were held.

use std::collections::BTreeMap;

use super::state_key::StateKey;

/// The keys whose holding has changed since it was last taken.
#[derive(Debug, Default)]
pub struct HeldChanges(BTreeMap<StateKey, bool>);

impl HeldChanges {
    /// Notes that a key is now held, or is no longer held.
    pub fn note(&mut self, key: StateKey, is_held: bool) {
        // The new change can only undo the noted one: a key is not held twice.
        if self.0.remove(&key).is_none() {
            self.0.insert(key, is_held);
        }
    }

    /// Notes that a key is held whose changes were not noted so far.
    pub fn note_found(&mut self, key: StateKey) {
        self.0.entry(key).or_insert(true);
    }

    /// Removes and returns one change; `None` = there is none.
    pub fn take(&mut self) -> Option<(StateKey, bool)> {
        self.0.pop_first()
    }

    /// Puts back a change that could not be reported.
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
