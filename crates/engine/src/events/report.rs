//! The log lines about an endpoint. An outage has one line when it begins and one when it ends, no matter how many
//! lanes notice it. For events that are given up, there is at most one line a minute for each reason, until all are
//! logged.

use super::delivery::DeadReason;

/// The time between two log lines about events that were given up, milliseconds.
const GIVEN_UP_LINE_MS: u64 = 60_000;

/// The outages of an endpoint, as its lanes notice them.
#[derive(Debug)]
pub struct EndpointOutage {
    /// The lanes whose last attempt to send a batch failed.
    failing: Vec<bool>,
    /// When the present outage began, Unix milliseconds; `None` = there is none.
    since_ms: Option<u64>,
}

impl EndpointOutage {
    /// A state without an outage. `lanes`: the number of the endpoint's lanes.
    pub fn new(lanes: usize) -> Self {
        EndpointOutage { failing: vec![false; lanes], since_ms: None }
    }

    /// Notes that an attempt of a lane has failed. Returns whether an outage begins.
    pub fn failed(&mut self, lane: usize, now_ms: u64) -> bool {
        self.set(lane, true);
        let begins = self.since_ms.is_none();
        self.since_ms.get_or_insert(now_ms);
        begins
    }

    /// Notes that a batch of a lane was delivered. Returns how long the outage lasted that ends now, milliseconds;
    /// `None` = no outage ends, for example because other lanes still fail.
    pub fn arrived(&mut self, lane: usize, now_ms: u64) -> Option<u64> {
        self.set(lane, false);
        if self.failing.contains(&true) {
            return None;
        }
        self.since_ms.take().map(|since_ms| now_ms.saturating_sub(since_ms))
    }

    /// Notes that a lane's batch is over. The lane can no longer fail with it, but this does not end an outage: only a
    /// delivered batch does.
    pub fn is_over(&mut self, lane: usize) {
        self.set(lane, false);
    }

    fn set(&mut self, lane: usize, is_failing: bool) {
        if let Some(of_lane) = self.failing.get_mut(lane) {
            *of_lane = is_failing;
        }
    }
}

/// The events of an endpoint that were given up and have to be logged.
#[derive(Debug, Default)]
pub struct GivenUpLog {
    /// What was not logged yet, by the discriminant of the reason.
    unlogged: [Option<GivenUp>; DeadReason::ALL.len()],
    /// No line is logged before this time, Unix milliseconds.
    next_ms: u64,
}

/// The contents of one log line about events that were given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// Why the events were given up.
    pub why: DeadReason,
    /// How many events were given up since the last line.
    pub events: u64,
    /// The id of the first of these events.
    pub first_id: Box<str>,
    /// The endpoint's last answer, as text for people; empty = there was none.
    pub last_error: Box<str>,
}

impl GivenUpLog {
    /// Notes that events are given up. `first_id`: the id of the first one. `last_error`: the last answer, as text for
    /// people.
    pub fn note(&mut self, why: DeadReason, events: u64, first_id: &str, last_error: &str) {
        let unlogged = self.unlogged[why as usize].get_or_insert_with(|| GivenUp {
            why,
            events: 0,
            first_id: first_id.into(),
            last_error: Box::default(),
        });
        unlogged.events += events;
        unlogged.last_error = last_error.into();
    }

    /// Removes and returns what has to be logged now. `is_last`: there will be no further call.
    pub fn take(&mut self, now_ms: u64, is_last: bool) -> Vec<GivenUp> {
        if now_ms < self.next_ms && !is_last {
            return Vec::new();
        }
        let due: Vec<GivenUp> = self.unlogged.iter_mut().filter_map(Option::take).collect();
        if !due.is_empty() {
            self.next_ms = now_ms.saturating_add(GIVEN_UP_LINE_MS);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_outage_is_that_of_the_endpoint() {
        let mut outage = EndpointOutage::new(3);
        assert_eq!(outage.arrived(0, 1), None);
        assert!(outage.failed(0, 10));
        assert!(!outage.failed(1, 11) && !outage.failed(0, 12));
        // A batch of another lane is delivered meanwhile.
        assert_eq!((outage.arrived(2, 13), outage.arrived(0, 14), outage.arrived(0, 15)), (None, None, None));
        assert_eq!(outage.arrived(1, 110), Some(100));
        // A batch that is given up does not end an outage.
        assert!(outage.failed(1, 200));
        outage.is_over(1);
        assert!(!outage.failed(2, 210));
        assert_eq!(outage.arrived(2, 300), Some(100));
    }

    proptest! {
        #[test]
        fn lines_begin_and_end_in_turns(steps in prop::collection::vec((0..4_usize, 0..3_u8), 1..300)) {
            let mut outage = EndpointOutage::new(4);
            let (mut is_out, mut failing) = (false, [false; 4]);
            for (now_ms, (lane, step)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        prop_assert_eq!(outage.failed(lane, now_ms as u64), !is_out);
                        (is_out, failing[lane]) = (true, true);
                    }
                    1 => {
                        failing[lane] = false;
                        let ends = is_out && !failing.contains(&true);
                        prop_assert_eq!(outage.arrived(lane, now_ms as u64).is_some(), ends);
                        is_out &= !ends;
                    }
                    _ => {
                        outage.is_over(lane);
                        failing[lane] = false;
                    }
                }
            }
        }

        #[test]
        fn all_that_is_given_up_is_in_some_line_and_lines_are_rare(
            steps in prop::collection::vec((0..3_usize, 1..9_u64, 0..50_000_u64), 1..100),
        ) {
            let mut log = GivenUpLog::default();
            let (mut now_ms, mut noted, mut logged) = (1_000_000, [0; 3], [0; 3]);
            let mut firsts: [Option<String>; 3] = [const { None }; 3];
            let mut last_ms = None;
            for (index, (why, events, wait_ms)) in steps.iter().enumerate() {
                now_ms += wait_ms;
                log.note(DeadReason::ALL[*why], *events, &format!("e{index}"), "503");
                noted[*why] += events;
                firsts[*why].get_or_insert_with(|| format!("e{index}"));
                let lines = log.take(now_ms, index + 1 == steps.len());
                if !lines.is_empty() && index + 1 < steps.len() {
                    prop_assert!(last_ms.is_none_or(|last_ms| now_ms >= last_ms + GIVEN_UP_LINE_MS));
                    last_ms = Some(now_ms);
                }
                for line in lines {
                    logged[line.why as usize] += line.events;
                    prop_assert_eq!(firsts[line.why as usize].take(), Some(line.first_id.to_string()));
                }
            }
            prop_assert_eq!(noted, logged);
        }
    }
}
