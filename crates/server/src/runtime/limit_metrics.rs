//! The metrics of rate limits.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use touchline_engine::limit::{LimitLayer, LimitOutcome, LimitedCommand};

use super::meters::{Counter, counter};

/// Why a rate limit ended or refused connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitCause {
    /// Commands were refused repeatedly. A user or an address was refused, or an anonymous connection was ended.
    Escalation,
    /// The client of a connection caused too many errors. The connection was ended with 3509.
    Errors,
    /// Too many connects from an address failed. The address was refused.
    FailedConnects,
}

impl LimitCause {
    /// All causes, in the order of their numbers.
    const ALL: [LimitCause; 3] = [LimitCause::Escalation, LimitCause::Errors, LimitCause::FailedConnects];

    /// The value of the label in metrics.
    fn as_str(self) -> &'static str {
        match self {
            LimitCause::Escalation => "escalation",
            LimitCause::Errors => "client_error",
            LimitCause::FailedConnects => "failed_connect",
        }
    }
}

/// What can be refused, as metrics name it.
const WHO: [&str; 2] = ["user", "address"];

/// Counters of what rate limits have done.
#[derive(Debug, Default)]
pub(crate) struct LimitMetrics {
    /// Commands above a rate, by layer, command and outcome.
    pub(crate) commands: [[[Counter; LimitOutcome::ALL.len()]; LimitedCommand::ALL.len()]; LimitLayer::ALL.len()],
    /// Errors above their rate that were allowed, because the rate is only on trial.
    pub(crate) allowed_errors: Counter,
    /// Connects that were refused because their user or their address is refused for a while.
    pub(crate) refused_connects: [Counter; WHO.len()],
    causes: [Counter; LimitCause::ALL.len()],
}

impl LimitMetrics {
    /// Counts that a rate has ended or refused connections. Any thread may call this.
    pub(crate) fn note_cause(&self, cause: LimitCause) {
        self.causes[cause as usize].add_shared(1);
    }

    /// How often rates have ended or refused connections, in the order of the causes.
    pub(crate) fn causes(&self) -> [u64; LimitCause::ALL.len()] {
        self.causes.each_ref().map(Counter::get)
    }
}

/// The number of entries in the tables of rates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableSizes {
    /// Users that have token buckets.
    pub(crate) users: usize,
    /// Addresses that have token buckets, and addresses with failed connects.
    pub(crate) addresses: usize,
    /// Users that are refused at present.
    pub(crate) refused_users: usize,
    /// Addresses that are refused at present.
    pub(crate) refused_addresses: usize,
}

/// The metrics of rate limits, for a scrape.
#[derive(Debug)]
pub(crate) struct LimitCollector {
    pub(crate) metrics: Arc<LimitMetrics>,
    pub(crate) sizes: TableSizes,
}

impl LimitCollector {
    /// Encodes the commands above a rate that were counted at least once.
    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Commands above a rate, by layer, command and outcome";
        let mut family = encoder.encode_descriptor("rate_limited_commands", help, None, MetricType::Counter)?;
        for layer in LimitLayer::ALL {
            for command in LimitedCommand::ALL {
                for outcome in LimitOutcome::ALL {
                    let count = self.metrics.commands[layer as usize][command as usize][outcome as usize].get();
                    if count > 0 {
                        let labels =
                            [("layer", layer.as_str()), ("command", command.as_str()), ("outcome", outcome.as_str())];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Collector for LimitCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.metrics;
        self.encode_commands(&mut encoder)?;
        let help = "Connections ended, and users and addresses refused, by a rate limit";
        let mut family = encoder.encode_descriptor("rate_limit_measures", help, None, MetricType::Counter)?;
        for (cause, count) in LimitCause::ALL.into_iter().zip(metrics.causes()) {
            ConstCounter::new(count).encode(family.encode_family(&[("cause", cause.as_str())])?)?;
        }
        let help = "Errors of clients above their rate while the rate is on trial";
        counter(&mut encoder, "rate_limit_allowed_errors", help, metrics.allowed_errors.get())?;
        let help = "Connects refused because their user or address is refused for a while";
        let mut family = encoder.encode_descriptor("rate_limit_refused_connects", help, None, MetricType::Counter)?;
        for (who, count) in WHO.into_iter().zip(&metrics.refused_connects) {
            ConstCounter::new(count.get()).encode(family.encode_family(&[("of", who)])?)?;
        }
        let TableSizes { users, addresses, refused_users, refused_addresses } = self.sizes;
        for (name, help, sizes) in [
            (
                "rate_limit_refused",
                "Users and addresses that are refused at present",
                [refused_users, refused_addresses],
            ),
            ("rate_limit_entries", "Users and addresses whose buckets are remembered", [users, addresses]),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (who, size) in WHO.into_iter().zip(sizes) {
                ConstGauge::new(size as i64).encode(family.encode_family(&[("of", who)])?)?;
            }
        }
        Ok(())
    }
}
