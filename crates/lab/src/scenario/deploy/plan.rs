//! The plan of a drain: how many clients a node disconnects per second, and how long that takes. The node reports it,
//! or it is assumed for a program that does not report it.

use std::time::Duration;

/// `shutdown.spread` of programs that tell no plan: its default.
const SPREAD: Duration = Duration::from_secs(5);
/// Lower bound of a divisor.
const LEAST: f64 = 1e-3;

/// The metric with the seconds of a drain.
const SECONDS: &str = "touchline_drain_seconds";
/// The metric with the clients that a drain disconnects in a second.
const PER_SECOND: &str = "touchline_drain_clients_per_second";

/// The plan of one drain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReportedPlan {
    /// Duration of the drain, seconds.
    pub(super) seconds: f64,
    /// Clients that are disconnected per second.
    pub(super) per_second: f64,
    /// Whether the node has reported the plan. If not, it follows from the default of `shutdown.spread`.
    pub(super) is_told: bool,
}

impl ReportedPlan {
    /// The plan in a line of a node's log: fields `clients`, `seconds` and `clients_per_second`, as text.
    pub(super) fn in_log(log: &str) -> Option<Self> {
        let of = |line: &str, key: &str| {
            let mut fields = line.split_ascii_whitespace().filter_map(|word| word.split_once('='));
            fields.find(|(name, _)| *name == key).and_then(|(_, value)| value.parse::<f64>().ok())
        };
        log.lines().rev().find_map(|line| {
            of(line, "clients")?;
            ReportedPlan::told(of(line, "seconds")?, of(line, "clients_per_second")?)
        })
    }

    /// The plan in a node's metrics.
    pub(super) fn in_metrics(metrics: &str) -> Option<Self> {
        let of = |name: &str| {
            let line = metrics.lines().find(|line| line.split([' ', '{']).next() == Some(name))?;
            line.split_ascii_whitespace().next_back()?.parse::<f64>().ok()
        };
        ReportedPlan::told(of(SECONDS)?, of(PER_SECOND)?)
    }

    /// The plan that follows from the default of `shutdown.spread` for this many clients.
    pub(super) fn assumed(clients: u64) -> Self {
        let seconds = SPREAD.as_secs_f64();
        ReportedPlan { seconds, per_second: (clients as f64 / seconds).max(LEAST), is_told: false }
    }

    fn told(seconds: f64, per_second: f64) -> Option<Self> {
        let is_valid = seconds.is_finite() && per_second.is_finite();
        is_valid.then_some(ReportedPlan {
            seconds: seconds.max(LEAST),
            per_second: per_second.max(LEAST),
            is_told: true,
        })
    }
}

/// The maximum number of these times (microseconds, in any order) within one second.
pub(super) fn most_in_a_second(times_us: &mut [u64]) -> usize {
    times_us.sort_unstable();
    let mut first = 0;
    let mut most = 0;
    for (last, time_us) in times_us.iter().enumerate() {
        while time_us - times_us[first] >= 1_000_000 {
            first += 1;
        }
        most = most.max(last - first + 1);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_in_the_log_and_in_the_metrics() {
        let log = "2026-01-01T00:00:00Z  INFO draining clients=10 seconds=1.0 clients_per_second=10\n\
                   2026-01-01T00:00:01Z  INFO draining clients=5000 seconds=2.5 clients_per_second=2000\n\
                   2026-01-01T00:00:02Z  INFO stopped seconds=3\n";
        let plan = ReportedPlan { seconds: 2.5, per_second: 2_000.0, is_told: true };
        assert_eq!(ReportedPlan::in_log(log), Some(plan));
        assert_eq!(ReportedPlan::in_log("INFO ready clients=3"), None);
        let metrics = "# TYPE touchline_drain_seconds gauge\ntouchline_drain_seconds 2.5\n\
                       # TYPE touchline_drain_clients_per_second gauge\ntouchline_drain_clients_per_second 2000\n";
        assert_eq!(ReportedPlan::in_metrics(metrics), Some(plan));
        assert_eq!(ReportedPlan::in_metrics("touchline_drain_seconds_total 2.5\n"), None);
    }

    #[test]
    fn a_program_that_tells_no_plan_spreads_its_clients_over_the_default() {
        let plan = ReportedPlan::assumed(5_000);
        assert_eq!((plan.seconds, plan.per_second, plan.is_told), (5.0, 1_000.0, false));
        assert!(ReportedPlan::assumed(0).per_second > 0.0);
    }

    #[test]
    fn the_fullest_second_is_found_wherever_it_begins() {
        assert_eq!(most_in_a_second(&mut []), 0);
        assert_eq!(most_in_a_second(&mut [2_400_000, 900_000, 1_000_000, 1_899_999, 1_900_000]), 3);
    }
}
