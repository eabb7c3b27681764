//! How a node joins a cluster, and how it handles the events of the cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use touchline_cluster::{Cluster, ClusterEvent, Joining, StreamSettings, join as join_cluster};
use touchline_config::Settings;
use touchline_engine::directory::Directory;
use touchline_engine::request::{Appended, BackendEvent, Loaded};
use touchline_protocol::stream::{ChannelName, LoadId, Runs};

use super::activity::note_activity;
use super::facts::{self, FactBackend};
use crate::node::Node;
use crate::runtime::ends_process::EndsProcess;
use crate::runtime::event_mailbox::EventMessage;
use crate::runtime::generation::Generation;
use crate::runtime::mailbox::{ClientCommand, Message};
use crate::runtime::memory::buffer_max_size;
use crate::runtime::reaction_mailbox::ReactionMessage;
use crate::runtime::registry_mailbox::RegistryMessage;
use crate::runtime::reply_to::ReplyTo;
use crate::start_error::StartError;
use crate::tls::{TlsError, read_pem};

/// The most bytes of messages that wait to be sent to NATS. More would only be late.
const OUTGOING_SIZE_MAX: usize = 64 << 20;
/// These messages have this part of `node.buffer_max_size` at most.
const OUTGOING_SHARE: usize = 4;

/// Prepares to join a cluster; None = the settings name no cluster.
///
/// # Errors
/// When the settings of the cluster cannot be used.
pub(crate) fn join(
    generation: &Generation,
    (id, started_ms): (&str, u64),
    directory: &Directory<ReplyTo>,
) -> Result<Option<(Cluster, Joining)>, StartError> {
    let settings = &generation.settings;
    if !settings.cluster.is_on() {
        return Ok(None);
    }
    let scopes = directory.scope_names().map(|name| name.to_string());
    let scopes = scopes.chain([EVENTS_SCOPE, REACTIONS_SCOPE].map(str::to_owned)).collect();
    let options = joining(settings, id, started_ms, scopes)?;
    Ok(Some(join_cluster(touchline_cluster::JoinOptions { configuration: generation.digest, ..options })?))
}

/// Converts the settings of the server into those of the cluster crate. `started_ms`: when the node started, in Unix
/// milliseconds.
///
/// # Errors
/// When the credentials cannot be read.
pub(crate) fn joining(
    settings: &Settings,
    id: &str,
    started_ms: u64,
    scopes: Vec<String>,
) -> Result<touchline_cluster::JoinOptions, TlsError> {
    let cluster = &settings.cluster;
    Ok(touchline_cluster::JoinOptions {
        cluster: cluster.clone(),
        node: id.to_owned(),
        name: settings.node.name.clone(),
        credentials: read_pem("cluster.nats_credentials", &cluster.nats_credentials)?,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        started_ms,
        scopes,
        streams: streams_of(settings),
        check_delay: settings.client.channel_position_check_delay,
        has_facts: FactBackend::of(settings) == FactBackend::Cluster,
        outgoing_max_size: OUTGOING_SIZE_MAX.min(buffer_max_size(settings) / OUTGOING_SHARE),
        configuration: 0,
    })
}

/// Returns the streams of the namespaces whose history NATS keeps.
pub(crate) fn streams_of(settings: &Settings) -> Vec<StreamSettings> {
    let channel = &settings.channel;
    let without = [(String::new(), &channel.without_namespace)];
    let namespaces = channel.namespaces.iter().map(|namespace| (namespace.name.clone(), &namespace.options));
    let all = without.into_iter().chain(namespaces);
    let with_history = all.filter(|(_, options)| options.has_history() && !options.durable);
    with_history.map(|(namespace, o)| StreamSettings { namespace, size: o.history_size, ttl: o.history_ttl }).collect()
}

/// The scope of the threads that report events. A scope of the configuration cannot have this name.
pub(crate) const EVENTS_SCOPE: &str = "$events";
/// The scope of the threads that keep the totals of reactions.
pub(crate) const REACTIONS_SCOPE: &str = "$reactions";
/// The first byte of a message with a client's commands. Messages of directories are JSON.
const EMULATED: u8 = b'E';
/// The first byte of a message with a client's reaction.
const REACTED: u8 = b'R';

/// The result of [`emulate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emulated {
    /// The commands were sent to the client's node.
    Done,
    /// This node sees no node with that id.
    NoNode,
    /// The commands are larger than a message to another node may be.
    TooLarge,
}

/// Sends commands to the client that `session` proves, on this node or on another one (`to`: the id of the client's
/// node). A client that has disconnected does not receive them. `session`: the signed client id in the client's connect
/// reply.
pub(crate) fn emulate(node: &Node, session: &str, to: &str, commands: Bytes) -> Emulated {
    if to == node.id {
        node.command_session(session, ClientCommand::Commands(commands));
        return Emulated::Done;
    }
    forward(node, to, EMULATED, (session, &commands))
}

/// Counts a reaction of the client that `session` proves, in the same way.
pub(crate) fn react(node: &Node, session: &str, to: &str, request: Bytes) -> Emulated {
    if to == node.id {
        node.command_session(session, ClientCommand::React(request));
        return Emulated::Done;
    }
    forward(node, to, REACTED, (session, &request))
}

/// Forwards the message of a client to the node that the client is connected to.
fn forward(node: &Node, to: &str, kind: u8, (session, what): (&str, &[u8])) -> Emulated {
    // Any client may send this, so it must not be forwarded to nodes that do not exist.
    let Some(cluster) = node.cluster.as_ref().filter(|_| node.knows_peer(to)) else { return Emulated::NoNode };
    let message = [&[kind], session.as_bytes(), b"\n", what].concat();
    if message.len() > cluster.message_max() {
        return Emulated::TooLarge;
    }
    cluster.send_to_directory(to.into(), message);
    Emulated::Done
}

/// Returns the signed client id and the message in such a message; None = it is malformed.
fn read_forwarded(message: &[u8]) -> Option<(&str, &[u8])> {
    let (_, rest) = message.split_first()?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

/// Passes a message that another node forwarded to its client on this node.
fn take_forwarded(node: &Node, message: &Bytes) {
    let Some((session, what)) = read_forwarded(message) else { return };
    let what = message.slice_ref(what);
    let is_reaction = message.first() == Some(&REACTED);
    node.command_session(session, if is_reaction { ClientCommand::React(what) } else { ClientCommand::Commands(what) });
}

/// Notes which nodes have another configuration than this node, and logs them.
fn note_other_configuration(node: &Node, nodes: Vec<Arc<str>>) {
    if nodes.is_empty() {
        tracing::info!("all nodes of the cluster have the configuration of this one");
    } else {
        tracing::warn!(
            nodes = nodes.join(", "),
            "these nodes of the cluster have another configuration than this one: reload or restart those that have an \
             old one"
        );
    }
    *node.nodes_with_other_configuration.lock() = nodes;
}

/// Sends a message to the thread that reports events, if it runs.
fn tell_teller(node: &Node, message: impl FnOnce() -> EventMessage) {
    if let Some(events) = node.events.get() {
        events.command(message());
    }
}

/// Reports to the shards and the registry whether NATS can be reached.
fn note_link(node: &Node, is_linked: bool) {
    if !is_linked {
        node.is_settled.store(false, Relaxed);
        node.send_to_registry(RegistryMessage::Parted);
    }
    // A fault that outlasts the change of the link is reported again.
    node.set_stream_fault(String::new());
    // The shards are notified first: a client that learns that the node is cut off, and publishes then, reaches the
    // subscribers.
    node.send_to_shards(|| Message::Linked(is_linked));
    node.is_linked.store(is_linked, Relaxed);
    if node.console.lost().note_link(is_linked) {
        note_activity(node, if is_linked { "link back" } else { "link lost" }, "nats", "");
    }
}

/// Notes that another node has gone, if it has not said goodbye.
fn note_gone(node: &Node, other: &str, has_left: bool) {
    let peers = node.peers.load(Relaxed);
    if node.console.lost().note_gone(other, has_left, peers, node.clock.now_ms()) {
        note_activity(node, "node lost", other, "");
    }
}

/// Returns the handler of the cluster's events. The node owns the cluster, so the cluster must not own the node.
pub(crate) fn handler(node: &Arc<Node>) -> impl Fn(ClusterEvent) + Send + Sync + 'static {
    let node = Arc::downgrade(node);
    move |event| {
        // Also a panic in a task of the cluster, which the runtime would catch.
        let _ends = EndsProcess::of("cluster events");
        if let Some(node) = node.upgrade() {
            handle(&node, event);
        }
    }
}

/// Forwards an event of the cluster to the shards or the registry.
pub(crate) fn handle(node: &Node, event: ClusterEvent) {
    let to_channel = |channel: ChannelName, event: BackendEvent| node.send_event(channel, event);
    match event {
        ClusterEvent::Joined(nodes) => {
            tell_teller(node, || EventMessage::Joined(nodes.clone()));
            drop(node.reactions.try_send(ReactionMessage::Joined));
            node.set_version_conflict(None);
            node.is_settled.store(false, Relaxed);
            node.send_to_registry(RegistryMessage::Joined(nodes));
        }
        ClusterEvent::NodesWithOtherFacts(nodes) => facts::note_other_places(node, nodes),
        ClusterEvent::NodesWithOtherConfiguration(nodes) => note_other_configuration(node, nodes),
        ClusterEvent::Room(room) => node.drain.set_room(room),
        ClusterEvent::VersionConflict(why) => node.set_version_conflict(Some(why)),
        ClusterEvent::StreamsUnavailable(why) => node.set_stream_fault(why.to_string()),
        ClusterEvent::Suspected { node: other, is_suspected } => {
            node.console.lost().suspect(&other, is_suspected);
            node.send_to_registry(RegistryMessage::Suspected(other, is_suspected))
        }
        ClusterEvent::NodeDead { node: other, has_left } => {
            note_gone(node, &other, has_left);
            tell_teller(node, || EventMessage::Gone(Arc::clone(&other)));
            node.send_to_registry(RegistryMessage::NodeDead(other));
        }
        ClusterEvent::Linked(is_linked) => note_link(node, is_linked),
        ClusterEvent::Advanced { namespace } => node.send_to_shards(|| Message::Advanced(namespace.clone())),
        // A message that finds the mailbox full counts as lost, like one that NATS has lost.
        ClusterEvent::ScopeMessage { scope, message } if *scope == *EVENTS_SCOPE => {
            drop(node.events.get().map(|events| events.try_send(EventMessage::Scope(message))));
        }
        ClusterEvent::ScopeMessage { scope, message } if *scope == *REACTIONS_SCOPE => {
            drop(node.reactions.try_send(ReactionMessage::Scope(message)));
        }
        ClusterEvent::ScopeMessage { scope, message } => {
            node.send_to_registry(RegistryMessage::ScopeMessage { scope, message })
        }
        ClusterEvent::DirectoryMessage { message, .. } if matches!(message.first(), Some(&(EMULATED | REACTED))) => {
            take_forwarded(node, &message);
        }
        ClusterEvent::DirectoryMessage { from, message } => {
            node.send_to_registry(RegistryMessage::DirectoryMessage { from, message })
        }
        ClusterEvent::Broadcast { message, reply } => node.send(0, Message::Broadcast { message, reply }),
        ClusterEvent::Ephemeral { channel, payload } => to_channel(channel, BackendEvent::Ephemeral(payload)),
        ClusterEvent::Appended { channel, stored, previous, epoch } => {
            let epoch = Some(epoch);
            to_channel(
                channel,
                BackendEvent::Appended(Appended { offset: stored.offset, previous, epoch, payload: stored.payload }),
            );
        }
        ClusterEvent::Facts(event) => facts::apply(node, event),
        ClusterEvent::Subscribed { channel } => to_channel(channel, BackendEvent::Subscribed),
        ClusterEvent::Loaded { channel, load: LoadId { behind, number }, history } => {
            let loaded = history.map(|history| {
                let kept = history.kept.into_iter().map(|stored| (stored.offset, stored.payload)).collect();
                let (epoch, top, floor, is_aged) = (history.epoch, history.top, history.floor, history.is_aged);
                Box::new(Loaded { epoch, behind, number, kept, top, floor, is_aged, runs: Runs::default() })
            });
            to_channel(channel, BackendEvent::Loaded(loaded));
        }
    }
}
