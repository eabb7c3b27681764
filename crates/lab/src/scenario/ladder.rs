//! A growing number of connections: N connections, C of them opened at the same time. It measures the time in which one
//! event reaches all subscribers, and the cost of a connection and a delivery compared with the floor of as many
//! sockets. The last step may have matches.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::bare::{Bare, BareResult, REST, timeout};
use super::fanout::threads;
use crate::arguments::Options;
use crate::chart::Chart;
use crate::floor::Sending;
use crate::ladder_arguments::{LadderOptions, LadderStep};
use crate::ledger::Wrongs;
use crate::machine::{MachineLimits, StepNeeds, kernel_bytes};
use crate::nats::Nats;
use crate::process::{Meter, resident_bytes, rest};
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{MATCHES, PLAIN, ServerUnderTest};
use crate::worker::SubscriberRequest;
use crate::workers::{Delivered, OpenedConnections, PER_WORKER, Workers};

/// Connections of one server process: below the limit of 20,000 open files.
const PER_SERVER: usize = 18_000;
const SIZE: usize = 128;
/// Connections of the floor that are opened at a time.
const FLOOR_OPENED_AT_ONCE: usize = 500;
/// From so many connections on, the cost of each must not grow.
const LARGE: usize = 10_000;
/// Between two events of a match.
const MATCH_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time until all connections are subscribed to their matches.
const JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// The cost of a step beyond its floor.
#[derive(Debug, Clone, Copy)]
struct OverFloor {
    connection: f64,
    delivery: f64,
}

/// All steps once.
pub(super) fn ladder(ladder: &LadderOptions, options: &Options, results: &mut Results) -> Result<()> {
    let steps = &ladder.steps.0;
    if ladder.lasting > 0 && options.transport.is_one_way() {
        bail!("a one-way client can't subscribe to a match later: --lasting 0 leaves the matches out");
    }
    if options.server.is_some() {
        bail!("the ladder starts as many servers as a step needs: leave --server out");
    }
    let fitting = steps.iter().map(|step| fits(*step, options)).collect::<Result<Vec<_>>>()?;
    results.add(
        Figure::new("ladder", "steps that do not fit this machine", "").bound(0.0, 0.0),
        fitting.iter().filter(|fits| !**fits).count() as f64,
    );
    let mut large: Vec<OverFloor> = Vec::new();
    for (index, (step, _)) in steps.iter().zip(fitting).enumerate().filter(|(_, (_, fits))| *fits) {
        let lasting = if index + 1 == steps.len() { ladder.lasting } else { 0 };
        let over = Climb::new(*step, ladder, options).run(lasting, results)?;
        if step.connections >= LARGE {
            large.push(over);
        }
    }
    if let [first, _, ..] = large[..] {
        let growth = |of: fn(&OverFloor) -> f64| large.iter().map(of).fold(0.0, f64::max) / of(&first);
        let figure = |name| Figure::new("ladder, from 10,000 connections on", name, "×").bound(1.15, 1.0);
        results.add(figure("CPU of a connection / floor, most / at the first step"), growth(|over| over.connection));
        results.add(figure("CPU of a delivery / floor, most / at the first step"), growth(|over| over.delivery));
    }
    Ok(())
}

/// Writes the chart of all runs.
///
/// # Errors
/// When the file can't be written.
pub(super) fn draw(ladder: &LadderOptions, results: &Results) -> Result<()> {
    let Some(file) = &ladder.chart else { return Ok(()) };
    let (x, y) = ("connections", "ms, MB, or × of the floor");
    let chart = Chart { title: "The ladder: time, memory and cost by connections", x, y, lines: results.lines() };
    std::fs::write(file, chart.svg()).with_context(|| format!("failed to write {}", file.display()))
}

/// Whether the machine can hold a step. If it cannot, says why.
fn fits(step: LadderStep, options: &Options) -> Result<bool> {
    let LadderStep { connections, .. } = step;
    let processes = connections.div_ceil(PER_SERVER) + connections.div_ceil(PER_WORKER);
    let needs = StepNeeds {
        connections: connections as u64,
        of_process: connections.min(PER_SERVER) as u64,
        processes: processes as u64,
    };
    let limits = MachineLimits::read()?;
    let obstacles = limits.obstacles(needs);
    if obstacles.is_empty() && !options.quiet {
        eprintln!("  {connections} connections fit this machine");
    }
    if let Some(hint) = limits.slow_lookups(connections as u64).filter(|_| !options.quiet) {
        eprintln!("  {connections} connections: {hint}");
    }
    for obstacle in &obstacles {
        eprintln!("  {connections} connections do not fit this machine, they are left out: {obstacle}");
    }
    Ok(obstacles.is_empty())
}

/// One step of the ladder.
struct Climb<'a> {
    step: LadderStep,
    nodes: usize,
    channels: usize,
    /// Publications to all channels, one after the other.
    rounds: usize,
    rate: f64,
    ladder: &'a LadderOptions,
    options: &'a Options,
    /// The table has one block for each step.
    scenario: &'static str,
}

/// The results of the servers.
struct Climbed {
    opened: OpenedConnections,
    connection_us: f64,
    event: BareResult,
    /// Memory of servers, load and kernel for the connections, bytes.
    memory: [f64; 3],
}

impl<'a> Climb<'a> {
    fn new(step: LadderStep, ladder: &'a LadderOptions, options: &'a Options) -> Self {
        let channels = ladder.channels as usize;
        let nodes = step.connections.div_ceil(PER_SERVER);
        let LadderStep { connections, concurrency } = step;
        let scenario = format!("ladder {connections} / {concurrency}, nodes: {nodes}, channels: {channels}");
        Climb {
            step,
            nodes,
            channels,
            rounds: ladder.messages.div_ceil(channels),
            rate: ladder.rate,
            ladder,
            options,
            scenario: Box::leak(scenario.into_boxed_str()),
        }
    }

    fn figure(&self, name: &'static str, unit: &'static str) -> Figure {
        Figure::new(self.scenario, name, unit)
    }

    fn run(&self, lasting: u32, results: &mut Results) -> Result<OverFloor> {
        let (accept_us, floor) = self.floor()?;
        let nats = if self.nodes > 1 { Some(Nats::start()?) } else { None };
        let servers = ServerUnderTest::start_ladder(self.options, nats.as_ref(), self.nodes)?;
        let mut plan = servers[0].plan(self.step.connections, PLAIN, self.channels, SIZE, false);
        plan.servers = servers.iter().map(|server| server.subscriber_address).collect();
        let mut workers = Workers::start(&plan)?;
        let climbed = self.climb(&servers, &mut workers)?;
        let over = self.report(&climbed, accept_us, &floor, results);
        if lasting > 0 {
            self.play(&servers, &mut workers, lasting, results)?;
        }
        Ok(over)
    }

    /// The bare machine: CPU of an accepted connection, and the same events.
    fn floor(&self) -> Result<(f64, BareResult)> {
        let sending = Sending {
            prefix: PLAIN.to_owned(),
            channels: self.channels,
            messages: self.channels,
            earlier: 0,
            rate: self.rate,
            coalesce: 1,
            size: SIZE,
            transport: self.options.transport,
        };
        let mut bare = Bare {
            processes: self.nodes,
            threads: threads(self.options),
            connections: self.step.connections,
            opened_at_once: FLOOR_OPENED_AT_ONCE,
            sending,
        }
        .open()?;
        Ok((bare.accept_us, self.rounds(|| bare.send())?))
    }

    fn climb(&self, servers: &[ServerUnderTest], workers: &mut Workers) -> Result<Climbed> {
        std::thread::sleep(REST);
        let before = memory(servers, workers)?;
        let meters = meters(servers)?;
        let opened = workers.open(self.step.concurrency)?;
        let connection_us = cpu_us(meters)? / self.step.connections as f64;
        std::thread::sleep(REST);
        let after = memory(servers, workers)?;
        let mut publisher = Publisher::new(servers[0].api.clone(), PLAIN, self.channels, SIZE)?;
        let event = self.rounds(|| {
            workers.expect(1, timeout(self.channels, self.rate))?;
            let (meters, began) = (self::meters(servers)?, Instant::now());
            publisher.publish(self.channels, self.rate)?;
            let delivered = workers.delivered()?;
            let seconds = began.elapsed().as_secs_f64();
            Ok(BareResult { us: cpu_us(meters)? / delivered.count.max(1) as f64, delivered, seconds })
        })?;
        let memory = [0, 1, 2].map(|part| after[part] - before[part]);
        Ok(Climbed { opened, connection_us, event, memory })
    }

    /// Runs all rounds. Each round begins when all subscribers have the previous publication, and not above the rate.
    fn rounds(&self, mut round: impl FnMut() -> Result<BareResult>) -> Result<BareResult> {
        let mut all = BareResult { us: 0.0, delivered: Delivered::default(), seconds: 0.0 };
        let mut total_us = 0.0;
        for number in 0..self.rounds {
            let began = Instant::now();
            let one = round()?;
            total_us += one.us * one.delivered.count as f64;
            all.seconds += one.seconds;
            all.delivered.add(one.delivered);
            if self.rate > 0.0 && number + 1 < self.rounds {
                let due = began + Duration::from_secs_f64(self.channels as f64 / self.rate);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
        all.us = total_us / all.delivered.count.max(1) as f64;
        Ok(all)
    }

    fn report(&self, climbed: &Climbed, accept_us: f64, floor: &BareResult, results: &mut Results) -> OverFloor {
        let Climbed { opened, connection_us, event, memory } = climbed;
        let LadderStep { connections, .. } = self.step;
        if let Some(failure) = &opened.first_failure {
            eprintln!("  the first failure: {failure}");
        }
        if let (Some(closing), 1..) = (&opened.first_closing, opened.wrongs.closed) {
            eprintln!("  the first closing while others were opened: {closing}");
        }
        let (most, aim) = if connections <= 100_000 { (8.0, 4.0) } else { (60.0, 60.0) };
        results.add(self.figure("failed to open", "").bound(0.0, 0.0), opened.failed as f64);
        results.add(self.figure("all open after", "s").bound(most, aim), opened.seconds);
        results.add(self.figure("p99 to open", "ms"), opened.times.quantile_ms(0.99));
        let (mean_ms, floor_ms) = (event.delivered.times.mean_ms(), floor.delivered.times.mean_ms());
        let (mean, ratio) =
            (self.figure("average time of one event to all", "ms"), self.figure("the same / floor", "×"));
        let is_one = self.channels == 1;
        results.add(if is_one { mean } else { mean.bound(10.0, 5.0) }, mean_ms);
        results.add(if is_one { ratio.bound(1.2, 1.0) } else { ratio }, mean_ms / floor_ms);
        results.add(self.figure("p99 of one event to all", "ms"), event.delivered.times.quantile_ms(0.99));
        results.add(self.figure("floor: average time of one event to all", "ms"), floor_ms);
        results.compare(self.figure("CPU of a connection / floor", "×"), "µs", &[(*connection_us, accept_us)]);
        results.compare(self.figure("CPU per delivery / floor", "×"), "µs", &[(event.us, floor.us)]);
        for (name, bytes) in
            ["memory of the servers", "memory of the load", "memory of the kernel, both ends"].iter().zip(memory)
        {
            results.add(self.figure(name, "B a connection"), bytes / connections as f64);
        }
        results.add(self.figure("closed while others were opened", "").bound(0.0, 0.0), opened.wrongs.closed as f64);
        results.add(Figure::exact(self.scenario), wrongs(&event.delivered));
        let over = OverFloor { connection: connection_us / accept_us, delivery: event.us / floor.us };
        for (line, y) in [
            ("all open, ms", opened.seconds * 1e3),
            ("one event to all, ms", mean_ms),
            ("its floor, ms", floor_ms),
            ("servers, MB", memory[0] / 1e6),
            ("load, MB", memory[1] / 1e6),
            ("kernel, MB", memory[2] / 1e6),
            ("CPU of a connection, ×", over.connection),
            ("CPU of a delivery, ×", over.delivery),
        ] {
            results.point(line, connections as u32, y);
        }
        over
    }

    /// The connections subscribe to matches, and each match gets an event every [`MATCH_INTERVAL`].
    fn play(
        &self,
        servers: &[ServerUnderTest],
        workers: &mut Workers,
        lasting: u32,
        results: &mut Results,
    ) -> Result<()> {
        let matches = self.ladder.matches as usize;
        let request = SubscriberRequest::Join { prefix: MATCHES.to_owned(), channels: matches };
        let (joined, seconds) = workers.ask(request, JOIN_TIMEOUT)?;
        std::thread::sleep(REST);
        let events = (lasting as usize).div_ceil(MATCH_INTERVAL.as_secs() as usize);
        let rate = matches as f64 / MATCH_INTERVAL.as_secs_f64();
        let mut publisher = Publisher::new(servers[0].api.clone(), MATCHES, matches, SIZE)?;
        workers.expect(events, timeout(events * matches, rate))?;
        let (meters, began) = (meters(servers)?, Instant::now());
        publisher.publish(events * matches, rate)?;
        // The last events are sent before the time is over; the connections are pinged until its end.
        rest(Duration::from_secs(u64::from(lasting)).saturating_sub(began.elapsed()))?;
        let used_us = cpu_us(meters)?;
        let seconds_played = began.elapsed().as_secs_f64();
        let delivered = workers.delivered()?;
        let name = format!("{matches} matches of {} connections, {lasting} s", self.step.connections);
        let scenario: &'static str = Box::leak(name.into_boxed_str());
        let figure = |name, unit| Figure::new(scenario, name, unit);
        results.add(
            figure("connections without their match", "").bound(0.0, 0.0),
            self.step.connections as f64 - joined as f64,
        );
        results.add(figure("all subscribed to their match after", "s"), seconds);
        results.add(figure("average time of an event to its match", "ms"), delivered.times.mean_ms());
        results.add(figure("p99 of an event to its match", "ms"), delivered.times.quantile_ms(0.99));
        results.add(figure("events received", ""), delivered.count as f64);
        results.add(figure("CPU of all servers", "cores"), used_us / 1e6 / seconds_played);
        results.add(Figure::exact(scenario), wrongs(&delivered));
        Ok(())
    }
}

/// The number of errors. Prints the first reason why a connection was closed.
fn wrongs(delivered: &Delivered) -> f64 {
    if let (Some(closing), Wrongs { closed: 1.., .. }) = (&delivered.first_closing, delivered.wrongs) {
        eprintln!("  the first closing: {closing}");
    }
    delivered.wrongs.total("server") as f64
}

/// Memory of servers, load and kernel, bytes.
fn memory(servers: &[ServerUnderTest], workers: &Workers) -> Result<[f64; 3]> {
    let of_servers = servers.iter().map(|server| resident_bytes(server.pid)).sum::<Result<f64>>()?;
    Ok([of_servers, workers.resident_bytes()?, kernel_bytes()?])
}

fn meters(servers: &[ServerUnderTest]) -> Result<Vec<Meter>> {
    servers.iter().map(|server| Meter::start(server.pid)).collect()
}

/// CPU of all servers since their meters were started, microseconds.
fn cpu_us(meters: Vec<Meter>) -> Result<f64> {
    meters.into_iter().map(Meter::stop).sum()
}
