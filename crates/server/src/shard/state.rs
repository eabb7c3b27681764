//! What a shard owns, and how the shard keeps a fault of one connection from the other connections.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use touchline_engine::events::TellingLives;
use touchline_engine::reactions::{CountedReactions, ReactionBoard};
use touchline_engine::tracker::Tracker;
use touchline_engine::wheel::Wheel;
use touchline_engine::{Channels, Effects, Hub, ShardId};
use touchline_protocol::stream::ChannelName;
use touchline_registry::HashSeed;

use super::acceptor::{Acceptor, BoundListener};
use super::client_facts::ConnectingFacts;
use super::connections::Connections;
use super::ends::UnsentEnds;
use super::minute_stats::{Audience, MinuteStats};
use super::outbox::Outbox;
use super::reload_progress::ReloadProgress;
use super::services::Services;
use super::stepwise::StepwiseWork;
use super::unauthenticated::Unauthenticated;
use super::users::Users;
use super::waiting::WaitingRequests;
use crate::net::admission::AddressSlot;
use crate::net::forwarded::ForwardedHeaders;
use crate::net::transport::Transport;
use crate::node::Node;
use crate::runtime::clock::TENTH_US;
use crate::runtime::event_mailbox::EventMessage;
use crate::runtime::generation::Generation;
use crate::runtime::mailbox::Message;
use crate::runtime::metrics::ShardMetrics;
use crate::runtime::random::{self, ClientIdRandom};
use crate::runtime::registry_mailbox::Probe;
use crate::runtime::session_metrics::NumberedNamespaces;

/// How many messages of the mailbox are served in one turn.
pub(super) const MESSAGES_MAX: usize = 256;
/// The length of a tick, in milliseconds.
pub(super) const TICK_MS: u64 = 100;
// Deadlines of connections are in tenths of a second.
const _: () = assert!(TICK_MS * 1_000 == TENTH_US);
/// How many ticks the wheel reaches ahead: somewhat more than the usual time between pings.
pub(super) const WHEEL_TICKS: usize = 512;
/// How many bytes are read from a socket at once.
pub(super) const SCRATCH_SIZE: usize = 64 * 1024;

/// One event loop and everything that it owns.
pub(crate) struct Shard {
    pub(super) id: ShardId,
    pub(super) node: Arc<Node>,
    /// The settings with which this shard works.
    pub(super) generation: Arc<Generation>,
    pub(super) services: Services,
    pub(super) metrics: Arc<ShardMetrics>,
    /// The counters of the namespaces of the generation.
    pub(super) namespaces: NumberedNamespaces,
    pub(super) mailbox: UnboundedReceiver<Message>,
    /// Messages that were taken out of the mailbox and are served next.
    pub(super) taken: VecDeque<Message>,
    pub(super) registry: mio::Registry,
    pub(super) acceptor: Acceptor,
    pub(super) connections: Connections,
    pub(super) users: Users,
    pub(super) unauthenticated: Unauthenticated,
    /// How many unauthenticated connections this shard may hold.
    pub(super) unauthenticated_max: usize,
    /// The counted place of each connection at its address, by the connection's slot; empty unless addresses are
    /// limited.
    pub(super) address_slots: HashMap<u32, AddressSlot>,
    /// The client addresses that the sockets do not know, by slot: a proxy has reported them, or the connection is a
    /// stream of HTTP/2.
    pub(super) told_addresses: HashMap<u32, IpAddr>,
    /// What is known of connections whose client has not connected yet, by slot; kept only for events.
    pub(super) connecting: HashMap<u32, ConnectingFacts>,
    /// Ends of clients that wait for room in the mailbox of events.
    pub(super) unsent_ends: UnsentEnds<EventMessage>,
    /// The lives of the node in which events report the clients.
    pub(super) telling: TellingLives,
    /// The header fields that hooks forward, by slot of the connection; empty if no hook does.
    pub(super) forwarded: HashMap<u32, ForwardedHeaders>,
    pub(super) hub: Hub,
    pub(super) channels: Channels,
    /// Requests that wait until their channel is live, by channel.
    pub(super) waiting: HashMap<ChannelName, WaitingRequests>,
    pub(super) outbox: Outbox,
    pub(super) wheel: Wheel,
    /// Keys that are due in the current tick.
    pub(super) due: Vec<(u32, u64)>,
    /// Connections that have more to read than one turn allows.
    pub(super) unread: Vec<u32>,
    /// Connections that have more to write than one turn allows.
    pub(super) sliced: Vec<u32>,
    /// Connections that have sent too much, and when they are read again, in microseconds of the node's clock.
    pub(super) throttled: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// How many inline runs this turn may still do.
    pub(super) inline_runs_left: usize,
    /// How many bytes of replies this turn has made.
    pub(super) made: usize,
    pub(super) scratch: Vec<u8>,
    pub(super) effects: Effects,
    pub(super) tracker: Tracker,
    /// The reactions of the clients since the last tick.
    pub(super) reactions: ReactionBoard,
    /// Counted reactions that had no room in the mailbox of the thread that keeps the totals.
    pub(super) unsent_reactions: Vec<CountedReactions>,
    /// The minute statistics; None = they are switched off.
    pub(super) minute_stats: Option<Box<MinuteStats>>,
    pub(super) seen_sweep: SeenSweep,
    /// Random bytes for client ids.
    pub(super) secure: ClientIdRandom,
    /// Pseudo-random numbers for values that need no secret, such as the spread of pings. The seed of the epochs is not
    /// among them.
    pub(super) random: fastrand::Rng,
    /// The time of this turn, in Unix milliseconds.
    pub(super) now_ms: u64,
    /// The time of this turn, in microseconds of the node's clock.
    pub(super) now_us: u64,
    pub(super) drain: Option<Drain>,
    /// The probe of all connections that is under way; None = there is none.
    pub(super) probe_progress: Option<ProbeProgress>,
    pub(super) ban_sweep: BanSweep,
    pub(super) stepwise: StepwiseWork,
    pub(super) reload: ReloadProgress,
}

/// A drain that is under way: the shard disconnects its clients at the pace of the node.
pub(super) struct Drain {
    /// Connections that have not been disconnected yet.
    pub(super) slots: Vec<u32>,
    /// How many connections the shard had when the drain began.
    pub(super) clients: usize,
    /// Until when clients that wait for a backend are skipped, in microseconds of the node's clock.
    pub(super) patient_until_us: u64,
    pub(super) done: Option<oneshot::Sender<()>>,
}

/// A probe of all connections that is under way.
pub(super) struct ProbeProgress {
    /// Slots of connections that may not have sent a pong yet.
    pub(super) slots: Vec<u32>,
    /// When the last shard drops this, the registry actor is notified.
    pub(super) _done: Arc<Probe>,
}

/// A sweep over all connections, for new bans.
#[derive(Debug, Default)]
pub(super) struct BanSweep {
    /// The slot that is judged next; None = no sweep is under way.
    pub(super) next: Option<u32>,
    /// Whether new bans need another sweep.
    pub(super) is_wanted: bool,
    /// Until when no other sweep begins, in Unix milliseconds.
    pub(super) not_before_ms: u64,
}

/// Makes the reaction board of a shard; nothing is counted yet.
fn reaction_board(node: &Node, generation: &Generation, hash_seed: HashSeed) -> ReactionBoard {
    let namespaces = Arc::clone(&generation.session.namespaces);
    let admission = Arc::clone(&node.reactions.admission);
    ReactionBoard::with_admission(namespaces, generation.settings.reactions.channel_limit, admission, hash_seed)
}

/// Makes the empty channel table of a shard, as the settings want it.
fn no_channels(node: &Node, generation: &Generation, seed: u64, hash_seed: HashSeed) -> Channels {
    let limit = generation.settings.node.channel_limit.div_ceil(node.shards.len().max(1));
    let namespaces = Arc::clone(&generation.session.namespaces);
    let channels = Channels::new(namespaces, node.shards.len(), seed, hash_seed).limited(limit);
    let channels = if node.store().is_some() { channels.with_store() } else { channels };
    let channels = if node.stats().is_some() { channels.counting_audiences() } else { channels };
    let wants = generation.wants.kinds;
    let channels = if wants.has_channel_state() { channels.noting_held() } else { channels };
    if node.cluster.is_some() { channels.in_cluster() } else { channels }
}

/// How many connections of a shard may be unauthenticated at most.
fn unauthenticated_max(node: &Node, generation: &Generation) -> usize {
    match generation.settings.client.unauthenticated_connection_limit {
        0 => usize::MAX,
        limit => limit.div_ceil(node.shards.len()),
    }
}

/// How far a shard has got with noting its connected users.
#[derive(Debug, Default)]
pub(super) struct SeenSweep {
    /// When the sweep began, in Unix milliseconds.
    pub(super) began_ms: u64,
    /// The slot that is looked at next.
    pub(super) next: u32,
    /// When the waiting times are written next, in Unix milliseconds.
    pub(super) write_at_ms: u64,
}

impl Shard {
    /// Makes a shard without connections. `seed` must be random.
    ///
    /// # Errors
    /// When the poller does not take a listener, or the system has no random numbers.
    pub(crate) fn new(
        id: ShardId,
        node: Arc<Node>,
        services: Services,
        mailbox: UnboundedReceiver<Message>,
        registry: mio::Registry,
        listeners: Vec<BoundListener>,
        seed: u64,
    ) -> io::Result<Self> {
        let now_ms = node.clock.now_ms();
        let generation = node.newest.get();
        let mut secure = ClientIdRandom::new();
        let no_random_numbers = || io::Error::other("the system has no random numbers");
        let random = secure.bytes().map(u64::from_ne_bytes).ok_or_else(no_random_numbers)?;
        let hash_seed = random::hash_seed().ok_or_else(no_random_numbers)?;
        let minute_stats = node.stats().map(|_| Box::new(MinuteStats::new(format!("{}/{id}", node.id).into(), now_ms)));
        let mut hub = Hub::new(hash_seed);
        if minute_stats.is_some() {
            hub.note_leavers();
        }
        Ok(Shard {
            id,
            namespaces: node.shards[usize::from(id)].metrics.sessions.numbered(&generation.session.namespaces),
            metrics: Arc::clone(&node.shards[usize::from(id)].metrics),
            mailbox,
            taken: VecDeque::with_capacity(MESSAGES_MAX),
            acceptor: Acceptor::new(listeners, &registry)?,
            registry,
            connections: Connections::default(),
            users: Users::new(Arc::clone(&node.users), generation.wants.kinds.has_user_state()),
            unauthenticated: Unauthenticated::default(),
            unauthenticated_max: unauthenticated_max(&node, &generation),
            address_slots: HashMap::new(),
            told_addresses: HashMap::new(),
            connecting: HashMap::new(),
            unsent_ends: UnsentEnds::default(),
            telling: TellingLives::default(),
            forwarded: HashMap::new(),
            hub,
            channels: no_channels(&node, &generation, seed, hash_seed),
            waiting: HashMap::new(),
            outbox: Outbox::default(),
            wheel: Wheel::new(TICK_MS, WHEEL_TICKS, now_ms),
            due: Vec::new(),
            unread: Vec::new(),
            sliced: Vec::new(),
            throttled: BinaryHeap::new(),
            inline_runs_left: 0,
            made: 0,
            scratch: vec![0; SCRATCH_SIZE],
            effects: Effects::default(),
            tracker: Tracker::default(),
            reactions: reaction_board(&node, &generation, hash_seed),
            unsent_reactions: Vec::new(),
            minute_stats,
            seen_sweep: SeenSweep::default(),
            random: fastrand::Rng::with_seed(random),
            secure,
            now_ms,
            now_us: 0,
            drain: None,
            probe_progress: None,
            ban_sweep: BanSweep::default(),
            stepwise: StepwiseWork::default(),
            reload: ReloadProgress::default(),
            services,
            generation,
            node,
        })
    }

    /// The minute statistics, and what they count; None = they are switched off.
    pub(super) fn minute_stats(&mut self) -> Option<(&mut MinuteStats, Audience<'_>)> {
        let Shard { hub, channels, connections, minute_stats, node, .. } = self;
        let (minute_stats, stats) = (minute_stats.as_deref_mut()?, node.stats()?);
        Some((minute_stats, Audience { hub, channels, connections, stats }))
    }

    /// Counts a new connection.
    pub(super) fn count_opened(&self, transport: Transport) {
        self.metrics.connections.add(1);
        let counts = &self.metrics.transports[transport as usize];
        counts.open.add(1);
        counts.connects.add(1);
    }

    /// Runs work that one connection causes. A panic in it ends only that connection.
    pub(super) fn guarded(&mut self, slot: u32, work: impl FnOnce(&mut Shard, u32)) {
        if !self.isolated(|shard| work(shard, slot)) && !self.isolated(|shard| shard.remove(slot)) {
            self.settle_session(slot);
            self.address_slots.remove(&slot);
            self.told_addresses.remove(&slot);
            self.connecting.remove(&slot);
            self.forwarded.remove(&slot);
            self.connections.forget(slot);
        }
    }

    /// Runs work that a peer causes. False = the work panicked, and the panic was counted.
    pub(super) fn isolated(&mut self, work: impl FnOnce(&mut Shard)) -> bool {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self)));
        if result.is_err() {
            self.metrics.panics.add(1);
            tracing::error!(shard = self.id, "a connection was ended by a fault of the server");
            self.scratch.resize(SCRATCH_SIZE, 0);
            self.effects = Effects::default();
        }
        result.is_ok()
    }
}

/// Subtracts one if there is one left. Returns whether there was.
pub(super) fn take_one(left: &mut usize) -> bool {
    let has_any = *left > 0;
    *left = left.saturating_sub(1);
    has_any
}
