//! A process that embeds the registry with its NATS transport, as a Rust service would. It reads commands as JSON lines
//! from standard input and writes reports to standard output. Times are Unix microseconds, the clock that all processes
//! share.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use touchline_cluster::{Cluster, ClusterEvent, Joining};
use touchline_config::ClusterSettings;
use touchline_registry::{HashSeed, Output, OwnerId, Replica, ReplicaSettings, View};

use crate::process::now_us;

const SCOPE: &str = "lab";
const TICK: Duration = Duration::from_millis(50);
/// Operations that are run before the node sends its messages and handles its inputs.
const BATCH: u32 = 1_024;
/// Lookups between two readings of the clock.
const LOOKUPS: u64 = 10_000;

/// A command to a registry node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RegistryNodeCommand {
    /// The node's identity: sent once, before any other command.
    Become { node: String, url: String, birth: u64 },
    /// Join the other nodes.
    Link,
    /// At `at_us`, register `count` names from the number `first` on, each with an owner of its own.
    Register { at_us: u64, first: u32, count: u32 },
    /// Register `count` names, `per_ms` of them each millisecond.
    Trickle { first: u32, count: u32, per_ms: u32 },
    /// At `at_us`, close the owners of `count` names, one by one.
    Die { at_us: u64, first: u32, count: u32 },
    /// Report when exactly this number of names is known.
    Await { names: u64 },
    /// Look names up for some seconds, on a thread of its own.
    LookUp { names: u32, seconds: f64 },
}

/// A report of a registry node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeReport {
    /// The node is connected to NATS.
    Linked,
    /// A command began and ended at these times.
    Done { from_us: u64, until_us: u64 },
    /// The awaited number of names is known.
    Reached { at_us: u64 },
    /// The number of lookups, how many of them found an owner, and their CPU time.
    LookedUp { count: u64, found: u64, cpu_us: f64 },
}

enum NodeInput {
    Command(RegistryNodeCommand),
    Link(Bytes),
    Linked,
    Ended,
}

/// Runs commands until standard input ends.
pub(crate) fn run() -> Result<()> {
    let mut first = String::new();
    std::io::stdin().read_line(&mut first)?;
    let RegistryNodeCommand::Become { node, url, birth } = serde_json::from_str(&first)? else { return Ok(()) };
    let (sender, inputs) = channel();
    // The scenario does not wait for a silent node: it measures the replica's own timeouts.
    let cluster = ClusterSettings {
        nats_url: vec![url],
        name: "lab".to_owned(),
        heartbeat_interval: Duration::ZERO,
        node_timeout: Duration::ZERO,
        suspect_grace: Duration::ZERO,
        ..ClusterSettings::default()
    };
    let (cluster, joining) = touchline_cluster::join(touchline_cluster::JoinOptions {
        cluster,
        node: node.clone(),
        scopes: vec![SCOPE.to_owned()],
        ..touchline_cluster::JoinOptions::default()
    })?;
    let commands = sender.clone();
    std::thread::Builder::new().name("commands".into()).spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(command) = serde_json::from_str(&line) else { break };
            if commands.send(NodeInput::Command(command)).is_err() {
                return;
            }
        }
        let _ = commands.send(NodeInput::Ended);
    })?;
    let seed = HashSeed::new(std::array::from_fn(|number| RandomState::new().hash_one(number)));
    let replica = Replica::new(&node, birth, ReplicaSettings::default(), seed, now_us() / 1_000);
    let scope: Arc<str> = SCOPE.into();
    RegistryNode { replica, cluster, joining: Some(joining), scope, inputs, sender, trickle: None, awaited: None }
        .run_commands()
}

struct RegistryNode {
    replica: Replica,
    cluster: Cluster,
    joining: Option<Joining>,
    scope: Arc<str>,
    inputs: Receiver<NodeInput>,
    sender: Sender<NodeInput>,
    trickle: Option<Trickle>,
    awaited: Option<u64>,
}

/// Registrations at a steady rate.
struct Trickle {
    next: u32,
    end: u32,
    per_ms: u32,
    from_us: u64,
    done: u32,
}

impl RegistryNode {
    fn run_commands(mut self) -> Result<()> {
        loop {
            let timeout = if self.trickle.is_some() { Duration::from_millis(1) } else { TICK };
            match self.inputs.recv_timeout(timeout) {
                Ok(NodeInput::Ended) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(input) => self.handle(input)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.advance()?;
        }
    }

    /// Handles the waiting inputs, continues the steady registrations, and sends the replica's messages.
    fn advance(&mut self) -> Result<()> {
        while let Ok(input) = self.inputs.try_recv() {
            self.handle(input)?;
        }
        self.go_on()?;
        if self.joining.is_none() {
            self.replica.tick(now_us() / 1_000);
            self.replica.flush();
        }
        for output in self.replica.outputs() {
            if let Output::Send { to, message } = output
                && self.joining.is_none()
            {
                self.cluster.send_to_scope(&self.scope, to.as_ref(), Bytes::from_owner(message));
            }
        }
        if self.awaited.is_some_and(|names| self.replica.view().names() == names) {
            self.awaited = None;
            say(&NodeReport::Reached { at_us: now_us() })?;
        }
        Ok(())
    }

    fn handle(&mut self, input: NodeInput) -> Result<()> {
        match input {
            NodeInput::Link(message) => self.replica.receive(&message, now_us() / 1_000),
            NodeInput::Linked => say(&NodeReport::Linked)?,
            NodeInput::Command(command) => self.begin(command)?,
            NodeInput::Ended => {}
        }
        Ok(())
    }

    fn begin(&mut self, command: RegistryNodeCommand) -> Result<()> {
        match command {
            RegistryNodeCommand::Become { .. } => {}
            RegistryNodeCommand::Link => {
                let Some(joining) = self.joining.take() else { return Ok(()) };
                let sender = self.sender.clone();
                joining.start(move |incoming| {
                    let _ = match incoming {
                        ClusterEvent::ScopeMessage { message, .. } => sender.send(NodeInput::Link(message)),
                        ClusterEvent::Linked(true) => sender.send(NodeInput::Linked),
                        _ => Ok(()),
                    };
                })?;
            }
            RegistryNodeCommand::Register { at_us, first, count } => {
                self.each(at_us, first, count, |replica, number, now_ms| {
                    let registered = replica.register(owner(number), &name(number), META, false, now_ms);
                    registered.map(|_| ()).map_err(|refusal| anyhow::anyhow!("{refusal:?}"))
                })?;
            }
            RegistryNodeCommand::Die { at_us, first, count } => {
                self.each(at_us, first, count, |replica, number, _| {
                    replica.close(owner(number));
                    Ok(())
                })?;
            }
            RegistryNodeCommand::Trickle { first, count, per_ms } => {
                self.trickle = Some(Trickle { next: first, end: first + count, per_ms, from_us: now_us(), done: 0 });
            }
            RegistryNodeCommand::Await { names } => self.awaited = Some(names),
            RegistryNodeCommand::LookUp { names, seconds } => {
                let view = self.replica.view();
                std::thread::Builder::new().name("lookups".into()).spawn(move || look_up(&view, names, seconds))?;
            }
        }
        Ok(())
    }

    /// At `at_us`, runs `step` with each number, as fast as possible.
    fn each(
        &mut self,
        at_us: u64,
        first: u32,
        count: u32,
        step: impl Fn(&mut Replica, u32, u64) -> Result<()>,
    ) -> Result<()> {
        while now_us() < at_us {
            std::thread::sleep(Duration::from_micros(100));
        }
        let from_us = now_us();
        for number in first..first + count {
            step(&mut self.replica, number, from_us / 1_000)?;
            if number % BATCH == BATCH - 1 {
                self.advance()?;
            }
        }
        say(&NodeReport::Done { from_us, until_us: now_us() })
    }

    /// Registers the names that are due at the steady rate.
    fn go_on(&mut self) -> Result<()> {
        let Some(trickle) = &mut self.trickle else { return Ok(()) };
        let now_us = now_us();
        let due = ((now_us - trickle.from_us) / 1_000) as u32 * trickle.per_ms;
        while trickle.done < due && trickle.next < trickle.end {
            let registered =
                self.replica.register(owner(trickle.next), &name(trickle.next), META, false, now_us / 1_000);
            registered.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
            trickle.next += 1;
            trickle.done += 1;
        }
        if trickle.next == trickle.end {
            let from_us = trickle.from_us;
            self.trickle = None;
            say(&NodeReport::Done { from_us, until_us: now_us })?;
        }
        Ok(())
    }
}

const META: &[u8] = b"{}";

fn name(number: u32) -> String {
    format!("name-{number:07}")
}

/// The unique owner id of a number: the number, spread over all bits.
fn owner(number: u32) -> OwnerId {
    OwnerId((u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes())
}

fn look_up(view: &View, names: u32, seconds: f64) {
    let cpu = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e3
    };
    let (began, before_us) = (Instant::now(), cpu());
    let (mut count, mut found, mut random) = (0, 0, fastrand::Rng::with_seed(0));
    let mut name = *b"name-0000000";
    while began.elapsed().as_secs_f64() < seconds {
        for _ in 0..LOOKUPS {
            let mut number = random.u32(..names);
            for digit in name[5..].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
            let name = std::str::from_utf8(&name).unwrap_or_default();
            found += u64::from(view.read(name, |entry| entry.owner()).is_some());
        }
        count += LOOKUPS;
    }
    let _ = say(&NodeReport::LookedUp { count, found, cpu_us: cpu() - before_us });
}

fn say(report: &NodeReport) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).context("standard output is closed")?;
    Ok(out.flush()?)
}
