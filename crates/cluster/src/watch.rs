//! Looks after the streams. A publication that is stored may never be handed on: the server that led its stream was
//! lost or cut off, a route between servers broke, a queue was full. Nobody says so, and its channel shows no gap until
//! the next one comes; so a node looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::ClusterEvent;
use crate::connection::ClusterEventSink;
use crate::history::{Inspection, Seen, Streams};
use crate::loader::Checks;

/// How soon a node looks when something may have been lost. It looks again after twice that, and so on up to the delay
/// of calm times.
const SOON: Duration = Duration::from_secs(1);

/// What a watch needs.
pub(crate) struct Watch {
    pub(crate) streams: Streams,
    pub(crate) hand: ClusterEventSink,
    /// As of [`crate::Settings::check_delay`].
    pub(crate) delay: Duration,
    /// Streams are gone, or others have taken their place.
    pub(crate) gone: Arc<Notify>,
    /// What looks lead to.
    pub(crate) checks: Arc<Checks>,
}

impl Watch {
    /// Looks again and again. What all caches were checked against is not checked again until there is more.
    pub(crate) async fn run(self) {
        let mut seen = HashMap::new();
        let mut pause = SOON;
        let mut next = Instant::now() + pause;
        loop {
            let is_time = tokio::select! {
                () = self.checks.trouble.notified() => false,
                () = sleep_until(next) => true,
            };
            if !is_time {
                // Trouble that goes on must not put the look off.
                next = next.min(Instant::now() + SOON);
                pause = SOON;
                continue;
            }
            if self.checks.are_under_way() {
                next = Instant::now() + SOON;
                continue;
            }
            if self.checks.have_failed() {
                seen.clear();
            }
            if !self.look(&mut seen).await {
                seen.clear();
                pause = SOON;
            }
            next = Instant::now() + pause;
            pause = (pause * 2).min(self.delay);
        }
    }

    /// Looks once; whether all is well.
    async fn look(&self, seen: &mut HashMap<String, Seen>) -> bool {
        let mut is_well = true;
        for namespace in self.streams.namespaces() {
            let now = match self.streams.look(namespace).await {
                Inspection::Seen(seen) => seen,
                Inspection::Changed => {
                    self.gone.notify_one();
                    return false;
                }
                Inspection::Unknown => return false,
            };
            let before = seen.get(namespace);
            is_well &= before.is_none_or(|before| before.leader == now.leader);
            if before.is_none_or(|before| before.last != now.last) {
                (self.hand)(ClusterEvent::Advanced { namespace: namespace.into() });
            }
            seen.insert(namespace.to_owned(), now);
        }
        is_well
    }
}
