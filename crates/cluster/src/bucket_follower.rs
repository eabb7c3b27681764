//! Follows the bucket of shared facts: loads all of it after each connect, and then what changes.
//!
//! A message to the bucket reaches every node by core NATS too, which tells the follower to look. A look asks for the
//! last sequence and reads what is behind the known one; so nothing depends on such a message, and without any the
//! follower looks from time to time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use async_nats::Client;
use async_nats::jetstream::stream::Stream;
use futures_util::{FutureExt as _, StreamExt as _};
use touchline_protocol::fact::{FactChange, FactsEvent};

use crate::errors::FactError;
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::fact_bucket::{BucketMessage, BucketState, FactBucket};
use crate::outage::OutageLog;

/// Between two looks at least, and after a message to the bucket: it may not be stored yet.
const SOON: Duration = Duration::from_millis(20);
/// Between two looks while nothing is heard. Each look without a message doubles the time up to it.
const CALM: Duration = Duration::from_secs(10);
/// Between two looks after a failure.
const RETRY: Duration = Duration::from_millis(500);
/// How long one look may take: a load of a full bucket, too.
const LOOK_TIMEOUT: Duration = Duration::from_secs(30);
/// Who has not looked for so long loads everything: what says that a fact was changed may be gone.
const STALE: Duration = Duration::from_secs(600);
/// How long a removal is kept, and a fact that has expired, seconds.
const KEPT_S: u64 = 3_600;
// Whoever misses a change that is gone knows that it has to load everything.
const _: () = assert!(STALE.as_secs() < KEPT_S);
/// Subjects that are cleaned after one look.
const CLEANED: usize = 64;

/// Follows the bucket on one connection to NATS.
pub(crate) struct BucketFollower {
    pub(crate) bucket: FactBucket,
    pub(crate) client: Client,
    pub(crate) events: ClusterEventSink,
    pub(crate) outages: Arc<OutageLog>,
    /// This node's id is the first in the cluster: it cleans up for all.
    pub(crate) is_first: Arc<AtomicBool>,
    /// JetStream is needed by something else: that it cannot be reached does not mean that there is none.
    pub(crate) needs_jetstream: bool,
}

/// What is known.
enum Followed {
    /// There is no bucket.
    Nothing,
    Bucket {
        seen: BucketState,
        looked: Instant,
        /// What can be deleted, and when: Unix seconds, subject, sequence.
        doomed: BTreeSet<(u64, String, u64)>,
    },
}

impl BucketFollower {
    /// Follows until this is dropped.
    pub(crate) async fn run(self) {
        let Ok(mut bell) = self.client.subscribe(self.bucket.subject()).await else { return };
        let mut followed = None;
        let mut pause = SOON;
        loop {
            let began = Instant::now();
            let looked = tokio::time::timeout(LOOK_TIMEOUT, self.look(&mut followed)).await;
            match looked.unwrap_or(Err(FactError::TimedOut)) {
                Ok(()) => self.outages.succeed(),
                Err(error) => {
                    self.outages.fail(&error);
                    (self.events)(ClusterEvent::Facts(FactsEvent::CutOff));
                    pause = RETRY;
                }
            }
            tokio::select! {
                rung = bell.next() => {
                    if rung.is_none() {
                        return;
                    }
                    pause = SOON;
                    tokio::time::sleep(SOON.saturating_sub(began.elapsed())).await;
                    // One look is for all of them.
                    while let Some(Some(_)) = bell.next().now_or_never() {}
                }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(CALM),
            }
        }
    }

    /// Looks once, and reports what is new.
    async fn look(&self, followed: &mut Option<Followed>) -> Result<(), FactError> {
        let found = match self.bucket.look().await {
            Err(FactError::NoJetStream) if !self.needs_jetstream && !self.client.server_info().jetstream => {
                // Nothing could ever have been written.
                None
            }
            found => found?,
        };
        let Some((stream, now)) = found else {
            if !matches!(followed, Some(Followed::Nothing)) {
                *followed = Some(Followed::Nothing);
                self.report(FactsEvent::Loaded { facts: Vec::new(), revision: 0 });
            }
            return Ok(());
        };
        let looked = Instant::now();
        match followed {
            Some(Followed::Bucket { seen, looked: before, doomed })
                if seen.made_ns == now.made_ns && seen.last <= now.last && before.elapsed() < STALE =>
            {
                if seen.last < now.last {
                    let messages = self.bucket.read(&stream, now, seen.last).await?;
                    seen.last = messages.last().map_or(now.last, |last| last.sequence.max(now.last));
                    doom(doomed, &messages);
                    let changes = messages.into_iter().map(|message| message.change).collect();
                    self.report(FactsEvent::Changed { changes, revision: seen.last });
                }
                *before = looked;
                self.clean(&stream, doomed).await
            }
            _ => {
                let messages = self.bucket.read(&stream, now, 0).await?;
                let last = messages.last().map_or(now.last, |last| last.sequence.max(now.last));
                let mut doomed = BTreeSet::new();
                doom(&mut doomed, &messages);
                *followed = Some(Followed::Bucket { seen: BucketState { last, ..now }, looked, doomed });
                let facts = messages.into_iter().filter_map(|message| match message.change {
                    FactChange::Put(fact) => Some(fact),
                    FactChange::Remove(_) => None,
                });
                self.report(FactsEvent::Loaded { facts: facts.collect(), revision: last });
                Ok(())
            }
        }
    }

    fn report(&self, event: FactsEvent) {
        (self.events)(ClusterEvent::Facts(event));
    }

    /// Deletes what is due, if this node does it for all of them.
    async fn clean(&self, stream: &Stream, doomed: &mut BTreeSet<(u64, String, u64)>) -> Result<(), FactError> {
        for _ in 0..CLEANED {
            let Some((_, subject, sequence)) = doomed.first().filter(|(due_s, ..)| *due_s <= now_s()) else { break };
            if self.is_first.load(Relaxed) {
                self.bucket.purge(stream, subject, *sequence).await?;
            }
            doomed.pop_first();
        }
        Ok(())
    }
}

/// Notes what of some messages can be deleted later.
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
