//! Capabilities: what a client may do in channels besides what their namespaces allow. They only grant.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::wildcard;

/// Entries of one list of capabilities.
const ENTRIES_MAX: usize = 64;
/// Patterns of one list of capabilities, over all its entries.
const PATTERNS_MAX: usize = 256;
/// Length of a pattern, bytes.
const PATTERN_LEN_MAX: usize = 1_024;
/// Memory of a compiled regular expression, bytes.
const REGEX_SIZE_MAX: usize = 64 * 1_024;

/// An entry of `caps`, as a token or a backend writes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct CapsEntry {
    /// Channels, or patterns of channels.
    pub channels: Vec<String>,
    /// How they are compared: empty or `exact`, `wildcard`, `regex`.
    #[serde(rename = "match")]
    pub matching: String,
    /// `sub`, `pub`, `prs`, `hst`.
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
    pub fn read(entries: Vec<CapsEntry>) -> Result<Option<Arc<Self>>, &'static str> {
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
        self.patterns.iter().any(|(pattern, allowed)| allowed.has(wanted) && pattern.matches(channel))
    }
}

/// Compiles a pattern. One of a regular expression matches the whole name.
fn compile(matching: &str, pattern: String) -> Result<Matching, &'static str> {
    match matching {
        "" | "exact" => Ok(Matching::Exact(pattern.into())),
        "wildcard" => Ok(Matching::Wildcard(pattern.into())),
        "regex" => RegexBuilder::new(&format!("^(?:{pattern})$"))
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
        let caps = Capabilities::read(vec![
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
        let refused = |entries| Capabilities::read(entries).is_err();
        assert!(refused(vec![entry("", "a", &["all"])]));
        assert!(refused(vec![entry("glob", "a", &["sub"])]));
        assert!(refused(vec![entry("regex", "(", &["sub"])]));
        assert!(refused(vec![entry("regex", "(a{1000}){1000}", &["sub"])]));
        assert!(refused(vec![entry("", &"a".repeat(PATTERN_LEN_MAX + 1), &["sub"])]));
        assert!(refused(vec![CapsEntry::default(); ENTRIES_MAX + 1]));
        let many = CapsEntry { channels: vec![String::new(); PATTERNS_MAX + 1], ..CapsEntry::default() };
        assert!(refused(vec![many]));
        assert!(matches!(Capabilities::read(Vec::new()), Ok(None)));
    }
}
