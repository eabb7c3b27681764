//! Names: the steps of process_registry_bench (Roberto Ostinelli), which measured process registries for Erlang.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::arguments::{Options, Registry};
use crate::nats::Nats;
use crate::process::{Meter, Part, now_us};
use crate::registry_node::{RegistryNodeCommand, Report};
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::workers::Workers;

/// Between an order and the moment at which all carry it out, microseconds.
const HEAD_START_US: u64 = 100_000;
/// A member that says nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(60);
/// Between two steps: what the one has begun is over before the other is measured.
const REST: Duration = Duration::from_secs(1);
const LOOKUP_SECONDS: f64 = 2.0;
/// Registrations that arrive each millisecond during lookups.
const ARRIVING_PER_MS: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(30);

/// One run of all steps.
pub(super) fn registry(registry: &Registry, options: &Options, results: &mut Results) -> Result<()> {
    let nats = Nats::start()?;
    alone(registry.names, &nats, results)?;
    together(registry.names, registry.nodes, &nats, results)?;
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

fn alone(names: u32, nats: &Nats, results: &mut Results) -> Result<()> {
    let mut nodes = Members::start(1, nats)?;
    nodes.link(0)?;
    let (from_us, until_us) = nodes.register(&[(0, names)])?;
    results.add(
        Figure::new("registry, 1 node", "registered", "/s").at_least(1e6, 2e6),
        per_second(names, from_us, until_us),
    );
    Ok(())
}

fn together(names: u32, count: u32, nats: &Nats, results: &mut Results) -> Result<()> {
    let scenario: &'static str = Box::leak(format!("registry, {count} nodes").into_boxed_str());
    let mut nodes = Members::start(count as usize, nats)?;
    (0..count as usize).try_for_each(|node| nodes.link(node))?;
    // They know of each other before anything is registered.
    std::thread::sleep(REST);
    let share = names / count;
    let shares: Vec<(u32, u32)> = (0..count).map(|node| (node * share, share)).collect();
    nodes.order_all(&RegistryNodeCommand::Await { names: u64::from(share * count) })?;
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
    std::thread::sleep(REST);
    nodes.order_all(&RegistryNodeCommand::Await { names: 0 })?;
    let at_us = now_us() + HEAD_START_US;
    let (from_us, _) = nodes.carry_out(&shares, |first, count| RegistryNodeCommand::Die { at_us, first, count })?;
    let forgotten_us = nodes.reached(count as usize)?;
    results.add(
        Figure::new(scenario, "all owners die: forgotten everywhere", "ms").bound(200.0, 60.0),
        millis(from_us, forgotten_us),
    );
    Ok(())
}

/// Two nodes with as many names each, of which one comes later.
fn joining(names: u32, nats: &Nats, results: &mut Results) -> Result<()> {
    let mut nodes = Members::start(2, nats)?;
    nodes.link(0)?;
    nodes.register(&[(0, names), (names, names)])?;
    std::thread::sleep(REST);
    nodes.order_all(&RegistryNodeCommand::Await { names: u64::from(names) * 2 })?;
    let began_us = now_us();
    nodes.order(1, &RegistryNodeCommand::Link)?;
    let had_us = nodes.reached(2)?;
    let figure = Figure::new("registry, a node with as many names joins", "it has all, and all have it", "ms");
    results.add(figure.bound(300.0, 300.0), millis(began_us, had_us));
    Ok(())
}

fn lookups(names: u32, nats: &Nats, results: &mut Results) -> Result<()> {
    let mut nodes = Members::start(2, nats)?;
    nodes.link(0)?;
    nodes.link(1)?;
    std::thread::sleep(REST);
    nodes.order(1, &RegistryNodeCommand::Await { names: u64::from(names) })?;
    nodes.register(&[(0, names)])?;
    nodes.reached(1)?;
    let arriving = (LOOKUP_SECONDS * 1.25 * 1_000.0) as u32 * ARRIVING_PER_MS;
    nodes.order(0, &RegistryNodeCommand::Trickle { first: names, count: arriving, per_ms: ARRIVING_PER_MS })?;
    std::thread::sleep(Duration::from_millis(200));
    nodes.order(1, &RegistryNodeCommand::LookUp { names, seconds: LOOKUP_SECONDS })?;
    let mut looked_up = None;
    let mut trickled = None;
    while looked_up.is_none() || trickled.is_none() {
        match nodes.hear()? {
            Report::LookedUp { count, found, cpu_us } if count == found => {
                looked_up = Some(count as f64 * 1e6 / cpu_us)
            }
            Report::Done { from_us, until_us } => trickled = Some(per_second(arriving, from_us, until_us)),
            other => bail!("a member said {other:?}"),
        }
    }
    let scenario = "registry, lookups while registrations arrive";
    results.add(Figure::new(scenario, "lookups of one core", "/s").at_least(5e6, 5e6), looked_up.unwrap_or_default());
    results.add(Figure::new(scenario, "registrations that arrive", "/s"), trickled.unwrap_or_default());
    Ok(())
}

/// Clients on WebSocket register one name each.
fn whole_way(connections: usize, options: &Options, results: &mut Results) -> Result<()> {
    let subject = ServerUnderTest::start(options)?;
    let mut fleet = Workers::start(&subject.plan(connections, PLAIN, 1, 128, false))?;
    fleet.open_all(500)?;
    std::thread::sleep(REST);
    let meter = Meter::start(subject.pid)?;
    let (registered, seconds) = fleet.register(PATIENCE)?;
    let us = meter.stop()? / connections as f64;
    let scenario = "registry, clients register by rpc on WebSocket";
    results.add(Figure::new(scenario, "server CPU per registration", "µs").bound(15.0, 15.0), us);
    results.add(Figure::new(scenario, "registered", "/s"), registered as f64 / seconds);
    results.add(Figure::new(scenario, "not registered", "").bound(0.0, 0.0), (connections as u64 - registered) as f64);
    Ok(())
}

/// Processes that embed the registry.
struct Members {
    members: Vec<(Part, ChildStdin)>,
    reports: Receiver<Report>,
    /// Times at which members had what they waited for, heard of while waiting for something else.
    early: Vec<u64>,
}

impl Members {
    fn start(count: usize, nats: &Nats) -> Result<Self> {
        let (sender, reports) = channel();
        let mut all = Members { members: Vec::with_capacity(count), reports, early: Vec::new() };
        for number in 0..count {
            let mut part = Part::start(&["lab", "member"])?;
            let orders = part.0.stdin.take().context("the member has no standard input")?;
            let lines = BufReader::new(part.0.stdout.take().context("the member has no standard output")?).lines();
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    let Ok(report) = serde_json::from_str(&line) else { break };
                    if sender.send(report).is_err() {
                        break;
                    }
                }
            });
            all.members.push((part, orders));
            let birth = now_us();
            all.order(
                number,
                &RegistryNodeCommand::Become { node: format!("member-{birth}"), url: nats.url.clone(), birth },
            )?;
        }
        Ok(all)
    }

    fn order(&mut self, member: usize, order: &RegistryNodeCommand) -> Result<()> {
        let (_, orders) = self.members.get_mut(member).context("no such member")?;
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        orders.write_all(&line).context("a member has ended")?;
        Ok(orders.flush()?)
    }

    fn order_all(&mut self, order: &RegistryNodeCommand) -> Result<()> {
        (0..self.members.len()).try_for_each(|member| self.order(member, order))
    }

    fn hear(&mut self) -> Result<Report> {
        self.reports.recv_timeout(SILENCE).context("a member says nothing")
    }

    fn link(&mut self, member: usize) -> Result<()> {
        self.order(member, &RegistryNodeCommand::Link)?;
        match self.hear()? {
            Report::Linked => Ok(()),
            other => bail!("a member said {other:?}"),
        }
    }

    fn register(&mut self, shares: &[(u32, u32)]) -> Result<(u64, u64)> {
        let at_us = now_us() + HEAD_START_US;
        self.carry_out(shares, |first, count| RegistryNodeCommand::Register { at_us, first, count })
    }

    /// Gives each member its share; when the first began and the last was done.
    fn carry_out(
        &mut self,
        shares: &[(u32, u32)],
        order: impl Fn(u32, u32) -> RegistryNodeCommand,
    ) -> Result<(u64, u64)> {
        for (member, (first, count)) in shares.iter().enumerate() {
            self.order(member, &order(*first, *count))?;
        }
        let (mut began_us, mut ended_us) = (u64::MAX, 0);
        let mut missing = shares.len();
        while missing > 0 {
            match self.hear()? {
                Report::Done { from_us, until_us } => {
                    began_us = began_us.min(from_us);
                    ended_us = ended_us.max(until_us);
                    missing -= 1;
                }
                Report::Reached { at_us } => self.early.push(at_us),
                other => bail!("a member said {other:?}"),
            }
        }
        Ok((began_us, ended_us))
    }

    /// When the last of as many members had what they waited for.
    fn reached(&mut self, count: usize) -> Result<u64> {
        while self.early.len() < count {
            match self.hear()? {
                Report::Reached { at_us } => self.early.push(at_us),
                Report::Linked => {}
                other => bail!("a member said {other:?}"),
            }
        }
        Ok(self.early.drain(..).max().unwrap_or_default())
    }
}
