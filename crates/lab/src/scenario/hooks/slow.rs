//! A backend that is slow for every tenth action, and its effect on a fan-out on the same server.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::common::{DETAIL, HookResults, HookScale, RunningBackend, SIZE, WIDE_TIMEOUT, detail, ratio};
use crate::acting::ActingClients;
use crate::arguments::Options;
use crate::hook_parts::BackendConduct;
use crate::ledger::Wrongs;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::Figure;
use crate::scenario::bare::timeout;
use crate::server_under_test::{ASKED, AskedAction, PLAIN, ServerUnderTest};
use crate::workers::Workers;

/// Publications per second to all neighbours. The rate is so low that each publication is written before the next one,
/// even on a busy machine. Publications that pile up are sent together and cost less.
const RATE: f64 = 5.0;
/// Actions a second about which the backend is asked, and those that it is slow for.
const ACTIONS: f64 = 50.0;
const SLOW_ONE_IN: u64 = 10;
/// Clients that act: so many that some are free while others wait for the slow ones.
const ACTORS: usize = 200;

/// The result of one fan-out.
struct RoundResult {
    /// CPU of the server, microseconds, and how long it took, seconds.
    us: f64,
    seconds: f64,
    deliveries: f64,
    p99_ms: f64,
}

impl RoundResult {
    /// CPU per delivery, when so much of each second was for something else, microseconds.
    fn us_each(&self, others_us: f64) -> f64 {
        (self.us - others_us * self.seconds) / self.deliveries
    }
}

/// A pair of fan-outs.
struct SlowPair {
    alone: RoundResult,
    beside: RoundResult,
    /// CPU time of the actions without publications, microseconds per second.
    actions_us: f64,
}

/// The fan-out: its subscribers, its publisher, and its errors so far.
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
        let (meter, began) = (Meter::start(self.server.pid)?, Instant::now());
        self.publisher.publish(self.messages, RATE)?;
        let delivered = self.workers.delivered()?;
        let (us, seconds) = (meter.stop()?, began.elapsed().as_secs_f64());
        self.wrongs.add(delivered.wrongs);
        let (deliveries, p99_ms) = (delivered.count.max(1) as f64, delivered.times.quantile_ms(0.99));
        Ok(RoundResult { us, seconds, deliveries, p99_ms })
    }

    /// Measures two fan-outs, one after the other.
    fn rounds(&mut self) -> Result<[RoundResult; 2]> {
        Ok([self.round()?, self.round()?])
    }

    /// CPU of the server in a second in which nothing is published, microseconds.
    fn rest(&self, lasting: Duration) -> Result<f64> {
        let meter = Meter::start(self.server.pid)?;
        std::thread::sleep(lasting);
        Ok(meter.stop()? / lasting.as_secs_f64())
    }
}

/// One run: two fan-outs alone, four during actions, two alone again, and so on. The cost of actions and pings without
/// publications is subtracted; their further effect on deliveries is not.
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
    let (messages, wrongs) = (scale.round_messages, Wrongs::default());
    let mut neighbours = Neighbours { server: &server, workers, publisher, messages, wrongs };
    neighbours.workers.open_all(500)?;
    neighbours.round()?;
    let (mut pairs, mut at_once, mut refused) = (Vec::new(), 0, 0);
    for _ in 0..scale.blocks {
        let first = neighbours.rounds()?;
        let resting_us = neighbours.rest(scale.slow / 2)?;
        // Clients that read nothing while others are measured would miss pings.
        let mut actors = ActingClients::connect(&server, ACTORS, 1)?;
        let ((acting_us, beside), acted) = actors.act_beside(ASKED, ACTIONS, || {
            // When this is over, as many calls are under way as ever will be.
            let acting_us = neighbours.rest(scale.slow)?;
            Ok((acting_us, neighbours.rounds()?.into_iter().chain(neighbours.rounds()?)))
        })?;
        drop(actors);
        at_once = at_once.max(backend.count()?.at_once);
        refused += acted.refused;
        let alone = first.into_iter().chain(neighbours.rounds()?);
        let actions_us = acting_us - resting_us;
        pairs.extend(alone.zip(beside).map(|(alone, beside)| SlowPair { alone, beside, actions_us }));
    }
    report(&pairs, results);
    results.details.add(detail("slow hook: calls under way at once", ""), at_once as f64);
    results.details.add(detail("slow hook: actions refused", "").bound(0.0, 0.0), refused as f64);
    results.details.add(Figure::exact(DETAIL), neighbours.wrongs.total("beside a slow hook") as f64);
    Ok(())
}

fn report(pairs: &[SlowPair], results: &mut HookResults) {
    let of = |parts: fn(&SlowPair) -> (f64, f64)| -> Vec<(f64, f64)> { pairs.iter().map(parts).collect() };
    results.ratios.compare(
        ratio("slow hook: CPU per delivery beside it, its own off / without").bound(1.05, 1.0),
        "µs",
        &of(|pair| (pair.beside.us_each(pair.actions_us), pair.alone.us_each(0.0))),
    );
    results.ratios.compare(
        ratio("slow hook: p99 of a delivery beside it / without").bound(1.10, 1.0),
        "ms",
        &of(|pair| (pair.beside.p99_ms, pair.alone.p99_ms)),
    );
    for pair in pairs {
        let whole = pair.beside.us_each(0.0) / pair.alone.us_each(0.0);
        results.details.add(detail("slow hook: CPU per delivery, actions charged to it / without", "×"), whole);
        results.details.add(detail("slow hook: CPU of an action, nothing published", "µs"), pair.actions_us / ACTIONS);
    }
}
