//! A rolling restart of three nodes under load. Each node gets SIGTERM, disconnects its clients, and is started again
//! when it has stopped. The clients reconnect to the other nodes with recovery, as an official SDK does. With another
//! program the nodes are upgraded from it to this one in the same way, and back.

mod crowd;
mod figures;
mod load;
mod node;
mod plan;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use self::crowd::RoamingCrowd;
use self::figures::RestartMeasurement;
use self::load::PublishLoad;
use self::node::DeployNode;
use self::plan::ReportedPlan;
use crate::arguments::Options;
use crate::deploy_arguments::DeployOptions;
use crate::joining::wait_until_joined;
use crate::machine::{MachineLimits, StepNeeds};
use crate::nats::Nats;
use crate::process::{now_us, rest};
use crate::report::Results;
use crate::server_under_test::server_program;
use crate::transport::ClientTransport;

/// Nodes of the cluster.
const NODES: u8 = 3;
/// Processes besides the nodes: clients and NATS.
const PROCESSES_BESIDE: u64 = 4;
/// Maximum time until a node reports its plan after SIGTERM.
const PLAN_PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// One run: a restart of each node, or an upgrade of each and the way back.
pub(super) fn deploy(arguments: &DeployOptions, options: &Options, results: &mut Results) -> Result<()> {
    check(arguments, options)?;
    let this = server_program(options)?;
    let first = arguments.from.clone().unwrap_or_else(|| this.clone());
    let nats = Nats::start()?;
    let mut nodes = (0..NODES).map(|number| DeployNode::new(number, &nats)).collect::<Result<Vec<_>>>()?;
    nodes.iter_mut().try_for_each(|node| node.start(&first, options.shards))?;
    wait_until_joined(&nodes.iter().map(|node| &node.api).collect::<Vec<_>>())?;
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let crowd = RoamingCrowd::open(&addresses, arguments.connections, arguments.channels)?;
    let apis: Vec<_> = nodes.iter().map(|node| node.api.clone()).collect();
    let load = PublishLoad::start(&apis, arguments.channels, arguments.rate);
    let mut rolling = RollingRestart { arguments, options, load, crowd, nodes };
    for (name, program) in steps(arguments, this, first) {
        for index in 0..usize::from(NODES) {
            let scenario = format!("{name}, node {} of {NODES}", index + 1);
            rolling.restart(index, &program)?.report(Box::leak(scenario.into_boxed_str()), results);
        }
    }
    Ok(())
}

/// The rolling restarts of a run, with the program that the nodes have after each.
fn steps(arguments: &DeployOptions, this: PathBuf, first: PathBuf) -> Vec<(&'static str, PathBuf)> {
    match &arguments.from {
        None => vec![("rolling restart", this)],
        Some(_) => vec![("upgrade", this), ("rollback", first)],
    }
}

/// Sees that the scenario can be run here.
fn check(arguments: &DeployOptions, options: &Options) -> Result<()> {
    if options.server.is_some() {
        bail!("the scenario restarts nodes of its own: leave --server out");
    }
    if options.transport != ClientTransport::Websocket {
        bail!("its clients speak JSON in WebSocket frames: leave --way out");
    }
    if arguments.rate == 0.0 {
        bail!("publications need a rate: give --rate a number above 0");
    }
    let connections = arguments.connections as u64;
    let needs = StepNeeds {
        connections,
        // The third node holds its own clients, those that two others have sent, and a quarter of the second's.
        of_process: connections.div_ceil(4) * 3,
        processes: u64::from(NODES) + PROCESSES_BESIDE,
    };
    match MachineLimits::read()?.obstacles(needs).as_slice() {
        [] => Ok(()),
        obstacles => bail!("{connections} clients do not fit this machine: {}", obstacles.join("; ")),
    }
}

/// The load on the cluster, its clients and its nodes, which end in this order.
struct RollingRestart<'a> {
    arguments: &'a DeployOptions,
    options: &'a Options,
    load: PublishLoad,
    crowd: RoamingCrowd,
    nodes: Vec<DeployNode>,
}

impl RollingRestart<'_> {
    /// Restarts one node, which has this program from then on.
    fn restart(&mut self, index: usize, program: &Path) -> Result<RestartMeasurement> {
        rest(Duration::from_secs(self.arguments.rest))?;
        self.crowd.begin(None)?;
        rest(Duration::from_secs(self.arguments.seconds))?;
        let before = self.crowd.settle(&self.load.acknowledged()?)?;

        let failed = self.load.failed();
        let held = self.crowd.begin(Some(index))?;
        let node = &mut self.nodes[index];
        let plan_before = node.metrics().as_deref().and_then(ReportedPlan::in_metrics);
        let began_us = now_us();
        node.terminate()?;
        let running = await_plan(node, plan_before.is_some());
        let plan = running.or(plan_before).unwrap_or_else(|| ReportedPlan::assumed(held));
        node.wait_for_end()?;
        let stopped_us = now_us();
        node.start(program, self.options.shards)?;
        wait_until_joined(&self.nodes.iter().map(|node| &node.api).collect::<Vec<_>>())?;
        let started_us = now_us();
        let during = self.crowd.settle(&self.load.acknowledged()?)?;
        Ok(RestartMeasurement {
            held,
            plan,
            began_us,
            stopped_us,
            started_us,
            before,
            during,
            republished: self.load.failed() - failed,
        })
    }
}

/// The plan of a drain that has begun. `is_expected`: whether the node has reported a plan before. `None` = the node
/// reports none.
fn await_plan(node: &DeployNode, is_expected: bool) -> Option<ReportedPlan> {
    let began = Instant::now();
    loop {
        if let Some(plan) = ReportedPlan::in_log(&node.log()) {
            return Some(plan);
        }
        if began.elapsed() > PLAN_PATIENCE {
            return node.metrics().as_deref().and_then(ReportedPlan::in_metrics).filter(|_| is_expected);
        }
        std::thread::sleep(PAUSE);
    }
}
