//! The metrics of hooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use touchline_engine::hook::HookKind;

use super::meters::{Counter, Gauge, Latency, SummedLatency, gauge};

/// The outcome of a call, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// The backend answered with a result, or with `{}`.
    Answered,
    /// The backend refused the action.
    Refused,
    /// There was no answer, or no usable answer.
    Failed,
    /// The backend was not asked, because it has failed too often.
    Open,
    /// The backend was not asked, because too many calls wait.
    Busy,
    /// The backend was not asked, because an earlier answer still applies.
    Cached,
    /// The client disconnected before the answer.
    Cancelled,
}

impl CallOutcome {
    /// All outcomes, in the order of their numbers.
    pub(crate) const ALL: [CallOutcome; 7] = [
        CallOutcome::Answered,
        CallOutcome::Refused,
        CallOutcome::Failed,
        CallOutcome::Open,
        CallOutcome::Busy,
        CallOutcome::Cached,
        CallOutcome::Cancelled,
    ];

    /// The value of the label in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CallOutcome::Answered => "answered",
            CallOutcome::Refused => "refused",
            CallOutcome::Failed => "failed",
            CallOutcome::Open => "open",
            CallOutcome::Busy => "busy",
            CallOutcome::Cached => "cached",
            CallOutcome::Cancelled => "cancelled",
        }
    }
}

/// The counts of hooks. They continue over reloads that leave a hook switched on.
#[derive(Debug, Default)]
pub(crate) struct HookCounts {
    /// Calls by kind of hook and outcome.
    calls: [[Counter; CallOutcome::ALL.len()]; HookKind::ALL.len()],
    /// Time from the first byte of a call to the end of its answer, by kind of hook.
    latency: [Latency; HookKind::ALL.len()],
}

/// The metrics of hooks.
#[derive(Debug, Default)]
pub(crate) struct HookMetrics {
    /// What was counted, also before a reload.
    pub(crate) counts: Arc<HookCounts>,
    /// The number of calls under way.
    pub(crate) under_way: Gauge,
    /// The backends, each with whether it is not asked because it has failed too often.
    pub(crate) endpoints: Vec<(String, AtomicBool)>,
}

impl HookMetrics {
    /// Makes metrics that continue to count from `counts`. `endpoints`: the names of the backends.
    pub(crate) fn of(endpoints: Vec<String>, counts: Arc<HookCounts>) -> Self {
        let endpoints = endpoints.into_iter().map(|name| (name, AtomicBool::new(false))).collect();
        HookMetrics { endpoints, counts, ..HookMetrics::default() }
    }

    /// Counts the duration of a call, in microseconds. Any thread may call this.
    pub(crate) fn observe_us(&self, kind: HookKind, us: u64) {
        self.counts.latency[kind as usize].observe_shared_us(us);
    }

    /// The backends that are not asked because they have failed too often.
    pub(crate) fn open_backends(&self) -> Vec<&str> {
        let open = self.endpoints.iter().filter(|(_, is_open)| is_open.load(Relaxed));
        open.map(|(name, _)| name.as_str()).collect()
    }

    /// Counts a call with its outcome. Any thread may call this.
    pub(crate) fn count(&self, kind: HookKind, outcome: CallOutcome) {
        self.counts.calls[kind as usize][outcome as usize].add_shared(1);
    }
}

/// The metrics of hooks, for a scrape.
#[derive(Debug)]
pub(crate) struct HookCollector {
    pub(crate) metrics: Arc<HookMetrics>,
    /// The number of calls that wait or are under way.
    pub(crate) outstanding: usize,
}

impl Collector for HookCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.metrics;
        gauge(&mut encoder, "hooks_outstanding", "Calls of hooks that wait or are under way", self.outstanding as u64)?;
        gauge(&mut encoder, "hooks_under_way", "Calls of hooks that are under way", metrics.under_way.get())?;
        let help = "Calls of hooks by outcome";
        let mut family = encoder.encode_descriptor("hook_calls", help, None, MetricType::Counter)?;
        for kind in HookKind::ALL {
            for outcome in CallOutcome::ALL {
                let count = metrics.counts.calls[kind as usize][outcome as usize].get();
                if count > 0 {
                    let labels = [("hook", kind.name()), ("outcome", outcome.as_str())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "From the first byte of a hook's call to the end of its answer";
        let mut family = encoder.encode_descriptor("hook_seconds", help, None, MetricType::Histogram)?;
        for kind in HookKind::ALL {
            let latency = SummedLatency::of(std::iter::once(&metrics.counts.latency[kind as usize]));
            latency.encode(family.encode_family(&[("hook", kind.name())])?)?;
        }
        let help = "1 while a backend is not asked, because it has failed too often";
        let mut family = encoder.encode_descriptor("hook_breaker_open", help, None, MetricType::Gauge)?;
        for (name, is_open) in &metrics.endpoints {
            let is_open = ConstGauge::new(i64::from(is_open.load(Relaxed)));
            is_open.encode(family.encode_family(&[("backend", name.as_str())])?)?;
        }
        Ok(())
    }
}
