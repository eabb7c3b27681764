//! What hooks cost: a server that asks a backend, beside the same without one, or beside a bare loop that asks it.
//!
//! A figure is a row of [`FIGURES`] and a file. What is compared takes turns within one run, because the machine's
//! speed changes by the second; a ratio is the median of its pairs.

mod calls;
mod crowd;
mod outage;
mod slow;

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{HookFigure, HooksOptions, Options};
use crate::hook_parts::{BackendCommand, BackendConduct, BackendCount};
use crate::part::LabPart;
use crate::report::{Figure, Results};
use crate::server_under_test::{AskedAction, HookSetup};

const SCENARIO: &str = "hooks";
/// What the ratios are made of, and what must not happen.
const DETAIL: &str = "hooks in detail";
/// The limit of a call where no figure is about it: wide, for slow machines.
const WIDE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a publication's data.
const SIZE: usize = 128;
/// The time in which the server closes connections that were closed, and a process comes to rest.
const REST: Duration = Duration::from_millis(500);
/// The default of `hooks.calls_max`: calls of a node at the same time.
const CALLS_MAX: usize = 256;

/// One figure: its name on the command line, and what measures it.
type HookMeasure = fn(&HookScale, &Options, &mut HookResults) -> Result<()>;

/// All figures, in the order in which they are printed.
const FIGURES: &[(HookFigure, HookMeasure)] = &[
    (HookFigure::Slow, slow::slow),
    (HookFigure::Connect, calls::connect),
    (HookFigure::Publish, calls::publish),
    (HookFigure::Return, crowd::crowd),
    (HookFigure::Outage, outage::outage),
];

/// How much is done.
struct HookScale {
    /// Pairs of connects, and of publications, with a hook and without.
    pairs: usize,
    /// Blocks of four pairs of fan-outs, beside a slow backend and without.
    blocks: usize,
    /// Subscribers of the fan-out beside a slow backend.
    neighbours: usize,
    /// Publications of each of these fan-outs.
    round_messages: usize,
    /// How long a slow backend takes.
    slow: Duration,
    /// Connections that are opened each time.
    connections: usize,
    /// Clients that publish, one publication at a time each.
    publishers: usize,
    /// How long they publish each time.
    publishing: Duration,
    /// Clients that return at once.
    returning: usize,
    /// Channels of these clients.
    channels: usize,
    /// How long the backend takes when they return.
    hook: Duration,
    /// Subscribers of the fan-out beside a dead backend.
    bystanders: usize,
    /// Seconds for which the backend is silent, and for as many again its port is closed.
    dead_seconds: usize,
}

impl HookScale {
    const FULL: HookScale = HookScale {
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
    const QUICK: HookScale = HookScale {
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

/// What comes out: the ratios that are judged, and what they were made of.
#[derive(Default)]
struct HookResults {
    ratios: Results,
    details: Results,
}

/// One run.
pub(super) fn hooks(arguments: &HooksOptions, options: &Options, results: &mut Results) -> Result<()> {
    let scale = if arguments.quick { HookScale::QUICK } else { HookScale::FULL };
    let mut found = HookResults::default();
    for (figure, measure) in FIGURES {
        if arguments.only.is_empty() || arguments.only.contains(figure) {
            if !options.quiet {
                eprintln!("  {figure:?}");
            }
            measure(&scale, options, &mut found)?;
        }
    }
    results.append(found.ratios);
    results.append(found.details);
    Ok(())
}

const fn ratio(name: &'static str) -> Figure {
    Figure::new(SCENARIO, name, "×")
}

const fn detail(name: &'static str, unit: &'static str) -> Figure {
    Figure::new(DETAIL, name, unit)
}

/// A backend that runs.
struct RunningBackend(LabPart<BackendCommand, BackendCount>);

impl RunningBackend {
    /// Starts a backend that answers so.
    fn start(conduct: BackendConduct) -> Result<Self> {
        let mut backend = RunningBackend(LabPart::start("hook-backend")?);
        backend.conduct(BackendCommand::Answer(conduct))?;
        Ok(backend)
    }

    /// Lets it go on in another way. Returns what it has counted until then.
    fn conduct(&mut self, command: BackendCommand) -> Result<BackendCount> {
        self.0.ask(&command)
    }

    /// What it has counted since the last time.
    fn count(&mut self) -> Result<BackendCount> {
        self.conduct(BackendCommand::Count)
    }

    /// The setup of a server that asks it.
    fn setup(&mut self, action: AskedAction, timeout: Duration) -> Result<HookSetup> {
        Ok(HookSetup { action, backend: self.count()?.address, timeout })
    }
}
