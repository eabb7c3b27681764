//! What is traced.

/// The header field, and the tag of a publication, that tell of what a span is a part (W3C Trace Context).
pub(crate) const TRACEPARENT: &str = "traceparent";

/// What spans are made of, each with a switch in the section `opentelemetry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TracedPart {
    /// Calls of the server API.
    Api = 1,
    /// Commands of consumers.
    Consuming = 2,
    /// Questions to backends.
    Hooks = 4,
    /// Batches of events.
    Events = 8,
}
