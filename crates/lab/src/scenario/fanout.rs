//! Publications to many subscribers, compared with the floor.

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::Result;

use super::bare::{Bare, BareResult, REST};
use crate::arguments::{Fanout, Options, Preset};
use crate::floor::Sending;
use crate::process::Meter;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::transport::ClientTransport;
use crate::workers::Workers;

const OPENED_AT_ONCE: usize = 500;

/// Numbers of a fan-out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) scenario: &'static str,
    pub(super) connections: usize,
    pub(super) channels: usize,
    pub(super) messages: usize,
    pub(super) rate: f64,
    pub(super) size: usize,
    pub(super) coalesce: usize,
    pub(super) transport: ClientTransport,
}

impl Numbers {
    fn of(fanout: &Fanout, transport: ClientTransport) -> Self {
        let (scenario, connections, channels, messages, rate) = match fanout.preset {
            Preset::Steady => ("steady fan-out", 10_000, 1, 100, 10.0),
            Preset::Burst => ("burst fan-out", 5_000, 1, 60, 0.0),
            Preset::Sparse => ("sparse fan-out", 10_000, 1_000, 5_000, 1_000.0),
            Preset::Light => ("light fan-out", 1_000, 1, 100, 20.0),
        };
        let connections = fanout.connections.unwrap_or(connections);
        let channels = fanout.channels.unwrap_or(channels).max(1);
        let round = channels * fanout.coalesce as usize;
        let messages = fanout.messages.unwrap_or(messages).div_ceil(round) * round;
        Numbers {
            scenario,
            connections,
            channels,
            messages,
            rate: fanout.rate.unwrap_or(rate),
            size: fanout.size as usize,
            coalesce: fanout.coalesce as usize,
            transport,
        }
    }

    /// The floor of one channel's subscribers alone: as hot in the caches as sockets can be.
    fn of_one_channel(self) -> Self {
        Numbers { connections: self.connections.div_ceil(self.channels), channels: 1, ..self }
    }

    /// The bare machine with these numbers, in one process of so many threads.
    fn floor(&self, threads: usize) -> Result<BareResult> {
        let Numbers { connections, channels, messages, rate, size, coalesce, transport, .. } = *self;
        let sending =
            Sending { prefix: PLAIN.to_owned(), channels, messages, earlier: 0, rate, coalesce, size, transport };
        Bare { processes: 1, threads, connections, opened_at_once: OPENED_AT_ONCE, sending }.run()
    }
}

/// Threads of the floor. It has one for plain sockets; where each frame is encrypted for each subscriber, it has as
/// many as the server has shards.
pub(super) fn threads(options: &Options) -> usize {
    match options.transport {
        ClientTransport::Tls => {
            options.shards.map_or_else(|| available_parallelism().map_or(1, NonZero::get), usize::from)
        }
        _ => 1,
    }
}

/// One run of the floor, alone.
pub(super) fn floor(fanout: &Fanout, options: &Options, results: &mut Results) -> Result<()> {
    let numbers = Numbers::of(fanout, options.transport);
    let floor = numbers.floor(threads(options))?;
    results.add(Figure::new("floor", "CPU per delivery", "µs"), floor.us);
    results.add(Figure::new("floor", "mean latency", "ms"), floor.delivered.times.mean_ms());
    results.add(Figure::new("floor", "p99 latency", "ms"), floor.delivered.times.quantile_ms(0.99));
    results.add(Figure::new("floor", "deliveries", "/s"), floor.deliveries_per_second());
    Ok(())
}

/// One run of the floor and one of the server.
pub(super) fn fanout(fanout: &Fanout, options: &Options, results: &mut Results) -> Result<()> {
    let numbers = Numbers::of(fanout, options.transport);
    let threads = threads(options);
    let floor = numbers.of_one_channel().floor(threads)?;
    let spread = if numbers.channels > 1 { Some(numbers.floor(threads)?) } else { None };
    let server = run_server(&numbers, options)?;
    let figure = |name, unit| Figure::new(numbers.scenario, name, unit);
    let (us, ratio) = (figure("CPU per delivery", "µs"), figure("CPU per delivery / floor", "×"));
    let latency = figure("mean latency", "ms");
    // Bounds that are not ratios hold for plain sockets only.
    let is_plain = options.transport != ClientTransport::Tls;
    let (us, ratio, latency) = match fanout.preset {
        Preset::Steady if options.transport == ClientTransport::Websocket => (us, ratio.bound(1.10, 1.03), latency),
        Preset::Steady => (us, ratio.bound(1.12, 1.03), latency),
        Preset::Burst => (us, ratio.bound(0.35, 0.1), latency.bound(45.0, 22.5).only_if(is_plain)),
        Preset::Sparse => (us.bound(8.0, 6.5).only_if(is_plain), ratio, latency),
        Preset::Light => (us, ratio, latency),
    };
    results.add(us, server.us);
    results.add(figure("floor: CPU per delivery", "µs"), floor.us);
    if let Some(spread) = spread {
        results.add(figure("floor of as many sockets: CPU per delivery", "µs"), spread.us);
    }
    results.add(ratio, server.us / floor.us);
    results.add(latency, server.delivered.times.mean_ms());
    results.add(figure("p99 latency", "ms"), server.delivered.times.quantile_ms(0.99));
    results.add(figure("floor: mean latency", "ms"), floor.delivered.times.mean_ms());
    results.add(figure("floor: p99 latency", "ms"), floor.delivered.times.quantile_ms(0.99));
    results.add(figure("events a read", ""), server.delivered.count as f64 / server.delivered.reads.max(1) as f64);
    results.add(figure("deliveries", "/s"), server.deliveries_per_second());
    results.add(figure("floor: deliveries", "/s"), floor.deliveries_per_second());
    results.add(Figure::exact(numbers.scenario), server.delivered.wrongs.total("server") as f64);
    Ok(())
}

fn run_server(numbers: &Numbers, options: &Options) -> Result<BareResult> {
    deliver(&ServerUnderTest::start(options)?, numbers)
}

/// One fan-out of a server.
pub(super) fn deliver(server: &ServerUnderTest, numbers: &Numbers) -> Result<BareResult> {
    let mut workers = Workers::start(&server.plan(numbers.connections, PLAIN, numbers.channels, numbers.size, false))?;
    workers.open_all(OPENED_AT_ONCE)?;
    let mut publisher = Publisher::new(server.api.clone(), PLAIN, numbers.channels, numbers.size)?;
    std::thread::sleep(REST);
    workers.expect(numbers.messages / numbers.channels, super::bare::timeout(numbers.messages, numbers.rate))?;
    let (meter, began) = (Meter::start(server.pid)?, Instant::now());
    publisher.publish(numbers.messages, numbers.rate)?;
    let delivered = workers.delivered()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(BareResult { us: meter.stop()? / delivered.count.max(1) as f64, delivered, seconds })
}
