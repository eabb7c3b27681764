//! The event loop of one core: it owns connections, the channels at home here, and their state.
//!
//! One turn: read from sockets, serve the mailbox, tick, write what is due; then the thread's other tasks (HTTP) run.
//! Each step is bounded, so nothing starves behind a channel with many subscribers.

mod acceptor;
mod backends;
mod budget;
mod connections;
mod deliver;
mod half_open;
mod input;
mod inspect;
mod log_refusals;
mod minute_stats;
mod outbox;
mod pause;
mod probe;
mod queue;
mod read;
mod users;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mio::event::Event;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use touchline_engine::tracker::Tracker;
use touchline_engine::wheel::Wheel;
use touchline_engine::{Channels, Delivery, Effects, Hub, ShardId};
use touchline_protocol::stream::ChannelName;

use crate::api::operations;
use crate::net::admission::AddressSlot;
use crate::node::Node;
use crate::runtime::clock::TENTH_US;
use crate::runtime::mailbox::Message;
use crate::runtime::metrics::ShardMetrics;
use crate::runtime::poller::Poller;
use crate::runtime::random::ClientIdRandom;
use crate::transport::http::HEAD_MAX;
use acceptor::Acceptor;
pub(crate) use acceptor::Listeners;
use backends::WaitingRequests;
use budget::ANSWERS_AHEAD;
pub(crate) use budget::scarce_from;
use connections::Connections;
pub(crate) use half_open::ConnectionGuard;
use half_open::HalfOpen;
use minute_stats::MinuteStats;
use outbox::Outbox;
use probe::ProbeProgress;
use read::{CLOSE_TENTHS, READ_SIZE};
use users::Users;

/// Sockets served in one turn.
const EVENTS_MAX: usize = 256;
/// Messages of the mailbox served in one turn.
const MESSAGES_MAX: usize = 256;
/// Writes to sockets in one turn: some 150 µs, the time for which other tasks of the thread may wait.
const WRITES_MAX: usize = 32;
/// Subscribers that a publication reaches in less time than it takes to wake the threads of their shards.
const SMALL_AUDIENCE: u32 = 16;
/// Inline runs of other shards in one turn: beyond them the shards' own threads are woken, so that a turn stays short.
const INLINE_RUNS_PER_TURN_MAX: usize = 32;
/// Bytes of replies made in one turn, above which the rest of the mailbox waits for the next turn.
const MADE_MAX: usize = 4 * 1024 * 1024;
// A turn has room for the answers of many connections.
const _: () = assert!(16 * ANSWERS_AHEAD <= MADE_MAX);
/// Deliveries noted and not yet written, above which the mailbox must wait.
const NOTES_MAX: usize = 2_000_000;
/// Length of a tick, milliseconds.
const TICK_MS: u64 = 100;
// Deadlines of connections are tenths of a second.
const _: () = assert!(TICK_MS * 1_000 == TENTH_US);
/// Ticks that the wheel reaches ahead: somewhat more than the usual time between pings.
const WHEEL_TICKS: usize = 512;
/// Bytes read from a socket at once.
const SCRATCH_SIZE: usize = 64 * 1024;
// The longest head of a request fits into one read, and so does a read of a turn.
const _: () = assert!(HEAD_MAX <= SCRATCH_SIZE && READ_SIZE <= SCRATCH_SIZE);
// The wheel reaches the deadline of a close, so that it is booked once.
const _: () = assert!(CLOSE_TENTHS as usize <= WHEEL_TICKS);

thread_local! {
    static HERE: Cell<Option<ShardId>> = const { Cell::new(None) };
}

/// The shard whose own thread this is; None on other threads.
pub(crate) fn here() -> Option<ShardId> {
    HERE.get()
}

/// One event loop and all it owns.
pub(crate) struct Shard {
    id: ShardId,
    node: Arc<Node>,
    metrics: Arc<ShardMetrics>,
    mailbox: UnboundedReceiver<Message>,
    /// Messages taken out of the mailbox that are about to be served.
    taken: VecDeque<Message>,
    registry: mio::Registry,
    acceptor: Acceptor,
    connections: Connections,
    users: Users,
    half_open: HalfOpen,
    /// The most half-open connections that this shard holds.
    half_open_max: usize,
    /// The counted slot of each connection at its address, by slot of the connection, where addresses are limited.
    address_slots: HashMap<u32, AddressSlot>,
    hub: Hub,
    channels: Channels,
    /// Requests that wait until their channel is live, by channel.
    waiting: HashMap<ChannelName, WaitingRequests>,
    outbox: Outbox,
    wheel: Wheel,
    /// Keys due in the current tick.
    due: Vec<(u32, u64)>,
    /// Connections with more to read than one turn allows.
    unread: Vec<u32>,
    /// Connections with more to be written than one turn allows.
    sliced: Vec<u32>,
    /// Connections that have sent too much, and when they are read again, microseconds of the node's clock.
    throttled: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Inline runs that this turn may still do.
    inline_runs_left: usize,
    /// Bytes of replies that this turn has made.
    made: usize,
    scratch: Vec<u8>,
    effects: Effects,
    tracker: Tracker,
    /// The minute statistics; None = they are switched off.
    minute_stats: Option<Box<MinuteStats>>,
    /// Random bytes for the ids of clients.
    secure: ClientIdRandom,
    /// State of a generator for numbers that may be predictable: never shown, and not of the seed of the epochs.
    /// Pseudo-random numbers for what needs no secret: the spread of pings.
    random: fastrand::Rng,
    /// The time of this turn, Unix milliseconds.
    now_ms: u64,
    /// The time of this turn, microseconds of the node's clock.
    now_us: u64,
    drain: Option<Drain>,
    /// A probe of all connections that is under way.
    probe_progress: Option<ProbeProgress>,
}

/// A drain under way: the shard disconnects some connections at each tick.
struct Drain {
    slots: Vec<u32>,
    each_tick: usize,
    done: Option<oneshot::Sender<()>>,
}

impl Shard {
    /// An empty shard. `seed` must be random.
    ///
    /// # Errors
    /// When the poller does not take a listener, or the system has no random numbers.
    pub(crate) fn new(
        id: ShardId,
        node: Arc<Node>,
        mailbox: UnboundedReceiver<Message>,
        registry: mio::Registry,
        listeners: Listeners,
        seed: u64,
    ) -> io::Result<Self> {
        let now_ms = node.clock.now_ms();
        let mut secure = ClientIdRandom::new();
        let random = secure
            .bytes()
            .map(u64::from_ne_bytes)
            .ok_or_else(|| io::Error::other("the system has no random numbers"))?;
        let limit = node.settings.node.channel_limit.div_ceil(node.shards.len().max(1));
        let channels = Channels::new(Arc::clone(&node.session.namespaces), node.shards.len(), seed).limited(limit);
        let channels = if node.store().is_some() { channels.with_store() } else { channels };
        let half_open_max = match node.settings.client.unauthenticated_connection_limit {
            0 => usize::MAX,
            limit => limit.div_ceil(node.shards.len()),
        };
        let part = || Arc::from(format!("{}/{id}", node.id));
        let minute_stats = node.stats().map(|_| Box::new(MinuteStats::new(part(), now_ms)));
        let mut hub = Hub::default();
        let channels = if minute_stats.is_some() {
            hub.note_leavers();
            channels.counting_audiences()
        } else {
            channels
        };
        Ok(Shard {
            id,
            metrics: Arc::clone(&node.shards[usize::from(id)].metrics),
            mailbox,
            taken: VecDeque::with_capacity(MESSAGES_MAX),
            acceptor: Acceptor::new(listeners, &node, &registry)?,
            registry,
            connections: Connections::default(),
            users: Users::new(Arc::clone(&node.users)),
            half_open: HalfOpen::default(),
            half_open_max,
            address_slots: HashMap::new(),
            hub,
            channels: if node.cluster.is_some() { channels.in_cluster() } else { channels },
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
            minute_stats,
            random: fastrand::Rng::with_seed(random),
            secure,
            now_ms,
            now_us: 0,
            drain: None,
            probe_progress: None,
            node,
        })
    }

    /// Runs turns on the shard's own thread until the node has stopped.
    pub(crate) async fn run(self, mut poller: Poller) {
        let node = Arc::clone(&self.node);
        let handle = &node.shards[usize::from(self.id)];
        HERE.set(Some(self.id));
        handle.install(self);
        let mut events = mio::Events::with_capacity(EVENTS_MAX);
        let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut is_tick_due = false;
        let mut has_work = true;
        while !node.is_stopped.load(Relaxed) {
            if has_work {
                tokio::task::yield_now().await;
            } else {
                tokio::select! {
                    biased;
                    _ = ticks.tick() => is_tick_due = true,
                    () = poller.ready() => {}
                    () = handle.woken() => {}
                }
            }
            let mut turn = |shard: &mut Shard| {
                poller.poll(&mut events, EVENTS_MAX);
                shard.turn(&events, std::mem::take(&mut is_tick_due));
                events.clear();
            };
            has_work = loop {
                match handle.run(&mut turn) {
                    Some(has_work) => break has_work,
                    None => handle.woken().await,
                }
            };
        }
        if let Some(mut shard) = handle.clear() {
            shard.finish_minute_stats();
        }
    }

    /// One turn, on the shard's own thread.
    fn turn(&mut self, events: &mio::Events, is_tick_due: bool) {
        self.begin_turn();
        for event in events {
            self.serve_socket(event);
        }
        self.serve_unread();
        self.accept();
        self.serve_mailbox();
        if is_tick_due || self.has_work() && self.is_behind_ticks() {
            self.tick();
        }
        self.write_due(WRITES_MAX);
        self.relieve();
    }

    fn begin_turn(&mut self) {
        self.now_us = self.node.clock.elapsed_us();
        self.now_ms = self.node.clock.unix_ms(self.now_us);
        self.inline_runs_left = INLINE_RUNS_PER_TURN_MAX;
        self.made = 0;
    }

    /// A short turn on a thread of another shard, which has sent a message.
    pub(crate) fn run_inline(&mut self) {
        self.begin_turn();
        self.serve_mailbox();
        self.write_due(WRITES_MAX);
        self.relieve();
    }

    fn serve_mailbox(&mut self) {
        let mut fresh = self.taken.len();
        while self.taken.len() < MESSAGES_MAX && self.outbox.notes() < NOTES_MAX {
            let Ok(message) = self.mailbox.try_recv() else { break };
            self.taken.push_back(message);
        }
        fresh = self.taken.len() - fresh;
        self.node.shards[usize::from(self.id)].note_received(self.taken.iter().rev().take(fresh));
        // Large replies are written before more of them are made.
        while self.made < MADE_MAX
            && let Some(message) = self.taken.pop_front()
        {
            self.serve_message(message);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.outbox.is_empty()
            || !self.taken.is_empty()
            || !self.unread.is_empty()
            || !self.sliced.is_empty()
            || self.has_ready_listener()
    }

    /// Whether a tick is due. A busy shard never waits for its ticker, so it checks the clock.
    fn is_behind_ticks(&self) -> bool {
        self.wheel.is_behind(self.now_ms)
    }

    fn serve_socket(&mut self, event: &Event) {
        let token = event.token();
        if acceptor::is_listener(token) {
            return self.acceptor.on_ready(token);
        }
        if acceptor::is_pending(token) {
            return self.read_pending(token);
        }
        let slot = token.0 as u32;
        if event.is_writable() {
            self.flush_writable(slot);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(slot, event.is_read_closed() || event.is_error());
        }
    }

    fn serve_message(&mut self, message: Message) {
        match message {
            Message::Request { channel, request, reply_to } => {
                self.submit(&channel, request.into(), reply_to);
                self.run_backend_commands();
            }
            Message::Backend { channel, event } => {
                self.channels.apply(&channel, event, self.now_ms);
                self.run_backend_commands();
            }
            Message::SessionReply { connection, ticket, response } => self.guarded(connection.slot, |shard, slot| {
                if shard.connections.is_current(connection) {
                    shard.give_reply(slot, ticket, response);
                }
            }),
            Message::OperationReply { reply, response } => {
                let _ = reply.send(response);
            }
            Message::Delivery { delivery, accepted_us } => {
                self.deliver(delivery, accepted_us);
            }
            Message::Linked(is_linked) => {
                self.channels.set_linked(is_linked, self.now_ms);
                self.run_backend_commands();
            }
            Message::CatchUp => {
                self.channels.catch_up();
                self.run_backend_commands();
            }
            Message::Advanced(namespace) => {
                self.channels.check_namespace(&namespace);
                self.run_backend_commands();
            }
            Message::Broadcast { message, reply } => operations::run_broadcast(&self.node, message, reply),
            Message::Adopt(connection) => self.adopt(*connection),
            Message::Introduced { socket, remote, side, is_for_lines } => {
                self.serve_introduced(socket, remote, side, is_for_lines)
            }
            Message::User(command) => self.run_user_command(*command),
            Message::Client { owner, slot, command } => {
                self.guarded(slot, |shard, slot| shard.run_client_command(owner, slot, command))
            }
            Message::PushMany { clients, push } => deliver::push_many(self, &clients, &push),
            Message::Inspect(inspection) => self.inspect(inspection),
            Message::Probe(done) => self.probe(done),
            Message::MakeRoom { closes, from } => self.make_room_for(from, closes),
            Message::RoomIsMade => self.retry_accepts(),
            Message::Drain { over_ms, done } => {
                let slots: Vec<u32> = self.connections.slots().collect();
                let each_tick = slots.len().div_ceil((over_ms / TICK_MS).max(1) as usize).max(1);
                self.drain = Some(Drain { slots, each_tick, done: Some(done) });
            }
        }
    }

    fn count_publication(&mut self, channel: &str) {
        self.metrics.publications.add(1);
        if let Some(minute_stats) = &mut self.minute_stats {
            minute_stats.published(self.node.session.namespaces.namespace_of(channel));
        }
    }

    fn send_deliveries(&mut self) {
        let accepted_us = self.now_us;
        for (shard, delivery) in self.channels.deliveries() {
            let runs_inline = delivery.subscriber_count <= SMALL_AUDIENCE && take_one(&mut self.inline_runs_left);
            let message = Message::Delivery { delivery, accepted_us };
            if runs_inline { self.node.run_inline(shard, message) } else { self.node.send(shard, message) }
        }
    }

    fn deliver(&mut self, delivery: Delivery, accepted_us: u64) {
        deliver::note(self, &delivery, accepted_us);
    }

    fn tick(&mut self) {
        if self.id == 0 {
            self.node.clock.follow(self.now_us);
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(self.now_ms, &mut due);
        for (slot, booked_ms) in due.drain(..) {
            self.guarded(slot, |shard, slot| shard.tick_connection(slot, booked_ms));
        }
        self.due = due;
        self.drop_overdue();
        self.channels.expire(self.now_ms);
        self.run_backend_commands();
        self.metrics.channels.set(self.channels.len() as u64);
        self.metrics.publications_waiting.set(self.outbox.frames() as u64);
        self.publish_half_open();
        self.forget_settled();
        self.drain_some();
        self.continue_probe();
        self.relieve_http();
        self.tick_minute_stats();
    }

    /// Runs work that one connection causes. A panic ends that connection only.
    fn guarded(&mut self, slot: u32, work: impl FnOnce(&mut Shard, u32)) {
        if !self.isolated(|shard| work(shard, slot)) && !self.isolated(|shard| shard.remove(slot)) {
            self.settle_session(slot);
            self.address_slots.remove(&slot);
            self.connections.forget(slot);
        }
    }

    /// Runs work that a peer causes. False = it panicked, which is counted.
    fn isolated(&mut self, work: impl FnOnce(&mut Shard)) -> bool {
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
fn take_one(left: &mut usize) -> bool {
    let has_any = *left > 0;
    *left = left.saturating_sub(1);
    has_any
}
