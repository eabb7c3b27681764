//! How long the operations of the server API take, and which errors they return.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;

use super::code_counts::{CodeCounts, CodeKind, encode_codes};
use super::meters::{Latency, SummedLatency};

/// An upper bound of the number of operations.
pub(crate) const OPERATIONS_MAX: usize = 80;
/// The place of requests that name no operation, or whose parameters cannot be read.
pub(crate) const NO_OPERATION: usize = OPERATIONS_MAX - 1;

/// The counters of one operation.
#[derive(Debug)]
struct OperationCounts {
    latency: Latency,
    errors: CodeCounts,
}

/// The metrics of the server API, by the place of an operation in the table of all operations. Any thread may count.
#[derive(Debug)]
pub(crate) struct OperationMetrics(Vec<OperationCounts>);

impl Default for OperationMetrics {
    fn default() -> Self {
        let of_one = || OperationCounts { latency: Latency::default(), errors: CodeCounts::of(CodeKind::Errors) };
        OperationMetrics((0..OPERATIONS_MAX).map(|_| of_one()).collect())
    }
}

impl OperationMetrics {
    /// Counts an operation with its duration in microseconds.
    pub(crate) fn observe_us(&self, place: usize, us: u64) {
        self.0[place].latency.observe_shared_us(us);
    }

    /// Counts an error that a caller received.
    pub(crate) fn count_error(&self, place: usize, code: u32) {
        self.0[place].errors.count_shared(code);
    }
}

/// Encodes the metrics of the operations that were called. `names`: the names of the operations, in the order of their
/// places. Places beyond them belong to no operation.
pub(super) fn encode_operations(
    encoder: &mut DescriptorEncoder<'_>,
    shards: &[&OperationMetrics],
    names: &[&'static str],
) -> std::fmt::Result {
    let named = || names.iter().copied().enumerate().chain([(NO_OPERATION, "none")]);
    let help = "How long operations of the server API take, by operation";
    let mut family = encoder.encode_descriptor("api_seconds", help, None, MetricType::Histogram)?;
    for (place, name) in named() {
        let latency = SummedLatency::of(shards.iter().map(|shard| &shard.0[place].latency));
        if latency.count() > 0 {
            latency.encode(family.encode_family(&[("method", name)])?)?;
        }
    }
    let of_operation = |(place, name): (usize, &'static str)| {
        let all = shards.iter().map(|shard| &shard.0[place].errors).collect();
        (Some(name), all)
    };
    let about = ("api_errors", "Errors returned to callers of the server API, by operation and code");
    encode_codes(encoder, about, named().map(of_operation), &[])
}
