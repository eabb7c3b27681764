//! The metrics of events, by endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use touchline_engine::events::DeadReason;
use touchline_lock::{Lock, SharedLock};

use super::meters::{Counter, Gauge};

/// Why an event was dropped before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// The queue of the endpoint was full.
    QueueFull,
    /// The mailbox of the thread that sends events was full.
    MailboxFull,
    /// The event was too large.
    TooLarge,
    /// The node has stopped.
    Stopped,
    /// Too many durable events waited in a lane.
    LaneFull,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub(crate) const ALL: [DropReason; 5] = [
        DropReason::QueueFull,
        DropReason::MailboxFull,
        DropReason::TooLarge,
        DropReason::Stopped,
        DropReason::LaneFull,
    ];

    /// The value of the label in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::MailboxFull => "mailbox_full",
            DropReason::TooLarge => "too_large",
            DropReason::Stopped => "stopped",
            DropReason::LaneFull => "lane_full",
        }
    }
}

/// The metrics of one endpoint. The thread that sends events writes them.
#[derive(Debug, Default)]
pub(crate) struct EndpointFigures {
    /// The name of the endpoint.
    pub(crate) name: String,
    /// Events that wait or are being sent.
    pub(crate) queued: Gauge,
    /// Bytes of events that wait.
    pub(crate) queued_bytes: Gauge,
    /// Age of the oldest event that waits or is being sent, in milliseconds.
    pub(crate) oldest_ms: Gauge,
    /// Events that have been delivered.
    pub(crate) sent: Counter,
    /// Batches that were sent again.
    pub(crate) retried: Counter,
    /// Events that were never sent, by reason.
    pub(crate) dropped: [Counter; DropReason::ALL.len()],
    /// Events that were given up, by reason.
    pub(crate) dead: [Counter; DeadReason::ALL.len()],
    /// Whether the endpoint has refused all further events (410).
    pub(crate) is_off: AtomicBool,
    /// Whether another node configures the endpoint differently. It then receives what any of the nodes wants for it.
    pub(crate) is_differing: AtomicBool,
}

/// The metrics of events.
#[derive(Debug, Default)]
pub(crate) struct EventMetrics {
    endpoints: SharedLock<Vec<Arc<EndpointFigures>>>,
    /// The ids of the nodes of the cluster that take no part in durable events.
    pub(crate) silent_nodes: Lock<Vec<String>>,
}

impl EventMetrics {
    /// Metrics of endpoints with these names, with all counters 0.
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let metrics = EventMetrics::default();
        metrics.set_endpoints(names);
        metrics
    }

    /// Sets the endpoints from now on. Endpoints that were there before keep their counts.
    pub(crate) fn set_endpoints(&self, names: impl IntoIterator<Item = String>) {
        let before = self.endpoints();
        let known = |name: &String| before.iter().find(|endpoint| endpoint.name == *name).cloned();
        let new = |name| Arc::new(EndpointFigures { name, ..EndpointFigures::default() });
        let endpoints = names.into_iter().map(|name| known(&name).unwrap_or_else(|| new(name))).collect();
        *self.endpoints.write() = endpoints;
    }

    /// The metrics of all endpoints, in the order of the settings.
    pub(crate) fn endpoints(&self) -> Vec<Arc<EndpointFigures>> {
        self.endpoints.read().clone()
    }

    /// The metrics of an endpoint; `None` = this node has no endpoint of this name.
    pub(crate) fn of_endpoint(&self, name: &str) -> Option<Arc<EndpointFigures>> {
        let endpoints = self.endpoints.read();
        endpoints.iter().find(|endpoint| endpoint.name == name).cloned()
    }

    /// The names of the endpoints that another node configures differently.
    pub(crate) fn differing(&self) -> Vec<String> {
        self.named(|endpoint| endpoint.is_differing.load(Relaxed))
    }

    fn named(&self, is_meant: impl Fn(&EndpointFigures) -> bool) -> Vec<String> {
        let endpoints = self.endpoints.read();
        endpoints.iter().filter(|endpoint| is_meant(endpoint)).map(|endpoint| endpoint.name.clone()).collect()
    }

    /// The ids of the nodes of the cluster that take no part in durable events.
    pub(crate) fn silent(&self) -> Vec<String> {
        self.silent_nodes.lock().clone()
    }

    /// The names of the endpoints that have refused all further events.
    pub(crate) fn off(&self) -> Vec<String> {
        self.named(|endpoint| endpoint.is_off.load(Relaxed))
    }
}

/// The metrics of events, for a scrape.
#[derive(Debug)]
pub(crate) struct EventCollector(pub(crate) Arc<EventMetrics>);

impl Collector for EventCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let endpoints = &self.0.endpoints();
        type Figure = fn(&EndpointFigures) -> u64;
        let gauges: [(&str, &str, Figure); 4] = [
            ("events_queued", "Events that wait for an endpoint or are under way to it", |of| of.queued.get()),
            ("events_queued_bytes", "Bytes of the events that wait for an endpoint", |of| of.queued_bytes.get()),
            ("events_off", "1 while an endpoint is sent nothing, because it has answered 410", |of| {
                of.is_off.load(Relaxed).into()
            }),
            ("events_differing", "1 while another node describes a durable endpoint otherwise", |of| {
                of.is_differing.load(Relaxed).into()
            }),
        ];
        for (name, help, figure) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for endpoint in endpoints {
                let labels = [("endpoint", endpoint.name.as_str())];
                ConstGauge::new(figure(endpoint) as i64).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Nodes of the cluster that take no part in durable events";
        let family = encoder.encode_descriptor("events_silent_nodes", help, None, MetricType::Gauge)?;
        ConstGauge::new(self.0.silent().len() as i64).encode(family)?;
        let help = "Age of the oldest event that waits for an endpoint or is being sent to it";
        let mut family = encoder.encode_descriptor("events_oldest_seconds", help, None, MetricType::Gauge)?;
        for endpoint in endpoints {
            let labels = [("endpoint", endpoint.name.as_str())];
            ConstGauge::new(endpoint.oldest_ms.get() as f64 / 1e3).encode(family.encode_family(&labels)?)?;
        }
        let counters: [(&str, &str, Figure); 2] = [
            ("events_sent", "Events that an endpoint has accepted", |of| of.sent.get()),
            ("event_batches_retried", "Batches that were sent to an endpoint again", |of| of.retried.get()),
        ];
        for (name, help, figure) in counters {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for endpoint in endpoints {
                let labels = [("endpoint", endpoint.name.as_str())];
                ConstCounter::new(figure(endpoint)).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Events that were never sent to an endpoint";
        let mut family = encoder.encode_descriptor("events_dropped", help, None, MetricType::Counter)?;
        for endpoint in endpoints {
            for reason in DropReason::ALL {
                let labels = [("endpoint", endpoint.name.as_str()), ("reason", reason.as_str())];
                ConstCounter::new(endpoint.dropped[reason as usize].get()).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Events that an endpoint did not accept, and that are not sent any more";
        let mut family = encoder.encode_descriptor("events_dead", help, None, MetricType::Counter)?;
        for endpoint in endpoints {
            for reason in DeadReason::ALL {
                let labels = [("endpoint", endpoint.name.as_str()), ("reason", reason.as_str())];
                ConstCounter::new(endpoint.dead[reason as usize].get()).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
