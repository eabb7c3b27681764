//! Other endpoints while the node runs: a reload has changed, added or removed some.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use touchline_engine::duration::millis;

use super::endpoint::EventEndpoint;
use super::lane::{self, EndpointAtWork};
use super::source::{BatchSource, QueueSource};
use super::worker::{EventWorker, STOP_PATIENCE};
use crate::runtime::event_metrics::DropReason;

/// Between two looks whether an endpoint that was removed has been told all.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// An endpoint at work, and its lanes.
pub(super) struct WorkingEndpoint {
    pub(super) work: Rc<EndpointAtWork>,
    lanes: Vec<AbortHandle>,
}

impl WorkingEndpoint {
    /// Starts the lanes of an endpoint.
    pub(super) fn begin(work: EndpointAtWork, tasks: &mut JoinSet<()>) -> Self {
        let work = Rc::new(work);
        let lanes = 0..work.endpoint().options.lanes;
        let lanes = lanes.map(|lane| tasks.spawn_local(lane::run(Rc::clone(&work), lane))).collect();
        WorkingEndpoint { work, lanes }
    }

    /// Tells what waits, for a while, and ends.
    async fn end(self) {
        let WorkingEndpoint { work, lanes } = self;
        if let Some(queue) = work.source.queue() {
            queue.close();
            let is_empty = async {
                while queue.len() > 0 {
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
            };
            if tokio::time::timeout(STOP_PATIENCE, is_empty).await.is_err() {
                work.figures().dropped[DropReason::Stopped as usize].add(queue.len() as u64);
                let endpoint = &work.name;
                tracing::warn!(%endpoint, events = queue.len(), "the endpoint was removed before these were told");
            }
        }
        lanes.iter().for_each(AbortHandle::abort);
        work.log_given_up(true);
    }
}

impl Deref for WorkingEndpoint {
    type Target = EndpointAtWork;

    fn deref(&self) -> &EndpointAtWork {
        &self.work
    }
}

/// Whether the teller counts who holds what for these endpoints, and after what time it tells that nobody does.
pub(super) fn counting_of(endpoints: &[Arc<EventEndpoint>]) -> (bool, Duration) {
    let counted =
        |endpoint: &&Arc<EventEndpoint>| endpoint.kinds.has_channel_state() || endpoint.kinds.has_user_state();
    let counts = endpoints.iter().filter(counted).any(|endpoint| !endpoint.options.durable);
    // They all have the same.
    (counts, endpoints.iter().find(counted).map_or(Duration::ZERO, |endpoint| endpoint.options.delay))
}

impl EventWorker {
    /// Tells these endpoints from now on. One that was there keeps what waits for it; what waits for one that is gone
    /// is told for a while still. Durable ones neither come nor go.
    pub(super) fn exchange(&mut self, endpoints: Vec<EventEndpoint>) {
        let endpoints: Vec<_> = endpoints.into_iter().map(Arc::new).collect();
        let (counts, delay) = counting_of(&endpoints);
        let mut before = std::mem::take(&mut self.endpoints);
        for endpoint in endpoints {
            let known = before.iter().position(|working| working.work.name == endpoint.name);
            match known.map(|known| before.remove(known)) {
                Some(working) => {
                    working.work.set_endpoint(endpoint);
                    self.endpoints.push(working);
                }
                None => self.add(endpoint),
            }
        }
        for gone in before {
            self.lanes.spawn_local(gone.end());
        }
        self.teller.set_delay(millis(delay));
        if !std::mem::replace(&mut self.counts, counts) && counts {
            let now_ms = self.node.clock.now_ms();
            self.holding.keys().for_each(|key| self.teller.set_held(key, true, now_ms));
        }
    }

    /// Begins to tell an endpoint, first that it knows nothing of what was before.
    fn add(&mut self, endpoint: Arc<EventEndpoint>) {
        let source = BatchSource::Queue(QueueSource::new(Arc::clone(&self.node), &endpoint));
        let metrics = self.node.events.get().map(|events| Arc::clone(&events.metrics)).unwrap_or_default();
        let work = EndpointAtWork::new(Arc::clone(&self.node), endpoint, source, &metrics);
        let working = WorkingEndpoint::begin(work, &mut self.lanes);
        let reset = self.reset("start", None).write(&self.sources);
        if let (Some(queue), Some(reset)) = (working.source.queue(), reset) {
            queue.note_loss(&reset);
        }
        self.endpoints.push(working);
    }
}
