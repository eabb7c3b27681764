//! What the shards of a node share: settings, who is home for which channel, and the ways to reach each other.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tokio::sync::{oneshot, watch};
use touchline_cluster::{Cluster, IsEnough};
use touchline_engine::directory::{DirectoryRequest, Requester};
use touchline_engine::{Request, Response, ShardId, session};

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::stream::ChannelName;
use touchline_registry::OwnerId;
use touchline_store::Store;
use touchline_store::stats::Stats;

use crate::admission::AdmissionControl;
use crate::clock::Clock;
use crate::cluster_events;
use crate::connected_users::ConnectedUsers;
use crate::mailbox::{ClientCommand, Inspection, Message, ReplyTo, UserAction, UserCommand};
use crate::memory;
use crate::metrics::ShardMetrics;
use crate::origin::Origins;
use crate::proxies::Proxies;
use crate::refusals::RefusalLog;
use crate::registry_actor::{RegistryMessage, RegistryMetrics, route};
use crate::settings::Settings;
use crate::shard::{self, ShardHandle, scarce_from};
use crate::signer::HmacSigner;
use crate::tls::Tls;

/// The ways to the threads of a node.
pub(crate) struct NodeHandles {
    pub(crate) shards: Vec<ShardHandle>,
    pub(crate) registry: Sender<RegistryMessage>,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) signer: Arc<HmacSigner>,
    pub(crate) tls: PortsTls,
    pub(crate) proxies: Proxies,
    pub(crate) origins: Origins,
}

/// TLS of the ports that speak it.
pub(crate) struct PortsTls {
    pub(crate) http: Option<Arc<Tls>>,
    pub(crate) lines: Option<Arc<Tls>>,
    /// Of the internal port.
    pub(crate) inner: Option<Arc<Tls>>,
}

/// What has become of commands for a client of some node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emulated {
    /// They are on their way.
    Done,
    /// No such node is in sight.
    NoNode,
    /// They are more than one message to another node may carry.
    TooLarge,
}

/// One server process.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) session: session::SessionSettings,
    pub(crate) clock: Clock,
    pub(crate) id: String,
    /// Proves of requests whose they are.
    pub(crate) signer: Arc<HmacSigner>,
    /// What ports speak TLS with.
    pub(crate) tls: PortsTls,
    /// Who is believed when it tells whose a connection is.
    pub(crate) proxies: Proxies,
    /// Which pages may open connections.
    pub(crate) origins: Origins,
    /// Limits on who comes in.
    pub(crate) admission: AdmissionControl,
    /// Which refusals are logged.
    pub(crate) refusals: RefusalLog,
    pub(crate) shards: Vec<ShardHandle>,
    /// Bytes that one shard may hold for single connections.
    pub(crate) buffer_slice: usize,
    /// From so many on the shard is short of memory.
    pub(crate) buffer_scarce: usize,
    registry: Sender<RegistryMessage>,
    /// What the registrar last said of itself.
    registry_metrics: Mutex<Arc<RegistryMetrics>>,
    /// Counts the users that are connected.
    pub(crate) users: Arc<ConnectedUsers>,
    /// The way to the other nodes, if there may be any.
    pub(crate) cluster: Option<Cluster>,
    /// The databases, if anything needs them.
    store: OnceLock<Store>,
    /// The statistics, if there are to be any.
    stats: OnceLock<Stats>,
    /// The cluster can be reached.
    pub(crate) is_linked: AtomicBool,
    /// What the other nodes have is here, since the cluster was last joined.
    pub(crate) is_settled: AtomicBool,
    /// Why this node takes no part in the cluster, if it stands aside.
    version_conflict: Mutex<Option<String>>,
    /// Why JetStream could not be used since the link last came or went; empty = nothing is known against it.
    stream_fault: Mutex<String>,
    /// Other nodes in sight.
    pub(crate) peers: AtomicUsize,
    /// Their ids.
    peer_ids: RwLock<HashSet<Arc<str>>>,
    hasher: RandomState,
    /// Turns true when the node begins to stop.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) is_stopped: AtomicBool,
}

impl Node {
    pub(crate) fn new(
        settings: Settings,
        session: session::SessionSettings,
        clock: Clock,
        id: String,
        ways: NodeHandles,
    ) -> Self {
        let draining = watch::Sender::new(false);
        let NodeHandles { shards, registry: registrar, cluster, signer: seals, tls, proxies, origins } = ways;
        let buffer_max_size =
            if settings.node.buffer_max_size == 0 { memory::available() / 4 } else { settings.node.buffer_max_size };
        let buffer_slice = buffer_max_size / shards.len().max(1);
        Node {
            settings,
            session,
            clock,
            id,
            signer: seals,
            tls,
            buffer_slice,
            buffer_scarce: scarce_from(buffer_slice),
            users: Arc::new(ConnectedUsers::new(shards.len())),
            proxies,
            origins,
            admission: AdmissionControl::default(),
            refusals: RefusalLog::default(),
            shards,
            registry: registrar,
            registry_metrics: Mutex::default(),
            cluster,
            store: OnceLock::new(),
            stats: OnceLock::new(),
            is_linked: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            version_conflict: Mutex::default(),
            stream_fault: Mutex::default(),
            peers: AtomicUsize::new(0),
            peer_ids: RwLock::default(),
            hasher: RandomState::new(),
            draining,
            is_stopped: AtomicBool::new(false),
        }
    }

    /// The shard that gives the channel its order.
    pub(crate) fn home(&self, channel: &str) -> ShardId {
        (self.hasher.hash_one(channel) % self.shards.len() as u64) as ShardId
    }

    /// See [`ShardHandle::send`].
    pub(crate) fn send(&self, shard: ShardId, message: Message) {
        self.shards[usize::from(shard)].send(message);
    }

    /// Puts a message into a shard's inbox; [`Node::wake`] must follow.
    fn enqueue(&self, shard: ShardId, message: Message) {
        self.shards[usize::from(shard)].enqueue(message);
    }

    /// Wakes the shards that something was left for.
    pub(crate) fn wake(&self) {
        self.shards.iter().for_each(ShardHandle::wake);
    }

    /// See [`ShardHandle::bring`].
    pub(crate) fn run_inline(&self, shard: ShardId, message: Message) {
        self.shards[usize::from(shard)].run_inline(message);
    }

    /// Gives the node its databases, once.
    pub(crate) fn set_store(&self, store: Store) {
        let _ = self.store.set(store);
    }

    /// The databases, if anything needs them.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// Gives the node its statistics, once.
    pub(crate) fn set_stats(&self, stats: Stats) {
        let _ = self.stats.set(stats);
    }

    /// The statistics, if there are any.
    pub(crate) fn stats(&self) -> Option<&Stats> {
        self.stats.get()
    }

    /// Tells the home of a channel something that nobody waits for.
    pub(crate) fn send_home(&self, channel: ChannelName, request: Request) {
        let home = self.home(&channel);
        self.send(home, Message::Request { channel, request, asker: ReplyTo::Nobody });
    }

    /// The same; [`Node::wake`] must follow.
    pub(crate) fn enqueue_home(&self, channel: ChannelName, request: Request) {
        let home = self.home(&channel);
        self.enqueue(home, Message::Request { channel, request, asker: ReplyTo::Nobody });
    }

    /// Asks the home of a channel. Only for threads of shards.
    pub(crate) async fn ask(&self, channel: &str, request: Request) -> Response {
        let (reply, answer) = oneshot::channel();
        let message =
            Message::Request { channel: channel.into(), request, asker: ReplyTo::Operation(shard::here(), reply) };
        self.run_inline(self.home(channel), message);
        answer.await.unwrap_or(Response::Refused(Error::INTERNAL))
    }

    /// Asks all other nodes to run an operation, and gives what they answer up to an answer that is enough, and how
    /// many were asked.
    pub(crate) async fn gather(&self, method: &str, params: &[u8], is_enough: IsEnough) -> (Vec<Bytes>, usize) {
        let (Some(cluster), peers @ 1..) = (&self.cluster, self.peers.load(Relaxed)) else { return (Vec::new(), 0) };
        let (done, gathered) = oneshot::channel();
        let done = move |answers| {
            let _ = done.send(answers);
        };
        cluster.gather(crate::operation::broadcast_message(method, params), peers, is_enough, Box::new(done));
        (gathered.await.unwrap_or_default(), peers)
    }

    /// Whether so many bytes are more than one message to another node may carry.
    pub(crate) fn is_too_large(&self, bytes: usize) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| bytes > cluster.message_max())
    }

    /// Gives the registrar an order. One that has ended loses it: so does the node then.
    pub(crate) fn send_to_registry(&self, order: RegistryMessage) {
        let _ = self.registry.send(order);
    }

    /// Asks the directory.
    pub(crate) async fn ask_directory(&self, who: Requester, ask: DirectoryRequest) -> Response {
        let (reply, answer) = oneshot::channel();
        self.send_to_registry(RegistryMessage::Ask { who, ask, asker: ReplyTo::Operation(shard::here(), reply) });
        answer.await.unwrap_or(Response::Refused(Error::INTERNAL))
    }

    /// Whether this node has joined the cluster and the registry's entries of other nodes are still on their way.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.cluster.is_some() && self.is_linked.load(Relaxed) && !self.is_settled.load(Relaxed)
    }

    /// JetStream can't be used, for a reason; empty = nothing is known against it.
    pub(crate) fn set_stream_fault(&self, why: String) {
        *self.stream_fault.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// As of [`Node::set_stream_fault`].
    pub(crate) fn stream_fault(&self) -> String {
        self.stream_fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This node stands aside of the cluster, for a reason, or takes part again.
    pub(crate) fn set_version_conflict(&self, why: Option<String>) {
        *self.version_conflict.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why this node takes no part in the cluster.
    pub(crate) fn version_conflict(&self) -> Option<String> {
        self.version_conflict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the registrar had counted some 100 ms ago at most. Never waits for it.
    pub(crate) fn registry_metrics(&self) -> Arc<RegistryMetrics> {
        Arc::clone(&self.registry_metrics.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The registrar says what it has counted.
    pub(crate) fn set_registry_metrics(&self, figures: RegistryMetrics) {
        *self.registry_metrics.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(figures);
    }

    /// Asks the directory in the name of a client of this node.
    pub(crate) async fn ask_for_client(&self, owner: OwnerId, ask: DirectoryRequest) -> Response {
        let (reply, answer) = oneshot::channel();
        self.command_client(owner, ClientCommand::Act { ask, asker: ReplyTo::Operation(shard::here(), reply) });
        answer.await.unwrap_or(Response::Refused(Error::NOT_REGISTERED))
    }

    /// Tells all shards something.
    pub(crate) fn send_to_shards(&self, what: impl Fn() -> Message) {
        for shard in 0..self.shards.len() {
            self.send(shard as ShardId, what());
        }
    }

    /// Gives an order to the shard of a client. One that is not of this node is gone.
    pub(crate) fn command_client(&self, owner: OwnerId, order: ClientCommand) {
        match route(owner, self.shards.len()) {
            Some((shard, slot)) => self.send(shard, Message::Client { owner, slot, order }),
            None => self.send_to_registry(RegistryMessage::OwnerGone(owner)),
        }
    }

    /// Gives an answer to whoever waits for it.
    pub(crate) fn reply(&self, asker: ReplyTo, response: Response) {
        match asker {
            ReplyTo::Session(connection, ticket) => {
                self.send(connection.shard, Message::Answer { connection, ticket, response });
            }
            ReplyTo::Operation(_, reply) => {
                let _ = reply.send(response);
            }
            ReplyTo::Nobody => {}
        }
    }

    /// The same, served by the shard where it is waited for; [`Node::wake`] must follow.
    pub(crate) fn enqueue_reply(&self, asker: ReplyTo, response: Response) {
        match asker {
            ReplyTo::Session(connection, ticket) => {
                self.enqueue(connection.shard, Message::Answer { connection, ticket, response })
            }
            ReplyTo::Operation(Some(shard), reply) => self.enqueue(shard, Message::Reply { reply, response }),
            asker => self.reply(asker, response),
        }
    }

    /// Hands commands to the client whose seal this is, here or on its node. A client that has gone misses them.
    pub(crate) fn emulate(&self, seal: &str, node: &str, commands: Bytes) -> Emulated {
        if node == self.id {
            if let Some(owner) = self.signer.open(seal)
                && let Some((shard, slot)) = route(owner, self.shards.len())
            {
                self.send(shard, Message::Client { owner, slot, order: ClientCommand::Commands(commands) });
            }
            return Emulated::Done;
        }
        // What anybody may send must not go out to nodes that do not exist.
        let Some(cluster) = self.cluster.as_ref().filter(|_| self.knows_peer(node)) else { return Emulated::NoNode };
        let message = cluster_events::emulated(seal, &commands);
        if message.len() > cluster.message_max() {
            return Emulated::TooLarge;
        }
        cluster.send_to_directory(node.into(), message);
        Emulated::Done
    }

    /// The counters of the shard whose thread this is; of the first one on other threads.
    pub(crate) fn metrics_here(&self) -> &ShardMetrics {
        &self.shards[usize::from(shard::here().unwrap_or_default())].metrics
    }

    /// Takes note of the other nodes in sight; whether there are more of them than before.
    pub(crate) fn note_peers<'a>(&self, ids: impl Iterator<Item = &'a Arc<str>> + Clone) -> bool {
        let known = self.peer_ids.read().unwrap_or_else(PoisonError::into_inner);
        let peers = ids.clone().count();
        if peers != known.len() || ids.clone().any(|id| !known.contains(id)) {
            drop(known);
            *self.peer_ids.write().unwrap_or_else(PoisonError::into_inner) = ids.map(Arc::clone).collect();
        }
        peers > self.peers.swap(peers, Relaxed)
    }

    /// Whether another node of this id is in sight.
    fn knows_peer(&self, id: &str) -> bool {
        self.peer_ids.read().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Whether no more clients may come in.
    pub(crate) fn is_full(&self) -> bool {
        let limit = self.settings.client.connection_limit as u64;
        *self.draining.borrow() || limit > 0 && self.connections() >= limit || self.is_scarce()
    }

    /// Whether the node is short of memory for what single connections make it hold.
    fn is_scarce(&self) -> bool {
        let buffered = |shard: &ShardHandle| shard.metrics.buffered_bytes.get() as usize + shard.http_buffered();
        self.shards.iter().map(buffered).sum::<usize>() >= self.buffer_scarce * self.shards.len()
    }

    /// Does something with all connections of a user, on every shard.
    pub(crate) async fn command_user(&self, user: &str, client: &str, action: UserAction) -> Result<(), Error> {
        let mut answers = Vec::with_capacity(self.shards.len());
        for shard in 0..self.shards.len() {
            let (done, answer) = oneshot::channel();
            let order = UserCommand { user: user.into(), client: client.into(), action: action.clone(), reply: done };
            self.send(shard as ShardId, Message::User(Box::new(order)));
            answers.push(answer);
        }
        for answer in answers {
            answer.await.unwrap_or(Err(Error::INTERNAL))?;
        }
        Ok(())
    }

    /// Asks every shard the same.
    pub(crate) async fn inspect<T>(&self, mut ask: impl FnMut(oneshot::Sender<T>) -> Inspection) -> Vec<T> {
        let mut answers = Vec::with_capacity(self.shards.len());
        for shard in 0..self.shards.len() {
            let (reply, answer) = oneshot::channel();
            self.send(shard as ShardId, Message::Inspect(ask(reply)));
            answers.push(answer);
        }
        let mut found = Vec::with_capacity(answers.len());
        for answer in answers {
            found.extend(answer.await.ok());
        }
        found
    }

    /// Whether some shard has fallen so far behind that publishers must wait.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.shards.iter().any(|shard| shard.backlog() > self.settings.node.publish_backlog_max)
    }

    /// Client connections of the whole node.
    pub(crate) fn connections(&self) -> u64 {
        self.shards.iter().map(|shard| shard.metrics.connections.get()).sum()
    }
}
