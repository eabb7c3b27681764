//! One node of a simulated day: the link as it is, with the channels, the directory and the bans that the server puts
//! upon it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use touchline_engine::bans::Bans;
use touchline_engine::channels::BackendCommand;
use touchline_engine::directory::{Directory, DirectoryEffect, DirectoryRequest, Requester, ScopeId, ScopeOptions};
use touchline_engine::events::{StateTeller, TellerOptions};
use touchline_engine::request::{Appended, BackendEvent, Loaded, WaitingRequest};
use touchline_engine::{Channels, Namespaces};
use touchline_lock::Lock;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::{ChannelName, LoadId, Runs};
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

use super::fan::{SimulatedFan, Visit};
use super::nats::SimulatedNats;
use crate::events::ClusterEvent;
use crate::handle::Cluster;
use crate::join::prepare;
use crate::nats::NatsServers;
use crate::settings::{JoinOptions, StreamSettings};

/// The time of the engine at the beginning of a day, milliseconds.
pub(super) const START_MS: u64 = 1_000_000;
/// The interval between two ticks of the directory, as in the server.
const TICK_MS: u64 = 50;
/// The limit of messages that wait for NATS, bytes.
pub(super) const ROOM: usize = 64 << 10;
/// The scope of reports about channels.
pub(super) const EVENTS: &str = "$events";
/// The scope of names.
pub(super) const SCOPE: &str = "devices";

/// The result of a request that the node has made, with the number of the request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A publication is stored at this offset, or it is not known.
    Appended(u64, Option<u64>),
    Changed(u64, bool),
    Purged(u64),
}

pub(super) type Outcomes = Arc<Lock<VecDeque<Outcome>>>;

pub(super) struct SimulatedNode {
    pub(super) id: Arc<str>,
    pub(super) teller: StateTeller,
    /// Whether the node has subscribers of each channel.
    pub(super) held: [bool; 6],
    /// The nodes that it has ever met.
    pub(super) met: BTreeSet<Arc<str>>,
    pub(super) cluster: Cluster,
    task: JoinHandle<()>,
    events: UnboundedReceiver<ClusterEvent>,
    /// Events that the threads of the node have not taken yet.
    pub(super) inbox: VecDeque<ClusterEvent>,
    pub(super) channels: Channels,
    pub(super) directory: Directory<u64>,
    pub(super) bans: Bans,
    revision: u64,
    pub(super) is_linked: bool,
    pub(super) waiting: BTreeMap<ChannelName, Vec<(WaitingRequest, Visit)>>,
    pub(super) fans: Vec<SimulatedFan>,
    ticked_ms: u64,
}

/// The part of the configuration that the nodes share.
pub(super) fn settings(id: &str, namespaces: &Namespaces, replicas: usize) -> JoinOptions {
    let history = namespaces.resolve("kept:x").expect("a namespace");
    let mut options = JoinOptions {
        node: id.to_owned(),
        scopes: vec![SCOPE.to_owned(), "$presence".to_owned()],
        streams: ["kept", "spare"]
            .map(|namespace| StreamSettings {
                namespace: namespace.into(),
                size: history.history_size,
                ttl: history.history_ttl,
            })
            .to_vec(),
        check_delay: Duration::from_secs(5),
        has_facts: true,
        outgoing_max_size: ROOM,
        ..JoinOptions::default()
    };
    options.cluster.stream_replicas = replicas;
    options
}

impl SimulatedNode {
    /// Starts a node with a new id. `number`: how many nodes were started before.
    pub(super) fn start(
        (nats, link): (&SimulatedNats, usize),
        (number, seed, replicas): (u64, u64, usize),
        namespaces: &Arc<Namespaces>,
        now_ms: u64,
    ) -> Self {
        let id = format!("node-{number}");
        let hash_seed = HashSeed::repeatable(seed + number);
        let scope = ScopeOptions { name: SCOPE.into(), ..ScopeOptions::default() };
        let directory =
            Directory::new(&id, &[scope], &ReplicaTiming::default(), (now_ms + number) << 12, hash_seed, true, now_ms);
        let mut options = settings(&id, namespaces, replicas);
        options.scopes = directory.scope_names().map(ToString::to_string).chain([EVENTS.to_owned()]).collect();
        let (cluster, joining) = prepare(options, NatsServers::Simulated(nats.client(link)));
        let (sender, events) = unbounded_channel();
        let task = tokio::spawn(joining.run(Arc::new(move |event| drop(sender.send(event)))));
        let of_reports = TellerOptions { delay_ms: 500, timing: ReplicaTiming::default(), is_clustered: true };
        SimulatedNode {
            teller: StateTeller::new(&id, number, of_reports, hash_seed, now_ms),
            id: id.into(),
            held: [false; 6],
            met: BTreeSet::new(),
            cluster,
            task,
            events,
            inbox: VecDeque::new(),
            channels: Channels::new(Arc::clone(namespaces), 1, seed + number, hash_seed)
                .in_cluster()
                .with_store()
                .counting_audiences(),
            directory,
            bans: Bans::new(hash_seed, false),
            revision: 0,
            is_linked: false,
            waiting: BTreeMap::new(),
            fans: Vec::new(),
            ticked_ms: 0,
        }
    }

    /// Ends the process.
    pub(super) fn kill(&self) {
        self.task.abort();
    }

    /// Takes the events that the link has reported.
    pub(super) fn receive(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.inbox.push_back(event);
        }
    }

    /// Handles one event, as the backend of the server does. Returns the channel that it may have changed.
    pub(super) fn handle(&mut self, event: ClusterEvent, now_ms: u64) {
        match event {
            ClusterEvent::Joined(nodes) => {
                self.teller.joined(&nodes, now_ms);
                self.directory.joined(now_ms);
            }
            ClusterEvent::Suspected { node, is_suspected } => self.directory.suspect(&node, is_suspected, now_ms),
            ClusterEvent::NodeDead { node, .. } => {
                self.teller.gone(&node, now_ms);
                self.directory.gone(&node, now_ms);
            }
            ClusterEvent::ScopeMessage { scope, message } if *scope == *EVENTS => self.teller.receive(&message, now_ms),
            ClusterEvent::Linked(is_linked) => {
                self.is_linked = is_linked;
                self.channels.set_linked(is_linked, now_ms);
            }
            ClusterEvent::Advanced { namespace } => self.channels.check_namespace(&namespace),
            ClusterEvent::ScopeMessage { scope, message } => self.directory.receive(&scope, &message, now_ms),
            ClusterEvent::DirectoryMessage { from, message } => {
                self.directory.receive_from_node(&from, &message, now_ms)
            }
            ClusterEvent::Ephemeral { channel, payload } => {
                self.channels.apply(&channel, BackendEvent::Ephemeral(payload), now_ms)
            }
            ClusterEvent::Appended { channel, stored, previous, epoch } => {
                let (offset, payload) = (stored.offset, stored.payload);
                let appended = Appended { offset, previous, epoch: Some(epoch), payload };
                self.channels.apply(&channel, BackendEvent::Appended(appended), now_ms)
            }
            ClusterEvent::Subscribed { channel } => self.channels.apply(&channel, BackendEvent::Subscribed, now_ms),
            ClusterEvent::Loaded { channel, load: LoadId { behind, number }, history } => {
                let loaded = history.map(|history| {
                    let kept = history.kept.into_iter().map(|stored| (stored.offset, stored.payload)).collect();
                    let (epoch, top, floor, is_aged) = (history.epoch, history.top, history.floor, history.is_aged);
                    Box::new(Loaded { epoch, behind, number, kept, top, floor, is_aged, runs: Runs::default() })
                });
                self.channels.apply(&channel, BackendEvent::Loaded(loaded), now_ms);
            }
            ClusterEvent::Facts(event) => self.apply_facts(event, now_ms),
            _ => {}
        }
    }

    fn apply_facts(&mut self, event: FactsEvent, now_ms: u64) {
        let now_s = now_ms / 1_000;
        match event {
            FactsEvent::Loaded { facts, revision } => {
                self.revision = revision;
                self.bans.replace(&facts, now_s);
            }
            FactsEvent::Changed { changes, revision } => {
                self.revision = revision;
                self.bans.change(&changes, now_s);
            }
            FactsEvent::Written { change, revision } if revision > self.revision => {
                self.bans.change(&[change], now_s);
            }
            FactsEvent::Written { .. } => {}
            FactsEvent::CutOff => self.bans.cut_off(),
            FactsEvent::Unsupported => self.bans.unsupported(),
        }
    }

    /// Sends a command of the channels to the cluster.
    pub(super) fn command(&self, command: BackendCommand) {
        let cluster = &self.cluster;
        match command {
            BackendCommand::SetInterest { channel, is_wanted } => cluster.set_interest(channel, is_wanted),
            BackendCommand::Load { channel, namespace, load } => cluster.load(channel, namespace, load),
            BackendCommand::Check { channel, namespace, load } => cluster.check(channel, namespace, load),
            BackendCommand::Broadcast { channel, payload } => cluster.publish_ephemeral(channel, payload),
            BackendCommand::BeginStreamRun { namespace, lost } => cluster.begin_run(namespace, lost),
            BackendCommand::LoadStored { .. } | BackendCommand::BeginRun { .. } | BackendCommand::Unreadable { .. } => {
                panic!("nothing of that is here: {command:?}")
            }
        }
    }

    /// Lets the directory see the time, and sends its messages.
    pub(super) fn run_directory(&mut self, now_ms: u64) {
        if now_ms >= self.ticked_ms + TICK_MS {
            self.ticked_ms = now_ms;
            self.directory.wake(now_ms);
            self.directory.tick(now_ms);
        }
        self.directory.flush();
        let mut is_probed = false;
        for effect in self.directory.effects().collect::<Vec<_>>() {
            match effect {
                DirectoryEffect::SendToScope { scope, to, message } => {
                    self.cluster.send_to_scope(&scope, to.as_ref(), bytes::Bytes::from_owner(message));
                }
                DirectoryEffect::Node(to, message) => self.cluster.send_to_directory(to, message),
                DirectoryEffect::Probe => is_probed = true,
                _ => {}
            }
        }
        if is_probed {
            self.directory.probed(now_ms);
        }
    }

    /// Registers a name for a client of this node, or ends the registration.
    pub(super) fn register(&mut self, (client, name): (u64, &str), is_wanted: bool, now_ms: u64) {
        let scope = ScopeId(0);
        let request = if is_wanted {
            DirectoryRequest::Register { scope, name: name.into(), meta: "1".to_owned().into(), take_over: false }
        } else {
            DirectoryRequest::Unregister { scope, name: name.into() }
        };
        self.directory.execute(&requester(client), request, None, now_ms);
    }

    /// Disconnects a client of this node.
    pub(super) fn close(&mut self, client: u64, now_ms: u64) {
        self.directory.execute(&requester(client), DirectoryRequest::Close, None, now_ms);
    }

    /// The owner of a name, as this node knows it.
    pub(super) fn owner(&mut self, name: &str, now_ms: u64) -> String {
        let lookup = DirectoryRequest::Lookup { scope: ScopeId(0), name: name.into() };
        self.directory.execute(&requester(0), lookup, Some(0), now_ms);
        let replies = self.directory.effects().find_map(|effect| match effect {
            DirectoryEffect::Reply(0, reply) => Some(reply),
            _ => None,
        });
        match replies {
            Some(Ok(reply)) => String::from_utf8_lossy(&reply.json()).into_owned(),
            Some(Err(error)) => error.code.to_string(),
            None => "no reply".to_owned(),
        }
    }

    pub(super) fn push_outcome(outcomes: &Outcomes, outcome: Outcome) {
        outcomes.lock().push_back(outcome);
    }
}

/// An event, for people.
pub(super) fn shown(event: &ClusterEvent) -> String {
    match event {
        ClusterEvent::Joined(others) => format!("joined with {others:?}"),
        ClusterEvent::Linked(is_linked) => format!("linked: {is_linked}"),
        ClusterEvent::Suspected { node, is_suspected } => format!("{node} is suspected: {is_suspected}"),
        ClusterEvent::NodeDead { node, has_left } => format!("{node} is dead, left: {has_left}"),
        ClusterEvent::Advanced { namespace } => format!("{namespace} has advanced"),
        ClusterEvent::ScopeMessage { scope, message } => format!("{} bytes for {scope}", message.len()),
        ClusterEvent::DirectoryMessage { from, message } => format!("{} bytes from {from}", message.len()),
        ClusterEvent::Ephemeral { channel, payload } => format!("{} bytes in {channel}", payload.len()),
        ClusterEvent::Appended { channel, stored, previous, .. } => {
            format!("{channel} {} after {previous}", stored.offset)
        }
        ClusterEvent::Subscribed { channel } => format!("subscribed to {channel}"),
        ClusterEvent::Loaded { channel, load, history } => format!("loaded {channel} {load:?}: {history:?}"),
        ClusterEvent::Facts(event) => format!("{event:?}"),
        _ => "another event".to_owned(),
    }
}

fn requester(client: u64) -> Requester {
    let mut owner = OwnerId([0; 16]);
    owner.0[..8].copy_from_slice(&client.to_be_bytes());
    Requester { owner, user: Box::default(), is_backend: client == 0 }
}
