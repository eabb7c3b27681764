//! The thread that owns the node's directory: names, groups, presence and calls. Orders come in through one queue, in
//! batches; whatever the directory wants done is done here. Orders that touch many entries are put aside and served a
//! step at a time between batches.

mod steps;
mod walks;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use touchline_cluster::Cluster;
use touchline_engine::directory::{Directory, DirectoryEffect, DirectoryRequest, Requester, ScopeMetrics};
use touchline_engine::request::Publish;
use touchline_engine::{Request, Response, ShardId};
use touchline_protocol::Disconnect;
use touchline_protocol::publication::{Content, EncodedPush};
use touchline_registry::OwnerId;
use touchline_store::InboxMessage;

use crate::mailbox::{ClientCommand, Message, ReplyTo};
use crate::node::Node;
use crate::store;
use steps::Steps;
use walks::Walks;

/// Orders carried out before what they come to is sent.
const BATCH: usize = 1_024;
/// Steps of orders that touch many entries, between two batches: some 100 µs.
const STEPS: usize = 2;
/// Between two times that the figures are told, if there is anything new.
const FIGURES_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at the time while something depends on it.
const TICK: Duration = Duration::from_millis(50);
/// The same while nothing does.
const REST: Duration = Duration::from_secs(3_600);

/// An order for the registrar.
pub(crate) enum RegistryMessage {
    /// From a client or from the server API.
    Ask { who: Requester, ask: DirectoryRequest, asker: ReplyTo },
    /// Another node's part of a scope says something.
    ScopeMessage { scope: Arc<str>, message: Bytes },
    /// Another node's directory says something.
    DirectoryMessage { from: Arc<str>, message: Bytes },
    /// A connection that was to be given something is not there.
    OwnerGone(OwnerId),
    /// There is a letter for a name.
    MessageQueued { scope: Arc<str>, name: Box<str> },
    /// Letters to a name; none = they can't be had now.
    InboxMessages { scope: Arc<str>, name: Box<str>, letters: Option<Vec<(u64, Bytes)>> },
    /// Letters that have arrived and are thrown away.
    Discarded(Vec<u64>),
    /// This node takes part in the cluster from now on, in the sight of these other nodes.
    Joined(Vec<Arc<str>>),
    /// This node has no part in the cluster any more.
    Parted,
    /// Another node may be dead, or is not.
    Suspected(Arc<str>, bool),
    /// Another node is dead.
    NodeDead(Arc<str>),
    /// The shards have looked at their connections.
    Probed,
    /// The node stops.
    Stop,
}

/// Held by each shard while it looks at its connections. When the last one is done the registrar is told.
pub(crate) struct Probe(Arc<Node>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.send_to_registry(RegistryMessage::Probed);
    }
}

/// What the registrar has counted.
#[derive(Debug, Default)]
pub(crate) struct RegistryMetrics {
    pub(crate) scopes: Vec<ScopeMetrics>,
    pub(crate) calls_waiting: usize,
}

/// Starts the thread.
///
/// # Errors
/// When the system refuses it.
pub(crate) fn start(
    node: Arc<Node>,
    directory: Directory<ReplyTo>,
    orders: Receiver<RegistryMessage>,
) -> io::Result<JoinHandle<()>> {
    let registrar = RegistryActor {
        node,
        directory,
        walks: Walks::default(),
        told_ms: 0,
        has_news: true,
        message_max: 0,
        awaited: None,
    };
    std::thread::Builder::new().name("registry".into()).spawn(move || registrar.run(&orders))
}

struct RegistryActor {
    node: Arc<Node>,
    directory: Directory<ReplyTo>,
    walks: Walks,
    /// When the figures were last told, Unix milliseconds.
    told_ms: u64,
    /// Something may have changed since.
    has_news: bool,
    /// What one message to another node may carry, as the directory knows it, bytes.
    message_max: usize,
    /// Nodes whose entries must be here before this one is ready; none = it is.
    awaited: Option<Vec<Arc<str>>>,
}

impl RegistryActor {
    fn run(mut self, orders: &Receiver<RegistryMessage>) {
        let mut ticked_ms = 0;
        let mut steps = Steps::new(self.node.clock.now_ms());
        self.tell_figures(self.node.clock.now_ms());
        loop {
            let first = match orders.recv_timeout(self.patience()) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now_ms = self.node.clock.now_ms();
            if self.node.cluster.is_some() {
                self.note_message_max();
                if let Some(step_ms) = steps.look(now_ms) {
                    self.directory.clock_set(step_ms);
                }
                self.directory.wake(now_ms);
            }
            let batch = first.into_iter().chain(std::iter::from_fn(|| orders.try_recv().ok())).take(BATCH);
            let mut is_over = false;
            for order in batch {
                self.has_news = true;
                is_over |= matches!(order, RegistryMessage::Stop);
                self.obey(order, now_ms);
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
                    // A node came, perhaps back from behind a cut: what it let through meanwhile may be missing here.
                    cluster.check_soon();
                }
            }
            for _ in 0..STEPS {
                self.walks.step(&mut self.directory, now_ms);
            }
            self.directory.flush();
            self.perform();
            self.tell_figures(now_ms);
            if is_over {
                return;
            }
        }
    }

    /// Has the directory know what one message to another node may carry now: that depends on the server that the node
    /// is connected to.
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
                "meta_max_size allows more than a message of NATS carries (max_payload): what is larger is refused"
            );
        }
    }

    /// How long the thread may wait for the next order.
    fn patience(&self) -> Duration {
        let is_timed = self.node.cluster.is_some() || self.directory.next_deadline_ms().is_some();
        match () {
            () if !self.walks.is_empty() => Duration::ZERO,
            () if is_timed => TICK,
            () if self.has_news => FIGURES_EVERY,
            () => REST,
        }
    }

    /// Puts the figures where everybody may read them without asking this thread.
    fn tell_figures(&mut self, now_ms: u64) {
        let is_due = now_ms < self.told_ms || now_ms >= self.told_ms + FIGURES_EVERY.as_millis() as u64;
        if self.has_news && is_due {
            (self.told_ms, self.has_news) = (now_ms, false);
            let (scopes, calls_waiting) = (self.directory.figures().collect(), self.directory.calls_waiting());
            self.node.set_registry_metrics(RegistryMetrics { scopes, calls_waiting });
        }
    }

    fn obey(&mut self, order: RegistryMessage, now_ms: u64) {
        match order {
            RegistryMessage::Ask { who, ask, asker } if self.walks.takes(&who, &ask) => self.walks.put(who, ask, asker),
            RegistryMessage::Ask { who, ask, asker } => {
                if matches!(ask, DirectoryRequest::Close) {
                    self.walks.forget(who.owner);
                }
                let asker = (!matches!(asker, ReplyTo::Nobody)).then_some(asker);
                self.directory.ask(&who, ask, asker, now_ms);
            }
            RegistryMessage::ScopeMessage { scope, message } => self.directory.receive(&scope, &message, now_ms),
            RegistryMessage::DirectoryMessage { from, message } => {
                self.directory.receive_from_node(&from, &message, now_ms)
            }
            RegistryMessage::OwnerGone(owner) => {
                self.walks.forget(owner);
                let who = Requester { owner, user: Box::default(), is_backend: true };
                self.directory.ask(&who, DirectoryRequest::Close, None, now_ms);
            }
            RegistryMessage::MessageQueued { scope, name } => self.directory.mail(&scope, &name),
            RegistryMessage::InboxMessages { scope, name, letters } => {
                self.directory.deliver(&scope, &name, letters, now_ms)
            }
            RegistryMessage::Discarded(ids) => self.directory.discarded(&ids),
            RegistryMessage::Joined(nodes) => {
                self.awaited = Some(nodes);
                self.directory.joined(now_ms);
            }
            RegistryMessage::Parted => self.awaited = None,
            RegistryMessage::Suspected(node, is_suspected) => self.directory.suspect(&node, is_suspected, now_ms),
            RegistryMessage::NodeDead(node) => {
                self.awaited.iter_mut().for_each(|awaited| awaited.retain(|other| *other != node));
                self.directory.gone(&node, now_ms);
            }
            RegistryMessage::Probed => self.directory.probed(now_ms),
            RegistryMessage::Stop => self.directory.goodbye(),
        }
    }

    fn perform(&mut self) {
        let RegistryActor { node, directory, .. } = self;
        for act in directory.acts() {
            match act {
                DirectoryEffect::Answer(asker, answer) => {
                    node.reply(asker, answer.map_or_else(Response::Refused, Response::Answer))
                }
                DirectoryEffect::Push(owner, message) => node.command_client(owner, ClientCommand::Push(message)),
                DirectoryEffect::PushMany(clients, push) => spread(node, &clients, &push),
                DirectoryEffect::Call(owner, call, message) => {
                    node.command_client(owner, ClientCommand::Call { call, message })
                }
                DirectoryEffect::Disconnect(owner) => {
                    node.command_client(owner, ClientCommand::Disconnect(Disconnect::FORCE_NO_RECONNECT))
                }
                DirectoryEffect::Announce(channel, frame) => {
                    node.send_home(channel.into(), Request::Announce(frame));
                }
                DirectoryEffect::PublishChanges(channel, json) => {
                    let content = Content { data: json.into(), ..Content::default() };
                    let request = Request::Publish(Box::new(Publish { content, ..Publish::default() }));
                    node.send_home(channel.into(), request);
                }
                DirectoryEffect::Link { scope, to, message } => {
                    if let Some(cluster) = &node.cluster {
                        cluster.send_to_scope(&scope, to.as_ref(), Bytes::from_owner(message));
                    }
                }
                DirectoryEffect::StoreMessage { scope, name, message, expires_ms, most, asker } => {
                    store::post(
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
                DirectoryEffect::DiscardMessages { ids, asker } => store::discard(node, ids, asker),
                DirectoryEffect::Probe => {
                    let probe = Arc::new(Probe(Arc::clone(node)));
                    node.send_to_shards(|| Message::Probe(Arc::clone(&probe)));
                }
                DirectoryEffect::OptionsDiffer { scope, node } => {
                    tracing::warn!(%scope, %node, "another node has other options for this scope: all follow the strictest policy and the smallest limits");
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

/// Gives one push to many clients: one message for each shard that has some of them.
fn spread(node: &Node, clients: &[OwnerId], push: &Arc<EncodedPush>) {
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

/// Where the connection of a client id is, if it is one of this node: its shard and slot are part of the id.
pub(crate) fn route(owner: OwnerId, shards: usize) -> Option<(ShardId, u32)> {
    let [.., a, b, c, d, e, f] = owner.0;
    let shard = u16::from_be_bytes([a, b]);
    (usize::from(shard) < shards).then(|| (shard, u32::from_be_bytes([c, d, e, f])))
}

/// The last bytes of a client id: where its connection is.
pub(crate) fn place(shard: ShardId, slot: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (shard.to_be_bytes(), slot.to_be_bytes());
    [a, b, c, d, e, f]
}
