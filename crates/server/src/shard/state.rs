//! What a shard owns, and how a fault of one connection is kept from the others.

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

/// Messages of the mailbox served in one turn.
pub(super) const MESSAGES_MAX: usize = 256;
/// Length of a tick, milliseconds.
pub(super) const TICK_MS: u64 = 100;
// Deadlines of connections are tenths of a second.
const _: () = assert!(TICK_MS * 1_000 == TENTH_US);
/// Ticks that the wheel reaches ahead: somewhat more than the usual time between pings.
pub(super) const WHEEL_TICKS: usize = 512;
/// Bytes read from a socket at once.
pub(super) const SCRATCH_SIZE: usize = 64 * 1024;

/// One event loop and all it owns.
pub(crate) struct Shard {
    pub(super) id: ShardId,
    pub(super) node: Arc<Node>,
    /// The settings that this shard works with.
    pub(super) generation: Arc<Generation>,
    pub(super) services: Services,
    pub(super) metrics: Arc<ShardMetrics>,
    /// The counters of the namespaces of the generation.
    pub(super) namespaces: NumberedNamespaces,
    pub(super) mailbox: UnboundedReceiver<Message>,
    /// Messages taken out of the mailbox that are about to be served.
    pub(super) taken: VecDeque<Message>,
    pub(super) registry: mio::Registry,
    pub(super) acceptor: Acceptor,
    pub(super) connections: Connections,
    pub(super) users: Users,
    pub(super) unauthenticated: Unauthenticated,
    /// The most unauthenticated connections that this shard holds.
    pub(super) unauthenticated_max: usize,
    /// The counted slot of each connection at its address, by slot of the connection, where addresses are limited.
    pub(super) address_slots: HashMap<u32, AddressSlot>,
    /// The addresses of clients that the socket of their connection does not tell, by slot: proxies have told them, or
    /// the connection is a stream of HTTP/2.
    pub(super) told_addresses: HashMap<u32, IpAddr>,
    /// What is known of connections whose client has not connected yet, by slot, where that is told.
    pub(super) connecting: HashMap<u32, ConnectingFacts>,
    /// Ends of clients that wait for room in the mailbox of events.
    pub(super) unsent_ends: UnsentEnds<EventMessage>,
    /// The lives in which the clients are told.
    pub(super) telling: TellingLives,
    /// The header fields of each connection that hooks pass on, by slot, where some hook does.
    pub(super) forwarded: HashMap<u32, ForwardedHeaders>,
    pub(super) hub: Hub,
    pub(super) channels: Channels,
    /// Requests that wait until their channel is live, by channel.
    pub(super) waiting: HashMap<ChannelName, WaitingRequests>,
    pub(super) outbox: Outbox,
    pub(super) wheel: Wheel,
    /// Keys due in the current tick.
    pub(super) due: Vec<(u32, u64)>,
    /// Connections with more to read than one turn allows.
    pub(super) unread: Vec<u32>,
    /// Connections with more to be written than one turn allows.
    pub(super) sliced: Vec<u32>,
    /// Connections that have sent too much, and when they are read again, microseconds of the node's clock.
    pub(super) throttled: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Inline runs that this turn may still do.
    pub(super) inline_runs_left: usize,
    /// Bytes of replies that this turn has made.
    pub(super) made: usize,
    pub(super) scratch: Vec<u8>,
    pub(super) effects: Effects,
    pub(super) tracker: Tracker,
    /// What the clients have reacted with since the last tick.
    pub(super) reactions: ReactionBoard,
    /// What was counted and has no room in the mailbox of the thread that keeps the totals.
    pub(super) unsent_reactions: Vec<CountedReactions>,
    /// The minute statistics; None = they are switched off.
    pub(super) minute_stats: Option<Box<MinuteStats>>,
    pub(super) seen_sweep: SeenSweep,
    /// Random bytes for the ids of clients.
    pub(super) secure: ClientIdRandom,
    /// Pseudo-random numbers for what needs no secret, such as the spread of pings: not of the seed of the epochs.
    pub(super) random: fastrand::Rng,
    /// The time of this turn, Unix milliseconds.
    pub(super) now_ms: u64,
    /// The time of this turn, microseconds of the node's clock.
    pub(super) now_us: u64,
    pub(super) drain: Option<Drain>,
    /// A probe of all connections that is under way.
    pub(super) probe_progress: Option<ProbeProgress>,
    pub(super) ban_sweep: BanSweep,
    pub(super) stepwise: StepwiseWork,
    pub(super) reload: ReloadProgress,
}

/// A drain under way: the shard disconnects some connections at each tick.
pub(super) struct Drain {
    pub(super) slots: Vec<u32>,
    pub(super) each_tick: usize,
    /// Until then those that wait for a backend are passed over, microseconds of the node's clock.
    pub(super) patient_until_us: u64,
    pub(super) done: Option<oneshot::Sender<()>>,
}

/// A probe of all connections that is under way.
pub(super) struct ProbeProgress {
    /// Slots of the connections that may not have sent a pong yet.
    pub(super) slots: Vec<u32>,
    /// The registry actor is told when the last shard drops this.
    pub(super) _done: Arc<Probe>,
}

/// A sweep over all connections, for bans that have come.
#[derive(Debug, Default)]
pub(super) struct BanSweep {
    /// The slot that is next; None = no sweep is under way.
    pub(super) next: Option<u32>,
    /// Bans have come that need another one.
    pub(super) is_wanted: bool,
    /// Before this time no other one begins, Unix milliseconds.
    pub(super) not_before_ms: u64,
}

/// The board of a shard on which nothing is counted yet.
fn reaction_board(node: &Node, generation: &Generation, hash_seed: HashSeed) -> ReactionBoard {
    let namespaces = Arc::clone(&generation.session.namespaces);
    let admission = Arc::clone(&node.reactions.admission);
    ReactionBoard::with_admission(namespaces, generation.settings.reactions.channel_limit, admission, hash_seed)
}

/// The channels of a shard that has none yet, as the settings want them.
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

/// Connections of a shard whose client has not sent `connect` yet, at most.
fn unauthenticated_max(node: &Node, generation: &Generation) -> usize {
    match generation.settings.client.unauthenticated_connection_limit {
        0 => usize::MAX,
        limit => limit.div_ceil(node.shards.len()),
    }
}

/// How far a shard has come in noting its connected users.
#[derive(Debug, Default)]
pub(super) struct SeenSweep {
    /// When the sweep began, Unix milliseconds.
    pub(super) began_ms: u64,
    /// The slot that is looked at next.
    pub(super) next: u32,
    /// When what waits is written next, Unix milliseconds.
    pub(super) write_at_ms: u64,
}

impl Shard {
    /// An empty shard. `seed` must be random.
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

    /// The minute statistics, and what they count from; None = they are switched off.
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

    /// Runs work that one connection causes. A panic ends that connection only.
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

    /// Runs work that a peer causes. False = it panicked, which is counted.
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

/// Subtracts one if any is left. Returns whether any was.
pub(super) fn take_one(left: &mut usize) -> bool {
    let has_any = *left > 0;
    *left = left.saturating_sub(1);
    has_any
}
