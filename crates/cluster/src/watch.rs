//! Polls the streams. A stored publication may never be republished if the server that led its stream was lost or cut
//! off, a route between servers broke, or a queue was full. Nothing reports that, and its channel shows no gap until
//! the next publication. So each node inspects the streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::events::{ClusterEvent, ClusterEventSink};
use crate::history::{StreamCheck, StreamState, Streams};
use crate::loader::Checks;
use crate::time::{now, sleep_until};

/// How soon a node inspects the streams when something may have been lost. It inspects them again after twice that
/// delay, and so on up to the configured delay.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// The state of a poller.
pub(crate) struct StreamPoller {
    pub(crate) streams: Streams,
    pub(crate) events: ClusterEventSink,
    /// As in [`crate::JoinOptions::check_delay`].
    pub(crate) delay: Duration,
    /// Notified when streams are gone or replaced.
    pub(crate) streams_gone: Arc<Notify>,
    /// The state of the checks that inspections cause.
    pub(crate) checks: Arc<Checks>,
}

impl StreamPoller {
    /// Inspects the streams repeatedly. If all caches were checked against a state, they are not checked again until
    /// the stream has more.
    pub(crate) async fn run(self) {
        let mut states = HashMap::new();
        let mut pause = RECHECK_DELAY;
        let mut next = now() + pause;
        loop {
            let is_time = tokio::select! {
                biased;
                () = self.checks.trouble.notified() => false,
                () = sleep_until(next) => true,
            };
            if !is_time {
                // Continuing trouble must not delay the inspection.
                next = next.min(now() + RECHECK_DELAY);
                pause = RECHECK_DELAY;
                continue;
            }
            if self.checks.are_under_way() {
                next = now() + RECHECK_DELAY;
                continue;
            }
            if self.checks.have_failed() {
                states.clear();
            }
            if !self.inspect(&mut states).await {
                states.clear();
                pause = RECHECK_DELAY;
            }
            next = now() + pause;
            pause = (pause * 2).min(self.delay);
        }
    }

    /// Inspects every stream once. Returns whether all are well.
    async fn inspect(&self, states: &mut HashMap<String, StreamState>) -> bool {
        let mut is_well = true;
        for namespace in self.streams.namespaces() {
            let now = match self.streams.inspect(namespace).await {
                StreamCheck::Present(state) => state,
                StreamCheck::Changed => {
                    self.streams_gone.notify_one();
                    return false;
                }
                StreamCheck::Unknown => return false,
            };
            let before = states.get(namespace);
            is_well &= before.is_none_or(|before| before.leader == now.leader);
            if before.is_none_or(|before| before.last != now.last) {
                (self.events)(ClusterEvent::Advanced { namespace: namespace.into() });
            }
            states.insert(namespace.to_owned(), now);
        }
        is_well
    }
}
