//! What is open in a channel: its options and their round.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The greatest number of options that a channel can have.
pub const OPTIONS_MAX: usize = 32;
/// The greatest length of an option, bytes.
pub const OPTION_LENGTH_MAX: usize = 64;

/// The round in which a channel counts. A later round begins at zero, and counts of earlier rounds no longer matter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct RoundId {
    /// When the round was opened, Unix milliseconds; 0 = the namespace opened it for ever.
    #[serde(rename = "ms", default)]
    pub opened_ms: u64,
    /// The node that opened the round. If two rounds were opened in the same millisecond, the greater node name counts.
    #[serde(rename = "by", default)]
    pub opener: Box<str>,
}

/// Reactions that the server API has opened in a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactionOpening {
    /// The round that was opened.
    #[serde(flatten)]
    pub round: RoundId,
    /// The options that clients can react with, at most [`OPTIONS_MAX`].
    pub options: Box<[Box<str>]>,
    /// How many reactions one connection may send in a second; at least 1.
    pub rate: u32,
    /// When the round closes automatically, Unix milliseconds; 0 = never.
    #[serde(default)]
    pub closes_at_ms: u64,
}

impl ReactionOpening {
    /// Whether it equals another opening except for the round.
    pub fn is_alike(&self, other: &ReactionOpening) -> bool {
        (&self.options, self.rate, self.closes_at_ms) == (&other.options, other.rate, other.closes_at_ms)
    }

    /// Until when something happens in it even without reactions, Unix milliseconds.
    pub(super) fn used_until_ms(&self) -> u64 {
        self.round.opened_ms.max(self.closes_at_ms)
    }
}

/// What a shard needs to know about the reactions of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReactions {
    /// The present round of the channel.
    pub round: RoundId,
    /// The options that clients can react with.
    pub options: Arc<[Box<str>]>,
    /// How many reactions one connection may send in a second.
    pub rate: u32,
    /// When the round closes automatically, Unix milliseconds; 0 = never.
    pub closes_at_ms: u64,
    /// Whether the round is closed.
    pub is_closed: bool,
}

impl OpenReactions {
    /// Whether reactions are refused because the round is closed.
    pub fn is_closed_at(&self, now_ms: u64) -> bool {
        self.is_closed || self.closes_at_ms > 0 && self.closes_at_ms <= now_ms
    }

    /// The index of an option; `None` = it is not one of the options.
    pub fn find(&self, option: &str) -> Option<usize> {
        self.options.iter().position(|known| **known == *option)
    }
}

/// Checks a list of options. Returns what is wrong, as text for people; `None` = the list is valid.
pub fn check_options<'o>(options: impl IntoIterator<Item = &'o str>) -> Option<String> {
    let mut seen: Vec<&str> = Vec::new();
    for option in options {
        if option.is_empty() || option.len() > OPTION_LENGTH_MAX {
            return Some(format!("an option must have 1 to {OPTION_LENGTH_MAX} bytes"));
        }
        if option.chars().any(char::is_control) {
            return Some("an option must not contain control characters".into());
        }
        if seen.contains(&option) {
            return Some(format!("the option {option:?} is listed twice"));
        }
        seen.push(option);
        if seen.len() > OPTIONS_MAX {
            return Some(format!("at most {OPTIONS_MAX} options are allowed"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_few_short_and_different() {
        let many: Vec<String> = (0..=OPTIONS_MAX).map(|number| number.to_string()).collect();
        assert!(check_options(many.iter().map(String::as_str)).is_some_and(|why| why.contains("at most 32")));
        assert_eq!(check_options(many.iter().skip(1).map(String::as_str)), None);
        let long = "x".repeat(OPTION_LENGTH_MAX + 1);
        for wrong in [vec![""], vec![long.as_str()], vec!["a", "a"], vec!["a\n"]] {
            assert!(check_options(wrong.iter().copied()).is_some(), "{wrong:?}");
        }
        assert_eq!(check_options(["👏", "boo"]), None);
    }

    #[test]
    fn a_later_round_is_the_greater_one() {
        let round = |opened_ms, opener: &str| RoundId { opened_ms, opener: opener.into() };
        assert!(RoundId::default() < round(1, "a") && round(1, "a") < round(1, "b") && round(1, "b") < round(2, "a"));
    }

    #[test]
    fn reactions_close_at_their_time() {
        let mut open = OpenReactions {
            round: RoundId::default(),
            options: Arc::new(["a".into()]),
            rate: 1,
            closes_at_ms: 0,
            is_closed: false,
        };
        assert!(!open.is_closed_at(u64::MAX));
        open.closes_at_ms = 10;
        assert!(!open.is_closed_at(9) && open.is_closed_at(10));
        open.closes_at_ms = 0;
        open.is_closed = true;
        assert!(open.is_closed_at(0));
        assert_eq!((open.find("a"), open.find("b")), (Some(0), None));
    }
}
