//! What a follower knows of the bucket of shared facts, and the events for its node. The module is pure. Its inputs are
//! the results of looks, and its outputs are the parts to read and [`FactsEvent`]s.
//!
//! Two properties hold. After a failure, the next event of a successful look is [`FactsEvent::Loaded`], which ends the
//! cut-off. Only an answer of JetStream removes facts, because a NATS server without JetStream says nothing about them.

use touchline_protocol::fact::{FactChange, FactsEvent};

use crate::fact_bucket::{BucketMessage, BucketState};

/// What is known of the bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KnownBucket {
    /// Nothing is known: there was no look yet, or the last one failed.
    #[default]
    Unknown,
    /// NATS does not have JetStream.
    NoJetStream,
    /// JetStream does not have the bucket.
    Missing,
    /// The bucket exists, and everything up to a sequence is known.
    Followed {
        /// The state of the bucket at the last look.
        seen: BucketState,
        /// The largest number of messages in the bucket since everything was read.
        messages_max: u64,
    },
}

/// The part of a bucket that must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketPart {
    /// Nothing has changed.
    Nothing,
    /// The messages after this sequence.
    Behind(u64),
    /// All messages of the bucket.
    Everything,
}

impl KnownBucket {
    /// Whether all facts were known at the last look.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self, KnownBucket::Missing | KnownBucket::Followed { .. })
    }

    /// Records that a look failed. The knowledge may be old, and the whole bucket is read again.
    pub(crate) fn failed(&mut self) -> FactsEvent {
        *self = KnownBucket::Unknown;
        FactsEvent::CutOff
    }

    /// Records that NATS does not have JetStream. `None` = the node already knows.
    pub(crate) fn no_jetstream(&mut self) -> Option<FactsEvent> {
        self.turns(KnownBucket::NoJetStream).then_some(FactsEvent::Unsupported)
    }

    /// Records that JetStream does not have the bucket. `None` = the node already knows.
    pub(crate) fn missing(&mut self) -> Option<FactsEvent> {
        self.turns(KnownBucket::Missing).then(|| FactsEvent::Loaded { facts: Vec::new(), revision: 0 })
    }

    fn turns(&mut self, into: KnownBucket) -> bool {
        std::mem::replace(self, into) != into
    }

    /// The part of the bucket that must be read. It is everything if the bucket was replaced or set back. It is also
    /// everything if half of its messages vanished without a removal, because the bucket was then purged. The threshold
    /// is half because expired facts also vanish one by one, and should not cause many loads.
    pub(crate) fn wanted(&self, now: BucketState) -> BucketPart {
        match *self {
            KnownBucket::Followed { seen, messages_max }
                if seen.made_ns == now.made_ns && seen.last <= now.last && now.messages >= messages_max.div_ceil(2) =>
            {
                if seen.last < now.last {
                    BucketPart::Behind(seen.last)
                } else {
                    BucketPart::Nothing
                }
            }
            _ => BucketPart::Everything,
        }
    }

    /// Processes a part of the bucket that was read. `None` = there is nothing to report.
    pub(crate) fn read(
        &mut self,
        part: BucketPart,
        now: BucketState,
        messages: Vec<BucketMessage>,
    ) -> Option<FactsEvent> {
        let last = messages.last().map_or(now.last, |last| last.sequence.max(now.last));
        let messages_before = match *self {
            KnownBucket::Followed { messages_max, .. } if part != BucketPart::Everything => messages_max,
            _ => 0,
        };
        let messages_max = messages_before.max(now.messages);
        *self = KnownBucket::Followed { seen: BucketState { last, ..now }, messages_max };
        let changes = messages.into_iter().map(|message| message.change);
        match part {
            BucketPart::Nothing => None,
            BucketPart::Behind(_) => Some(FactsEvent::Changed { changes: changes.collect(), revision: last }),
            BucketPart::Everything => {
                let facts = changes.filter_map(|change| match change {
                    FactChange::Put(fact) => Some(fact),
                    FactChange::Remove(_) => None,
                });
                Some(FactsEvent::Loaded { facts: facts.collect(), revision: last })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use touchline_protocol::fact::{Fact, FactKey};

    use super::*;

    /// A model of the bucket in JetStream.
    #[derive(Default)]
    struct Bucket {
        made: i128,
        last: u64,
        /// The last message of each name: its sequence, and whether the fact holds.
        messages: BTreeMap<u64, (u64, bool)>,
    }

    impl Bucket {
        fn change(&mut self, name: u64, holds: bool) {
            self.last += 1;
            self.messages.insert(name, (self.last, holds));
        }

        fn state(&self) -> BucketState {
            BucketState { made_ns: self.made, last: self.last, messages: self.messages.len() as u64 }
        }

        fn read(&self, behind: u64) -> Vec<BucketMessage> {
            let newer = self.messages.iter().filter(|(_, (sequence, _))| *sequence > behind);
            let mut messages: Vec<_> =
                newer.map(|(name, (sequence, holds))| message(*name, *sequence, *holds)).collect();
            messages.sort_by_key(|message| message.sequence);
            messages
        }

        fn facts(&self) -> BTreeSet<String> {
            self.messages.iter().filter(|(_, (_, holds))| *holds).map(|(name, _)| name.to_string()).collect()
        }
    }

    fn message(name: u64, sequence: u64, holds: bool) -> BucketMessage {
        let key = FactKey { kind: "user_block".into(), name: name.to_string().into() };
        let change = match holds {
            true => FactChange::Put(Fact { key, value: "{}".into(), expires_s: 0 }),
            false => FactChange::Remove(key),
        };
        BucketMessage { sequence, subject: name.to_string(), at_s: 1, change }
    }

    /// The facts that a node derives from the events.
    #[derive(Default)]
    struct Told {
        facts: BTreeSet<String>,
        is_current: bool,
    }

    impl Told {
        fn hear(&mut self, event: FactsEvent) {
            match event {
                FactsEvent::Loaded { facts, .. } => {
                    self.facts = facts.into_iter().map(|fact| fact.key.name.into()).collect();
                    self.is_current = true;
                }
                FactsEvent::Changed { changes, .. } => {
                    for change in changes {
                        let name = change.key().name.to_string();
                        match change {
                            FactChange::Put(_) => self.facts.insert(name),
                            FactChange::Remove(_) => self.facts.remove(&name),
                        };
                    }
                }
                FactsEvent::CutOff | FactsEvent::Unsupported => self.is_current = false,
                FactsEvent::Written { .. } => unreachable!("a follower reports no change of its own node"),
            }
        }
    }

    fn look(known: &mut KnownBucket, bucket: &Bucket, told: &mut Told) {
        let event = match bucket.made {
            0 => known.missing(),
            _ => {
                let part = known.wanted(bucket.state());
                let behind = match part {
                    BucketPart::Nothing => bucket.last,
                    BucketPart::Behind(sequence) => sequence,
                    BucketPart::Everything => 0,
                };
                known.read(part, bucket.state(), bucket.read(behind))
            }
        };
        event.into_iter().for_each(|event| told.hear(event));
    }

    /// Whatever happened, after a successful look the node knows what the bucket contains, and counts as current.
    #[test]
    fn a_good_look_ends_every_cut_and_only_jetstream_takes_facts_away() {
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut bucket, mut known, mut told) = (Bucket::default(), KnownBucket::default(), Told::default());
            let mut makes = 0;
            for _ in 0..60 {
                let facts_before = told.facts.clone();
                match random.u32(..10) {
                    0 => told.hear(known.failed()),
                    1 => {
                        known.no_jetstream().into_iter().for_each(|event| told.hear(event));
                        assert!(!told.is_current, "seed {seed}: nothing is known for sure");
                    }
                    2 if random.u32(..4) == 0 => {
                        // Another bucket, or no bucket.
                        makes += 1;
                        bucket = Bucket { made: if random.bool() { 0 } else { makes }, ..Bucket::default() };
                    }
                    2..=5 => {
                        if bucket.made == 0 {
                            makes += 1;
                            bucket.made = makes;
                        }
                        (0..random.u32(1..4)).for_each(|_| bucket.change(random.u64(..8), random.bool()));
                    }
                    _ => {
                        look(&mut known, &bucket, &mut told);
                        assert!(told.is_current && known.is_complete(), "seed {seed}: a good look ends the cut");
                        assert_eq!(told.facts, bucket.facts(), "seed {seed}");
                        continue;
                    }
                }
                assert_eq!(told.facts, facts_before, "seed {seed}: what is not an answer takes nothing away");
            }
        }
    }

    #[test]
    fn a_node_is_told_once_of_what_lasts() {
        let mut known = KnownBucket::default();
        assert_eq!(known.no_jetstream(), Some(FactsEvent::Unsupported));
        assert_eq!(known.no_jetstream(), None);
        assert!(matches!(known.missing(), Some(FactsEvent::Loaded { .. })));
        assert_eq!(known.missing(), None);
        assert_eq!((known.failed(), known.failed()), (FactsEvent::CutOff, FactsEvent::CutOff));
        assert!(matches!(known.missing(), Some(FactsEvent::Loaded { .. })));
    }

    #[test]
    fn a_purged_bucket_is_read_anew_and_a_cleaned_one_is_not() {
        let mut bucket = Bucket { made: 1, ..Bucket::default() };
        (0..8).for_each(|name| bucket.change(name, true));
        let (mut known, mut told) = (KnownBucket::default(), Told::default());
        look(&mut known, &bucket, &mut told);
        bucket.messages.retain(|name, _| *name >= 4);
        assert_eq!(known.wanted(bucket.state()), BucketPart::Nothing, "what has expired is cleaned");
        bucket.messages.clear();
        assert_eq!(known.wanted(bucket.state()), BucketPart::Everything);
        bucket.change(9, true);
        assert_eq!(known.wanted(bucket.state()), BucketPart::Everything, "a new ban does not hide it");
        look(&mut known, &bucket, &mut told);
        assert_eq!((told.facts.len(), known.wanted(bucket.state())), (1, BucketPart::Nothing));
    }
}
