//! Follows the bucket of shared facts. It loads the whole bucket after each connect, and then reads the changes.
//!
//! Every message to the bucket also reaches every node by core NATS, and triggers a look. A look asks for the last
//! sequence and reads what is after the known one. So nothing depends on these messages: without any, the follower
//! looks every second. If no look succeeds, the node counts as cut off when its knowledge is older than [`AGE_MAX`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use async_nats::jetstream::stream::{ClusterInfo, PeerInfo};
use futures_util::FutureExt as _;
use touchline_protocol::fact::{AGE_MAX, FactChange, FactsEvent};

use crate::errors::FactError;
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::fact_bucket::{BucketMessage, FactBucket};
use crate::known_bucket::{BucketPart, KnownBucket};
use crate::nats::{NatsClient, NatsStream};
use crate::outage::OutageLog;
use crate::time::{Instant, now, sleep, timeout};

/// The minimum interval between two looks, and the delay after a message to the bucket, which may not be stored yet.
const SOON: Duration = Duration::from_millis(20);
/// The interval between two looks while no message arrives. Each look without a message doubles the interval up to it.
const CALM: Duration = Duration::from_secs(1);
/// The interval between two looks after a failure.
const RETRY: Duration = Duration::from_millis(500);
/// The time limit of a look that loads everything, even a full bucket.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a removal, or a fact that has expired, is kept, seconds.
const KEPT_S: u64 = 3_600;
// A pause and a slow answer fit into the maximum age. A removal is kept longer than a follower may be behind.
const _: () = assert!(CALM.as_millis() * 2 < AGE_MAX.as_millis() && AGE_MAX.as_secs() < KEPT_S);
/// The maximum number of subjects that are cleaned after one look.
const CLEANED: usize = 64;

/// Follows the bucket on one connection to NATS.
pub(crate) struct BucketFollower {
    pub(crate) bucket: FactBucket,
    pub(crate) client: NatsClient,
    pub(crate) events: ClusterEventSink,
    pub(crate) outages: Arc<OutageLog>,
    /// True if this node's id is the first in the cluster, so that it cleans up for all nodes.
    pub(crate) is_first: Arc<AtomicBool>,
    /// True if something else needs JetStream. If JetStream is unreachable, that then does not mean that NATS has none.
    pub(crate) needs_jetstream: bool,
}

/// The progress of a follower.
#[derive(Default)]
struct FollowerState {
    known: KnownBucket,
    /// All changes before this time are known. `None` = nothing is known.
    known_at: Option<Instant>,
    /// What can be deleted, and when: Unix seconds, subject, sequence.
    doomed: BTreeSet<(u64, String, u64)>,
}

impl FollowerState {
    /// The time limit of the next look: until the knowledge is too old, or the time limit of a load.
    fn patience(&self, now: Instant) -> Duration {
        match self.known_at {
            Some(at) if self.known.is_complete() => (at + AGE_MAX).saturating_duration_since(now),
            _ => LOAD_TIMEOUT,
        }
    }
}

impl BucketFollower {
    /// Follows the bucket until the future is dropped.
    pub(crate) async fn run(self) {
        let Some(mut bell) = self.client.subscribe(self.bucket.subject()).await else { return };
        let mut state = FollowerState::default();
        let mut pause = SOON;
        loop {
            let began = now();
            let looked = timeout(state.patience(began), self.look(&mut state)).await;
            match looked.unwrap_or(Err(FactError::TimedOut)) {
                Ok(()) => self.outages.succeed(),
                Err(error) => {
                    self.outages.fail(&error);
                    self.report(Some(state.known.failed()));
                    pause = RETRY;
                }
            }
            tokio::select! {
                biased;
                rung = bell.next() => {
                    if rung.is_none() {
                        return;
                    }
                    pause = SOON;
                    sleep(SOON.saturating_sub(now() - began)).await;
                    // One look is enough for all waiting messages.
                    while let Some(Some(_)) = bell.next().now_or_never() {}
                }
                () = sleep(pause) => pause = (pause * 2).min(CALM),
            }
        }
    }

    /// Looks once, and reports what is new.
    async fn look(&self, state: &mut FollowerState) -> Result<(), FactError> {
        let began = now();
        let found = match self.bucket.look().await {
            Err(FactError::NoJetStream) if !self.needs_jetstream && !self.client.server_info().jetstream => {
                self.report(state.known.no_jetstream());
                return Ok(());
            }
            found => found?,
        };
        let Some((stream, seen)) = found else {
            self.report(state.known.missing());
            state.known_at = Some(began);
            return Ok(());
        };
        let unheard = unheard(&stream.info.cluster);
        if unheard >= AGE_MAX {
            return Err(FactError::NoMajority { bucket: self.bucket.name() });
        }
        let part = state.known.wanted(seen);
        let messages = match part {
            BucketPart::Nothing => Vec::new(),
            BucketPart::Behind(sequence) => self.bucket.read(&stream, seen, sequence).await?,
            BucketPart::Everything => {
                state.doomed.clear();
                self.bucket.read(&stream, seen, 0).await?
            }
        };
        doom(&mut state.doomed, &messages);
        self.report(state.known.read(part, seen, messages));
        // Changes during a load follow at once, because their messages trigger a look.
        let at = if part == BucketPart::Everything { now() } else { began };
        state.known_at = at.checked_sub(unheard);
        self.clean(&stream, &mut state.doomed).await;
        Ok(())
    }

    fn report(&self, event: Option<FactsEvent>) {
        event.into_iter().for_each(|event| (self.events)(ClusterEvent::Facts(event)));
    }

    /// Deletes what is due if this node cleans up for all. A failure is only logged, because the remaining messages are
    /// harmless.
    async fn clean(&self, stream: &NatsStream, doomed: &mut BTreeSet<(u64, String, u64)>) {
        for _ in 0..CLEANED {
            let Some((_, subject, sequence)) = doomed.first().filter(|(due_s, ..)| *due_s <= now_s()) else { break };
            if self.is_first.load(Relaxed)
                && let Err(error) = self.bucket.purge(stream, subject, *sequence).await
            {
                return self.outages.fail(&error);
            }
            doomed.pop_first();
        }
    }
}

/// How long ago the leader of a stream last heard from a majority of its replicas. Its answer was complete at that
/// time. Since then, the other replicas may have elected another leader.
fn unheard(cluster: &Option<ClusterInfo>) -> Duration {
    let replicas = cluster.as_ref().map_or(&[][..], |cluster| &cluster.replicas);
    let mut ages: Vec<Duration> = replicas.iter().map(heard_ago).collect();
    ages.sort_unstable();
    // Together with the leader they are a majority.
    let needed = ages.len().div_ceil(2);
    needed.checked_sub(1).map_or(Duration::ZERO, |last| ages[last])
}

/// How long ago a leader heard from a replica.
fn heard_ago(replica: &PeerInfo) -> Duration {
    // A leader writes 0 for a replica that it has never heard from.
    let is_unheard = replica.active.is_zero() && !replica.current;
    if replica.offline || is_unheard { Duration::MAX } else { replica.active }
}

/// Records which of these messages can be deleted later.
fn doom(doomed: &mut BTreeSet<(u64, String, u64)>, messages: &[BucketMessage]) {
    doomed.extend(messages.iter().filter_map(|message| {
        let due_s = match &message.change {
            FactChange::Remove(_) => message.at_s + KEPT_S,
            FactChange::Put(fact) if fact.expires_s > 0 => fact.expires_s.saturating_add(KEPT_S),
            FactChange::Put(_) => return None,
        };
        Some((due_s, message.subject.clone(), message.sequence))
    }));
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(active_s: u64, current: bool, offline: bool) -> PeerInfo {
        PeerInfo { name: String::new(), current, active: Duration::from_secs(active_s), offline, lag: None }
    }

    #[test]
    fn a_leader_is_as_current_as_the_last_word_of_a_majority() {
        let of = |replicas: &[PeerInfo]| {
            unheard(&Some(ClusterInfo { replicas: replicas.to_vec(), ..ClusterInfo::default() })).as_secs()
        };
        assert_eq!(unheard(&None), Duration::ZERO, "one server is its own majority");
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[replica(9, true, false), replica(1, true, false)]), 1, "two of three");
        assert_eq!(of(&[replica(9, false, false), replica(7, false, false)]), 7);
        assert_eq!(of(&[replica(3, true, false)]), 3, "two of two");
        let five = [1, 2, 8, 9].map(|active_s| replica(active_s, true, false));
        assert_eq!(of(&five), 2, "three of five");
        let gone = Duration::MAX.as_secs();
        assert_eq!(of(&[replica(0, false, true), replica(0, false, false)]), gone, "never heard");
        assert_eq!(of(&[replica(0, true, false), replica(0, false, true)]), 0);
    }
}
