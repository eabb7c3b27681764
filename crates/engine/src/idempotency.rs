//! Remembers the results of keyed publishes, so that a repeated publish returns the first result and publishes nothing.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use touchline_protocol::stream::{ChannelName, IDEMPOTENCY_KEY_TTL_MS, StreamPosition};
use touchline_registry::FoldState;

/// How long a key is remembered, milliseconds.
const KEEP_MS: u64 = IDEMPOTENCY_KEY_TTL_MS;
/// The greatest number of keys that one home remembers. Beyond it the oldest key is forgotten.
const KEYS_MAX: usize = 100_000;
/// The greatest size of keys that one home remembers, with their entries, bytes. Beyond it the oldest key is forgotten.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// The memory of an entry in addition to its key, bytes: its entries in the table and in the order, and two
/// allocations.
const ENTRY: usize = 160;

/// A key together with its channel, stored once for the table and the order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Keyed {
    channel: ChannelName,
    key: Box<str>,
}

impl Keyed {
    fn size(&self) -> usize {
        ENTRY + self.channel.len() + self.key.len()
    }
}

/// A borrowed key with the same hash as [`Keyed`], to look it up without an allocation.
#[derive(Hash)]
struct KeyRef<'a> {
    channel: &'a str,
    key: &'a str,
}

impl Equivalent<Arc<Keyed>> for KeyRef<'_> {
    fn equivalent(&self, other: &Arc<Keyed>) -> bool {
        *self.channel == *other.channel && *self.key == *other.key
    }
}

/// Results by channel and key, in the order in which they expire.
#[derive(Debug)]
pub(crate) struct Idempotency {
    results: HashMap<Arc<Keyed>, Option<StreamPosition>, FoldState>,
    order: VecDeque<(u64, Arc<Keyed>)>,
    bytes: usize,
}

impl Idempotency {
    pub(crate) fn new(hasher: FoldState) -> Self {
        Idempotency { results: HashMap::with_hasher(hasher), order: VecDeque::new(), bytes: 0 }
    }

    /// The first result of a key; `None` = the key is not remembered. The inner `None` = the publish had no position.
    pub(crate) fn get(&mut self, channel: &str, key: &str, now_ms: u64) -> Option<Option<StreamPosition>> {
        self.forget(now_ms);
        self.results.get(&KeyRef { channel, key }).copied()
    }

    /// Remembers the result of a keyed publish.
    pub(crate) fn put(&mut self, channel: &ChannelName, key: Box<str>, result: Option<StreamPosition>, now_ms: u64) {
        let keyed = Arc::new(Keyed { channel: channel.clone(), key });
        self.bytes += keyed.size();
        self.order.push_back((now_ms + KEEP_MS, Arc::clone(&keyed)));
        self.results.insert(keyed, result);
        self.forget(now_ms);
    }

    /// Forgets the expired keys, and the oldest ones beyond the limits.
    pub(crate) fn forget(&mut self, now_ms: u64) {
        while let Some((expires_ms, _)) = self.order.front()
            && (*expires_ms <= now_ms || self.order.len() > KEYS_MAX || self.bytes > BYTES_MAX)
        {
            let Some((_, keyed)) = self.order.pop_front() else { return };
            self.bytes -= keyed.size();
            self.results.remove(&keyed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use touchline_protocol::Offset;
    use touchline_registry::HashSeed;

    #[test]
    fn a_key_is_remembered_for_its_channel_and_its_time() {
        let mut keys = Idempotency::new(HashSeed::repeatable(7).fold());
        keys.put(&"a".into(), "k".into(), None, 0);
        assert_eq!(keys.get("a", "k", KEEP_MS - 1), Some(None));
        assert_eq!(keys.get("b", "k", 0), None);
        assert_eq!(keys.get("ak", "", 0), None);
        assert_eq!(keys.get("a", "k", KEEP_MS), None);
        assert!(keys.results.is_empty() && keys.order.is_empty() && keys.bytes == 0);
    }

    #[test]
    fn neither_a_channel_nor_a_key_alone_is_enough() {
        // There are so many keys that some collide in the table.
        let mut keys = Idempotency::new(HashSeed::repeatable(7).fold());
        for n in 0..5_000 {
            keys.put(&format!("channel {n}").into(), "key".into(), None, 0);
            keys.put(&"channel".into(), format!("key {n}").into(), None, 0);
        }
        for n in 5_000..10_000 {
            assert_eq!(keys.get(&format!("channel {n}"), "key", 0), None, "{n}");
            assert_eq!(keys.get("channel", &format!("key {n}"), 0), None, "{n}");
        }
    }

    #[test]
    fn keys_are_bounded() {
        let mut keys = Idempotency::new(HashSeed::repeatable(7).fold());
        for n in 0..KEYS_MAX + 10 {
            keys.put(&"a".into(), n.to_string().into(), None, 0);
        }
        assert_eq!(keys.results.len(), KEYS_MAX);
        assert_eq!(keys.get("a", "9", 0), None);
        assert_eq!(keys.get("a", "10", 0), Some(None));
    }

    #[test]
    fn so_are_their_bytes() {
        let mut keys = Idempotency::new(HashSeed::repeatable(7).fold());
        let key = |n: usize| format!("{n}{}", "k".repeat(1024 * 1024));
        for n in 0..100 {
            keys.put(&"a".into(), key(n).into(), None, 0);
            assert!(keys.bytes <= BYTES_MAX);
        }
        assert_eq!(keys.results.len(), 63, "each is a little more than a mebibyte");
        assert_eq!((keys.get("a", &key(0), 0), keys.get("a", &key(99), 0)), (None, Some(None)));
    }

    #[test]
    fn a_key_is_remembered_with_its_result_and_goes_by_itself() {
        let mut keys = Idempotency::new(HashSeed::repeatable(7).fold());
        let position = StreamPosition { offset: Offset(3), ..StreamPosition::default() };
        keys.put(&"a".into(), "k".into(), Some(position), 1_000);
        keys.put(&"a".into(), "l".into(), None, 1_001);
        assert_eq!((keys.get("a", "k", 1_000), keys.get("a", "l", 1_000)), (Some(Some(position)), Some(None)));
        assert_eq!(keys.bytes, 2 * (ENTRY + 1 + 1));
        keys.forget(1_000 + KEEP_MS);
        assert_eq!((keys.results.len(), keys.order.len(), keys.bytes), (1, 1, ENTRY + 2));
        keys.forget(1_001 + KEEP_MS);
        assert!(keys.results.is_empty() && keys.order.is_empty() && keys.bytes == 0);
    }

    #[test]
    fn as_many_bytes_are_kept_as_may_be() {
        let mut keys = Idempotency::new(HashSeed::repeatable(7).fold());
        let half = BYTES_MAX / 2 - ENTRY - 1;
        for (name, length) in [("x", half), ("y", half)] {
            keys.put(&"a".into(), name.repeat(length).into(), None, 0);
        }
        assert_eq!((keys.results.len(), keys.bytes), (2, BYTES_MAX));
        keys.put(&"a".into(), "z".into(), None, 0);
        assert_eq!((keys.results.len(), keys.get("a", &"x".repeat(half), 0)), (2, None));
    }
}
