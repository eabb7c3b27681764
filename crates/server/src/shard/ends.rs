//! Ends of clients that were told as connected, until the thread that tells them has room: nothing would ever correct
//! one that is lost. While some wait, no client is told as connected, so there are never more than the clients that
//! were told when the first had to wait.

use std::collections::VecDeque;

/// Ends that had no room, in their order.
#[derive(Debug)]
pub(super) struct UnsentEnds<T>(VecDeque<T>);

impl<T> Default for UnsentEnds<T> {
    fn default() -> Self {
        UnsentEnds(VecDeque::new())
    }
}

impl<T> UnsentEnds<T> {
    /// Sends an end now, or keeps it. `send`: gives it back if there is no room.
    pub(super) fn send(&mut self, end: T, mut send: impl FnMut(T) -> Result<(), T>) {
        self.retry(&mut send);
        if !self.0.is_empty() {
            return self.0.push_back(end);
        }
        if let Err(end) = send(end) {
            self.0.push_back(end);
        }
    }

    /// Whether some wait.
    pub(super) fn are_waiting(&self) -> bool {
        !self.0.is_empty()
    }

    /// Sends what was kept, as far as there is room.
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
