//! The log lines about a consumer. Entries that are put aside or passed over get a limited number of lines a minute. An
//! outage gets one line for each cause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use touchline_lock::Lock;

use crate::runtime::consumer_metrics::{CommandFate, ConsumerMetrics, ConsumerPart, RetriedEntries};

/// The most lines about single entries in a minute. The metrics count all entries.
const LINES_MAX: u32 = 20;
const MINUTE: Duration = Duration::from_secs(60);

/// The log and the metrics of one consumer.
pub(super) struct Told {
    pub(super) metrics: Arc<ConsumerMetrics>,
    /// When the minute began, and the number of lines in it.
    lines: Lock<(Instant, u32)>,
}

impl Told {
    pub(super) fn new(metrics: Arc<ConsumerMetrics>) -> Self {
        let lines = Lock::new((metrics.clock.now(), 0));
        Told { metrics, lines }
    }

    /// Counts an entry that was carried out.
    pub(super) fn processed(&self) {
        self.metrics.count(CommandFate::Processed, 1);
    }

    /// Counts an entry that is retried.
    pub(super) fn retried(&self) {
        self.metrics.count(CommandFate::Retried, 1);
    }

    /// Counts and logs an entry that is passed over. `entry`: its number.
    pub(super) fn passed_over(&self, entry: u64, why: &str) {
        self.metrics.count(CommandFate::PassedOver, 1);
        if self.has_line() {
            tracing::info!(consumer = self.metrics.name(), entry, "passed over: {why}");
        }
    }

    /// Counts and logs an entry that cannot be carried out.
    pub(super) fn failed(&self, entry: u64, why: &str) {
        self.metrics.count(CommandFate::Failed, 1);
        if self.has_line() {
            tracing::error!(
                consumer = self.metrics.name(),
                entry,
                "put aside, because it cannot be carried out: {why}"
            );
        }
    }

    /// Logs that a part makes no progress, once for each cause.
    pub(super) fn failing(&self, part: ConsumerPart, cause: &str) {
        if self.metrics.fail(part, cause) {
            tracing::warn!(consumer = self.metrics.name(), partition = part, "a consumer waits: {cause}");
        }
    }

    /// Logs that a part makes progress again.
    pub(super) fn working(&self, part: ConsumerPart) {
        if self.metrics.work(part) {
            tracing::info!(consumer = self.metrics.name(), partition = part, "a consumer gets on again");
        }
    }

    /// Logs that entries of a part have failed and are retried, once for each cause; None = no entry has failed.
    pub(super) fn retrying(&self, part: ConsumerPart, entries: Option<RetriedEntries>) {
        let cause = entries.as_ref().map(|entries| entries.cause.clone());
        if !self.metrics.retry(part, entries) {
            return;
        }
        let consumer = self.metrics.name();
        match cause {
            Some(cause) => tracing::warn!(consumer, partition = part, "a channel of a consumer waits: {cause}"),
            None => tracing::info!(consumer, partition = part, "no channel of a consumer waits any more"),
        }
    }

    fn has_line(&self) -> bool {
        let mut lines = self.lines.lock();
        if self.metrics.clock.since(lines.0) >= MINUTE {
            *lines = (self.metrics.clock.now(), 0);
        }
        lines.1 += 1;
        if lines.1 == LINES_MAX {
            let consumer = self.metrics.name();
            tracing::warn!(
                consumer,
                "further entries in this minute get no line; touchline_consumer_commands_total counts all"
            );
        }
        lines.1 < LINES_MAX
    }
}
