//! The measured cost of a connecting client, and the number of clients a second that the node can therefore take. The
//! code is pure: it only gets readings of counters.
//!
//! The cost is the processor time of the process beyond what it uses while few clients connect, divided by the number
//! of connected clients. It includes everything that a connect causes, such as the work of the kernel for the process,
//! of the registry and of recoveries.

/// The cost of a client before any is measured, in seconds: several times the cost of a connect with one subscription.
const COST_DEFAULT_S: f64 = 0.000_2;
/// The least and the greatest cost that is believed, in seconds.
const COST_MIN_S: f64 = 0.000_02;
const COST_MAX_S: f64 = 0.002;
/// The number of clients that the default counts as. This many measured clients have the same weight.
const DEFAULT_WEIGHT: f64 = 200.0;
/// The most clients in the mean. Older ones are forgotten.
const WEIGHT_MAX: f64 = 5_000.0;
/// Up to this many clients a second, a reading shows what the node uses without them.
const QUIET_RATE: f64 = 5.0;
/// Connecting clients that use less than this part of the node's load do not count either, because other load varies
/// more.
const QUIET_PART: f64 = 0.1;
/// The weight of a new reading in the means of quiet load and of idle processors.
const NEW_PART: f64 = 0.5;
/// The part of the node's processors that clients from other nodes may use.
const SHARE_OF_ALL: f64 = 1.0 / 20.0;
/// The part of the idle processors that they may use.
const SHARE_OF_IDLE: f64 = 1.0 / 4.0;
/// A node can always take this many clients a second. Otherwise a busy cluster could not be restarted.
const RATE_MIN: f64 = 20.0;
/// The most clients a second that a node reports.
const RATE_MAX: f64 = 50_000.0;
/// The shortest time between two readings, in seconds: the system counts processor time in hundredths of a second.
const READING_INTERVAL_S: f64 = 0.9;
/// The time between two readings while few clients connect, in seconds.
const QUIET_INTERVAL_S: f64 = 10.0;
/// Up to this many new clients cause no reading.
const QUIET_CONNECTS: u64 = 5;
/// The number of readings after the start that do not wait for that time, so that a node reports its rate at once.
const FIRST_READINGS: u32 = 3;
/// A longer time between two readings is a standstill, and the reading is not used, in seconds.
const INTERVAL_MAX_S: f64 = 15.0;

/// A reading of what a node has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LoadReading {
    /// The time of the reading, in seconds of a monotonic clock.
    pub(crate) at_s: f64,
    /// Processor time of the process since its start, in seconds.
    pub(crate) used_s: f64,
    /// Idle time of the machine's processors since its start, in seconds, summed over all processors.
    pub(crate) machine_idle_s: f64,
    /// The number of clients that have asked to connect since the start.
    pub(crate) connects: u64,
}

/// The cost of clients so far, and what is left for more.
#[derive(Debug)]
pub(crate) struct ConnectCost {
    /// The number of processors that the process may use.
    processors: f64,
    last: Option<LoadReading>,
    /// The processors that the node uses besides connecting clients.
    quiet: f64,
    /// The number of idle processors; None = not measured yet.
    idle: Option<f64>,
    /// The processor time of the measured clients in seconds, and their number.
    spent_s: f64,
    measured: f64,
    /// The number of readings since the start.
    readings: u32,
}

impl ConnectCost {
    /// Makes a cost without measurements. `processors`: the number that the process may use.
    pub(crate) fn new(processors: usize) -> Self {
        let spent_s = COST_DEFAULT_S * DEFAULT_WEIGHT;
        let processors = processors.max(1) as f64;
        ConnectCost { processors, last: None, quiet: 0.0, idle: None, spent_s, measured: DEFAULT_WEIGHT, readings: 0 }
    }

    /// Whether the load is to be read, because clients have connected or the last reading is old. `connects`: the
    /// number of clients that have asked to connect since the start.
    pub(crate) fn is_reading_due(&self, at_s: f64, connects: u64) -> bool {
        let Some(last) = &self.last else { return true };
        let is_old = at_s >= last.at_s + QUIET_INTERVAL_S;
        self.readings < FIRST_READINGS || is_old || connects > last.connects + QUIET_CONNECTS
    }

    /// Notes a reading. A reading less than [`READING_INTERVAL_S`] after the last one is skipped.
    pub(crate) fn note(&mut self, reading: LoadReading) {
        let Some(last) = self.last else {
            (self.last, self.readings) = (Some(reading), 1);
            return;
        };
        let interval_s = reading.at_s - last.at_s;
        if interval_s < READING_INTERVAL_S {
            return;
        }
        (self.last, self.readings) = (Some(reading), self.readings.saturating_add(1));
        if interval_s > INTERVAL_MAX_S {
            return;
        }
        let used = (reading.used_s - last.used_s).max(0.0) / interval_s;
        let machine_idle = (reading.machine_idle_s - last.machine_idle_s).max(0.0) / interval_s;
        // A container may have fewer processors than are idle on the machine.
        let idle = machine_idle.min(self.processors - used).max(0.0);
        self.idle = Some(mixed(self.idle, idle));
        let connects = reading.connects.saturating_sub(last.connects) as f64;
        let connecting = connects * self.cost_s() / interval_s;
        if used < self.quiet {
            // Other work has ended, so the part of the clients is unknown.
            self.quiet = (used - connecting).max(0.0);
        } else if connects / interval_s <= QUIET_RATE || connecting < used * QUIET_PART {
            self.quiet = mixed(Some(self.quiet), (used - connecting).max(0.0));
        } else {
            self.spent_s += (used - self.quiet).max(0.0) * interval_s;
            self.measured += connects;
            let kept = (WEIGHT_MAX / self.measured).min(1.0);
            self.spent_s *= kept;
            self.measured *= kept;
        }
    }

    /// Returns the processor time of one client, in seconds.
    pub(crate) fn cost_s(&self) -> f64 {
        (self.spent_s / self.measured).clamp(COST_MIN_S, COST_MAX_S)
    }

    /// Returns the clients a second that the node can take besides its other work.
    pub(crate) fn rate(&self) -> u32 {
        let share = self.processors * SHARE_OF_ALL;
        let share = self.idle.map_or(share, |idle| share.min(idle * SHARE_OF_IDLE));
        (share / self.cost_s()).clamp(RATE_MIN, RATE_MAX).round() as u32
    }
}

fn mixed(mean: Option<f64>, new: f64) -> f64 {
    mean.map_or(new, |mean| mean + (new - mean) * NEW_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of `processors` that uses `quiet` processors without clients and `cost_s` for each client.
    struct ExampleLoad {
        cost: ConnectCost,
        reading: LoadReading,
        processors: f64,
    }

    impl ExampleLoad {
        fn new(processors: usize) -> Self {
            let cost = ConnectCost::new(processors);
            ExampleLoad { cost, reading: LoadReading::default(), processors: processors as f64 }
        }

        fn second(&mut self, connects: u64, cost_s: f64, quiet: f64) {
            let used_s = quiet + connects as f64 * cost_s;
            self.reading.at_s += 1.0;
            self.reading.used_s += used_s;
            self.reading.machine_idle_s += (self.processors - used_s).max(0.0);
            self.reading.connects += connects;
            self.cost.note(self.reading);
        }
    }

    #[test]
    fn the_cost_is_what_clients_add_to_the_quiet_load() {
        let mut load = ExampleLoad::new(4);
        (0..20).for_each(|_| load.second(0, 0.0, 1.0));
        (0..20).for_each(|_| load.second(2_000, 0.000_15, 1.0));
        let cost_s = load.cost.cost_s();
        assert!((0.000_145..0.000_155).contains(&cost_s), "{cost_s}");
        // A twentieth of four processors.
        let rate = load.cost.rate();
        assert!((1_290..1_380).contains(&rate), "{rate}");
    }

    #[test]
    fn a_busy_node_takes_a_quarter_of_what_is_idle() {
        let mut load = ExampleLoad::new(2);
        (0..40).for_each(|_| load.second(0, 0.0, 1.9));
        // A quarter of a tenth of a processor, at the default cost.
        assert_eq!(load.cost.rate(), 125);
        (0..40).for_each(|_| load.second(0, 0.0, 2.0));
        assert_eq!(load.cost.rate(), RATE_MIN as u32, "and never takes none");
    }

    #[test]
    fn clients_that_come_at_once_after_the_start_are_measured_and_a_standstill_is_not() {
        let mut load = ExampleLoad::new(2);
        load.reading.at_s += 100.0;
        load.second(0, 0.0, 0.0);
        (0..5).for_each(|_| load.second(1_000, 0.000_4, 0.0));
        let cost_s = load.cost.cost_s();
        assert!((0.000_38..0.000_41).contains(&cost_s), "{cost_s}");
        load.reading.at_s += 100.0;
        load.second(1_000, 0.004, 0.1);
        assert_eq!(load.cost.cost_s(), cost_s);
    }

    #[test]
    fn a_few_clients_beside_much_other_work_do_not_count() {
        let mut load = ExampleLoad::new(4);
        (0..10).for_each(|_| load.second(0, 0.0, 0.0));
        (0..50).for_each(|step| load.second(20, 0.000_1, if step % 2 == 0 { 1.0 } else { 1.4 }));
        assert!((load.cost.cost_s() - COST_DEFAULT_S).abs() < 1e-9);
        (0..20).for_each(|_| load.second(5_000, 0.000_1, 1.2));
        let cost_s = load.cost.cost_s();
        assert!((0.000_08..0.000_12).contains(&cost_s), "{cost_s}");
    }

    #[test]
    fn the_load_is_read_at_once_at_first_and_then_while_clients_connect() {
        let mut cost = ConnectCost::new(2);
        let mut is_read = |at_s: f64, connects| {
            let is_due = cost.is_reading_due(at_s, connects);
            if is_due {
                cost.note(LoadReading { at_s, connects, ..LoadReading::default() });
            }
            is_due
        };
        assert_eq!([0.0, 1.0, 2.0, 3.0].map(|at_s| is_read(at_s, 0)), [true, true, true, false]);
        let asked = [(9.0, 5), (10.0, 6), (11.0, 6), (20.0, 6), (21.0, 6)];
        assert_eq!(asked.map(|(at_s, connects)| is_read(at_s, connects)), [false, true, false, true, false]);
    }

    #[test]
    fn no_reading_makes_a_cost_that_cannot_be() {
        let mut random = fastrand::Rng::with_seed(7);
        for processors in 1..64 {
            let mut cost = ConnectCost::new(processors);
            for _ in 0..500 {
                cost.note(LoadReading {
                    at_s: random.f64() * 100.0,
                    used_s: random.f64() * 100.0,
                    machine_idle_s: random.f64() * 100.0,
                    connects: random.u64(0..100_000),
                });
                assert!((COST_MIN_S..=COST_MAX_S).contains(&cost.cost_s()), "{cost:?}");
                assert!((RATE_MIN as u32..=RATE_MAX as u32).contains(&cost.rate()), "{cost:?}");
            }
        }
    }
}
