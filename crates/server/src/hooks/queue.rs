//! The queue of calls to one backend.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::cache::Question;
use crate::runtime::hook_mailbox::Asker;

/// Cancelled calls behind an equal question are removed when there are more than this many.
const GONE_MAX: usize = 64;

/// The asker of a call, and the number of its question.
pub(super) type CallKey = (Asker, u32);

/// All waiting calls to one backend.
#[derive(Default)]
pub(super) struct CallQueue {
    /// The calls that wait for their turn, by the number of their arrival.
    turns: BTreeMap<u64, CallKey>,
    /// The calls that wait for the answer to an equal question, in the order of arrival. Some of them may be cancelled.
    behind_first: HashMap<Question, VecDeque<CallKey>>,
    /// The number of calls in `behind_first`, and how many of these are cancelled.
    behind: usize,
    gone: usize,
}

impl CallQueue {
    /// Returns the number of waiting calls.
    pub(super) fn len(&self) -> usize {
        self.turns.len() + self.behind - self.gone
    }

    /// Whether no call waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.behind == 0
    }

    /// Adds a call that waits for its turn. `arrival`: its number in the order of arrival. A call that has waited for
    /// another call keeps its number, and so goes before later calls.
    pub(super) fn push(&mut self, arrival: u64, key: CallKey) {
        self.turns.insert(arrival, key);
    }

    /// Adds a call that waits for the answer to an equal question.
    pub(super) fn push_behind(&mut self, question: Question, key: CallKey) {
        self.behind_first.entry(question).or_default().push_back(key);
        self.behind += 1;
    }

    /// Takes the oldest call that waits for its turn.
    pub(super) fn pop(&mut self) -> Option<CallKey> {
        self.turns.pop_first().map(|(_, key)| key)
    }

    /// Takes the calls that wait for the answer to a question, in order. `is_wanted`: whether a call is not cancelled.
    pub(super) fn take_behind(&mut self, question: &Question, is_wanted: impl Fn(&CallKey) -> bool) -> Vec<CallKey> {
        let keys = self.behind_first.remove(question).unwrap_or_default();
        self.behind -= keys.len();
        let before = keys.len();
        let wanted: Vec<CallKey> = keys.into_iter().filter(is_wanted).collect();
        self.gone -= before - wanted.len();
        wanted
    }

    /// Takes the calls that arrived before a time. `since`: when a call arrived; None = the call is cancelled.
    pub(super) fn take_older(&mut self, before_ms: u64, since: impl Fn(&CallKey) -> Option<u64>) -> Vec<CallKey> {
        let is_older = |key: &CallKey| since(key).is_none_or(|since_ms| since_ms <= before_ms);
        let mut older = Vec::new();
        for keys in self.behind_first.values_mut() {
            while let Some(key) = keys.pop_front_if(|key| is_older(key)) {
                self.behind -= 1;
                if since(&key).is_some() {
                    older.push(key);
                } else {
                    self.gone -= 1;
                }
            }
        }
        while let Some(first) = self.turns.first_entry().filter(|first| is_older(first.get())) {
            older.push(first.remove());
        }
        older
    }

    /// Cancels the call with this arrival. `is_wanted`: whether another call is not cancelled.
    pub(super) fn cancel(&mut self, arrival: u64, is_wanted: impl Fn(&CallKey) -> bool) {
        if self.turns.remove(&arrival).is_some() {
            return;
        }
        self.gone += 1;
        if self.gone > GONE_MAX + self.behind / 2 {
            self.behind_first.values_mut().for_each(|keys| keys.retain(&is_wanted));
            (self.behind, self.gone) = (self.behind - self.gone, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn question(number: usize) -> Question {
        Question { endpoint: 0, channel: number.to_string().into(), data: None, told: Vec::new() }
    }

    proptest! {
        /// Each step is a call that arrives at its own time, in milliseconds, and possibly the end of an earlier call.
        #[test]
        fn each_call_is_taken_once_in_its_order_and_counts_wherever_it_waits(
            steps in proptest::collection::vec((0..4_usize, 0..5_usize, 0..300_u64), 0..300)
        ) {
            let (mut queue, mut wanted, mut behind) = (CallQueue::default(), BTreeSet::new(), BTreeSet::new());
            for (number, (place, action, which)) in (1_u64..).zip(steps) {
                let key = (Asker::Registry, number as u32);
                wanted.insert(number);
                match place {
                    0 => queue.push(number, key),
                    place => {
                        behind.insert(number);
                        queue.push_behind(question(place), key);
                    }
                }
                let arrival = |key: &CallKey| u64::from(key.1);
                let is_wanted = |wanted: &BTreeSet<u64>, key: &CallKey| wanted.contains(&arrival(key));
                match action {
                    0 if wanted.remove(&which) => {
                        queue.cancel(which, |key| is_wanted(&wanted, key));
                        behind.remove(&which);
                    }
                    1 => {
                        let asked = question(1 + which as usize % 3);
                        let released = queue.take_behind(&asked, |key| is_wanted(&wanted, key));
                        prop_assert!(released.is_sorted_by_key(|key| key.1));
                        for key in released {
                            prop_assert!(behind.remove(&arrival(&key)));
                            queue.push(arrival(&key), key);
                        }
                    }
                    2 => {
                        let before = number.saturating_sub(which);
                        let since = |key: &CallKey| is_wanted(&wanted, key).then(|| arrival(key));
                        let older: BTreeSet<u64> = queue.take_older(before, since).iter().map(arrival).collect();
                        let expected = wanted.iter().copied().filter(|number| *number <= before).collect();
                        prop_assert_eq!(&older, &expected, "none waits longer, wherever it has waited");
                        wanted.retain(|number| !older.contains(number));
                        behind.retain(|number| !older.contains(number));
                    }
                    3 => {
                        let next = wanted.iter().copied().find(|number| !behind.contains(number));
                        prop_assert_eq!(queue.pop().map(|key| arrival(&key)), next, "the oldest goes first");
                        wanted.retain(|number| Some(*number) != next);
                    }
                    _ => {}
                }
                prop_assert_eq!(queue.len(), wanted.len());
            }
        }
    }
}
