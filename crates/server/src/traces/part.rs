//! The parts of the server that can be traced.

/// The header field, and the tag of a publication, that names the parent of a span (W3C Trace Context).
pub(crate) const TRACEPARENT: &str = "traceparent";

/// What spans are made for, each with a switch in the section `opentelemetry`.
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
