//! The common parts of the hook figures: the scale, a running backend, and the rows of the report.

use std::time::Duration;

use anyhow::Result;

use crate::hook_parts::{BackendConduct, BackendCount, BackendOrder};
use crate::part::LabPart;
use crate::report::{Figure, Results};
use crate::server_under_test::{AskedAction, HookSetup};

pub(super) const SCENARIO: &str = "hooks";
/// The heading of the rows with the parts of ratios and with errors.
pub(super) const DETAIL: &str = "hooks in detail";
/// The limit of a call where no figure is about it: wide, for slow machines.
pub(super) const WIDE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a publication's data.
pub(super) const SIZE: usize = 128;
/// Time for the server to close connections, and for a process to become idle.
pub(super) const REST: Duration = Duration::from_millis(500);
/// The default of `hooks.calls_max`: calls of a node at the same time.
pub(super) const CALLS_MAX: usize = 256;

/// How much is done.
pub(super) struct HookScale {
    /// Pairs of connects, and of publications, with a hook and without.
    pub(super) pairs: usize,
    /// Blocks of four pairs of fan-outs, with and without a slow backend.
    pub(super) blocks: usize,
    /// Subscribers of the fan-out during calls to a slow backend.
    pub(super) neighbours: usize,
    /// Publications of each of these fan-outs.
    pub(super) round_messages: usize,
    /// Answer time of a slow backend.
    pub(super) slow: Duration,
    /// Connections that are opened each time.
    pub(super) connections: usize,
    /// Clients that publish, each with one publication at a time.
    pub(super) publishers: usize,
    /// How long they publish each time.
    pub(super) publishing: Duration,
    /// Clients that return at once.
    pub(super) returning: usize,
    /// Channels of these clients.
    pub(super) channels: usize,
    /// Answer time of the backend when the clients return.
    pub(super) hook: Duration,
    /// Subscribers of the fan-out while the backend is dead.
    pub(super) bystanders: usize,
    /// Seconds for which the backend is silent, and for as many again its port is closed.
    pub(super) dead_seconds: usize,
}

impl HookScale {
    pub(super) const FULL: HookScale = HookScale {
        pairs: 6,
        blocks: 3,
        neighbours: 10_000,
        round_messages: 15,
        slow: Duration::from_secs(5),
        connections: 5_000,
        publishers: 64,
        publishing: Duration::from_millis(1_500),
        returning: 15_000,
        channels: 100,
        hook: Duration::from_millis(100),
        bystanders: 2_000,
        dead_seconds: 30,
    };
    pub(super) const QUICK: HookScale = HookScale {
        pairs: 2,
        blocks: 1,
        neighbours: 50,
        round_messages: 4,
        slow: Duration::from_millis(300),
        connections: 50,
        publishers: 4,
        publishing: Duration::from_millis(200),
        returning: 300,
        channels: 10,
        hook: Duration::from_millis(50),
        bystanders: 20,
        dead_seconds: 1,
    };
}

/// The results: the judged ratios and their parts.
#[derive(Default)]
pub(super) struct HookResults {
    pub(super) ratios: Results,
    pub(super) details: Results,
}

pub(super) const fn ratio(name: &'static str) -> Figure {
    Figure::new(SCENARIO, name, "×")
}

pub(super) const fn detail(name: &'static str, unit: &'static str) -> Figure {
    Figure::new(DETAIL, name, unit)
}

/// A backend that runs.
pub(super) struct RunningBackend(LabPart<BackendOrder, BackendCount>);

impl RunningBackend {
    /// Starts a backend that answers so.
    pub(super) fn start(conduct: BackendConduct) -> Result<Self> {
        let mut backend = RunningBackend(LabPart::start("hook-backend")?);
        backend.conduct(BackendOrder::Answer(conduct))?;
        Ok(backend)
    }

    /// Changes the behaviour of the backend. Returns its counts until then.
    pub(super) fn conduct(&mut self, command: BackendOrder) -> Result<BackendCount> {
        self.0.ask(&command)
    }

    /// The counts of the backend since the last call.
    pub(super) fn count(&mut self) -> Result<BackendCount> {
        self.conduct(BackendOrder::Count)
    }

    /// The setup of a server that asks it.
    pub(super) fn setup(&mut self, action: AskedAction, timeout: Duration) -> Result<HookSetup> {
        Ok(HookSetup { action, backend: self.count()?.address, timeout })
    }
}
