//! The figures of one restart, and the bounds that they must keep.

use super::crowd::CrowdWindow;
use super::plan::{ReportedPlan, most_in_a_second};
use crate::report::{Figure, Results};

/// Most connections that other nodes may accept in a second, as a multiple of the plan.
const ACCEPTED_MAX: f64 = 1.2;
/// The longest time until all clients are back, as a multiple of the plan.
const BACK_MAX: f64 = 1.1;
/// The longest first wait of an SDK before it connects again, seconds: no server can shorten it.
const FIRST_WAIT_S: f64 = 1.0;
/// Maximum p99 of deliveries to clients that stay, as a multiple of the p99 before the restart.
const DELIVERY_MAX: f64 = 2.0;

/// The measurements of one restart. Times are Unix microseconds.
pub(super) struct RestartMeasurement {
    /// Clients of the node before its restart.
    pub(super) held: u64,
    pub(super) plan: ReportedPlan,
    /// The time of the node's SIGTERM.
    pub(super) began_us: u64,
    /// When its process had ended.
    pub(super) stopped_us: u64,
    /// When the next process was ready, and all nodes saw each other.
    pub(super) started_us: u64,
    /// The window before the restart.
    pub(super) before: CrowdWindow,
    /// The window from the restart until all clients are back and the node is ready.
    pub(super) during: CrowdWindow,
    /// Publications that were sent again because a node did not acknowledge them.
    pub(super) republished: u64,
}

impl RestartMeasurement {
    /// Adds the figures to the results.
    pub(super) fn report(mut self, scenario: &'static str, results: &mut Results) {
        let figure = |name, unit| Figure::new(scenario, name, unit);
        let seconds = |us: u64| us.saturating_sub(self.began_us) as f64 / 1e6;
        let (counts, plan) = (&mut self.during.counts, self.plan);
        if let Some(why) = &counts.first_cut {
            eprintln!("{scenario}: the first connection that ended otherwise: {why}");
        }
        results.add(figure("clients of the node", ""), self.held as f64);
        results.add(figure("clients told to go (3001)", ""), counts.told as f64);
        let [rate, time] = if plan.is_told {
            ["the node's plan: clients a second", "the node's plan: seconds"]
        } else {
            ["no plan, shutdown.spread as the plan: clients a second", "no plan, shutdown.spread as the plan: seconds"]
        };
        results.add(figure(rate, "/s"), plan.per_second);
        results.add(figure(time, "s"), plan.seconds);
        let accepted = most_in_a_second(&mut counts.accepted_us) as f64;
        let [accepted_ratio, back_ratio] = if plan.is_told {
            ["most accepted in a second / the plan", "all back / the plan and the first wait of an SDK"]
        } else {
            ["most accepted in a second / no plan", "all back / no plan"]
        };
        results.add(figure("most accepted in a second at the other nodes", "/s"), accepted);
        let bound = figure(accepted_ratio, "×").bound(ACCEPTED_MAX, 1.0).only_if(plan.is_told);
        results.add(bound, accepted / plan.per_second);
        results.add(figure("all told after", "s"), seconds(counts.last_told_us));
        let back = seconds(counts.last_back_us);
        results.add(figure("all back after", "s"), back);
        results.add(
            figure(back_ratio, "×").bound(BACK_MAX, 1.0).only_if(plan.is_told),
            back / (plan.seconds + FIRST_WAIT_S),
        );
        let (before_ms, during_ms) = (self.before.times.quantile_ms(0.99), self.during.times.quantile_ms(0.99));
        results.add(figure("p99 of deliveries to those who stay, before", "ms"), before_ms);
        results.add(figure("p99 of deliveries to those who stay, during", "ms"), during_ms);
        let ratio = figure("p99 of deliveries to those who stay, during / before", "×").bound(DELIVERY_MAX, 1.0);
        results.add(ratio, during_ms / before_ms.max(1e-3));
        results.add(figure("the node has stopped after", "s"), seconds(self.stopped_us));
        results.add(figure("it is ready and joined again after", "s"), seconds(self.started_us));
        results.add(figure("tries to connect that failed", ""), counts.refused as f64);
        results.add(figure("publications sent again to another node", ""), self.republished as f64);
        let both = |of: fn(&CrowdWindow) -> u64| (of(&self.before) + of(&self.during)) as f64;
        results.add(figure("publications received", ""), both(|window| window.counts.delivered));
        let zero = |name| figure(name, "").bound(0.0, 0.0);
        results.add(zero("lost publications"), both(|window| window.counts.lost));
        results.add(zero("doubled or out of order"), both(|window| window.counts.repeated));
        results.add(zero("clients that did not come back"), both(|window| window.counts.away));
        results.add(zero("connections that ended otherwise"), both(|window| window.counts.cut));
    }
}
