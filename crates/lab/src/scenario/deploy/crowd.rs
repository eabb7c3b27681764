//! The roaming clients of a rolling restart, over several processes, commanded as one.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::ledger::Times;
use crate::part::LabPart;
use crate::roaming::{RoamingCommand, RoamingReport, RoamingSpec, WindowReport};
use crate::server_under_test::HISTORY;
use crate::workers::network;

/// Clients per process: few enough to spread the load over processors, and far below the limit of open files of a
/// process.
const PER_PROCESS: usize = 6_000;
/// Clients that connect at a time.
const CONCURRENCY: usize = 300;
/// Maximum time until all clients are subscribed and have their publications.
const SETTLE_PATIENCE: Duration = Duration::from_secs(120);

/// All roaming clients.
pub(super) struct RoamingCrowd(Vec<LabPart<RoamingCommand, RoamingReport>>);

/// The observations of the clients of all processes in a window.
pub(super) struct CrowdWindow {
    /// The sums. Its `times` are empty.
    pub(super) counts: WindowReport,
    pub(super) times: Times,
}

impl RoamingCrowd {
    /// Connects and subscribes so many clients, spread over the nodes and the channels.
    ///
    /// # Errors
    /// When a process can't be started, or a client is not subscribed within a minute.
    pub(super) fn open(addresses: &[SocketAddr], connections: usize, channels: usize) -> Result<Self> {
        let processes = connections.div_ceil(PER_PROCESS);
        let each = connections.div_ceil(processes);
        let mut parts = Vec::new();
        for first in (0..connections).step_by(each) {
            let mut part = LabPart::start("roaming-clients")?;
            let spec = RoamingSpec {
                addresses: addresses.to_vec(),
                connections: each.min(connections - first),
                prefix: HISTORY.to_owned(),
                channels,
                first,
                network: network(),
            };
            part.command(&RoamingCommand::Become(spec))?;
            parts.push(part);
        }
        let mut crowd = RoamingCrowd(parts);
        let (mut opened, mut failure) = (0, None);
        for report in crowd.ask(&RoamingCommand::Open { concurrency: CONCURRENCY.div_ceil(processes) })? {
            if let RoamingReport::Opened { open, first_failure } = report {
                opened += open;
                failure = failure.or(first_failure);
            }
        }
        if opened < connections {
            let first = failure.unwrap_or_default();
            bail!("{} of {connections} clients are not subscribed; the first failure: {first}", connections - opened);
        }
        Ok(crowd)
    }

    /// Begins a window. Returns how many clients the node holds that is about to be restarted.
    ///
    /// # Errors
    /// When a process of clients has ended.
    pub(super) fn begin(&mut self, leaving: Option<usize>) -> Result<u64> {
        let reports = self.ask(&RoamingCommand::Begin { leaving })?;
        Ok(reports.iter().map(|report| if let RoamingReport::Begun { held } = report { *held } else { 0 }).sum())
    }

    /// Waits until all clients are subscribed and have all publications up to `due`, and ends the window.
    ///
    /// # Errors
    /// When a process of clients has ended.
    pub(super) fn settle(&mut self, due: &[u64]) -> Result<CrowdWindow> {
        let timeout_ms = SETTLE_PATIENCE.as_millis() as u64;
        let mut window = CrowdWindow { counts: WindowReport::default(), times: Times::default() };
        for report in self.ask(&RoamingCommand::Settle { due: due.to_vec(), timeout_ms })? {
            if let RoamingReport::Settled(report) = report {
                window.add(report);
            }
        }
        Ok(window)
    }

    /// Sends a command to all processes, and waits for the report of each.
    fn ask(&mut self, command: &RoamingCommand) -> Result<Vec<RoamingReport>> {
        self.0.iter_mut().try_for_each(|part| part.command(command))?;
        self.0.iter_mut().map(LabPart::report).collect()
    }
}

impl CrowdWindow {
    fn add(&mut self, mut other: WindowReport) {
        self.times.add_pairs(&other.times);
        let counts = &mut self.counts;
        counts.told += other.told;
        counts.last_told_us = counts.last_told_us.max(other.last_told_us);
        counts.last_back_us = counts.last_back_us.max(other.last_back_us);
        counts.accepted_us.append(&mut other.accepted_us);
        counts.refused += other.refused;
        counts.cut += other.cut;
        counts.first_cut = counts.first_cut.take().or(other.first_cut);
        counts.away += other.away;
        counts.lost += other.lost;
        counts.repeated += other.repeated;
        counts.delivered += other.delivered;
    }
}
