//! Channels with history that are empty: they have no publication and no subscriber. They are kept, so that a client
//! that returns to (offset 0, epoch) misses nothing. Their number is bounded and the oldest goes first, so that reading
//! channels that do not exist costs little memory.

use std::collections::VecDeque;

use touchline_protocol::stream::ChannelName;

/// Entries that may have become void, beyond as many as there are valid ones, before they are cleared away.
const SLACK: usize = 64;

/// The order in which such channels became empty. An entry is valid while its channel has the entry's number; else it
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

    /// Enters a channel and returns its number, which is never 0. `is_valid` says whether a channel still has a number.
    /// Amortised O(1).
    pub(super) fn enter(&mut self, name: &ChannelName, is_valid: impl Fn(&str, u64) -> bool) -> u64 {
        if self.order.len() > 2 * self.valid + SLACK {
            self.order.retain(|(number, name)| is_valid(name, *number));
        }
        self.last += 1;
        self.valid += 1;
        self.order.push_back((self.last, name.clone()));
        self.last
    }

    /// A channel is no longer empty, or is gone.
    pub(super) fn leave(&mut self) {
        self.valid = self.valid.saturating_sub(1);
    }

    /// The oldest channel that has to go because there are too many, or because it `is_over`. The caller forgets the
    /// channel, and calls [`Empties::leave`].
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
        // Ten that stay.
        let mut enter = || empties.enter(&"a".into(), |_, number| number <= 10);
        (1..=10).for_each(|number| assert_eq!(enter(), number));
        // With twice as many, and the slack, it is not cleared yet.
        for (entered, kept) in [(74, 84), (1, 85), (1, 11), (1, 12)] {
            for _ in 0..entered {
                empties.enter(&"b".into(), |_, number| number <= 10);
                empties.leave();
            }
            assert_eq!(empties.order.len(), kept);
        }
    }
}
