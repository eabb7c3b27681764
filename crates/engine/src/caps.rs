//! Capabilities: what a client may do in channels in addition to what their namespaces allow. They grant and never
//! forbid.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use serde::Deserialize;
use touchline_lock::Lock;
use touchline_protocol::data::nullable;

use crate::whole_regex::{RegexFault, WholeRegex};
use crate::wildcard;

/// The greatest number of entries in one list of capabilities.
const ENTRIES_MAX: usize = 64;
/// The greatest number of patterns in one list of capabilities, over all its entries.
const PATTERNS_MAX: usize = 256;
/// The greatest length of a pattern, bytes.
const PATTERN_LEN_MAX: usize = 1_024;
/// The greatest size of the compiled regular expressions of one list of capabilities, bytes.
const COMPILED_LIST_SIZE_MAX: usize = 256 * 1_024;
/// The greatest size of the compiled regular expressions of all different lists on a node, bytes.
const COMPILED_SIZE_MAX: usize = 256 * 1_024 * 1_024;
/// The number of known lists from which on unused ones are looked for and removed.
const KNOWN_MIN: usize = 256;

/// An entry of `caps`, as a token or a backend writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct CapsEntry {
    /// Channel names, or patterns of channel names.
    #[serde(deserialize_with = "nullable")]
    pub channels: Vec<String>,
    /// How `channels` are compared with a channel's name: empty or `exact`, `wildcard`, `regex`.
    #[serde(rename = "match", deserialize_with = "nullable")]
    pub matching: String,
    /// What the client may do: `sub`, `pub`, `prs`, `hst`.
    #[serde(deserialize_with = "nullable")]
    pub allow: Vec<String>,
}

/// A set of things that a client may do in a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capability(u8);

impl Capability {
    /// The empty set: nothing is allowed.
    pub const NONE: Capability = Capability(0);
    /// The client may subscribe.
    pub const SUBSCRIBE: Capability = Capability(1);
    /// The client may publish.
    pub const PUBLISH: Capability = Capability(2);
    /// The client may read presence, and receive join and leave events.
    pub const PRESENCE: Capability = Capability(4);
    /// The client may read the history, recover, and get the channel's position.
    pub const HISTORY: Capability = Capability(8);

    /// The set that a list of words names; `None` = one of the words is not known.
    pub fn read(words: &[String]) -> Option<Self> {
        words.iter().try_fold(Capability::default(), |all, word| {
            let one = match word.as_str() {
                "sub" => Capability::SUBSCRIBE,
                "pub" => Capability::PUBLISH,
                "prs" => Capability::PRESENCE,
                "hst" => Capability::HISTORY,
                _ => return None,
            };
            Some(all.with(one))
        })
    }

    /// The words for the set, as a token or a backend writes them.
    pub(crate) fn words(self) -> Vec<&'static str> {
        let words = [("sub", Self::SUBSCRIBE), ("pub", Self::PUBLISH), ("prs", Self::PRESENCE), ("hst", Self::HISTORY)];
        words.into_iter().filter(|(_, one)| self.has(*one)).map(|(word, _)| word).collect()
    }

    /// The union with `other`.
    pub(crate) fn with(self, other: Capability) -> Self {
        Capability(self.0 | other.0)
    }

    /// This set without the capabilities in `other`.
    pub(crate) fn without(self, other: Capability) -> Self {
        Capability(self.0 & !other.0)
    }

    /// Whether this set contains all of `other`.
    pub fn has(self, other: Capability) -> bool {
        self.0 & other.0 == other.0
    }
}

#[derive(Debug)]
enum Matching {
    Exact(Box<str>),
    Wildcard(Box<str>),
    Regex(WholeRegex),
}

impl Matching {
    fn matches(&self, channel: &str) -> bool {
        match self {
            Matching::Exact(name) => **name == *channel,
            Matching::Wildcard(pattern) => wildcard::matches(pattern, channel),
            Matching::Regex(pattern) => pattern.matches(channel),
        }
    }
}

/// The capabilities of a connection, with their patterns compiled.
#[derive(Debug, Default)]
pub struct Capabilities {
    patterns: Vec<(Matching, Capability)>,
    /// The memory charged for the list's regular expressions; `None` = it has none.
    charge: Option<Charge>,
}

/// Why a list of capabilities cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapsFault {
    /// The list is not valid or too large; the text is the cause.
    Invalid(&'static str),
    /// The node has no room for more compiled regular expressions. It may have room later.
    Full,
}

impl CapsFault {
    /// The cause, as text for people.
    pub fn cause(self) -> &'static str {
        match self {
            CapsFault::Invalid(cause) => cause,
            CapsFault::Full => "the regular expressions of the caps of all connections are larger than 256 MiB",
        }
    }
}

/// The bytes that a list takes of the node's limit. Dropping the charge frees them.
#[derive(Debug)]
struct Charge {
    charged: Arc<AtomicUsize>,
    size: usize,
}

impl Charge {
    /// Charges some bytes; `None` = the node has fewer left.
    fn take(charged: &Arc<AtomicUsize>, size: usize) -> Option<Self> {
        let more = |taken: usize| taken.checked_add(size).filter(|taken| *taken <= COMPILED_SIZE_MAX);
        charged.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Charge { charged: Arc::clone(charged), size })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charged.fetch_sub(self.size, Relaxed);
    }
}

impl Capabilities {
    /// Reads the entries of a token or of a backend's answer.
    ///
    /// # Errors
    /// There are too many entries or patterns, a pattern is too long or not valid, a word is not known, or the regular
    /// expressions are too large.
    fn compile(entries: Vec<CapsEntry>) -> Result<Self, CapsFault> {
        if entries.len() > ENTRIES_MAX {
            return Err(CapsFault::Invalid("caps has more than 64 entries"));
        }
        let (mut patterns, mut room) = (Vec::new(), COMPILED_LIST_SIZE_MAX);
        for CapsEntry { channels, matching, allow } in entries {
            let unknown = CapsFault::Invalid("allow of caps has a word other than sub, pub, prs, hst");
            let allowed = Capability::read(&allow).ok_or(unknown)?;
            if patterns.len() + channels.len() > PATTERNS_MAX {
                return Err(CapsFault::Invalid("caps has more than 256 patterns"));
            }
            for channel in channels {
                if channel.len() > PATTERN_LEN_MAX {
                    return Err(CapsFault::Invalid("a pattern of caps is longer than 1,024 bytes"));
                }
                let compiled = compile(&matching, channel, room).map_err(CapsFault::Invalid)?;
                if let Matching::Regex(regex) = &compiled {
                    room = room.saturating_sub(regex.size());
                }
                patterns.push((compiled, allowed));
            }
        }
        Ok(Capabilities { patterns, charge: None })
    }

    /// The size of the list's compiled regular expressions, bytes.
    fn compiled_size(&self) -> usize {
        let sizes = self.patterns.iter().map(|(pattern, _)| match pattern {
            Matching::Regex(regex) => regex.size(),
            Matching::Exact(_) | Matching::Wildcard(_) => 0,
        });
        sizes.sum()
    }

    /// Wraps the list in an `Arc`; `None` = it has no pattern.
    fn shared(self) -> Option<Arc<Self>> {
        (!self.patterns.is_empty()).then(|| Arc::new(self))
    }

    /// Whether some entry allows `wanted` in a channel. The time is linear in the length of the channel's name and in
    /// the number of patterns.
    pub fn allow(&self, channel: &str, wanted: Capability) -> bool {
        self.find(channel, wanted).is_some()
    }

    /// The first pattern that allows `wanted` in a channel.
    fn find(&self, channel: &str, wanted: Capability) -> Option<&Matching> {
        let found = self.patterns.iter().find(|(pattern, allowed)| allowed.has(wanted) && pattern.matches(channel));
        found.map(|(pattern, _)| pattern)
    }

    /// The first pattern that allows `wanted` in a channel, as text for people; `None` = no pattern allows it.
    pub(crate) fn described(&self, channel: &str, wanted: Capability) -> Option<String> {
        Some(match self.find(channel, wanted)? {
            Matching::Exact(name) => format!("exact {name}"),
            Matching::Wildcard(pattern) => format!("wildcard {pattern}"),
            Matching::Regex(pattern) => format!("regex {}", pattern.as_str()),
        })
    }

    /// The number of patterns in the list.
    pub(crate) fn count(&self) -> usize {
        self.patterns.len()
    }
}

/// The compiled capabilities of a node's connections. Equal lists with regular expressions are compiled once. They
/// share their memory while at least one connection uses them.
#[derive(Debug, Default)]
pub struct CapsCache {
    known: Lock<KnownLists>,
    /// The size of the compiled regular expressions of all lists, bytes.
    charged: Arc<AtomicUsize>,
}

/// The lists with regular expressions. If there are many, at least half of them are in use.
#[derive(Debug, Default)]
struct KnownLists {
    lists: BTreeMap<Vec<CapsEntry>, Weak<Capabilities>>,
    /// How many lists there may be before unused ones are removed.
    limit: usize,
}

impl KnownLists {
    fn insert(&mut self, entries: Vec<CapsEntry>, caps: &Arc<Capabilities>) {
        if self.lists.len() >= self.limit {
            self.lists.retain(|_, caps| caps.strong_count() > 0);
            self.limit = KNOWN_MIN.max(2 * self.lists.len());
        }
        self.lists.insert(entries, Arc::downgrade(caps));
    }
}

impl CapsCache {
    /// Reads the entries of a token or of a backend's answer; `None` = there are no patterns.
    ///
    /// # Errors
    /// See [`CapsFault`].
    pub fn read(&self, entries: Vec<CapsEntry>) -> Result<Option<Arc<Capabilities>>, CapsFault> {
        // A longer list is refused, so it need not be cached.
        if entries.len() > ENTRIES_MAX || !entries.iter().any(|entry| entry.matching == "regex") {
            return Capabilities::compile(entries).map(Capabilities::shared);
        }
        let lock = || self.known.lock();
        if let Some(known) = lock().lists.get(&entries).and_then(Weak::upgrade) {
            return Ok(Some(known));
        }
        let mut caps = Capabilities::compile(entries.clone())?;
        caps.charge = Some(Charge::take(&self.charged, caps.compiled_size()).ok_or(CapsFault::Full)?);
        let caps = caps.shared();
        if let Some(caps) = &caps {
            lock().insert(entries, caps);
        }
        Ok(caps)
    }
}

/// Compiles a pattern. A regular expression matches the whole name, and its compiled form has at most `room` bytes.
fn compile(matching: &str, pattern: String, room: usize) -> Result<Matching, &'static str> {
    match matching {
        "" | "exact" => Ok(Matching::Exact(pattern.into())),
        "wildcard" => Ok(Matching::Wildcard(pattern.into())),
        "regex" => WholeRegex::compile(&pattern, room).map(Matching::Regex).map_err(|fault| match fault {
            RegexFault::Invalid => "a regular expression of caps is not valid",
            RegexFault::TooLarge => "the regular expressions of caps are larger than 256 KiB when compiled",
        }),
        _ => Err("match of caps must be exact, wildcard or regex"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(matching: &str, channel: &str, allow: &[&str]) -> CapsEntry {
        CapsEntry {
            channels: vec![channel.to_owned()],
            matching: matching.to_owned(),
            allow: allow.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn an_entry_grants_what_it_names_where_it_matches() {
        let caps = CapsCache::default().read(vec![
            entry("", "news", &["sub"]),
            entry("exact", "news", &["pub"]),
            entry("wildcard", "chat:*", &["sub", "hst"]),
            entry("regex", "a[0-9]|b", &["prs"]),
        ]);
        let caps = caps.expect("they are valid").expect("there are some");
        for (channel, wanted, expected) in [
            ("news", Capability::SUBSCRIBE, true),
            ("news", Capability::PUBLISH, true),
            ("news", Capability::HISTORY, false),
            ("news2", Capability::SUBSCRIBE, false),
            ("chat:", Capability::HISTORY, true),
            ("chat:a:b", Capability::SUBSCRIBE, true),
            ("chat", Capability::SUBSCRIBE, false),
            ("a1", Capability::PRESENCE, true),
            ("b", Capability::PRESENCE, true),
            ("xa1", Capability::PRESENCE, false),
            ("a1x", Capability::PRESENCE, false),
            ("bx", Capability::PRESENCE, false),
        ] {
            assert_eq!(caps.allow(channel, wanted), expected, "{channel} {wanted:?}");
        }
    }

    #[test]
    fn what_is_not_valid_or_too_much_is_refused() {
        let refused = |entries| CapsCache::default().read(entries).is_err();
        assert!(refused(vec![entry("", "a", &["all"])]));
        assert!(refused(vec![entry("glob", "a", &["sub"])]));
        assert!(refused(vec![entry("regex", "(", &["sub"])]));
        assert!(refused(vec![entry("regex", "a)|(?:", &["sub"])]));
        assert!(refused(vec![entry("regex", "(a{1000}){1000}", &["sub"])]));
        let large = entry("regex", ".{255}", &["sub"]);
        assert!(
            !refused(vec![large.clone()]) && refused(vec![large; 4]),
            "the list is too large, and no pattern of it"
        );
        assert!(refused(vec![entry("", &"a".repeat(PATTERN_LEN_MAX + 1), &["sub"])]));
        assert!(refused(vec![CapsEntry::default(); ENTRIES_MAX + 1]));
        let many = CapsEntry { channels: vec![String::new(); PATTERNS_MAX + 1], ..CapsEntry::default() };
        assert!(refused(vec![many]));
        assert!(matches!(CapsCache::default().read(Vec::new()), Ok(None)));
    }

    #[test]
    fn equal_lists_are_compiled_once_as_long_as_one_is_in_use() {
        let cache = CapsCache::default();
        let read = |text: &str| cache.read(vec![entry("regex", text, &["sub"])]).expect("valid").expect("some");
        let (first, second) = (read("a.*"), read("a.*"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &read("b.*")));
        let all: Vec<_> = (0..4 * KNOWN_MIN).map(|number| read(&format!("c{number}"))).collect();
        assert!(Arc::ptr_eq(&first, &read("a.*")), "what is in use stays, however many there are");
        assert!(Arc::ptr_eq(&all[0], &read("c0")));
        drop(all);
        for number in 0..4 * KNOWN_MIN {
            read(&format!("d{number}"));
        }
        let known = cache.known.lock().lists.len();
        assert!(known <= 4 * KNOWN_MIN, "what nobody has goes: {known}");
    }

    #[test]
    fn the_node_has_room_for_so_much_and_gets_back_what_nobody_has() {
        let cache = CapsCache::default();
        let list = |name: &str| vec![entry("regex", name, &["sub"])];
        let held = cache.read(list("a.*")).expect("there is room").expect("some");
        let size = held.compiled_size();
        assert!(size > 0 && cache.charged.load(Relaxed) == size);
        let _shared = cache.read(list("a.*")).expect("it is known");
        assert_eq!(cache.charged.load(Relaxed), size, "equal lists are charged once");
        let rest = Charge::take(&cache.charged, COMPILED_SIZE_MAX - size).expect("there is room");
        assert!(Charge::take(&cache.charged, 1).is_none());
        assert_eq!(cache.read(list("b.*")).map(|_| ()), Err(CapsFault::Full));
        assert!(cache.read(list("a.*")).is_ok(), "a list in use needs no room");
        drop(rest);
        assert!(cache.read(list("b.*")).is_ok());
        drop((held, _shared));
        assert_eq!(cache.charged.load(Relaxed), 0);
    }
}
