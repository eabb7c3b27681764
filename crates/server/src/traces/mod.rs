//! Traces, which are sent to a collector by OTLP (feature `otel`). There is a span for each call of the server API,
//! question to a backend, batch of events, and command of a consumer. Without the feature, the functions do nothing.

#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
mod no_spans;
mod part;
#[cfg(feature = "otel")]
mod spans;

#[cfg(feature = "otel")]
pub(crate) use export::{TraceExport, start};
#[cfg(not(feature = "otel"))]
pub(crate) use no_spans::{NoExport as TraceExport, NoSpan as Span, handed_on, start, within};
pub(crate) use part::{TRACEPARENT, TracedPart};
#[cfg(feature = "otel")]
pub(crate) use spans::{Span, handed_on, within};
