//! The bare machine as a scenario: floors that send what servers would, and workers that read it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::floor::{FloorCommand, FloorReport, Sending};
use crate::part::LabPart;
use crate::process::Meter;
use crate::wire::Dialect;
use crate::workers::{Delivered, Plan, Workers};

/// How long the slowest subscriber may take after the last publication.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between the last subscription and the first publication.
pub(super) const REST: Duration = Duration::from_secs(1);

/// How long publications and their deliveries may take.
pub(super) fn timeout(messages: usize, rate: f64) -> Duration {
    TIMEOUT + if rate > 0.0 { Duration::from_secs_f64(messages as f64 / rate) } else { Duration::ZERO }
}

/// How the bare machine is used.
pub(super) struct Bare {
    /// Processes that send at once, each to its share of the connections.
    pub(super) processes: usize,
    /// Threads of each.
    pub(super) threads: usize,
    pub(super) connections: usize,
    pub(super) opened_at_once: usize,
    pub(super) sending: Sending,
}

/// The result of a fan-out.
pub(super) struct BareResult {
    /// CPU of the sender, microseconds per delivery.
    pub(super) us: f64,
    pub(super) delivered: Delivered,
    pub(super) seconds: f64,
}

impl BareResult {
    pub(super) fn deliveries_per_second(&self) -> f64 {
        self.delivered.count as f64 / self.seconds
    }
}

impl Bare {
    /// One run.
    pub(super) fn run(&self) -> Result<BareResult> {
        let Sending { ref prefix, channels, messages, rate, size, .. } = self.sending;
        let mut floors = (0..self.processes).map(|_| Floor::start()).collect::<Result<Vec<_>>>()?;
        let plan = Plan {
            servers: floors.iter().map(|floor| floor.address).collect(),
            path: String::new(),
            dialect: Dialect::Plain,
            transport: self.sending.transport,
            connections: self.connections,
            prefix: prefix.clone(),
            channels,
            data_size: size,
            token_secret: None,
            has_token_ids: false,
            is_subscribing: true,
            shows_progress: true,
        };
        let mut workers = Workers::start(&plan)?;
        let mut missing = self.connections;
        for floor in &mut floors {
            let connections = missing.min(plan.share());
            missing -= connections;
            floor.part.command(&FloorCommand::Accept {
                connections,
                transport: self.sending.transport,
                threads: self.threads,
            })?;
        }
        workers.open_all(self.opened_at_once)?;
        floors
            .iter_mut()
            .try_for_each(|floor| floor.wait("accept", |report| matches!(report, FloorReport::Accepted)))?;
        std::thread::sleep(REST);
        workers.expect(messages / channels, timeout(messages, rate))?;
        let meters = floors.iter().map(|floor| Meter::start(floor.part.pid())).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        floors.iter_mut().try_for_each(|floor| floor.part.command(&FloorCommand::Send(self.sending.clone())))?;
        floors.iter_mut().try_for_each(|floor| floor.wait("send", |report| matches!(report, FloorReport::Sent)))?;
        let delivered = workers.delivered()?;
        let seconds = began.elapsed().as_secs_f64();
        let us = meters.into_iter().map(Meter::stop).sum::<Result<f64>>()?;
        Ok(BareResult { us: us / delivered.count.max(1) as f64, delivered, seconds })
    }
}

/// A process that sends what the floor sends.
pub(super) struct Floor {
    pub(super) part: LabPart<FloorCommand, FloorReport>,
    pub(super) address: SocketAddr,
}

impl Floor {
    pub(super) fn start() -> Result<Self> {
        let mut part = LabPart::start("floor-server")?;
        match part.report()? {
            FloorReport::Listening { address } => Ok(Floor { part, address }),
            other => bail!("the floor said {other:?}"),
        }
    }

    /// Waits for the report that says that the floor has done `what`.
    pub(super) fn wait(&mut self, what: &str, is_it: impl Fn(&FloorReport) -> bool) -> Result<()> {
        let report = self.part.report()?;
        if is_it(&report) { Ok(()) } else { bail!("the floor reported {report:?} instead of the end of {what}") }
    }
}
