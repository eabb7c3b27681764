//! Keeps the ends of clients that were reported as connected until the mailbox of events has room, because nothing
//! would correct a lost end. While an end waits, no client is reported as connected. So there are never more ends than
//! clients that were reported when the first end had to wait.

use std::collections::VecDeque;

/// Ends for which the mailbox had no room, in their order.
#[derive(Debug)]
pub(super) struct UnsentEnds<T>(VecDeque<T>);

impl<T> Default for UnsentEnds<T> {
    fn default() -> Self {
        UnsentEnds(VecDeque::new())
    }
}

impl<T> UnsentEnds<T> {
    /// Sends an end now, or keeps it. `send`: sends an end, and returns it as an error if there is no room.
    pub(super) fn send(&mut self, end: T, mut send: impl FnMut(T) -> Result<(), T>) {
        self.retry(&mut send);
        if !self.0.is_empty() {
            return self.0.push_back(end);
        }
        if let Err(end) = send(end) {
            self.0.push_back(end);
        }
    }

    /// Whether at least one end waits.
    pub(super) fn are_waiting(&self) -> bool {
        !self.0.is_empty()
    }

    /// Sends the kept ends until there is no more room.
    pub(super) fn retry(&mut self, mut send: impl FnMut(T) -> Result<(), T>) {
        while let Some(end) = self.0.pop_front() {
            if let Err(end) = send(end) {
                return self.0.push_front(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_without_room_is_sent_later_in_its_order() {
        let (mut ends, mut sent, mut room) = (UnsentEnds::default(), Vec::new(), 1);
        let send = |room: &mut i32, sent: &mut Vec<u32>, end: u32| {
            if *room == 0 {
                return Err(end);
            }
            *room -= 1;
            sent.push(end);
            Ok(())
        };
        for end in 0..4 {
            ends.send(end, |end| send(&mut room, &mut sent, end));
        }
        assert_eq!(sent, [0]);
        room = 2;
        ends.retry(|end| send(&mut room, &mut sent, end));
        assert_eq!(sent, [0, 1, 2]);
        room = 9;
        ends.send(4, |end| send(&mut room, &mut sent, end));
        ends.retry(|end| send(&mut room, &mut sent, end));
        assert_eq!(sent, [0, 1, 2, 3, 4]);
    }
}
