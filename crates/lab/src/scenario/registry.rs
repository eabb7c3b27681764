//! Names: the steps of process_registry_bench (Roberto Ostinelli), which measured process registries for Erlang.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::syn::{Syn, SynRun};
use crate::arguments::{Options, Registry};
use crate::nats::Nats;
use crate::process::{ChildProcess, Meter, now_us};
use crate::registry_node::{NodeReport, RegistryNodeCommand};
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::worker::SubscriberRequest;
use crate::workers::Workers;

/// The time between a command and the moment at which all nodes run it, microseconds.
const HEAD_START_US: u64 = 100_000;
/// A node that reports nothing for so long counts as failed.
const SILENCE: Duration = Duration::from_secs(60);
/// Time between two steps, so that the work of the first has ended before the second is measured.
const REST: Duration = Duration::from_secs(1);
const LOOKUP_SECONDS: f64 = 2.0;
/// Registrations that arrive each millisecond during lookups.
const ARRIVING_PER_MS: u32 = 50;
const TIMEOUT: Duration = Duration::from_secs(30);

/// One run of all steps.
pub(super) fn registry(registry: &Registry, options: &Options, results: &mut Results) -> Result<()> {
    let nats = Nats::start()?;
    let one = alone(registry.names, &nats, results)?;
    let many = together(registry.names, registry.nodes, &nats, results)?;
    if let Some(source) = &registry.beside {
        let syn = Syn::compile(source)?;
        for (ours, nodes) in [(one, 1), (many, registry.nodes)] {
            beside(ours, &syn.run(registry.names, nodes)?, nodes, results);
        }
    }
    joining(registry.names, &nats, results)?;
    lookups(registry.names, &nats, results)?;
    whole_way(registry.connections, options, results)
}

fn per_second(count: u32, from_us: u64, until_us: u64) -> f64 {
    f64::from(count) * 1e6 / until_us.saturating_sub(from_us).max(1) as f64
}

fn millis(from_us: u64, until_us: u64) -> f64 {
    until_us.saturating_sub(from_us) as f64 / 1e3
}

/// The results of one run of the steps.
struct Steps {
    registered_per_s: f64,
    known_ms: f64,
    /// `None` for a single node, which has no peers.
    forgotten_ms: Option<f64>,
}

/// Adds the figures compared with those of Syn.
fn beside(ours: Steps, syn: &SynRun, nodes: u32, results: &mut Results) {
    let scenario: &'static str = Box::leak(format!("registry / Syn, {nodes} nodes").into_boxed_str());
    let rates = (ours.registered_per_s, syn.registered_per_s);
    results.compare(Figure::new(scenario, "registered", "×").at_least(4.0, 4.0), "/s", &[rates]);
    if let Some(forgotten_ms) = ours.forgotten_ms {
        let known = (ours.known_ms, syn.known_ms);
        results.compare(Figure::new(scenario, "known everywhere after the last call", "×"), "ms", &[known]);
        let forgotten = Figure::new(scenario, "all owners die: forgotten everywhere", "×").bound(0.25, 0.25);
        results.compare(forgotten, "ms", &[(forgotten_ms, syn.forgotten_ms)]);
    }
}

fn alone(names: u32, nats: &Nats, results: &mut Results) -> Result<Steps> {
    let mut nodes = RegistryNodes::start(1, nats)?;
    nodes.link(0)?;
    let (from_us, until_us) = nodes.register(&[(0, names)])?;
    results.add(
        Figure::new("registry, 1 node", "registered", "/s").at_least(1e6, 2e6),
        per_second(names, from_us, until_us),
    );
    Ok(Steps { registered_per_s: per_second(names, from_us, until_us), known_ms: 0.0, forgotten_ms: None })
}

fn together(names: u32, count: u32, nats: &Nats, results: &mut Results) -> Result<Steps> {
    let scenario: &'static str = Box::leak(format!("registry, {count} nodes").into_boxed_str());
    let mut nodes = RegistryNodes::start(count as usize, nats)?;
    (0..count as usize).try_for_each(|node| nodes.link(node))?;
    // The nodes know each other before a name is registered.
    std::thread::sleep(REST);
    let share = names / count;
    let shares: Vec<(u32, u32)> = (0..count).map(|node| (node * share, share)).collect();
    nodes.command_all(&RegistryNodeCommand::Await { names: u64::from(share * count) })?;
    let (from_us, until_us) = nodes.register(&shares)?;
    let known_us = nodes.reached(count as usize)?;
    results.add(
        Figure::new(scenario, "registered", "/s").at_least(5e5, 1.4e6),
        per_second(share * count, from_us, until_us),
    );
    results.add(
        Figure::new(scenario, "known everywhere after the last call", "ms").bound(30.0, 5.0),
        millis(until_us, known_us),
    );
    let registered_per_s = per_second(share * count, from_us, until_us);
    std::thread::sleep(REST);
    nodes.command_all(&RegistryNodeCommand::Await { names: 0 })?;
    let at_us = now_us() + HEAD_START_US;
    let (died_us, _) = nodes.carry_out(&shares, |first, count| RegistryNodeCommand::Die { at_us, first, count })?;
    let forgotten_us = nodes.reached(count as usize)?;
    results.add(
        Figure::new(scenario, "all owners die: forgotten everywhere", "ms").bound(200.0, 60.0),
        millis(died_us, forgotten_us),
    );
    let forgotten_ms = Some(millis(died_us, forgotten_us));
    Ok(Steps { registered_per_s, known_ms: millis(until_us, known_us), forgotten_ms })
}

/// Two nodes with as many names each; one of them joins later.
fn joining(names: u32, nats: &Nats, results: &mut Results) -> Result<()> {
    let mut nodes = RegistryNodes::start(2, nats)?;
    nodes.link(0)?;
    nodes.register(&[(0, names), (names, names)])?;
    std::thread::sleep(REST);
    nodes.command_all(&RegistryNodeCommand::Await { names: u64::from(names) * 2 })?;
    let began_us = now_us();
    nodes.command(1, &RegistryNodeCommand::Link)?;
    let had_us = nodes.reached(2)?;
    let figure = Figure::new("registry, a node with as many names joins", "it has all, and all have it", "ms");
    results.add(figure.bound(300.0, 300.0), millis(began_us, had_us));
    Ok(())
}

fn lookups(names: u32, nats: &Nats, results: &mut Results) -> Result<()> {
    let mut nodes = RegistryNodes::start(2, nats)?;
    nodes.link(0)?;
    nodes.link(1)?;
    std::thread::sleep(REST);
    nodes.command(1, &RegistryNodeCommand::Await { names: u64::from(names) })?;
    nodes.register(&[(0, names)])?;
    nodes.reached(1)?;
    let arriving = (LOOKUP_SECONDS * 1.25 * 1_000.0) as u32 * ARRIVING_PER_MS;
    nodes.command(0, &RegistryNodeCommand::Trickle { first: names, count: arriving, per_ms: ARRIVING_PER_MS })?;
    std::thread::sleep(Duration::from_millis(200));
    nodes.command(1, &RegistryNodeCommand::LookUp { names, seconds: LOOKUP_SECONDS })?;
    let mut looked_up = None;
    let mut trickled = None;
    while looked_up.is_none() || trickled.is_none() {
        match nodes.receive()? {
            NodeReport::LookedUp { count, found, cpu_us } if count == found => {
                looked_up = Some(count as f64 * 1e6 / cpu_us)
            }
            NodeReport::Done { from_us, until_us } => trickled = Some(per_second(arriving, from_us, until_us)),
            other => bail!("a registry node said {other:?}"),
        }
    }
    let scenario = "registry, lookups while registrations arrive";
    results.add(Figure::new(scenario, "lookups of one core", "/s").at_least(5e6, 5e6), looked_up.unwrap_or_default());
    results.add(Figure::new(scenario, "registrations that arrive", "/s"), trickled.unwrap_or_default());
    Ok(())
}

/// Clients on WebSocket register one name each.
fn whole_way(connections: usize, options: &Options, results: &mut Results) -> Result<()> {
    let server = ServerUnderTest::start(options)?;
    let mut workers = Workers::start(&server.plan(connections, PLAIN, 1, 128, false))?;
    workers.open_all(500)?;
    std::thread::sleep(REST);
    let meter = Meter::start(server.pid)?;
    let (registered, seconds) = workers.ask(SubscriberRequest::Register, TIMEOUT)?;
    let us = meter.stop()? / connections as f64;
    let scenario = "registry, clients register by rpc on WebSocket";
    results.add(Figure::new(scenario, "server CPU per registration", "µs").bound(15.0, 15.0), us);
    results.add(Figure::new(scenario, "registered", "/s"), registered as f64 / seconds);
    results.add(Figure::new(scenario, "not registered", "").bound(0.0, 0.0), (connections as u64 - registered) as f64);
    Ok(())
}

/// Processes that embed the registry.
struct RegistryNodes {
    nodes: Vec<(ChildProcess, ChildStdin)>,
    reports: Receiver<NodeReport>,
    /// The times at which nodes reached the awaited number of names, if the report came before it was waited for.
    reached: Vec<u64>,
}

impl RegistryNodes {
    fn start(count: usize, nats: &Nats) -> Result<Self> {
        let (sender, reports) = channel();
        let mut all = RegistryNodes { nodes: Vec::with_capacity(count), reports, reached: Vec::new() };
        for number in 0..count {
            let mut part = ChildProcess::start("registry-node")?;
            let commands = part.0.stdin.take().context("the registry node has no standard input")?;
            let lines =
                BufReader::new(part.0.stdout.take().context("the registry node has no standard output")?).lines();
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    let Ok(report) = serde_json::from_str(&line) else { break };
                    if sender.send(report).is_err() {
                        break;
                    }
                }
            });
            all.nodes.push((part, commands));
            let birth = now_us();
            all.command(
                number,
                &RegistryNodeCommand::Become { node: format!("member-{birth}"), url: nats.url.clone(), birth },
            )?;
        }
        Ok(all)
    }

    fn command(&mut self, node: usize, command: &RegistryNodeCommand) -> Result<()> {
        let (_, commands) = self.nodes.get_mut(node).context("no such registry node")?;
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        commands.write_all(&line).context("a registry node has ended")?;
        Ok(commands.flush()?)
    }

    fn command_all(&mut self, command: &RegistryNodeCommand) -> Result<()> {
        (0..self.nodes.len()).try_for_each(|node| self.command(node, command))
    }

    fn receive(&mut self) -> Result<NodeReport> {
        self.reports.recv_timeout(SILENCE).context("a registry node says nothing")
    }

    fn link(&mut self, node: usize) -> Result<()> {
        self.command(node, &RegistryNodeCommand::Link)?;
        match self.receive()? {
            NodeReport::Linked => Ok(()),
            other => bail!("a registry node said {other:?}"),
        }
    }

    fn register(&mut self, shares: &[(u32, u32)]) -> Result<(u64, u64)> {
        let at_us = now_us() + HEAD_START_US;
        self.carry_out(shares, |first, count| RegistryNodeCommand::Register { at_us, first, count })
    }

    /// Sends each node the command for its share. Returns when the first node began and when the last one ended.
    fn carry_out(
        &mut self,
        shares: &[(u32, u32)],
        command: impl Fn(u32, u32) -> RegistryNodeCommand,
    ) -> Result<(u64, u64)> {
        for (node, (first, count)) in shares.iter().enumerate() {
            self.command(node, &command(*first, *count))?;
        }
        let (mut began_us, mut ended_us) = (u64::MAX, 0);
        let mut missing = shares.len();
        while missing > 0 {
            match self.receive()? {
                NodeReport::Done { from_us, until_us } => {
                    began_us = began_us.min(from_us);
                    ended_us = ended_us.max(until_us);
                    missing -= 1;
                }
                NodeReport::Reached { at_us } => self.reached.push(at_us),
                other => bail!("a registry node said {other:?}"),
            }
        }
        Ok((began_us, ended_us))
    }

    /// The time at which the last of `count` nodes reached the awaited number of names.
    fn reached(&mut self, count: usize) -> Result<u64> {
        while self.reached.len() < count {
            match self.receive()? {
                NodeReport::Reached { at_us } => self.reached.push(at_us),
                NodeReport::Linked => {}
                other => bail!("a registry node said {other:?}"),
            }
        }
        Ok(self.reached.drain(..).max().unwrap_or_default())
    }
}
