//! Replaces the endpoints of a running node, after a reload has changed, added or removed some.

use std::rc::Rc;
use std::sync::Arc;

use touchline_engine::duration::millis;
use touchline_engine::events::StateChange;

use super::endpoint::EventEndpoint;
use super::lane::EndpointAtWork;
use super::source::{BatchSource, QueueSource};
use super::worker::EventWorker;
use super::working::{WorkingEndpoint, counting_of};
use super::writing::state_draft;

impl EventWorker {
    /// Sends events to these endpoints from now on. An endpoint that existed before keeps its waiting events. A removed
    /// endpoint is sent its waiting events for a while. Durable endpoints are neither added nor removed.
    pub(super) fn exchange(&mut self, endpoints: Vec<EventEndpoint>) {
        let endpoints: Vec<_> = endpoints.into_iter().map(Arc::new).collect();
        let (counts, delay) = counting_of(&endpoints);
        let metrics = self.node.events.get().map(|events| Arc::clone(&events.metrics)).unwrap_or_default();
        metrics.set_endpoints(endpoints.iter().map(|endpoint| endpoint.name.clone()));
        let mut before = std::mem::take(&mut self.endpoints);
        let mut widened = Vec::new();
        for endpoint in endpoints {
            let known = before.iter().position(|working| working.work.name == endpoint.name);
            let is_wider = match known.map(|known| before.remove(known)) {
                Some(working) => {
                    let is_wider = endpoint.asks_for_more_than(&working.work.endpoint());
                    working.work.set_endpoint(endpoint);
                    self.endpoints.push(working);
                    is_wider
                }
                None => {
                    let source = BatchSource::Queue(QueueSource::new(Arc::clone(&self.node), &endpoint));
                    let work = EndpointAtWork::new(Arc::clone(&self.node), endpoint, source, &metrics);
                    self.endpoints.push(WorkingEndpoint::begin(work, &mut self.lanes));
                    true
                }
            };
            widened.extend(self.endpoints.last().filter(|_| is_wider).map(|working| Rc::clone(&working.work)));
        }
        for gone in before {
            self.lanes.spawn_local(gone.end());
        }
        self.teller.set_delay(millis(delay));
        let now_ms = self.node.clock.now_ms();
        widened.iter().for_each(|work| self.tell_what_is(work, now_ms));
        // Once the teller counts, it continues to count. If it begins only now, it gets what this node holds.
        if counts && !std::mem::replace(&mut self.counts, true) {
            self.holding.keys().for_each(|key| self.teller.set_held(key, true, now_ms));
        }
    }

    /// Notifies an endpoint that its earlier knowledge is void, and then sends what was reported to others and still is
    /// true.
    fn tell_what_is(&mut self, work: &EndpointAtWork, now_ms: u64) {
        let reset = self.reset("start", None).write(&self.sources);
        let (Some(queue), Some(reset)) = (work.source.queue(), reset) else { return };
        queue.note_loss(&reset);
        let endpoint = work.endpoint();
        let node = Arc::clone(&self.node);
        let states: Vec<StateChange> = self.teller.states(now_ms).collect();
        for state in states {
            let draft = state_draft(&node, &state);
            let channel = draft.kind.is_of_channel_state().then(|| state.key.name());
            let namespace =
                channel.map(|channel| node.generation().session.namespaces.namespace_of(channel).to_owned());
            if endpoint.is_told(draft.kind, namespace.as_deref())
                && let Some(event) = draft.write(&self.sources)
            {
                self.push(work, event);
            }
        }
    }
}
