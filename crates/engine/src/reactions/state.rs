//! The result of a channel, as it is published and as the server API returns it.

use serde_json::{Map, Value, json};

/// The reactions of a channel and their totals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReactionState {
    /// The options and their totals, in the order of the options.
    pub totals: Vec<(Box<str>, u64)>,
    /// When the round was opened, Unix milliseconds; 0 = the namespace opened it.
    pub opened_ms: u64,
    /// When the round closes automatically, Unix milliseconds; 0 = never.
    pub closes_at_ms: u64,
    /// Whether the round is closed.
    pub is_closed: bool,
}

impl ReactionState {
    /// The sum of all totals. It never decreases within a round, and it is the same on all nodes that know the same.
    pub fn seq(&self) -> u64 {
        self.totals.iter().fold(0, |sum: u64, (_, total)| sum.saturating_add(*total))
    }

    /// The data that the channel publishes. `is_last`: whether it is the closing publication.
    pub fn publication(&self, is_last: bool) -> Vec<u8> {
        let mut members = self.members();
        if is_last {
            members.insert("closed".into(), true.into());
        }
        Value::Object(members).to_string().into_bytes()
    }

    /// The fields of the server API's answer.
    pub fn answer(&self) -> Map<String, Value> {
        let mut members = self.members();
        members.insert("closed".into(), self.is_closed.into());
        if self.closes_at_ms > 0 {
            members.insert("closes_at".into(), self.closes_at_ms.into());
        }
        members
    }

    fn members(&self) -> Map<String, Value> {
        let totals: Map<String, Value> =
            self.totals.iter().map(|(option, total)| (option.to_string(), Value::from(*total))).collect();
        let mut members = Map::new();
        members.insert("reactions".into(), json!(totals));
        members.insert("seq".into(), self.seq().into());
        if self.opened_ms > 0 {
            members.insert("opened".into(), self.opened_ms.into());
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publication_says_totals_and_their_sum() {
        let mut state =
            ReactionState { totals: vec![("boo".into(), 3), ("applause".into(), 41)], ..Default::default() };
        let text =
            |state: &ReactionState, is_last| String::from_utf8(state.publication(is_last)).expect("JSON is text");
        let published: Value = serde_json::from_str(&text(&state, false)).expect("it is JSON");
        assert_eq!(published, json!({"reactions": {"boo": 3, "applause": 41}, "seq": 44}));
        state.opened_ms = 7;
        let published: Value = serde_json::from_str(&text(&state, true)).expect("it is JSON");
        assert_eq!(published["closed"], true);
        assert_eq!(published["opened"], 7);
    }

    #[test]
    fn a_sum_beyond_all_numbers_stays_the_greatest() {
        let totals = vec![("a".into(), u64::MAX), ("b".into(), 1)];
        assert_eq!(ReactionState { totals, ..ReactionState::default() }.seq(), u64::MAX);
    }
}
