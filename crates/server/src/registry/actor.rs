//! The registry actor: the thread that owns the node's directory of names, groups, presence and calls. It takes
//! messages from one queue in batches, and performs the effects that the directory returns. Requests that touch many
//! entries (walks) wait in separate queues. The actor serves them a step at a time between batches.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use touchline_cluster::Cluster;
use touchline_engine::directory::{Directory, DirectoryEffect, DirectoryRequest, Requester};
use touchline_engine::request::Publish;
use touchline_engine::{ChannelRequest, Response, ShardId};
use touchline_protocol::Disconnect;
use touchline_protocol::publication::{Content, EncodedPush};
use touchline_registry::{Entry, OwnerId};
use touchline_store::InboxMessage;

use super::clock_jumps::ClockJumps;
use super::walks::Walks;
use crate::backend::store;
use crate::node::Node;
use crate::runtime::ends_process::start_owner;
use crate::runtime::event_mailbox::EventMessage;
use crate::runtime::hook_mailbox::NameConflict;
use crate::runtime::mailbox::{ClientCommand, Message};
use crate::runtime::registry_mailbox::{RegistryMessage, RegistryMetrics, route};
use crate::runtime::reply_to::ReplyTo;

/// How many messages are handled before their effects are performed.
const BATCH_SIZE: usize = 1_024;
/// How many steps of walks run between two batches; they take about 100 µs.
const WALK_STEPS: usize = 2;
/// The time between two publications of the metrics, if they may have changed.
const METRICS_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two ticks while the directory has deadlines or the node is in a cluster.
const TICK: Duration = Duration::from_millis(50);
/// The longest wait for a message while nothing depends on the time.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Starts the thread of the registry actor.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn start(
    node: Arc<Node>,
    directory: Directory<ReplyTo>,
    messages: Receiver<RegistryMessage>,
) -> io::Result<JoinHandle<()>> {
    let actor = RegistryActor {
        node,
        directory,
        walks: Walks::default(),
        published_ms: 0,
        may_have_changed: true,
        message_max: 0,
        awaited: None,
        performed: Vec::new(),
    };
    start_owner("registry", move || actor.run(&messages))
}

struct RegistryActor {
    node: Arc<Node>,
    directory: Directory<ReplyTo>,
    walks: Walks,
    /// When the metrics were last published, in Unix milliseconds; 0 = never.
    published_ms: u64,
    /// Whether the metrics may have changed since.
    may_have_changed: bool,
    /// The largest message to another node that the directory assumes, in bytes; 0 = the directory does not know it
    /// yet.
    message_max: usize,
    /// Nodes whose entries must arrive before this node is settled. None = it is settled, or takes no part in a
    /// cluster.
    awaited: Option<Vec<Arc<str>>>,
    /// Functions that are called when the effects of the batch have been performed.
    performed: Vec<Box<dyn FnOnce() + Send>>,
}

impl RegistryActor {
    fn run(mut self, messages: &Receiver<RegistryMessage>) {
        let mut ticked_ms = 0;
        let mut steps = ClockJumps::new(self.node.clock.time(), self.node.clock.now_ms());
        self.publish_metrics(self.node.clock.now_ms());
        loop {
            let first = match messages.recv_timeout(self.node.clock.time().wait_max(self.wait_max())) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now_ms = self.node.clock.now_ms();
            if self.node.cluster.is_some() {
                self.note_message_max();
                if let Some(step_ms) = steps.check(now_ms) {
                    self.directory.clock_set(step_ms);
                }
                self.directory.wake(now_ms);
            }
            let batch = first.into_iter().chain(std::iter::from_fn(|| messages.try_recv().ok())).take(BATCH_SIZE);
            let mut is_over = false;
            for message in batch {
                self.may_have_changed = true;
                is_over |= matches!(message, RegistryMessage::Stop);
                self.handle(message, now_ms);
            }
            if now_ms >= ticked_ms + TICK.as_millis() as u64 {
                ticked_ms = now_ms;
                self.directory.tick(now_ms);
                if self.awaited.take_if(|nodes| self.directory.is_settled(nodes)).is_some() {
                    self.node.is_settled.store(true, Relaxed);
                }
                if self.node.note_peers(self.directory.peer_ids())
                    && let Some(cluster) = &self.node.cluster
                {
                    // A new node may be back from a network partition, so its publications of that time may be missing
                    // here.
                    cluster.check_soon();
                }
            }
            for _ in 0..WALK_STEPS {
                self.walks.step(&mut self.directory, now_ms);
            }
            self.directory.flush();
            self.perform();
            self.performed.drain(..).for_each(|then| then());
            self.publish_metrics(now_ms);
            if is_over {
                return;
            }
        }
    }

    /// Sets the largest message to another node in the directory. It depends on the NATS server to which the node is
    /// connected.
    fn note_message_max(&mut self) {
        let Some(bytes) =
            self.node.cluster.as_ref().map(Cluster::message_max).filter(|bytes| *bytes != self.message_max)
        else {
            return;
        };
        self.message_max = bytes;
        self.directory.set_message_max(bytes);
        for scope in self.directory.oversized_scopes() {
            tracing::warn!(
                scope,
                bytes,
                "meta_max_size allows more than a message of NATS carries (max_payload): larger metadata is refused"
            );
        }
    }

    /// How long the thread may wait for the next message.
    fn wait_max(&self) -> Duration {
        let is_timed = self.node.cluster.is_some() || self.directory.next_deadline_ms().is_some();
        match () {
            () if !self.walks.is_empty() => Duration::ZERO,
            () if is_timed => TICK,
            () if self.may_have_changed => METRICS_INTERVAL,
            () => IDLE_WAIT_MAX,
        }
    }

    /// Publishes the metrics, so that other threads read them without asking this one.
    fn publish_metrics(&mut self, now_ms: u64) {
        let is_due = now_ms < self.published_ms || now_ms >= self.published_ms + METRICS_INTERVAL.as_millis() as u64;
        if self.may_have_changed && is_due {
            (self.published_ms, self.may_have_changed) = (now_ms, false);
            let (scopes, calls_waiting) = (self.directory.metrics().collect(), self.directory.calls_waiting());
            self.node.set_registry_metrics(RegistryMetrics { scopes, calls_waiting });
        }
    }

    fn handle(&mut self, message: RegistryMessage, now_ms: u64) {
        match message {
            RegistryMessage::Request { requester, request, reply_to }
                if self.walks.must_queue(&requester, &request) =>
            {
                self.walks.enqueue(requester, request, reply_to)
            }
            RegistryMessage::Request { requester, request, reply_to } => {
                if matches!(request, DirectoryRequest::Close) {
                    self.walks.forget(requester.owner);
                }
                let reply_to = (!matches!(reply_to, ReplyTo::Discard)).then_some(reply_to);
                self.directory.execute(&requester, request, reply_to, now_ms);
            }
            RegistryMessage::Held { owners, most, reply } if !reply.is_closed() => {
                let _ = reply.send(owners.into_iter().map(|owner| self.directory.held(owner, most)).collect());
            }
            RegistryMessage::Held { .. } => {}
            RegistryMessage::ScopeMessage { scope, message } => self.directory.receive(&scope, &message, now_ms),
            RegistryMessage::DirectoryMessage { from, message } => {
                self.directory.receive_from_node(&from, &message, now_ms)
            }
            RegistryMessage::OwnerGone(owner) => {
                self.walks.forget(owner);
                let requester = Requester { owner, user: Box::default(), is_backend: true };
                self.directory.execute(&requester, DirectoryRequest::Close, None, now_ms);
            }
            RegistryMessage::MessageQueued { scope, name } => self.directory.message_queued(&scope, &name),
            RegistryMessage::InboxMessages { scope, name, messages } => {
                self.directory.deliver_messages(&scope, &name, messages, now_ms)
            }
            RegistryMessage::Discarded(ids) => self.directory.discarded(&ids),
            RegistryMessage::Dropped { scope, name, dropped, then } => {
                self.directory.dropped(&scope, &name, dropped);
                // Messages from earlier in this batch are sent to their clients first.
                self.performed.push(then);
            }
            RegistryMessage::Joined(nodes) => {
                self.awaited = Some(nodes);
                self.directory.joined(now_ms);
            }
            RegistryMessage::Parted => self.awaited = None,
            RegistryMessage::Tell(told) => self.directory.tell(told),
            RegistryMessage::Suspected(node, is_suspected) => self.directory.suspect(&node, is_suspected, now_ms),
            RegistryMessage::NodeDead(node) => {
                self.awaited.iter_mut().for_each(|awaited| awaited.retain(|other| *other != node));
                self.directory.gone(&node, now_ms);
            }
            RegistryMessage::ConflictResolved { scope, name, keeps_mine } => {
                self.directory.resolve_conflict(&scope, &name, keeps_mine, now_ms);
            }
            RegistryMessage::Probed => self.directory.probed(now_ms),
            RegistryMessage::Stop => self.directory.goodbye(),
        }
    }

    /// Performs the effects that the directory has returned.
    fn perform(&mut self) {
        let RegistryActor { node, directory, .. } = self;
        for effect in directory.effects() {
            match effect {
                DirectoryEffect::ResolveConflict { scope, mine, other } => ask_backend(node, scope, mine, other),
                DirectoryEffect::Reply(reply_to, reply) => {
                    node.reply(reply_to, reply.map_or_else(Response::Refused, Response::Directory))
                }
                DirectoryEffect::Push(owner, message) => node.command_client(owner, ClientCommand::Push(message)),
                DirectoryEffect::PushMany(clients, push) => push_many(node, &clients, &push),
                DirectoryEffect::Call(owner, call, message) => {
                    node.command_client(owner, ClientCommand::Call { call, message })
                }
                DirectoryEffect::Disconnect(owner) => {
                    node.command_client(owner, ClientCommand::Disconnect(Disconnect::FORCE_NO_RECONNECT))
                }
                DirectoryEffect::Tell(incident) => {
                    if node.events.get().is_some_and(|events| events.wants(incident.kind)) {
                        tell(node, |now_ms| EventMessage::Entry(now_ms, incident));
                    }
                }
                DirectoryEffect::TellLost(client) => tell(node, |now_ms| EventMessage::LostClient(now_ms, client)),
                DirectoryEffect::Announce(channel, frame) => {
                    node.send_home(channel, ChannelRequest::Announce(frame));
                }
                DirectoryEffect::PublishChanges(channel, json) => {
                    let content = Content { data: json.into(), ..Content::default() };
                    let request = ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() }));
                    node.send_home(channel, request);
                }
                DirectoryEffect::SendToScope { scope, to, message } => {
                    if let Some(cluster) = &node.cluster {
                        cluster.send_to_scope(&scope, to.as_ref(), Bytes::from_owner(message));
                    }
                }
                DirectoryEffect::StoreMessage { scope, name, message, expires_ms, most, asker } => {
                    store::queue_message(
                        node,
                        InboxMessage { scope, name, message: message.into(), expires_ms, limit: most },
                        asker,
                    );
                }
                DirectoryEffect::LoadMessages { scope, name, behind, limit } => {
                    if let Some(store) = node.store() {
                        store.inbox_messages(scope, name, behind, limit);
                    }
                }
                DirectoryEffect::DiscardMessages { ids, asker } => store::discard_messages(node, ids, asker),
                DirectoryEffect::Probe => {
                    let probe = Arc::new(node.probe());
                    node.send_to_shards(|| Message::Probe(Arc::clone(&probe)));
                }
                DirectoryEffect::OptionsDiffer { scope, node } => {
                    tracing::warn!(
                        %scope,
                        %node,
                        "another node has other options for this scope: all follow the strictest policy and the \
                         smallest limits"
                    );
                }
                DirectoryEffect::Node(to, message) => {
                    if let Some(cluster) = &node.cluster {
                        cluster.send_to_directory(to, message);
                    }
                }
            }
        }
    }
}

/// Sends an event with the present time to the thread that sends events.
fn tell(node: &Node, message: impl FnOnce(u64) -> EventMessage) {
    if let Some(events) = node.events.get() {
        events.tell(message(node.clock.now_ms()));
    }
}

/// Sends one push to many clients: one message to each shard that has some of them.
fn push_many(node: &Node, clients: &[OwnerId], push: &Arc<EncodedPush>) {
    let mut by_shard: BTreeMap<ShardId, Vec<(OwnerId, u32)>> = BTreeMap::new();
    for owner in clients {
        match route(*owner, node.shards.len()) {
            Some((shard, slot)) => by_shard.entry(shard).or_default().push((*owner, slot)),
            None => node.send_to_registry(RegistryMessage::OwnerGone(*owner)),
        }
    }
    for (shard, clients) in by_shard {
        node.send(shard, Message::PushMany { clients, push: Arc::clone(push) });
    }
}

/// Asks the backend which of two clients keeps a name. If too many calls wait, the later claim stays.
fn ask_backend(node: &Node, scope: Arc<str>, mine: Entry, other: Entry) {
    let name = mine.key().into();
    let conflict = NameConflict { scope: Arc::clone(&scope), mine, other };
    if !node.generation().hooks.as_ref().is_some_and(|hooks| hooks.conflict(conflict)) {
        node.send_to_registry(RegistryMessage::ConflictResolved { scope, name, keeps_mine: None });
    }
}
