//! The bare machine as a scenario: floors that send the bytes of a server, and workers that read them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::floor::{FloorCommand, FloorReport, Sending};
use crate::ledger::Wrongs;
use crate::part::LabPart;
use crate::process::Meter;
use crate::wire::Dialect;
use crate::workers::{Delivered, Plan, Workers};

/// Maximum time of the slowest subscriber after the last publication.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between the last subscription and the first publication.
pub(super) const REST: Duration = Duration::from_secs(1);

/// A floor whose last send is later than this share of the time of all sends, and later than [`LATE`], can't keep the
/// rate.
const LATE_SHARE: f64 = 0.1;
const LATE: Duration = Duration::from_millis(500);

/// Maximum time of publications and their deliveries.
pub(super) fn timeout(messages: usize, rate: f64) -> Duration {
    TIMEOUT + if rate > 0.0 { Duration::from_secs_f64(messages as f64 / rate) } else { Duration::ZERO }
}

/// How the bare machine is used.
pub(super) struct Bare {
    /// Processes that send at once, each to its share of the connections.
    pub(super) processes: usize,
    /// Threads of each floor.
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

/// The bare machine with all its connections open.
pub(super) struct OpenBare {
    floors: Vec<Floor>,
    workers: Workers,
    sending: Sending,
    /// CPU of an accepted connection and its acknowledgement, microseconds.
    pub(super) accept_us: f64,
}

impl Bare {
    /// Runs the measurement once.
    pub(super) fn run(&self) -> Result<BareResult> {
        self.open()?.send()
    }

    /// Opens all connections.
    pub(super) fn open(&self) -> Result<OpenBare> {
        let mut floors = (0..self.processes).map(|_| Floor::start()).collect::<Result<Vec<_>>>()?;
        let plan = Plan {
            servers: floors.iter().map(|floor| floor.address).collect(),
            path: String::new(),
            dialect: Dialect::Plain,
            transport: self.sending.transport,
            connections: self.connections,
            prefix: self.sending.prefix.clone(),
            channels: self.sending.channels,
            data_size: self.sending.size,
            token_secret: None,
            has_token_ids: false,
            is_subscribing: true,
            shows_progress: true,
        };
        let mut workers = Workers::start(&plan)?;
        let meters = floors.iter().map(|floor| Meter::start(floor.part.pid())).collect::<Result<Vec<_>>>()?;
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
        for floor in &mut floors {
            floor.wait("accept", |report| matches!(report, FloorReport::Accepted))?;
        }
        let us = meters.into_iter().map(Meter::stop).sum::<Result<f64>>()?;
        std::thread::sleep(REST);
        Ok(OpenBare { floors, workers, sending: self.sending.clone(), accept_us: us / self.connections as f64 })
    }
}

impl OpenBare {
    /// Sends all messages once, or once more.
    ///
    /// # Errors
    /// When the floor loses or closes something, or cannot keep the rate: nothing may be compared with it then.
    pub(super) fn send(&mut self) -> Result<BareResult> {
        let Sending { channels, messages, rate, .. } = self.sending;
        self.workers.expect(messages / channels, timeout(messages, rate))?;
        let meters = self.floors.iter().map(|floor| Meter::start(floor.part.pid())).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        for floor in &mut self.floors {
            floor.part.command(&FloorCommand::Send(self.sending.clone()))?;
        }
        let late = self.floors.iter_mut().map(Floor::sent).collect::<Result<Vec<_>>>()?.into_iter().max();
        let delivered = self.workers.delivered()?;
        let seconds = began.elapsed().as_secs_f64();
        let us = meters.into_iter().map(Meter::stop).sum::<Result<f64>>()?;
        self.sending.earlier += messages;
        check(&delivered, late.unwrap_or_default(), &self.sending)?;
        Ok(BareResult { us: us / delivered.count.max(1) as f64, delivered, seconds })
    }
}

/// Refuses a floor that has lost publications, or has fallen behind its rate.
fn check(delivered: &Delivered, late: Duration, sending: &Sending) -> Result<()> {
    let Wrongs { lost, repeated, closed } = delivered.wrongs;
    if delivered.wrongs != Wrongs::default() {
        bail!(
            "the floor cannot be used: it lost {lost}, doubled {repeated}, closed {closed} beside {} deliveries; take \
             fewer connections or publications",
            delivered.count
        );
    }
    let allowed = |rate| Duration::from_secs_f64(sending.messages as f64 * LATE_SHARE / rate).max(LATE);
    if sending.rate > 0.0 && late > allowed(sending.rate) {
        bail!(
            "the floor cannot be used: it cannot send {} messages a second, the last of {} was {} ms late; take a \
             lower rate",
            sending.rate,
            sending.messages,
            late.as_millis()
        );
    }
    Ok(())
}

/// The process of a floor.
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

    /// Waits for the report that the floor has finished `what`.
    pub(super) fn wait(&mut self, what: &str, is_it: impl Fn(&FloorReport) -> bool) -> Result<()> {
        let report = self.part.report()?;
        if is_it(&report) { Ok(()) } else { bail!("the floor reported {report:?} instead of the end of {what}") }
    }

    /// Waits until everything is sent. Returns how late the last send began.
    fn sent(&mut self) -> Result<Duration> {
        match self.part.report()? {
            FloorReport::Sent { late_us } => Ok(Duration::from_micros(late_us)),
            report => bail!("the floor reported {report:?} instead of the end of its sends"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ClientTransport;

    #[test]
    fn a_floor_that_loses_or_falls_behind_is_refused() {
        let sending = |messages, rate| Sending {
            prefix: String::new(),
            channels: 1,
            messages,
            earlier: 0,
            rate,
            coalesce: 1,
            size: 128,
            transport: ClientTransport::Websocket,
        };
        let delivered = |lost, closed| Delivered {
            wrongs: Wrongs { lost, repeated: 0, closed },
            count: 10,
            ..Delivered::default()
        };
        let late = Duration::from_millis;
        assert!(check(&delivered(0, 0), late(400), &sending(2, 10.0)).is_ok());
        assert!(check(&delivered(0, 0), late(600), &sending(2, 10.0)).is_err());
        assert!(check(&delivered(0, 0), late(900), &sending(100, 10.0)).is_ok());
        assert!(check(&delivered(0, 0), late(1_100), &sending(100, 10.0)).is_err());
        assert!(check(&delivered(0, 0), late(0), &sending(100, 0.0)).is_ok());
        assert!(check(&delivered(1, 0), late(0), &sending(100, 0.0)).is_err());
        assert!(check(&delivered(0, 1), late(0), &sending(100, 0.0)).is_err());
    }
}
