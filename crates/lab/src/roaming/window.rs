//! The observations of the clients of one process since a window began.

use super::messages::WindowReport;
use crate::ledger::Times;

/// Counts of a window.
#[derive(Debug, Default)]
pub(super) struct ClientWindow {
    counts: WindowReport,
    times: Times,
    /// The node that is restarted, by its place among the addresses.
    leaving: Option<usize>,
}

impl ClientWindow {
    /// Starts a window. Errors since the last report still count.
    pub(super) fn begin(&mut self, leaving: Option<usize>) {
        let before = std::mem::take(self).counts;
        self.leaving = leaving;
        (self.counts.lost, self.counts.repeated) = (before.lost, before.repeated);
        (self.counts.cut, self.counts.first_cut) = (before.cut, before.first_cut);
    }

    /// Records that a node has disconnected a subscribed client with 3001.
    pub(super) fn told(&mut self, node: usize, now_us: u64) {
        if self.leaving == Some(node) {
            self.counts.told += 1;
            self.counts.last_told_us = now_us;
        } else {
            self.cut("a node that stays tells its client to go");
        }
    }

    /// A subscribed client's connection has ended in another way.
    pub(super) fn cut(&mut self, why: &str) {
        self.counts.cut += 1;
        self.counts.first_cut.get_or_insert_with(|| why.to_owned());
    }

    /// A try to connect has failed.
    pub(super) fn refused(&mut self) {
        self.counts.refused += 1;
    }

    /// A node has answered a connect command.
    pub(super) fn accepted(&mut self, node: usize, now_us: u64) {
        if self.leaving != Some(node) {
            self.counts.accepted_us.push(now_us);
        }
    }

    /// A client is subscribed again.
    pub(super) fn back(&mut self, now_us: u64) {
        self.counts.last_back_us = now_us;
    }

    /// Records a publication for a client whose last publication was `last`. Returns the new number of the last one.
    /// `age_us` is the delivery time, for a live delivery to a client that stays.
    pub(super) fn receive(&mut self, last: u64, number: u64, age_us: Option<u64>) -> u64 {
        if number <= last {
            self.counts.repeated += 1;
            return last;
        }
        self.counts.lost += number - last - 1;
        self.counts.delivered += 1;
        age_us.into_iter().for_each(|us| self.times.record(us));
        number
    }

    /// The window ends: a client whose last publication is `last` was due all up to `due`. Returns the number of its
    /// last one, as it counts from now on.
    pub(super) fn end(&mut self, last: u64, due: u64, is_live: bool) -> u64 {
        self.counts.lost += due.saturating_sub(last);
        self.counts.away += u64::from(!is_live);
        last.max(due)
    }

    /// Returns the counts and resets them.
    pub(super) fn take(&mut self) -> WindowReport {
        let window = std::mem::take(self);
        WindowReport { times: window.times.to_pairs(), ..window.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_a_repetition_and_what_never_came_are_counted() {
        let mut window = ClientWindow::default();
        window.begin(Some(1));
        let mut last = 0;
        for number in [1, 2, 2, 5] {
            last = window.receive(last, number, Some(1_000));
        }
        assert_eq!(window.end(last, 7, true), 7);
        assert_eq!(window.end(7, 7, false), 7);
        let report = window.take();
        assert_eq!((report.lost, report.repeated, report.delivered, report.away), (4, 1, 3, 1));
        assert_eq!(report.times.iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert_eq!(window.take(), WindowReport::default());
    }

    #[test]
    fn what_is_wrong_between_two_windows_counts_in_the_second() {
        let mut window = ClientWindow::default();
        window.receive(1, 3, None);
        window.receive(3, 3, None);
        window.cut("gone");
        window.refused();
        window.begin(None);
        let report = window.take();
        assert_eq!((report.lost, report.repeated, report.cut, report.refused, report.delivered), (1, 1, 1, 0, 0));
        assert_eq!(report.first_cut.as_deref(), Some("gone"));
    }

    #[test]
    fn only_the_leaving_node_tells_and_only_the_others_accept() {
        let mut window = ClientWindow::default();
        window.begin(Some(1));
        window.told(1, 5);
        window.told(0, 6);
        window.accepted(1, 7);
        window.accepted(2, 8);
        let report = window.take();
        assert_eq!((report.told, report.last_told_us, report.cut, report.accepted_us), (1, 5, 1, vec![8]));
    }
}
