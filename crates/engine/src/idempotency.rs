//! Remembers the results of keyed publishes, so that a repeated one gives the first result and publishes nothing.

use std::collections::{HashMap, VecDeque};

use crate::request::Position;

/// How long a key is remembered, milliseconds.
const KEEP_MS: u64 = 5 * 60 * 1_000;
/// Keys remembered at once by one home; beyond it the oldest is forgotten.
const KEYS_MAX: usize = 100_000;

/// Results by channel and key, in the order in which they expire.
#[derive(Debug, Default)]
pub(crate) struct Idempotency {
    results: HashMap<(Box<str>, Box<str>), Option<Position>>,
    order: VecDeque<(u64, Box<str>, Box<str>)>,
}

impl Idempotency {
    /// The first result of a key that is still remembered.
    pub(crate) fn get(&mut self, channel: &str, key: &str, now_ms: u64) -> Option<Option<Position>> {
        self.forget(now_ms, KEYS_MAX);
        self.results.get(&(channel.into(), key.into())).cloned()
    }

    /// Remembers a result.
    pub(crate) fn put(&mut self, channel: &str, key: Box<str>, result: Option<Position>, now_ms: u64) {
        self.forget(now_ms, KEYS_MAX - 1);
        self.order.push_back((now_ms + KEEP_MS, channel.into(), key.clone()));
        self.results.insert((channel.into(), key), result);
    }

    /// Forgets what is due, and the oldest beyond `most`.
    pub(crate) fn forget(&mut self, now_ms: u64, most: usize) {
        while self.order.front().is_some_and(|(expires_ms, ..)| *expires_ms <= now_ms) || self.order.len() > most {
            let Some((_, channel, key)) = self.order.pop_front() else { return };
            self.results.remove(&(channel, key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_for_its_channel_and_its_time() {
        let mut keys = Idempotency::default();
        keys.put("a", "k".into(), None, 0);
        assert_eq!(keys.get("a", "k", KEEP_MS - 1), Some(None));
        assert_eq!(keys.get("b", "k", 0), None);
        assert_eq!(keys.get("a", "k", KEEP_MS), None);
        assert!(keys.results.is_empty() && keys.order.is_empty());
    }

    #[test]
    fn keys_are_bounded() {
        let mut keys = Idempotency::default();
        for n in 0..KEYS_MAX + 10 {
            keys.put("a", n.to_string().into(), None, 0);
        }
        assert_eq!(keys.results.len(), KEYS_MAX);
        assert_eq!(keys.get("a", "9", 0), None);
        assert_eq!(keys.get("a", "10", 0), Some(None));
    }
}
