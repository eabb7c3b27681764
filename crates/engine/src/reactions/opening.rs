//! What is open in a channel: its options and their round.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Options that a channel can have.
pub const OPTIONS_MAX: usize = 32;
/// Longest option, bytes.
pub const OPTION_LENGTH_MAX: usize = 64;

/// The round in which a channel counts. A later one begins at zero, and nothing of an earlier one counts any more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct RoundId {
    /// When it was opened, Unix milliseconds; 0 = by the namespace, for ever.
    #[serde(rename = "ms", default)]
    pub opened_ms: u64,
    /// The node that has opened it: of two that were opened in one millisecond the greater one counts.
    #[serde(rename = "by", default)]
    pub opener: Box<str>,
}

/// What the server API has opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReactionOpening {
    /// Its round.
    #[serde(flatten)]
    pub round: RoundId,
    /// What can be reacted with, at most [`OPTIONS_MAX`].
    pub options: Box<[Box<str>]>,
    /// Reactions a second of one connection; at least 1.
    pub rate: u32,
    /// When it closes by itself, Unix milliseconds; 0 = never.
    #[serde(default)]
    pub closes_at_ms: u64,
}

impl ReactionOpening {
    /// Whether it is the same but for the round.
    pub fn is_alike(&self, other: &ReactionOpening) -> bool {
        (&self.options, self.rate, self.closes_at_ms) == (&other.options, other.rate, other.closes_at_ms)
    }

    /// Until when something happens in it even if nobody reacts, Unix milliseconds.
    pub(super) fn used_until_ms(&self) -> u64 {
        self.round.opened_ms.max(self.closes_at_ms)
    }
}

/// What a shard needs of the reactions of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReactions {
    /// Its round.
    pub round: RoundId,
    /// What can be reacted with.
    pub options: Arc<[Box<str>]>,
    /// Reactions a second of one connection.
    pub rate: u32,
    /// When it closes by itself, Unix milliseconds; 0 = never.
    pub closes_at_ms: u64,
    /// It is closed.
    pub is_closed: bool,
}

impl OpenReactions {
    /// Whether reactions are refused because they are closed.
    pub fn is_closed_at(&self, now_ms: u64) -> bool {
        self.is_closed || self.closes_at_ms > 0 && self.closes_at_ms <= now_ms
    }

    /// The number of an option; `None` = it is not one of the options.
    pub fn find(&self, option: &str) -> Option<usize> {
        self.options.iter().position(|known| **known == *option)
    }
}

/// Checks a list of options. Returns what is wrong, in words; `None` = nothing.
pub fn check_options<'o>(options: impl IntoIterator<Item = &'o str>) -> Option<String> {
    let mut seen: Vec<&str> = Vec::new();
    for option in options {
        if option.is_empty() || option.len() > OPTION_LENGTH_MAX {
            return Some(format!("an option has 1 to {OPTION_LENGTH_MAX} bytes"));
        }
        if option.chars().any(char::is_control) {
            return Some("an option has no control characters".into());
        }
        if seen.contains(&option) {
            return Some(format!("the option {option:?} is there twice"));
        }
        seen.push(option);
        if seen.len() > OPTIONS_MAX {
            return Some(format!("there are at most {OPTIONS_MAX} options"));
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
