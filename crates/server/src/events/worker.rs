//! The thread that tells what happens: it makes events of what other threads have seen, and gives each to the endpoints
//! that are told of it. Their lanes are tasks of this thread.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::JoinSet;
use touchline_engine::events::{DeadReason, EventDraft, EventSources, WrittenEvent};

use super::endpoint::EventEndpoint;
use super::lane::{self, EndpointAtWork};
use super::source::{BatchSource, QueueSource};
use super::writing::{client_draft, reset_draft};
use crate::node::Node;
use crate::runtime::event_mailbox::{EventMessage, EventReceiver};
use crate::runtime::event_metrics::DropReason;

/// Messages that are taken before lanes go on.
const MESSAGES: usize = 256;
/// How often events that have become too old are looked for, and the metrics are set.
const TICK: Duration = Duration::from_millis(250);
/// How long a node that stops waits for its events to arrive.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What the thread begins with.
pub(crate) struct EventsStart {
    pub(crate) endpoints: Vec<EventEndpoint>,
    pub(crate) messages: EventReceiver,
}

/// Starts the thread.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn start(node: Arc<Node>, start: EventsStart) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("events".into()).spawn(move || {
        // The runtime must not leave its thread.
        match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => {
                runtime.block_on(async { EventWorker::new(node, start.endpoints).run(start.messages).await });
                // A name that the system looks up is not waited for.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "the system refused what telling events needs: none is told"),
        }
    })
}

struct EventWorker {
    node: Arc<Node>,
    endpoints: Vec<Rc<EndpointAtWork>>,
    sources: EventSources,
    /// How often the node has told that something may not have been told.
    resets: u64,
    lanes: JoinSet<()>,
}

impl EventWorker {
    fn new(node: Arc<Node>, endpoints: Vec<EventEndpoint>) -> Self {
        let metrics = node.events.as_ref().map(|events| Arc::clone(&events.metrics)).unwrap_or_default();
        let mut lanes = JoinSet::new();
        let at_work = |(number, endpoint): (usize, EventEndpoint)| {
            let source = BatchSource::Queue(QueueSource::new(Arc::clone(&node), &endpoint));
            Rc::new(EndpointAtWork::new(Arc::clone(&node), (endpoint, number), source, Arc::clone(&metrics)))
        };
        let endpoints: Vec<_> = endpoints.into_iter().enumerate().map(at_work).collect();
        for work in &endpoints {
            for lane in 0..work.endpoint.options.lanes {
                lanes.spawn_local(lane::run(Rc::clone(work), lane));
            }
        }
        let cluster = node.settings.cluster.name.as_str();
        EventWorker { sources: EventSources::new(cluster, &node.id), endpoints, resets: 0, lanes, node }
    }

    async fn run(mut self, mut messages: EventReceiver) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        self.reset_all("start");
        loop {
            tokio::select! {
                message = messages.next() => {
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
                _ = ticks.tick() => self.tick(),
            }
            let lost = messages.take_lost();
            if lost > 0 {
                self.endpoints
                    .iter()
                    .for_each(|work| work.figures().dropped[DropReason::MailboxFull as usize].add(lost));
                self.reset_all("lost");
            }
            tokio::task::yield_now().await;
        }
    }

    fn handle(&mut self, message: EventMessage) {
        match message {
            EventMessage::Client(at_ms, incident) => {
                let (draft, channel) = client_draft(&self.node, at_ms, incident);
                let node = Arc::clone(&self.node);
                let namespace = channel.as_deref().map(|channel| node.session.namespaces.namespace_of(channel));
                self.tell(&draft, namespace);
            }
            EventMessage::Held { .. } => {}
            EventMessage::Resume(name) => {
                self.endpoints.iter().filter(|work| work.endpoint.name == *name).for_each(|work| work.resume());
            }
            EventMessage::Stop => {}
        }
    }

    /// Gives an event to the endpoints that are told of it. `namespace`: of the channel that it is about.
    fn tell(&mut self, draft: &EventDraft, namespace: Option<&str>) {
        let told = |work: &&Rc<EndpointAtWork>| work.endpoint.is_told(draft.kind, namespace);
        let Some(event) = draft.write(&self.sources) else {
            for work in self.endpoints.iter().filter(told) {
                work.figures().dropped[DropReason::TooLarge as usize].add(1);
            }
            return;
        };
        let works: Vec<_> = self.endpoints.iter().filter(told).cloned().collect();
        for work in works {
            self.push(&work, event.clone());
        }
    }

    fn push(&mut self, work: &EndpointAtWork, event: WrittenEvent) {
        let BatchSource::Queue(queue) = &work.source;
        let dropped = queue.push(event);
        if dropped > 0 {
            work.figures().dropped[DropReason::QueueFull as usize].add(dropped);
            if let Some(reset) = self.reset("dropped") {
                queue.note_loss(&reset);
            }
        }
    }

    /// The event that tells that something may not have been told.
    fn reset(&mut self, why: &str) -> Option<WrittenEvent> {
        self.resets += 1;
        let now_ms = self.node.clock.now_ms();
        reset_draft(&self.node, now_ms, now_ms, why, self.resets).write(&self.sources)
    }

    /// Something may not have been told to any endpoint.
    fn reset_all(&mut self, why: &str) {
        let Some(reset) = self.reset(why) else { return };
        for work in &self.endpoints {
            let BatchSource::Queue(queue) = &work.source;
            queue.note_loss(&reset);
        }
    }

    fn tick(&mut self) {
        let now_ms = self.node.clock.now_ms();
        for work in &self.endpoints {
            let BatchSource::Queue(queue) = &work.source;
            let gone = queue.expire(now_ms.saturating_sub(work.endpoint.max_age_ms()));
            if !gone.is_empty() {
                work.count_dead(gone.len() as u64, DeadReason::TooOld, "");
            }
            let figures = work.figures();
            figures.queued.set(queue.len() as u64);
            figures.queued_bytes.set(queue.size() as u64);
            figures.oldest_ms.set(queue.oldest_ms().map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms)));
        }
    }

    /// Waits a while for what is left to arrive.
    async fn finish(mut self) {
        let queues = || {
            self.endpoints.iter().map(|work| {
                let BatchSource::Queue(queue) = &work.source;
                (work, queue)
            })
        };
        queues().for_each(|(_, queue)| queue.close());
        let is_empty = async {
            while queues().any(|(_, queue)| queue.len() > 0) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let _ = tokio::time::timeout(STOP_PATIENCE, is_empty).await;
        for (work, queue) in queues().filter(|(_, queue)| queue.len() > 0) {
            work.figures().dropped[DropReason::Stopped as usize].add(queue.len() as u64);
            tracing::warn!(endpoint = %work.endpoint.name, events = queue.len(), "the node stops before these are told");
        }
        self.lanes.abort_all();
    }
}
