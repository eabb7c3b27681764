//! Other endpoints while the node runs: a reload has changed, added or removed some.

use std::sync::Arc;

use touchline_engine::duration::millis;

use super::endpoint::EventEndpoint;
use super::lane::EndpointAtWork;
use super::source::{BatchSource, QueueSource};
use super::worker::EventWorker;
use super::working::{WorkingEndpoint, counting_of};

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
