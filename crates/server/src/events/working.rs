//! An endpoint and its lanes, from start to end.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};

use super::endpoint::EventEndpoint;
use super::lane::{self, EndpointAtWork};
use crate::runtime::event_metrics::DropReason;

/// How long a node that stops, or a removed endpoint, waits until its events are delivered.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// The time between two checks whether a removed endpoint has received all of its events.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// An endpoint in operation, with its lanes.
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

    /// Delivers the waiting events for a while, and ends.
    pub(super) async fn end(self) {
        let WorkingEndpoint { work, lanes } = self;
        if let Some(queue) = work.source.queue() {
            queue.close();
            let is_empty = async {
                while queue.len() > 0 {
                    // real time: the limit of a stop.
                    tokio::time::sleep(LOOK_INTERVAL).await;
                }
            };
            // real time: the limit of a stop.
            if tokio::time::timeout(STOP_PATIENCE, is_empty).await.is_err() {
                work.figures().dropped[DropReason::Stopped as usize].add(queue.len() as u64);
                let endpoint = &work.name;
                tracing::warn!(%endpoint, events = queue.len(), "the endpoint was removed before these events arrived");
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

/// Whether the teller counts the holders of channels and users for these endpoints, and how long it waits before it
/// reports that there are none.
pub(super) fn counting_of(endpoints: &[Arc<EventEndpoint>]) -> (bool, Duration) {
    let counted =
        |endpoint: &&Arc<EventEndpoint>| endpoint.kinds.has_channel_state() || endpoint.kinds.has_user_state();
    let counts = endpoints.iter().filter(counted).any(|endpoint| !endpoint.options.durable);
    // All of them have the same delay.
    (counts, endpoints.iter().find(counted).map_or(Duration::ZERO, |endpoint| endpoint.options.delay))
}
