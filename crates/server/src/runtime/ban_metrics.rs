//! The metrics of bans.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use touchline_engine::bans::{BanKnowledge, Bans};

use super::meters::gauge;

/// The metrics of bans, for a scrape.
#[derive(Debug)]
pub(crate) struct BanCollector(pub(crate) Arc<Bans>);

impl Collector for BanCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let bans = &self.0;
        let is_current = u64::from(bans.knowledge() == BanKnowledge::Current);
        gauge(&mut encoder, "bans_current", "1 while this node knows all bans, 0 while it is cut off", is_current)?;
        let counts = bans.counts();
        let kinds = [
            ("blocked_users", counts.blocked_users),
            ("revoked_tokens", counts.revoked_tokens),
            ("invalidated_users", counts.invalidated_users),
        ];
        let help = "Bans that this node knows, by kind (limit: security.bans_max_entries)";
        let mut family = encoder.encode_descriptor("bans", help, None, MetricType::Gauge)?;
        for (kind, count) in kinds {
            ConstGauge::new(count as i64).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        let help = "Connects refused by bans, or because bans were not known";
        let mut family = encoder.encode_descriptor("ban_refusals", help, None, MetricType::Counter)?;
        for (refusal, count) in bans.refused() {
            ConstCounter::new(count).encode(family.encode_family(&[("reason", refusal.as_str())])?)?;
        }
        let help = "Connections ended by bans";
        let mut family = encoder.encode_descriptor("ban_disconnects", help, None, MetricType::Counter)?;
        for (reason, count) in bans.ended() {
            ConstCounter::new(count).encode(family.encode_family(&[("reason", reason.as_str())])?)?;
        }
        Ok(())
    }
}
