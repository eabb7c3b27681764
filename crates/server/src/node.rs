//! What the shards of a node share: settings, the home of each channel, and the handles of all threads.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderMap, ORIGIN};
use tokio::sync::oneshot;
use touchline_cluster::{Cluster, IsEnough};
use touchline_engine::directory::{DirectoryRequest, Requester};
use touchline_engine::hook::HookOutcome;
use touchline_engine::limit::AddressKey;
use touchline_engine::request::{BackendEvent, ChannelRequest};
use touchline_engine::{ConnectionId, Response, ShardId};
use touchline_lock::{Lock, SharedLock};
use touchline_protocol::Error;
use touchline_protocol::stream::ChannelName;
use touchline_registry::OwnerId;
use touchline_store::Store;
use touchline_store::stats::Stats;

use crate::console::ConsoleState;
use crate::drain::NodeDrain;
use crate::net::admission::{Admission, AdmissionControl, Denial, address_key};
use crate::net::headers::Headers as _;
use crate::net::port::PortRole;
use crate::net::remote::Remote;
use crate::runtime::clock::NodeClock;
use crate::runtime::connected_users::ConnectedUsers;
use crate::runtime::event_mailbox::EventMailbox;
use crate::runtime::fact_names::KnownFacts;
use crate::runtime::frame_trace::FrameTraces;
use crate::runtime::generation::{CurrentGeneration, NewestGeneration};
use crate::runtime::here::here;
use crate::runtime::hook_mailbox::HookMessage;
use crate::runtime::mailbox::{ClientCommand, Inspection, Message};
use crate::runtime::memory;
use crate::runtime::metrics::{NodeCollector, ShardMetrics};
use crate::runtime::reaction_mailbox::{ReactionMailbox, ReactionMessage};
use crate::runtime::refusals::{RefusalLine, RefusalLog};
use crate::runtime::registry_mailbox::{Probe, RegistryMessage, RegistryMetrics, route};
use crate::runtime::reload::ReloadFn;
use crate::runtime::reply_to::ReplyTo;
use crate::runtime::seen_users::SeenUsers;
use crate::runtime::shard_handle::ShardHandle;
use crate::runtime::signer::HmacSigner;
use crate::tls::Tls;
use crate::web::Web;

/// The handles of a node's threads, and what its ports need.
pub(crate) struct NodeHandles {
    pub(crate) shards: Vec<ShardHandle>,
    pub(crate) registry: Sender<RegistryMessage>,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) signer: Arc<HmacSigner>,
    pub(crate) events: Option<EventMailbox>,
    pub(crate) reactions: ReactionMailbox,
    pub(crate) seen: Option<Arc<SeenUsers>>,
    pub(crate) web: Web,
}

/// Four fifths of `bytes`: at this much the node is short of memory.
fn scarce_from(bytes: usize) -> usize {
    bytes / 5 * 4
}

/// The burst of connections, as time at their rate, in microseconds.
const BURST_US: u64 = 1_000_000;

/// One server process, shared by all its threads.
pub(crate) struct Node {
    /// Carries out a reload; empty = the program does not say where settings are read from.
    pub(crate) reload: OnceLock<ReloadFn>,
    /// The newest generation, which a reload replaces.
    pub(crate) newest: Arc<NewestGeneration>,
    pub(crate) clock: NodeClock,
    pub(crate) id: String,
    /// Proves which client has sent a request of `/emulation`.
    pub(crate) signer: Arc<HmacSigner>,
    /// Limits on new connections.
    pub(crate) admission: AdmissionControl,
    /// Which refusals are logged, and how many there were.
    pub(crate) refusals: RefusalLog,
    /// The frame traces that somebody has asked for.
    pub(crate) frame_traces: FrameTraces,
    pub(crate) shards: Vec<ShardHandle>,
    /// How many bytes one shard may hold for single connections.
    pub(crate) buffer_slice: usize,
    /// From this many buffered bytes on, a shard is short of memory.
    pub(crate) buffer_scarce: usize,
    pub(crate) registry: Sender<RegistryMessage>,
    /// The counters that the registry actor published last.
    registry_metrics: Lock<Arc<RegistryMetrics>>,
    /// Counts the connected users.
    pub(crate) users: Arc<ConnectedUsers>,
    /// When users were connected last; None = the node does not keep it.
    pub(crate) seen: Option<Arc<SeenUsers>>,
    /// The number of requests with a rate that are under way.
    pub(crate) paced: Arc<AtomicUsize>,
    /// The mailbox of the thread that sends events; empty = no endpoint wants events.
    pub(crate) events: OnceLock<EventMailbox>,
    /// The state of the console.
    pub(crate) console: ConsoleState,
    /// The TLS configurations of the ports that use TLS; empty until the ports are bound.
    pub(crate) tls: OnceLock<Vec<Arc<Tls>>>,
    /// The mailbox of the thread that keeps the totals of reactions.
    pub(crate) reactions: ReactionMailbox,
    /// The pages and the routes of the program around the server.
    pub(crate) web: Web,
    /// The connection to the other nodes; None = the node runs alone.
    pub(crate) cluster: Option<Cluster>,
    /// The primary database; empty = nothing needs it.
    store: OnceLock<Store>,
    /// The statistics; empty = they are switched off.
    stats: OnceLock<Stats>,
    /// What is known of shared facts, apart from what the node decides by.
    pub(crate) facts_known: Lock<KnownFacts>,
    /// The other nodes of the cluster that keep shared facts in a different place.
    pub(crate) nodes_with_other_facts: Lock<Vec<Arc<str>>>,
    /// The other nodes of the cluster whose configuration differs from that of this node.
    pub(crate) nodes_with_other_configuration: Lock<Vec<Arc<str>>>,
    /// Whether the log has said that bans are lost when the node stops.
    pub(crate) has_told_of_memory: AtomicBool,
    /// Whether NATS can be reached.
    pub(crate) is_linked: AtomicBool,
    /// Whether the registry's entries of the other nodes have arrived since the cluster was last joined.
    pub(crate) is_settled: AtomicBool,
    /// Why this node takes no part in the cluster (no common message version); None = it takes part.
    version_conflict: Lock<Option<String>>,
    /// Why JetStream could not be used since the last change of the link to NATS; empty = no fault is known.
    stream_fault: Lock<String>,
    /// The number of other nodes in sight.
    pub(crate) peers: AtomicUsize,
    /// The ids of the other nodes in sight.
    peer_ids: SharedLock<HashSet<Arc<str>>>,
    hasher: RandomState,
    /// Whether a scan of the connections of this node is under way.
    pub(crate) is_scanned: AtomicBool,
    /// Whether the node has begun to stop, and the progress of its drain.
    pub(crate) drain: NodeDrain,
    pub(crate) is_stopped: AtomicBool,
    /// When an unreadable payload was last logged, in milliseconds of the clock.
    pub(crate) unreadable_reported_ms: AtomicU64,
}

impl Node {
    pub(crate) fn new(newest: Arc<NewestGeneration>, clock: NodeClock, id: String, handles: NodeHandles) -> Self {
        let NodeHandles { shards, registry, cluster, signer, events, reactions, seen, web } = handles;
        let generation = newest.get();
        let settings = &generation.settings;
        let buffer_slice = memory::buffer_max_size(settings) / shards.len().max(1);
        Node {
            reload: OnceLock::new(),
            newest,
            clock,
            id,
            signer,
            buffer_slice,
            buffer_scarce: scarce_from(buffer_slice),
            users: Arc::new(ConnectedUsers::new(shards.len())),
            seen,
            paced: Arc::default(),
            admission: AdmissionControl::default(),
            refusals: RefusalLog::default(),
            frame_traces: FrameTraces::default(),
            shards,
            registry,
            registry_metrics: Lock::default(),
            events: events.map_or_else(OnceLock::new, OnceLock::from),
            console: ConsoleState::default(),
            unreadable_reported_ms: AtomicU64::new(0),
            tls: OnceLock::new(),
            reactions,
            web,
            cluster,
            store: OnceLock::new(),
            stats: OnceLock::new(),
            facts_known: Lock::default(),
            nodes_with_other_facts: Lock::default(),
            nodes_with_other_configuration: Lock::default(),
            has_told_of_memory: AtomicBool::new(false),
            is_linked: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            version_conflict: Lock::default(),
            stream_fault: Lock::default(),
            peers: AtomicUsize::new(0),
            peer_ids: SharedLock::default(),
            hasher: RandomState::new(),
            is_scanned: AtomicBool::new(false),
            drain: NodeDrain::new(std::thread::available_parallelism().map_or(1, usize::from)),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// The generation with which this thread works.
    pub(crate) fn generation(&self) -> CurrentGeneration {
        self.newest.current()
    }

    /// The home of a channel: the shard that gives the channel its order.
    pub(crate) fn home(&self, channel: &str) -> ShardId {
        (self.hasher.hash_one(channel) % self.shards.len() as u64) as ShardId
    }

    /// Sends a shard a message; see [`ShardHandle::send`].
    pub(crate) fn send(&self, shard: ShardId, message: Message) {
        self.shards[usize::from(shard)].send(message);
    }

    /// Puts a message into a shard's mailbox; the caller must call [`Node::wake`] afterwards.
    fn enqueue(&self, shard: ShardId, message: Message) {
        self.shards[usize::from(shard)].enqueue(message);
    }

    /// Wakes the shards that have messages in their mailboxes.
    pub(crate) fn wake(&self) {
        self.shards.iter().for_each(ShardHandle::wake);
    }

    /// Serves a message on this thread if possible; see [`ShardHandle::run_inline`].
    pub(crate) fn run_inline(&self, shard: ShardId, message: Message) {
        self.shards[usize::from(shard)].run_inline(message);
    }

    /// Sets the primary database; later calls have no effect.
    pub(crate) fn set_store(&self, store: Store) {
        let _ = self.store.set(store);
    }

    /// The primary database; None = nothing needs it.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// Sets the statistics database; later calls have no effect.
    pub(crate) fn set_stats(&self, stats: Stats) {
        let _ = self.stats.set(stats);
    }

    /// The statistics database; None = statistics are switched off.
    pub(crate) fn stats(&self) -> Option<&Stats> {
        self.stats.get()
    }

    /// Sends the home of a channel a request, and drops the reply.
    pub(crate) fn send_home(&self, channel: ChannelName, request: ChannelRequest) {
        let home = self.home(&channel);
        self.send(home, Message::Request { channel, request, reply_to: ReplyTo::Discard });
    }

    /// Sends the home of a channel a report of its log backend.
    pub(crate) fn send_event(&self, channel: ChannelName, event: BackendEvent) {
        let home = self.home(&channel);
        self.send(home, Message::Backend { channel, event });
    }

    /// The same as [`Node::send_event`] without waking the shard; the caller must call [`Node::wake`].
    pub(crate) fn enqueue_event(&self, channel: ChannelName, event: BackendEvent) {
        let home = self.home(&channel);
        self.enqueue(home, Message::Backend { channel, event });
    }

    /// Sends the home of a channel a request and waits for the reply. Only for threads of shards.
    pub(crate) async fn request_home(&self, channel: &str, request: ChannelRequest) -> Response {
        let (sender, reply) = oneshot::channel();
        let reply_to = ReplyTo::Operation(here(), sender);
        self.run_inline(self.home(channel), Message::Request { channel: channel.into(), request, reply_to });
        reply.await.unwrap_or(Response::Refused(Error::INTERNAL))
    }

    /// Sends all other nodes a message that asks for a reply. Returns the replies up to the first that `is_enough`
    /// accepts, and how many nodes were asked.
    pub(crate) async fn gather(&self, message: Vec<u8>, is_enough: IsEnough) -> (Vec<Bytes>, usize) {
        let (Some(cluster), peers @ 1..) = (&self.cluster, self.peers.load(Relaxed)) else { return (Vec::new(), 0) };
        let (done, gathered) = oneshot::channel();
        let done = move |replies| {
            let _ = done.send(replies);
        };
        cluster.gather(message, peers, is_enough, Box::new(done));
        (gathered.await.unwrap_or_default(), peers)
    }

    /// Whether one message to another node cannot carry this many bytes.
    pub(crate) fn is_too_large(&self, bytes: usize) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| bytes > cluster.message_max())
    }

    /// Sends the registry actor a message. If the actor has ended, the node has ended too, and the message is dropped.
    pub(crate) fn send_to_registry(&self, message: RegistryMessage) {
        let _ = self.registry.send(message);
    }

    /// A probe of all connections: when the last shard drops it, the registry actor is notified.
    pub(crate) fn probe(&self) -> Probe {
        Probe::new(self.registry.clone())
    }

    /// Sends the directory a request and waits for the reply.
    pub(crate) async fn request_directory(&self, requester: Requester, request: DirectoryRequest) -> Response {
        let (sender, reply) = oneshot::channel();
        let reply_to = ReplyTo::Operation(here(), sender);
        self.send_to_registry(RegistryMessage::Request { requester, request, reply_to });
        reply.await.unwrap_or(Response::Refused(Error::INTERNAL))
    }

    /// Whether this node has joined the cluster and the registry's entries of other nodes are still on their way.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.cluster.is_some() && self.is_linked.load(Relaxed) && !self.is_settled.load(Relaxed)
    }

    /// Sets why JetStream can't be used; empty = no fault is known.
    pub(crate) fn set_stream_fault(&self, why: String) {
        *self.stream_fault.lock() = why;
    }

    /// Why JetStream can't be used; empty = no fault is known.
    pub(crate) fn stream_fault(&self) -> String {
        self.stream_fault.lock().clone()
    }

    /// Sets why this node takes no part in the cluster; None = it takes part again.
    pub(crate) fn set_version_conflict(&self, why: Option<String>) {
        *self.version_conflict.lock() = why;
    }

    /// Why this node takes no part in the cluster; None = it takes part.
    pub(crate) fn version_conflict(&self) -> Option<String> {
        self.version_conflict.lock().clone()
    }

    /// The counters of the registry actor, at most about 100 ms old. Never waits for the actor.
    pub(crate) fn registry_metrics(&self) -> Arc<RegistryMetrics> {
        Arc::clone(&self.registry_metrics.lock())
    }

    /// Publishes the counters of the registry actor.
    pub(crate) fn set_registry_metrics(&self, metrics: RegistryMetrics) {
        *self.registry_metrics.lock() = Arc::new(metrics);
    }

    /// Sends the directory a request on behalf of a client of this node, and waits for the reply.
    pub(crate) async fn request_for_client(&self, owner: OwnerId, request: DirectoryRequest) -> Response {
        let (sender, reply) = oneshot::channel();
        let reply_to = ReplyTo::Operation(here(), sender);
        self.command_client(owner, ClientCommand::Directory { request, reply_to });
        reply.await.unwrap_or(Response::Refused(Error::NOT_REGISTERED))
    }

    /// The user of a client of this node; None = no such client is connected to it.
    pub(crate) async fn user_of(&self, owner: OwnerId) -> Option<Box<str>> {
        let (shard, slot) = route(owner, self.shards.len())?;
        let (reply, user) = oneshot::channel();
        let command = ClientCommand::TellUser(reply);
        self.send(shard, Message::Client { owner, slot, command });
        user.await.ok()
    }

    /// Sends a message to the shard that has the fewest publications in its mailbox.
    pub(crate) fn send_to_any_shard(&self, message: Message) {
        let idlest = (0..self.shards.len()).min_by_key(|shard| self.shards[*shard].backlog());
        self.send(idlest.unwrap_or_default() as ShardId, message);
    }

    /// Sends every shard a message.
    pub(crate) fn send_to_shards(&self, make: impl Fn() -> Message) {
        for shard in 0..self.shards.len() {
            self.send(shard as ShardId, make());
        }
    }

    /// Sends a command to the shard of a client. If this node did not make the client id, the registry is notified that
    /// the client is gone.
    pub(crate) fn command_client(&self, owner: OwnerId, command: ClientCommand) {
        match route(owner, self.shards.len()) {
            Some((shard, slot)) => self.send(shard, Message::Client { owner, slot, command }),
            None => self.send_to_registry(RegistryMessage::OwnerGone(owner)),
        }
    }

    /// Sends a reply to its destination.
    pub(crate) fn reply(&self, reply_to: ReplyTo, response: Response) {
        match reply_to {
            ReplyTo::Session(connection, ticket) => {
                self.send(connection.shard, Message::SessionReply { connection, ticket, response });
            }
            ReplyTo::Operation(_, reply) => {
                let _ = reply.send(response);
            }
            ReplyTo::Discard => {}
        }
    }

    /// The same as [`Node::reply`], but through the mailbox of the waiting shard; the caller must call [`Node::wake`].
    pub(crate) fn enqueue_reply(&self, reply_to: ReplyTo, response: Response) {
        match reply_to {
            ReplyTo::Session(connection, ticket) => {
                self.enqueue(connection.shard, Message::SessionReply { connection, ticket, response })
            }
            ReplyTo::Operation(Some(shard), reply) => self.enqueue(shard, Message::OperationReply { reply, response }),
            reply_to => self.reply(reply_to, response),
        }
    }

    /// Sends a session the answer of a backend without waking its shard; the caller must call [`Node::wake`].
    pub(crate) fn enqueue_hook_answer(&self, connection: ConnectionId, serial: u32, outcome: HookOutcome) {
        let outcome = Box::new(outcome);
        self.enqueue(connection.shard, Message::HookAnswer { connection, serial, outcome });
    }

    /// Makes the hooks thread forget answers that would admit a user to a channel again; None = to any channel.
    pub(crate) fn forget_hook_answers(&self, user: &str, channel: Option<&str>, is_shared: bool) {
        if let Some(hooks) = &self.generation().hooks {
            hooks.send(HookMessage::Forget { user: user.into(), channel: channel.map(Box::from), is_shared });
        }
    }

    /// Sends a command that came by another request to the client of this node that `session` proves. If that client is
    /// gone, the command is dropped. `session`: the signed client id that the client got when it connected.
    pub(crate) fn command_session(&self, session: &str, command: ClientCommand) {
        let Some(owner) = self.signer.open(session) else { return };
        if let Some((shard, slot)) = route(owner, self.shards.len()) {
            self.send(shard, Message::Client { owner, slot, command });
        }
    }

    /// Collects the metrics of all shards.
    pub(crate) fn collector(&self) -> NodeCollector {
        NodeCollector::of(self.shards.iter().map(|shard| &shard.metrics))
    }

    /// The number of requests of the server API.
    pub(crate) fn api_requests(&self) -> u64 {
        self.generation().access.api.callers().map(|caller| caller.requests.load(Relaxed)).sum()
    }

    /// The counters of the shard whose thread calls this; on other threads those of shard 0.
    pub(crate) fn metrics_here(&self) -> &ShardMetrics {
        &self.shard_here().metrics
    }

    /// The shard whose thread calls this; on other threads shard 0.
    pub(crate) fn shard_here(&self) -> &ShardHandle {
        &self.shards[usize::from(here().unwrap_or_default())]
    }

    /// Sets the ids of the other nodes in sight. Returns whether there are now more of them.
    pub(crate) fn note_peers<'a>(&self, ids: impl Iterator<Item = &'a Arc<str>> + Clone) -> bool {
        let (known, peers) = (self.peer_ids.read(), ids.clone().count());
        if peers != known.len() || ids.clone().any(|id| !known.contains(id)) {
            drop(known);
            *self.peer_ids.write() = ids.map(Arc::clone).collect();
            // If the mailbox is full, its thread wakes anyway.
            drop(self.reactions.try_send(ReactionMessage::PeersChanged));
        }
        peers > self.peers.swap(peers, Relaxed)
    }

    /// The names (or ids) of the nodes whose configuration differs from that of this node.
    pub(crate) fn others_with_other_configuration(&self) -> Vec<Arc<str>> {
        self.nodes_with_other_configuration.lock().clone()
    }

    /// The ids of the other nodes in sight, sorted.
    pub(crate) fn peers_in_order(&self) -> Vec<Box<str>> {
        let known = self.peer_ids.read();
        let mut ids: Vec<Box<str>> = known.iter().map(|id| Box::from(&**id)).collect();
        ids.sort_unstable();
        ids
    }

    /// The number of nodes in sight, including this one.
    pub(crate) fn node_count(&self) -> usize {
        self.peers.load(Relaxed) + 1
    }

    /// Whether another node with this id is in sight.
    pub(crate) fn knows_peer(&self, id: &str) -> bool {
        self.peer_ids.read().contains(id)
    }

    /// Whether the node accepts no more clients.
    pub(crate) fn is_full(&self) -> bool {
        let limit = self.generation().settings.client.connection_limit as u64;
        self.drain.has_begun() || limit > 0 && self.connections() >= limit || self.is_scarce()
    }

    /// Whether the node is short of memory for single connections.
    fn is_scarce(&self) -> bool {
        let buffered = |shard: &ShardHandle| shard.metrics.buffered_bytes.get() as usize + shard.http_buffered();
        self.shards.iter().map(buffered).sum::<usize>() >= self.buffer_scarce * self.shards.len()
    }

    /// Asks every shard the same question. Returns the replies in the order of the shards; a shard that has ended does
    /// not reply.
    pub(crate) async fn inspect<T>(&self, mut inspection: impl FnMut(oneshot::Sender<T>) -> Inspection) -> Vec<T> {
        let mut replies = Vec::with_capacity(self.shards.len());
        for shard in 0..self.shards.len() {
            let (sender, reply) = oneshot::channel();
            self.send(shard as ShardId, Message::Inspect(inspection(sender)));
            replies.push(reply);
        }
        let mut received = Vec::with_capacity(replies.len());
        for reply in replies {
            received.extend(reply.await.ok());
        }
        received
    }

    /// Whether some shard has fallen so far behind that publishers must wait.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.shards.iter().any(|shard| shard.backlog() > self.generation().settings.node.publish_backlog_max)
    }

    /// The number of client connections of the whole node.
    pub(crate) fn connections(&self) -> u64 {
        self.shards.iter().map(|shard| shard.metrics.connections.get()).sum()
    }

    /// Admits a client, unless a limit refuses it.
    ///
    /// # Errors
    /// The [`Denial`] says which limit refuses the client.
    pub(crate) fn admit(&self, remote: Remote) -> Result<Admission, Denial> {
        if self.is_full() {
            return Err(Denial::Full);
        }
        let address = address_key(remote.address);
        if self.is_refused(address) {
            return Err(Denial::Refused);
        }
        let client = &self.generation().settings.client;
        let limit = client.connection_limit_by_address;
        let address_slot = match limit {
            0 => None,
            _ => Some(self.admission.address_slots.take(remote.address, limit).ok_or_else(|| {
                self.metrics_here().denied_by_address.add_shared(1);
                tracing::debug!(client = %remote.address, "refused: client.connection_limit_by_address");
                Denial::Address
            })?),
        };
        let rate = client.connection_rate_limit;
        if rate > 0 && !self.admission.connections.try_admit(rate, BURST_US, self.clock.elapsed_us()) {
            self.metrics_here().denied_by_rate.add_shared(1);
            tracing::debug!(client = %remote.address, "refused: client.connection_rate_limit");
            return Err(Denial::Full);
        }
        Ok(Admission { is_loopback: remote.is_loopback, client: remote.address, address, address_slot })
    }

    /// Whether the node refuses new connections of an address, for a while or by its rate of connects.
    fn is_refused(&self, address: AddressKey) -> bool {
        self.generation()
            .limits
            .as_ref()
            .is_some_and(|limits| limits.is_unwelcome(address, self.clock.elapsed_us() * 1_000))
    }

    /// Whether a connection can be closed before its TLS handshake: its client's address is refused, and the port
    /// serves only clients. The address of a proxy is not the address of the client behind it.
    pub(crate) fn is_unwelcome(&self, remote: Remote, side: PortRole, is_for_lines: bool) -> bool {
        let serves_only_clients = is_for_lines
            || side.serves_clients()
                && !side.serves_operators()
                && !side.serves_api(self.generation().settings.http_api.external);
        self.generation().limits.is_some()
            && serves_only_clients
            && !self.generation().proxies.contains(remote.address)
            && self.is_refused(address_key(remote.address))
    }

    /// Logs a refusal, unless the same cause was logged too often.
    pub(crate) fn log_refusal(&self, refused: &RefusalLine<'_>) {
        self.refusals.note(refused, self.clock.elapsed_us() / 1_000);
    }

    /// Logs the refusal of an HTTP request, as [`Node::log_refusal`] does.
    pub(crate) fn log_refused_request(
        &self,
        peer: Remote,
        headers: &HeaderMap,
        status: StatusCode,
        cause: &'static str,
        request_id: &str,
    ) {
        let remote = self.generation().proxies.client(peer, headers).unwrap_or(peer);
        let origin = headers.value(&ORIGIN).and_then(|origin| std::str::from_utf8(origin).ok()).unwrap_or_default();
        self.log_refusal(&RefusalLine {
            cause,
            code: status.as_u16().into(),
            address: Some(remote.address),
            origin,
            request_id,
            ..RefusalLine::default()
        });
    }
}
