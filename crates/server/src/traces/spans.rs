//! Spans, and the parents that they pass on.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use hyper::header::{HeaderMap, HeaderValue};
use opentelemetry::global::{self, BoxedSpan};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::part::{TRACEPARENT, TracedPart};

/// The parts that are traced, as bits. No span is made before the export has started.
static PARTS: AtomicU8 = AtomicU8::new(0);
/// The bit of [`PARTS`] for the tags of publications.
const PUBLICATIONS: u8 = 128;

tokio::task_local! {
    /// The parent span that publications of this task pass on.
    static HANDED_ON: String;
}

/// Sets which parts are traced from now on.
pub(super) fn trace(parts: &[TracedPart], tags_publications: bool) {
    let bits = parts.iter().fold(0, |bits, part| bits | *part as u8);
    PARTS.store(bits | if tags_publications { PUBLICATIONS } else { 0 }, Relaxed);
}

/// A span, which ends when this is dropped.
pub(crate) struct Span {
    /// The span; None = the part is not traced.
    span: Option<BoxedSpan>,
    /// The parent that it passes on if it is not traced itself; None = there is no parent.
    parent: Option<String>,
}

impl Span {
    /// Begins a span. `parent`: the `traceparent` of its parent. If it is None or cannot be read, the span has no
    /// parent.
    pub(crate) fn begin(part: TracedPart, name: impl FnOnce() -> String, parent: Option<&str>) -> Self {
        let parts = PARTS.load(Relaxed);
        let parent = parent.filter(|parent| parts > 0 && is_valid(parent));
        if parts & part as u8 == 0 {
            return Span { span: None, parent: parent.map(str::to_owned) };
        }
        let tracer = global::tracer("touchline");
        let builder = tracer.span_builder(name()).with_kind(kind(part));
        let span = tracer.build_with_context(builder, &context(parent));
        Span { span: Some(span), parent: None }
    }

    /// Begins a span for what a request asks for, with the parent in its header fields.
    pub(crate) fn of_request(part: TracedPart, name: impl FnOnce() -> String, headers: &HeaderMap) -> Self {
        if PARTS.load(Relaxed) == 0 {
            return Span { span: None, parent: None };
        }
        let mut parents = headers.get_all(TRACEPARENT).iter();
        // If there are two parents, it is not clear which one is meant.
        let parent = parents.next().filter(|_| parents.next().is_none()).and_then(|value| value.to_str().ok());
        Span::begin(part, name, parent)
    }

    /// Adds an attribute to the span.
    pub(crate) fn note(&mut self, key: &'static str, value: impl FnOnce() -> String) {
        if let Some(span) = &mut self.span {
            span.set_attribute(KeyValue::new(key, value()));
        }
    }

    /// Notes that what the span describes has failed.
    pub(crate) fn fail(&mut self, why: impl FnOnce() -> String) {
        if let Some(span) = &mut self.span {
            span.set_status(Status::error(why()));
        }
    }

    /// Adds the header field that makes this span the parent of what a request causes.
    pub(crate) fn hand_to(&self, headers: &mut HeaderMap) {
        if let Some(value) = self.traceparent().and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(TRACEPARENT, value);
        }
    }

    fn traceparent(&self) -> Option<String> {
        let Some(span) = &self.span else { return self.parent.clone() };
        let context = span.span_context();
        let (trace, id, flags) = (context.trace_id(), context.span_id(), context.trace_flags().to_u8());
        Some(format!("00-{trace}-{id}-{flags:02x}"))
    }
}

/// Runs a future whose publications pass the span on as their parent.
pub(crate) async fn within<F: Future>(span: &Span, future: F) -> F::Output {
    let is_on = PARTS.load(Relaxed) & PUBLICATIONS > 0;
    match span.traceparent().filter(|_| is_on) {
        Some(parent) => HANDED_ON.scope(parent, future).await,
        None => future.await,
    }
}

/// The parent that the publications of this task pass on in the tag [`TRACEPARENT`]; None = there is none.
pub(crate) fn handed_on() -> Option<String> {
    if PARTS.load(Relaxed) & PUBLICATIONS == 0 {
        return None;
    }
    HANDED_ON.try_with(String::clone).ok()
}

fn kind(part: TracedPart) -> SpanKind {
    match part {
        TracedPart::Api => SpanKind::Server,
        TracedPart::Consuming => SpanKind::Consumer,
        TracedPart::Hooks => SpanKind::Client,
        TracedPart::Events => SpanKind::Producer,
    }
}

/// One `traceparent`, in the form from which the propagator reads header fields.
struct Carrier<'c>(&'c str);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// Makes the context of a parent.
fn context(parent: Option<&str>) -> Context {
    let none = Context::new();
    parent.map_or(none.clone(), |parent| TraceContextPropagator::new().extract_with_context(&none, &Carrier(parent)))
}

/// Whether a text is a `traceparent` of version 00 (W3C Trace Context, section 3.2).
fn is_valid(parent: &str) -> bool {
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_id = |id: &str, length: usize| id.len() == length && is_hex(id) && id.bytes().any(|byte| byte != b'0');
    match parent.split('-').collect::<Vec<_>>()[..] {
        ["00", trace, span, flags] => is_id(trace, 32) && is_id(span, 16) && flags.len() == 2 && is_hex(flags),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_parent_counts() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_valid(valid));
        for text in [
            "00-1-1-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            &valid.to_uppercase(),
            &format!("{valid}-"),
        ] {
            assert!(!is_valid(text), "{text}");
        }
        for text in [
            "",
            "00",
            &valid[1..],
            &valid.replace("4b", "zz"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert!(!is_valid(text), "{text}");
        }
    }
}
