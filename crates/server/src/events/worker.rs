//! The thread that reports what happens. It makes events from what other threads have seen, and passes each to the
//! endpoints that ask for it. Their lanes are tasks of this thread.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use touchline_config::EVENT_ENDPOINTS_MAX;
use touchline_engine::duration::millis;
use touchline_engine::events::{
    DeadReason, EventDraft, EventLoss, EventSources, NodeHolding, StateTeller, TellerOptions, TellerOutput,
    WrittenEvent,
};
use touchline_registry::{HashSeed, ReplicaTiming};
use touchline_store::PrimaryOptions;

use super::durable::DurableEvents;
use super::endpoint::EventEndpoint;
use super::lane::EndpointAtWork;
use super::lost::{LostNode, LostNodes, NodeEnd};
use super::source::{BatchSource, QueueSource};
use super::working::{STOP_PATIENCE, WorkingEndpoint, counting_of};
use super::writing::{client_draft, entry_draft, expired_draft, lost_client_draft, reset_draft, state_draft};
use crate::backend::nats::EVENTS_SCOPE;
use crate::node::Node;
use crate::registry::clock_jumps::ClockJumps;
use crate::runtime::ends_process::start_owner;
use crate::runtime::event_mailbox::{EventMessage, EventReceiver};
use crate::runtime::event_metrics::DropReason;
use crate::runtime::mailbox::Message;

/// The most messages that are handled before the lanes run again.
const MESSAGES: usize = 256;
/// How often the thread looks for due keys and events, and sets the metrics.
const TICK: Duration = Duration::from_millis(50);
/// The threads for looking up the names of endpoints, and for the primary database if it is SQLite. An endpoint has at
/// most one lookup under way, so that no endpoint waits for the lookup of another.
const BLOCKING_THREADS_MAX: usize = 20;
const _: () = assert!(BLOCKING_THREADS_MAX >= EVENT_ENDPOINTS_MAX + 4);

/// What the thread needs at its start.
pub(crate) struct EventsStart {
    pub(crate) endpoints: Vec<EventEndpoint>,
    /// The endpoints of later generations of the settings.
    pub(crate) later: UnboundedReceiver<Vec<EventEndpoint>>,
    pub(crate) messages: EventReceiver,
    /// The timing of the registry.
    pub(crate) timing: ReplicaTiming,
    /// A random number that distinguishes this start of the node.
    pub(crate) birth: u64,
    /// The seed for the hashes of channels and users, which clients choose.
    pub(crate) seed: HashSeed,
    /// How the primary database is opened; `None` = no feature needs it.
    pub(crate) primary: Option<PrimaryOptions>,
}

/// Starts the thread that reports events.
///
/// # Errors
/// When the system cannot start a thread.
pub(crate) fn start(node: Arc<Node>, start: EventsStart) -> io::Result<JoinHandle<()>> {
    start_owner("events", move || {
        // The runtime must not leave its thread.
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX);
        match runtime.build_local(LocalOptions::default()) {
            Ok(runtime) => {
                runtime.block_on(async {
                    let (worker, messages, later) = EventWorker::new(node, start);
                    worker.run(messages, later).await;
                });
                // The shutdown does not wait for name lookups of the system.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "the system cannot start the runtime of events: no event is sent"),
        }
    })
}

pub(super) struct EventWorker {
    pub(super) node: Arc<Node>,
    pub(super) endpoints: Vec<WorkingEndpoint>,
    pub(super) sources: EventSources,
    /// How many times the node has reported that events may be missing.
    resets: u64,
    pub(super) lanes: JoinSet<()>,
    /// The part for durable endpoints; `None` = no endpoint is durable.
    durable: Option<DurableEvents>,
    /// What this node holds.
    pub(super) holding: NodeHolding,
    pub(super) teller: StateTeller,
    /// Whether the teller counts, because an endpoint that is not durable asks for states.
    pub(super) counts: bool,
    lost: LostNodes,
    /// The life in which the clients of this node are reported.
    life: u32,
    /// When the mailbox was last asked for lost messages, in Unix milliseconds.
    checked_ms: u64,
    /// How long a node may be gone before the others notice, in milliseconds.
    unnoticed_ms: u64,
    /// The scope of the tellers.
    scope: Arc<str>,
    clock_jumps: ClockJumps,
}

impl EventWorker {
    fn new(node: Arc<Node>, start: EventsStart) -> (Self, EventReceiver, UnboundedReceiver<Vec<EventEndpoint>>) {
        let EventsStart { endpoints, later, messages, timing, birth, seed, primary } = start;
        let metrics = node.events.get().map(|events| Arc::clone(&events.metrics)).unwrap_or_default();
        let mut lanes = JoinSet::new();
        let endpoints: Vec<Arc<EventEndpoint>> = endpoints.into_iter().map(Arc::new).collect();
        let durable = DurableEvents::new(&node, &endpoints, (primary.as_ref(), seed)).unwrap_or_else(|error| {
            tracing::error!(%error, "the ledger of events cannot be used: durable endpoints receive no events");
            None
        });
        let at_work = |endpoint: Arc<EventEndpoint>| {
            let source = match durable.as_ref().filter(|_| endpoint.options.durable) {
                Some(durable) => BatchSource::Outbox(durable.source(&endpoint)),
                None => BatchSource::Queue(QueueSource::new(Arc::clone(&node), &endpoint)),
            };
            let work = EndpointAtWork::new(Arc::clone(&node), endpoint, source, &metrics);
            WorkingEndpoint::begin(work, &mut lanes)
        };
        let (counts, delay) = counting_of(&endpoints);
        let endpoints: Vec<_> = endpoints.into_iter().map(at_work).collect();
        if let Some(durable) = &durable {
            durable.start(&mut lanes);
        }
        let now_ms = node.clock.now_ms();
        let is_clustered = node.cluster.is_some();
        let unnoticed_ms = if is_clustered { timing.timeout_ms + timing.heartbeat_ms } else { 0 };
        let options = TellerOptions { delay_ms: millis(delay), timing, is_clustered };
        let worker = EventWorker {
            sources: EventSources::new(&node.generation().settings.cluster.name, &node.id),
            endpoints,
            resets: 0,
            lanes,
            counts,
            durable,
            holding: NodeHolding::new(seed),
            teller: StateTeller::new(&node.id, birth, options, seed, now_ms),
            lost: LostNodes::default(),
            life: 1,
            checked_ms: now_ms,
            unnoticed_ms,
            scope: EVENTS_SCOPE.into(),
            clock_jumps: ClockJumps::new(node.clock.time(), now_ms),
            node,
        };
        (worker, messages, later)
    }

    async fn run(mut self, mut messages: EventReceiver, mut later: UnboundedReceiver<Vec<EventEndpoint>>) {
        // real time: a heartbeat that reads the node's clock.
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                message = messages.next() => {
                    self.wake();
                    let rest = std::iter::from_fn(|| messages.try_next()).take(MESSAGES);
                    let mut is_over = message.is_none();
                    let batch: Vec<_> = message.into_iter().chain(rest).collect();
                    for message in batch {
                        is_over |= matches!(message, EventMessage::Stop);
                        self.handle(message);
                    }
                    if is_over {
                        return self.finish().await;
                    }
                }
                Some(endpoints) = later.recv() => {
                    self.wake();
                    self.exchange(endpoints);
                }
                _ = ticks.tick() => {
                    self.wake();
                    self.tick();
                }
            }
            self.advance();
            self.note_lost(&messages);
            tokio::task::yield_now().await;
        }
    }

    /// Reports a loss if the mailbox was full.
    fn note_lost(&mut self, messages: &EventReceiver) {
        let checked_ms = std::mem::replace(&mut self.checked_ms, self.node.clock.now_ms());
        let Some(EventLoss { events, since_ms }) = messages.take_lost(checked_ms) else { return };
        self.endpoints.iter().for_each(|work| work.figures().dropped[DropReason::MailboxFull as usize].add(events));
        // The lost message may have been the end of a node.
        let since_ms = Some(since_ms.saturating_sub(self.unnoticed_ms));
        self.reset_all("lost", since_ms);
        self.reset_durable("lost", since_ms);
    }

    fn handle(&mut self, message: EventMessage) {
        match message {
            EventMessage::Client(at_ms, incident) => {
                let is_again = incident.change.is_again();
                let (draft, channel) = client_draft(&self.node, at_ms, incident);
                if !is_again && let Some(durable) = &self.durable {
                    durable.note(&draft, channel.as_deref());
                }
                self.queue(&draft, channel.as_deref());
            }
            EventMessage::Held { key, shard, is_held } => {
                if let Some(is_held) = self.holding.note(&key, shard, is_held) {
                    if self.counts {
                        self.teller.set_held(&key, is_held, self.node.clock.now_ms());
                    }
                    if let Some(durable) = &self.durable {
                        durable.note_held(&key, is_held);
                    }
                }
            }
            EventMessage::Entry(at_ms, incident) if incident.is_of_lost_node => self.lost.add_entry(at_ms, incident),
            EventMessage::Entry(at_ms, incident) => self.tell(&entry_draft(at_ms, &incident), None),
            EventMessage::LostClient(_, client) => self.lost.add_client(client),
            EventMessage::Expired(at_ms, expired) => {
                expired.iter().for_each(|message| self.tell(&expired_draft(at_ms, message), None));
            }
            EventMessage::Scope(message) => self.teller.receive(&message, self.node.clock.now_ms()),
            EventMessage::Joined(nodes) => self.teller.joined(&nodes, self.node.clock.now_ms()),
            EventMessage::Gone(node) => self.teller.gone(&node, self.node.clock.now_ms()),
            EventMessage::Resume(name) => {
                self.endpoints.iter().filter(|work| work.name == *name).for_each(|work| work.resume());
            }
            EventMessage::Dead(request) => match &self.durable {
                Some(durable) => durable.ask_dead(request, &mut self.lanes),
                None => drop(request),
            },
            EventMessage::Stop => {}
        }
    }

    /// Notices that the clock was set, or that this thread stood still.
    fn wake(&mut self) {
        let now_ms = self.node.clock.now_ms();
        if let Some(step_ms) = self.clock_jumps.check(now_ms) {
            self.teller.clock_set(step_ms);
        }
        self.teller.wake(now_ms);
    }

    /// Reports what is due about channels, users and lost nodes.
    fn advance(&mut self) {
        let now_ms = self.node.clock.now_ms();
        self.teller.advance(now_ms);
        self.perform();
        if self.teller.life() > self.life {
            self.life = self.teller.life();
            tracing::info!(
                life = self.life,
                "other nodes have reported the clients of this node as gone: they are reported again"
            );
            // Durable endpoints have lives of their own.
            if self.endpoints.iter().any(|work| work.source.queue().is_some()) {
                self.node.send_to_shards(|| Message::TellAgain(self.life));
            }
        }
        if self.teller.is_ready(now_ms) {
            let teller = &self.teller;
            let lost = self.lost.take(|node| teller.sees(node), |node| teller.is_reporter(node));
            for LostNode { life, clients, entries } in lost {
                entries.iter().for_each(|(at_ms, incident)| self.tell(&entry_draft(*at_ms, incident), None));
                clients.into_values().for_each(|client| self.tell(&lost_client_draft(now_ms, client, life), None));
            }
        }
    }

    /// Carries out what the teller wants.
    fn perform(&mut self) {
        let outputs: Vec<TellerOutput> = self.teller.outputs().collect();
        for output in outputs {
            match output {
                TellerOutput::Send { to, message } => {
                    if let Some(cluster) = &self.node.cluster {
                        cluster.send_to_scope(&self.scope, to.as_ref(), message);
                    }
                }
                TellerOutput::Node { node, is_up: false, life, heard_ms } => {
                    self.lost.note_end(node, NodeEnd { life, heard_ms });
                }
                TellerOutput::Node { node, .. } => {
                    if let Some(heard_ms) = self.lost.note_return(&node) {
                        self.reset_all("node_returned", Some(heard_ms));
                    }
                }
                TellerOutput::Tell(change) => {
                    let draft = state_draft(&self.node, &change);
                    let channel = draft.kind.is_of_channel_state().then(|| change.key.name());
                    self.tell(&draft, channel);
                }
                TellerOutput::Doubt { why, since_ms } => self.reset_all(why, since_ms),
            }
        }
    }

    /// Passes an event to the endpoints that ask for it. `channel`: the channel of the event, if endpoints may ask for
    /// some channels only.
    fn tell(&mut self, draft: &EventDraft, channel: Option<&str>) {
        if let Some(durable) = &self.durable {
            durable.note(draft, channel);
        }
        self.queue(draft, channel);
    }

    /// Passes an event to the endpoints that ask for it and are not durable.
    fn queue(&mut self, draft: &EventDraft, channel: Option<&str>) {
        let node = Arc::clone(&self.node);
        let namespace = channel.map(|channel| node.generation().session.namespaces.namespace_of(channel));
        let told =
            |work: &&WorkingEndpoint| work.source.queue().is_some() && work.endpoint().is_told(draft.kind, namespace);
        let Some(event) = draft.write(&self.sources) else {
            for work in self.endpoints.iter().filter(told) {
                work.figures().dropped[DropReason::TooLarge as usize].add(1);
                work.note_loss(draft.time_ms);
            }
            return;
        };
        let works: Vec<_> = self.endpoints.iter().filter(told).map(|working| Rc::clone(&working.work)).collect();
        for work in works {
            self.push(&work, event.clone());
        }
    }

    pub(super) fn push(&mut self, work: &EndpointAtWork, event: WrittenEvent) {
        let Some(queue) = work.source.queue() else { return };
        if let Some(EventLoss { events, since_ms }) = queue.push(event) {
            work.figures().dropped[DropReason::QueueFull as usize].add(events);
            if let Some(reset) = self.reset("dropped", Some(since_ms)).write(&self.sources) {
                queue.note_loss(&reset);
            }
        }
    }

    /// Makes the event that says that events may be missing. `since_ms`: nothing before this time is in doubt, in Unix
    /// milliseconds; None = everything is.
    pub(super) fn reset(&mut self, why: &str, since_ms: Option<u64>) -> EventDraft {
        self.resets += 1;
        reset_draft(&self.node, self.node.clock.now_ms(), since_ms, why, self.resets)
    }

    /// Reports to the durable endpoints that events may be missing.
    fn reset_durable(&mut self, why: &str, since_ms: Option<u64>) {
        let reset = self.reset(why, since_ms);
        if let Some(durable) = &self.durable {
            durable.note(&reset, None);
        }
    }

    /// Reports to all endpoints that are not durable that events may be missing.
    fn reset_all(&mut self, why: &str, since_ms: Option<u64>) {
        let Some(reset) = self.reset(why, since_ms).write(&self.sources) else { return };
        self.endpoints.iter().filter_map(|work| work.source.queue()).for_each(|queue| queue.note_loss(&reset));
    }

    fn tick(&mut self) {
        let now_ms = self.node.clock.now_ms();
        if self.durable.as_ref().is_some_and(|durable| durable.take_dropped() > 0) {
            self.reset_durable("dropped", None);
        }
        for work in &self.endpoints {
            work.log_given_up(false);
            let Some(queue) = work.source.queue() else { continue };
            let gone = queue.expire(now_ms.saturating_sub(work.endpoint().max_age_ms()));
            work.count_dead(&gone, DeadReason::TooOld, "");
            let figures = work.figures();
            figures.queued.set(queue.len() as u64);
            figures.queued_bytes.set(queue.size() as u64);
            figures.oldest_ms.set(queue.oldest_ms().map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms)));
        }
        let works: Vec<_> = self.endpoints.iter().map(|working| Rc::clone(&working.work)).collect();
        for work in works {
            let (Some(since_ms), Some(queue)) = (work.take_loss(), work.source.queue()) else { continue };
            if let Some(reset) = self.reset("given_up", Some(since_ms)).write(&self.sources) {
                queue.note_loss(&reset);
            }
        }
    }

    /// Waits a while until the remaining events are delivered.
    async fn finish(mut self) {
        self.teller.goodbye(self.node.clock.now_ms());
        self.perform();
        if let Some(durable) = &self.durable {
            durable.finish().await;
        }
        let queues = || self.endpoints.iter().filter_map(|work| Some((work, work.source.queue()?)));
        queues().for_each(|(_, queue)| queue.close());
        let is_empty = async {
            while queues().any(|(_, queue)| queue.len() > 0) {
                // real time: the limit of a stop.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // real time: the limit of a stop.
        let _ = tokio::time::timeout(STOP_PATIENCE, is_empty).await;
        for (work, queue) in queues().filter(|(_, queue)| queue.len() > 0) {
            work.figures().dropped[DropReason::Stopped as usize].add(queue.len() as u64);
            let endpoint = &work.name;
            tracing::warn!(%endpoint, events = queue.len(), "the node stops before these events are delivered");
        }
        self.endpoints.iter().for_each(|work| work.log_given_up(true));
        self.lanes.abort_all();
    }
}
