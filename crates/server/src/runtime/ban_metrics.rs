//! The metrics of bans.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use touchline_engine::bans::{BanCounts, BanKnowledge, BanReason, BanRefusal, Bans};

use super::meters::gauge;

/// The metrics of bans, for a scrape.
#[derive(Debug)]
pub(crate) struct BanCollector {
    is_current: bool,
    counts: BanCounts,
    refused: Vec<(BanRefusal, u64)>,
    ended: Vec<(BanReason, u64)>,
}

impl BanCollector {
    /// Collects the metrics of a node's bans.
    pub(crate) fn of(bans: &Bans) -> Self {
        BanCollector {
            is_current: bans.knowledge() == BanKnowledge::Current,
            counts: bans.counts(),
            refused: bans.refused().collect(),
            ended: bans.ended().collect(),
        }
    }

    /// Metrics of a node that has counted nothing.
    pub(crate) fn nothing() -> Self {
        BanCollector {
            is_current: false,
            counts: BanCounts::default(),
            refused: BanRefusal::ALL.map(|refusal| (refusal, 0)).into(),
            ended: BanReason::ALL.map(|reason| (reason, 0)).into(),
        }
    }
}

impl Collector for BanCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let is_current = u64::from(self.is_current);
        gauge(&mut encoder, "bans_current", "1 while this node knows all bans, 0 while it is cut off", is_current)?;
        let kinds = [
            ("blocked_users", self.counts.blocked_users),
            ("revoked_tokens", self.counts.revoked_tokens),
            ("invalidated_users", self.counts.invalidated_users),
        ];
        let help = "Bans that this node knows, by kind (limit: security.bans_max_entries)";
        let mut family = encoder.encode_descriptor("bans", help, None, MetricType::Gauge)?;
        for (kind, count) in kinds {
            ConstGauge::new(count as i64).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        let help = "Connects refused by bans, or because bans were not known";
        let mut family = encoder.encode_descriptor("ban_refusals", help, None, MetricType::Counter)?;
        for (refusal, count) in &self.refused {
            ConstCounter::new(*count).encode(family.encode_family(&[("reason", refusal.as_str())])?)?;
        }
        let help = "Connections ended by bans";
        let mut family = encoder.encode_descriptor("ban_disconnects", help, None, MetricType::Counter)?;
        for (reason, count) in &self.ended {
            ConstCounter::new(*count).encode(family.encode_family(&[("reason", reason.as_str())])?)?;
        }
        Ok(())
    }
}
