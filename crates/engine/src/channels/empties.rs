//! Empty channels with history: they have neither a publication nor a subscriber. They are kept so that a client that
//! returns with (offset 0, epoch) misses nothing. Their number is limited, and the oldest are removed first. So reading
//! channels that do not exist costs little memory.

use std::collections::VecDeque;

use touchline_protocol::stream::ChannelName;

/// The number of void entries that are tolerated beyond the number of valid ones before void entries are removed.
const SLACK: usize = 64;

/// The order in which channels became empty. An entry is valid while its channel has the entry's number; otherwise it
/// is void.
#[derive(Debug, Default)]
pub(super) struct Empties {
    most: usize,
    last: u64,
    order: VecDeque<(u64, ChannelName)>,
    valid: usize,
}

impl Empties {
    /// An empty list that keeps at most `most` channels.
    pub(super) fn new(most: usize) -> Self {
        Empties { most, ..Empties::default() }
    }

    /// Adds a channel and returns its number, which is never 0. `is_valid` returns whether a channel still has a
    /// number. Amortised O(1).
    pub(super) fn enter(&mut self, name: &ChannelName, is_valid: impl Fn(&str, u64) -> bool) -> u64 {
        if self.order.len() > 2 * self.valid + SLACK {
            self.order.retain(|(number, name)| is_valid(name, *number));
        }
        self.last += 1;
        self.valid += 1;
        self.order.push_back((self.last, name.clone()));
        self.last
    }

    /// Notes that a channel is no longer empty, or no longer exists.
    pub(super) fn leave(&mut self) {
        self.valid = self.valid.saturating_sub(1);
    }

    /// The oldest channel that must be removed because there are too many, or because `is_over` returns true for it.
    /// The caller forgets the channel and calls [`Empties::leave`].
    pub(super) fn next_to_go(
        &mut self,
        is_valid: impl Fn(&str, u64) -> bool,
        is_over: impl Fn(&str) -> bool,
    ) -> Option<ChannelName> {
        while let Some((number, name)) = self.order.front() {
            let is_valid = is_valid(name, *number);
            if is_valid && self.valid <= self.most && !is_over(name) {
                return None;
            }
            let (_, name) = self.order.pop_front()?;
            if is_valid {
                return Some(name);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_void_are_cleared_away_when_they_are_many() {
        let mut empties = Empties::new(1_000);
        // Ten entries that stay valid.
        let mut enter = || empties.enter(&"a".into(), |_, number| number <= 10);
        (1..=10).for_each(|number| assert_eq!(enter(), number));
        // Void entries are removed only when there are more than twice the valid ones plus the slack.
        for (entered, kept) in [(74, 84), (1, 85), (1, 11), (1, 12)] {
            for _ in 0..entered {
                empties.enter(&"b".into(), |_, number| number <= 10);
                empties.leave();
            }
            assert_eq!(empties.order.len(), kept);
        }
    }
}
