//! Capabilities: what a client may do in channels besides what their namespaces allow. They only grant.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use touchline_protocol::data::nullable;

use crate::wildcard;

/// Entries of one list of capabilities.
const ENTRIES_MAX: usize = 64;
/// Patterns of one list of capabilities, over all its entries.
const PATTERNS_MAX: usize = 256;
/// Length of a pattern, bytes.
const PATTERN_LEN_MAX: usize = 1_024;
/// Lists with regular expressions that are kept compiled.
const COMPILED_MAX: usize = 256;
/// Memory of a compiled regular expression, bytes.
const REGEX_SIZE_MAX: usize = 64 * 1_024;

/// What makes a regular expression match whole names.
const ANCHORS: (&str, &str) = ("^(?:", ")$");

/// An entry of `caps`, as a token or a backend writes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct CapsEntry {
    /// Channels, or patterns of channels.
    #[serde(deserialize_with = "nullable")]
    pub channels: Vec<String>,
    /// How they are compared: empty or `exact`, `wildcard`, `regex`.
    #[serde(rename = "match", deserialize_with = "nullable")]
    pub matching: String,
    /// `sub`, `pub`, `prs`, `hst`.
    #[serde(deserialize_with = "nullable")]
    pub allow: Vec<String>,
}

/// A set of things that a client may do in a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capability(u8);

impl Capability {
    /// Subscribe.
    pub const SUBSCRIBE: Capability = Capability(1);
    /// Publish.
    pub const PUBLISH: Capability = Capability(2);
    /// Ask for presence, and get join and leave events.
    pub const PRESENCE: Capability = Capability(4);
    /// Read the history, recover and be told the position.
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
            Some(Capability(all.0 | one.0))
        })
    }

    /// The words of the set, as a token or a backend writes them.
    pub(crate) fn words(self) -> Vec<&'static str> {
        let words = [("sub", Self::SUBSCRIBE), ("pub", Self::PUBLISH), ("prs", Self::PRESENCE), ("hst", Self::HISTORY)];
        words.into_iter().filter(|(_, one)| self.has(*one)).map(|(word, _)| word).collect()
    }

    /// Whether all of `other` is in this set.
    pub fn has(self, other: Capability) -> bool {
        self.0 & other.0 == other.0
    }
}

#[derive(Debug)]
enum Matching {
    Exact(Box<str>),
    Wildcard(Box<str>),
    Regex(Regex),
}

impl Matching {
    fn matches(&self, channel: &str) -> bool {
        match self {
            Matching::Exact(name) => **name == *channel,
            Matching::Wildcard(pattern) => wildcard::matches(pattern, channel),
            Matching::Regex(pattern) => pattern.is_match(channel),
        }
    }
}

/// The capabilities of a connection.
#[derive(Debug, Default)]
pub struct Capabilities {
    patterns: Vec<(Matching, Capability)>,
}

impl Capabilities {
    /// Reads the entries of a token or of an answer; `None` = there are none.
    ///
    /// # Errors
    /// A fixed text: there are too many entries or patterns, a pattern is too long or not valid, or a word is not
    /// known.
    fn compile(entries: Vec<CapsEntry>) -> Result<Option<Arc<Self>>, &'static str> {
        if entries.len() > ENTRIES_MAX {
            return Err("caps has more than 64 entries");
        }
        let mut patterns = Vec::new();
        for CapsEntry { channels, matching, allow } in entries {
            let allowed = Capability::read(&allow).ok_or("allow of caps has a word other than sub, pub, prs, hst")?;
            if patterns.len() + channels.len() > PATTERNS_MAX {
                return Err("caps has more than 256 patterns");
            }
            for channel in channels {
                if channel.len() > PATTERN_LEN_MAX {
                    return Err("a pattern of caps is longer than 1,024 bytes");
                }
                patterns.push((compile(&matching, channel)?, allowed));
            }
        }
        Ok((!patterns.is_empty()).then(|| Arc::new(Capabilities { patterns })))
    }

    /// Whether some entry allows this in a channel. The time is linear in the length of the channel's name and in the
    /// number of patterns.
    pub fn allow(&self, channel: &str, wanted: Capability) -> bool {
        self.find(channel, wanted).is_some()
    }

    /// The first pattern that allows this in a channel.
    fn find(&self, channel: &str, wanted: Capability) -> Option<&Matching> {
        let found = self.patterns.iter().find(|(pattern, allowed)| allowed.has(wanted) && pattern.matches(channel));
        found.map(|(pattern, _)| pattern)
    }

    /// The first pattern that allows this in a channel, for people; `None` = none does.
    pub(crate) fn described(&self, channel: &str, wanted: Capability) -> Option<String> {
        Some(match self.find(channel, wanted)? {
            Matching::Exact(name) => format!("exact {name}"),
            Matching::Wildcard(pattern) => format!("wildcard {pattern}"),
            Matching::Regex(pattern) => {
                // The pattern stands in what makes it match whole names.
                let whole = pattern.as_str();
                format!(
                    "regex {}",
                    whole.strip_prefix(ANCHORS.0).and_then(|p| p.strip_suffix(ANCHORS.1)).unwrap_or(whole)
                )
            }
        })
    }

    /// How many patterns there are.
    pub(crate) fn count(&self) -> usize {
        self.patterns.len()
    }
}

/// The compiled capabilities of a node's connections. Equal lists with regular expressions are compiled once and share
/// their memory while some connection has them.
#[derive(Debug, Default)]
pub struct CapsCache {
    compiled: Mutex<BTreeMap<Vec<CapsEntry>, Weak<Capabilities>>>,
}

impl CapsCache {
    /// Reads the entries of a token or of an answer; `None` = there are none.
    ///
    /// # Errors
    /// A fixed text: there are too many entries or patterns, a pattern is too long or not valid, or a word is not
    /// known.
    pub fn read(&self, entries: Vec<CapsEntry>) -> Result<Option<Arc<Capabilities>>, &'static str> {
        // A longer list is refused, and is not worth a place.
        if entries.len() > ENTRIES_MAX || !entries.iter().any(|entry| entry.matching == "regex") {
            return Capabilities::compile(entries);
        }
        let lock = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&entries).and_then(Weak::upgrade) {
            return Ok(Some(known));
        }
        let caps = Capabilities::compile(entries.clone())?;
        if let Some(caps) = &caps {
            let mut compiled = lock();
            if compiled.len() >= COMPILED_MAX {
                compiled.retain(|_, caps| caps.strong_count() > 0);
            }
            if compiled.len() < COMPILED_MAX {
                compiled.insert(entries, Arc::downgrade(caps));
            }
        }
        Ok(caps)
    }
}

/// Compiles a pattern. One of a regular expression matches the whole name.
fn compile(matching: &str, pattern: String) -> Result<Matching, &'static str> {
    match matching {
        "" | "exact" => Ok(Matching::Exact(pattern.into())),
        "wildcard" => Ok(Matching::Wildcard(pattern.into())),
        "regex" => RegexBuilder::new(&format!("{}{pattern}{}", ANCHORS.0, ANCHORS.1))
            .size_limit(REGEX_SIZE_MAX)
            .dfa_size_limit(REGEX_SIZE_MAX)
            .build()
            .map(Matching::Regex)
            .map_err(|_| "a regular expression of caps is not valid or too large"),
        _ => Err("match of caps is none of exact, wildcard, regex"),
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
        assert!(refused(vec![entry("regex", "(a{1000}){1000}", &["sub"])]));
        assert!(refused(vec![entry("", &"a".repeat(PATTERN_LEN_MAX + 1), &["sub"])]));
        assert!(refused(vec![CapsEntry::default(); ENTRIES_MAX + 1]));
        let many = CapsEntry { channels: vec![String::new(); PATTERNS_MAX + 1], ..CapsEntry::default() };
        assert!(refused(vec![many]));
        assert!(matches!(CapsCache::default().read(Vec::new()), Ok(None)));
    }

    #[test]
    fn equal_lists_are_compiled_once_and_a_bounded_number_of_them_is_kept() {
        let cache = CapsCache::default();
        let read = |text: &str| cache.read(vec![entry("regex", text, &["sub"])]).expect("valid").expect("some");
        let (first, second) = (read("a.*"), read("a.*"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &read("b.*")));
        let all: Vec<_> = (0..2 * COMPILED_MAX).map(|number| read(&format!("c{number}"))).collect();
        let held = || cache.compiled.lock().expect("nobody has panicked").len();
        assert_eq!(held(), COMPILED_MAX);
        assert!(Arc::ptr_eq(&first, &read("a.*")), "what is in use stays");
        drop(all);
        read("d");
        assert_eq!(held(), 2, "what nobody has goes when there is no room");
    }
}
