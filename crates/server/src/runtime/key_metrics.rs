//! The metrics of keys: the callers of the server API, and the keys that are fetched.

use std::collections::BTreeMap;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Requests of the server API by caller, for a scrape. The callers are those of the configuration.
#[derive(Debug)]
pub(crate) struct CallerCollector(pub(crate) Vec<(String, u64)>);

impl Collector for CallerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Requests of the server API by the name of the key";
        let mut family = encoder.encode_descriptor("api_requests", help, None, MetricType::Counter)?;
        for (name, requests) in &self.0 {
            ConstCounter::new(*requests).encode(family.encode_family(&[("key", name.as_str())])?)?;
        }
        Ok(())
    }
}

/// The state of the keys that are fetched for one section of the configuration.
#[derive(Debug, Default)]
pub(crate) struct KeySetFigures {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) keys: u64,
    pub(crate) skipped: u64,
}

/// The keys that are fetched, by section, for a scrape.
#[derive(Debug)]
pub(crate) struct KeySetCollector(pub(crate) BTreeMap<String, KeySetFigures>);

impl Collector for KeySetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Fetches of the keys of token issuers by outcome";
        let mut family = encoder.encode_descriptor("key_fetches", help, None, MetricType::Counter)?;
        for (section, set) in &self.0 {
            for (outcome, count) in [("succeeded", set.succeeded), ("failed", set.failed)] {
                let labels = [("section", section.as_str()), ("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        type Pick = fn(&KeySetFigures) -> u64;
        let gauges: [(&str, &str, Pick); 2] = [
            ("issuer_keys", "Keys of token issuers that verify tokens", |set| set.keys),
            ("issuer_keys_skipped", "Keys of token issuers that are unreadable or for something else", |set| {
                set.skipped
            }),
        ];
        for (name, help, pick) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (section, set) in &self.0 {
                let labels = [("section", section.as_str())];
                ConstGauge::new(pick(set) as i64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
