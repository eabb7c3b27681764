//! The state of the consumers: what they have carried out, what waits, and since when a part makes no progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use touchline_clock::Clock;
use touchline_config::NamedConsumer;
use touchline_lock::Lock;

/// A part of a consumer that has failed for this long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandFate {
    /// The command was carried out.
    Processed,
    /// The command was skipped, because no consumer carries out its method.
    PassedOver,
    /// The command can't be carried out, and was put aside.
    Failed,
    /// The command has failed, and is retried.
    Retried,
}

impl CommandFate {
    /// All fates, in the order of their numbers.
    const ALL: [CommandFate; 4] =
        [CommandFate::Processed, CommandFate::PassedOver, CommandFate::Failed, CommandFate::Retried];

    fn as_str(self) -> &'static str {
        match self {
            CommandFate::Processed => "processed",
            CommandFate::PassedOver => "passed_over",
            CommandFate::Failed => "failed",
            CommandFate::Retried => "retried",
        }
    }
}

/// A part of a consumer: a partition; None = the part that watches over the whole consumer.
pub(crate) type ConsumerPart = Option<u32>;

/// A part that fails, since when and why.
#[derive(Debug)]
struct PartOutage {
    since: Instant,
    /// The cause that was logged last.
    told: String,
}

/// Entries of one part that have failed and are retried.
#[derive(Debug)]
pub(crate) struct RetriedEntries {
    /// How many entries there are, above zero. Each holds up the later entries of its channels.
    pub(crate) number: usize,
    /// When the first of them failed for the first time.
    pub(crate) since: Instant,
    /// Why an entry failed the last time.
    pub(crate) cause: String,
}

/// The counters and the state of one consumer.
#[derive(Debug, Default)]
pub(crate) struct ConsumerMetrics {
    name: String,
    pub(crate) clock: Clock,
    commands: [AtomicU64; CommandFate::ALL.len()],
    /// The number of rows or messages that wait.
    pub(crate) waiting: AtomicU64,
    /// How long the oldest of them has waited, milliseconds.
    pub(crate) oldest_ms: AtomicU64,
    /// Rows in partitions that no node reads.
    pub(crate) unread: AtomicU64,
    /// The partitions whose state this node knows, and whether it serves each of them.
    held: Lock<BTreeMap<u32, bool>>,
    outages: Lock<BTreeMap<ConsumerPart, PartOutage>>,
    retried: Lock<BTreeMap<ConsumerPart, RetriedEntries>>,
}

impl ConsumerMetrics {
    /// Makes the metrics of the consumers that run. `before`: metrics of earlier consumers; those with the same name
    /// keep their counts.
    pub(crate) fn of(
        consumers: &[NamedConsumer],
        before: &[Arc<ConsumerMetrics>],
        clock: &Clock,
    ) -> Vec<Arc<ConsumerMetrics>> {
        let running = consumers.iter().filter(|consumer| consumer.options.enabled);
        let known = |name: &str| before.iter().find(|metrics| metrics.name == name).cloned();
        let metrics = |name: &String| known(name).unwrap_or_else(|| Arc::new(ConsumerMetrics::new(name, clock)));
        running.map(|consumer| metrics(&consumer.name)).collect()
    }

    pub(crate) fn new(name: &str, clock: &Clock) -> Self {
        ConsumerMetrics { name: name.to_owned(), clock: clock.clone(), ..ConsumerMetrics::default() }
    }

    /// The consumer's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Counts `number` commands with this outcome.
    pub(crate) fn count(&self, fate: CommandFate, number: u64) {
        self.commands[fate as usize].fetch_add(number, Relaxed);
    }

    /// Notes that a part fails. True = this cause was not logged in this outage.
    pub(crate) fn fail(&self, part: ConsumerPart, cause: &str) -> bool {
        let mut outages = self.outages.lock();
        if let Some(outage) = outages.get_mut(&part) {
            let is_new = outage.told != cause;
            if is_new {
                cause.clone_into(&mut outage.told);
            }
            return is_new;
        }
        outages.insert(part, PartOutage { since: self.clock.now(), told: cause.to_owned() });
        true
    }

    /// Notes that a part works. True = it had failed before.
    pub(crate) fn work(&self, part: ConsumerPart) -> bool {
        self.outages.lock().remove(&part).is_some()
    }

    /// Notes which entries of a part have failed and are retried. True = the log should say it: the cause is new, or no
    /// entry is retried any more.
    pub(crate) fn retry(&self, part: ConsumerPart, entries: Option<RetriedEntries>) -> bool {
        let mut retried = self.retried.lock();
        let Some(entries) = entries else { return retried.remove(&part).is_some() };
        let is_known = retried.get(&part).is_some_and(|known| known.cause == entries.cause);
        retried.insert(part, entries);
        !is_known
    }

    /// Notes whether this node serves a partition.
    pub(crate) fn hold(&self, partition: u32, is_held: bool) {
        self.held.lock().insert(partition, is_held);
    }

    /// How far the consumer is behind.
    pub(crate) fn lag(&self) -> ConsumerLag {
        ConsumerLag {
            waiting: self.waiting.load(Relaxed),
            oldest_s: self.oldest_ms.load(Relaxed) as f64 / 1_000.0,
            retrying: self.retried().0 as u64,
            unread: self.unread.load(Relaxed),
        }
    }

    /// Whether a part, or one of its entries, has failed for too long.
    pub(crate) fn is_stuck(&self) -> bool {
        let outages = self.outages.lock();
        outages.values().any(|outage| self.clock.since(outage.since) >= STUCK_AFTER) || self.retried().1 >= STUCK_AFTER
    }

    /// How many entries have failed and are retried, and for how long the first of them has.
    fn retried(&self) -> (usize, Duration) {
        let retried = self.retried.lock();
        let oldest = retried.values().map(|entries| self.clock.since(entries.since)).max().unwrap_or_default();
        (retried.values().map(|entries| entries.number).sum(), oldest)
    }

    /// The number of partitions that this node serves.
    fn partitions(&self) -> usize {
        self.held.lock().values().filter(|is_held| **is_held).count()
    }

    fn gauges(&self) -> [(&'static str, &'static str, u64); 5] {
        [
            ("consumer_waiting", "Rows or messages that wait for a consumer", self.waiting.load(Relaxed)),
            ("consumer_unread", "Rows in partitions that no node reads", self.unread.load(Relaxed)),
            ("consumer_partitions", "Partitions whose lock this node got at its last try", self.partitions() as u64),
            ("consumer_retrying", "Rows or messages that have failed and are retried", self.retried().0 as u64),
            ("consumer_stuck", "1 while a part of a consumer has failed for 10 s", u64::from(self.is_stuck())),
        ]
    }
}

/// How far a consumer is behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConsumerLag {
    /// The number of rows or messages that wait.
    pub(crate) waiting: u64,
    /// Age of the oldest of them, in seconds.
    pub(crate) oldest_s: f64,
    /// Rows or messages that have failed and are retried.
    pub(crate) retrying: u64,
    /// Rows in partitions that no node reads.
    pub(crate) unread: u64,
}

/// The metrics of consumers, for a scrape.
#[derive(Debug)]
pub(crate) struct ConsumerCollector(pub(crate) Vec<Arc<ConsumerMetrics>>);

impl Collector for ConsumerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Commands of consumers by outcome";
        let mut family = encoder.encode_descriptor("consumer_commands", help, None, MetricType::Counter)?;
        for consumer in &self.0 {
            for fate in CommandFate::ALL {
                let labels = [("consumer", consumer.name()), ("outcome", fate.as_str())];
                let count = consumer.commands[fate as usize].load(Relaxed);
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let gauges: Vec<_> = self.0.iter().map(|consumer| (consumer.name(), consumer.gauges())).collect();
        for kind in 0..gauges.first().map_or(0, |(_, all)| all.len()) {
            let (name, help, _) = gauges[0].1[kind];
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (consumer, all) in &gauges {
                ConstGauge::new(all[kind].2 as i64).encode(family.encode_family(&[("consumer", *consumer)])?)?;
            }
        }
        let help = "Age of the oldest row or message that waits";
        let mut family = encoder.encode_descriptor("consumer_oldest_seconds", help, None, MetricType::Gauge)?;
        for consumer in &self.0 {
            let oldest = ConstGauge::new(consumer.oldest_ms.load(Relaxed) as f64 / 1_000.0);
            oldest.encode(family.encode_family(&[("consumer", consumer.name())])?)?;
        }
        let help = "Time since the first failure of the row or message that has been retried for longest";
        let mut family = encoder.encode_descriptor("consumer_retrying_seconds", help, None, MetricType::Gauge)?;
        for consumer in &self.0 {
            let oldest = ConstGauge::new(consumer.retried().1.as_secs_f64());
            oldest.encode(family.encode_family(&[("consumer", consumer.name())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_in_an_outage() {
        let metrics = ConsumerMetrics::new("shop", &Clock::system());
        assert!(!metrics.work(Some(0)), "nothing has failed");
        assert_eq!(
            ["away", "away", "full", "full"].map(|cause| metrics.fail(Some(0), cause)),
            [true, false, true, false]
        );
        assert!(metrics.fail(None, "away"), "another part has an outage of its own");
        assert!(metrics.work(Some(0)) && !metrics.work(Some(0)));
        assert!(!metrics.is_stuck(), "not yet");
    }

    #[test]
    fn one_entry_that_fails_for_long_makes_a_consumer_stuck_while_others_flow() {
        let metrics = ConsumerMetrics::new("shop", &Clock::system());
        let entries = |since, cause: &str| Some(RetriedEntries { number: 2, since, cause: cause.to_owned() });
        assert!(!metrics.retry(Some(0), None), "nothing has failed");
        let now = Instant::now();
        assert!(metrics.retry(Some(0), entries(now, "away")) && !metrics.retry(Some(0), entries(now, "away")));
        metrics.work(Some(0));
        assert!(!metrics.is_stuck(), "not yet");
        let long_ago = now.checked_sub(STUCK_AFTER).expect("the clock has run for longer");
        assert!(metrics.retry(Some(1), entries(long_ago, "away")));
        metrics.work(Some(1));
        assert!(metrics.is_stuck());
        assert_eq!(metrics.retried().0, 4);
        assert!(metrics.retry(Some(1), None) && !metrics.is_stuck());
    }
}
