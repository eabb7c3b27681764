//! A backend that is slow for every tenth action, and what a fan-out on the same server notices of it.

use anyhow::Result;

use super::{DETAIL, HookResults, HookScale, RunningBackend, SIZE, WIDE_TIMEOUT, detail, ratio};
use crate::acting::ActingClients;
use crate::arguments::Options;
use crate::hook_parts::BackendConduct;
use crate::ledger::Wrongs;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, median};
use crate::scenario::bare::timeout;
use crate::server_under_test::{ASKED, AskedAction, PLAIN, ServerUnderTest};
use crate::workers::Workers;

/// Publications a second that all neighbours get: so few that one is written before the next comes, also on a machine
/// that has more to do. Those that pile up leave together, and cost less.
const RATE: f64 = 5.0;
/// Actions a second about which the backend is asked, and those that it is slow for.
const ACTIONS: f64 = 50.0;
const SLOW_ONE_IN: u64 = 10;
/// Clients that act: so many that some are free while others wait for the slow ones.
const ACTORS: usize = 200;

/// What a fan-out came to.
struct RoundResult {
    us: f64,
    p99_ms: f64,
}

/// The fan-out: its subscribers, its publisher, and what went wrong so far.
struct Neighbours<'a> {
    server: &'a ServerUnderTest,
    workers: Workers,
    publisher: Publisher,
    messages: usize,
    wrongs: Wrongs,
}

impl Neighbours<'_> {
    fn round(&mut self) -> Result<RoundResult> {
        self.workers.expect(self.messages, timeout(self.messages, RATE))?;
        let meter = Meter::start(self.server.pid)?;
        self.publisher.publish(self.messages, RATE)?;
        let delivered = self.workers.delivered()?;
        let us = meter.stop()? / delivered.count.max(1) as f64;
        self.wrongs.add(delivered.wrongs);
        Ok(RoundResult { us, p99_ms: delivered.times.quantile_ms(0.99) })
    }
}

/// One run: a fan-out alone, twice beside actions, and alone again, and so on. All that the actions cost is charged to
/// the deliveries.
pub(super) fn slow(scale: &HookScale, options: &Options, results: &mut HookResults) -> Result<()> {
    let mut backend = RunningBackend::start(BackendConduct {
        json: r#"{"result":{}}"#.to_owned(),
        slow_one_in: SLOW_ONE_IN,
        slow_ms: scale.slow.as_millis() as u64,
        ..BackendConduct::default()
    })?;
    let hook = backend.setup(AskedAction::Publish, WIDE_TIMEOUT)?;
    let server = ServerUnderTest::start_with_hook(options, &hook)?;
    let workers = Workers::start(&server.plan(scale.neighbours, PLAIN, 1, SIZE, false))?;
    let publisher = Publisher::new(server.api.clone(), PLAIN, 1, SIZE)?;
    let messages = scale.round_seconds * RATE as usize;
    let mut neighbours = Neighbours { server: &server, workers, publisher, messages, wrongs: Wrongs::default() };
    neighbours.workers.open_all(500)?;
    neighbours.round()?;
    let (mut pairs, mut action_us, mut at_once, mut refused) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..scale.pairs / 2 {
        let first = neighbours.round()?;
        // Clients that read nothing while others are measured would miss pings.
        let mut actors = ActingClients::connect(&server, ACTORS, 1)?;
        let (beside, acted) = actors.act_beside(ASKED, ACTIONS, || {
            let meter = Meter::start(server.pid)?;
            // Then as many calls are under way as ever will be.
            std::thread::sleep(scale.slow);
            action_us.push(meter.stop()? / (scale.slow.as_secs_f64() * ACTIONS));
            Ok([neighbours.round()?, neighbours.round()?])
        })?;
        drop(actors);
        at_once = at_once.max(backend.count()?.at_once);
        refused += acted.refused;
        let last = neighbours.round()?;
        pairs.extend([first, last].into_iter().zip(beside).map(|(alone, beside)| (beside, alone)));
    }
    let of = |part: fn(&RoundResult) -> f64| -> Vec<(f64, f64)> {
        pairs.iter().map(|(beside, alone)| (part(beside), part(alone))).collect()
    };
    let name = "slow hook: CPU per delivery beside it / without";
    results.ratios.compare(ratio(name).bound(1.05, 1.0), "µs", &of(|round| round.us));
    let name = "slow hook: p99 of a delivery beside it / without";
    results.ratios.compare(ratio(name).bound(1.10, 1.0), "ms", &of(|round| round.p99_ms));
    action_us.iter().for_each(|us| results.details.add(detail("slow hook: CPU of an action, no fan-out", "µs"), *us));
    let spread: Vec<f64> = of(|round| round.p99_ms).chunks_exact(2).map(|two| two[1].1 / two[0].1).collect();
    results.details.add(detail("slow hook: p99 without, last / first round", "×"), median(&spread));
    results.details.add(detail("slow hook: calls under way at once", ""), at_once as f64);
    results.details.add(detail("slow hook: actions refused", "").bound(0.0, 0.0), refused as f64);
    results.details.add(Figure::exact(DETAIL), neighbours.wrongs.total("beside a slow hook") as f64);
    Ok(())
}
