//! Stand-ins for spans in a program without traces; they do nothing.

use hyper::header::HeaderMap;
use touchline_config::OpenTelemetrySettings;

use super::part::TracedPart;
use crate::start_error::StartError;

/// A stand-in for a span, which records nothing.
pub(crate) struct NoSpan;

impl NoSpan {
    /// Begins no span.
    pub(crate) fn begin(_: TracedPart, _: impl FnOnce() -> String, _: Option<&str>) -> Self {
        NoSpan
    }

    /// Begins no span for a request.
    pub(crate) fn of_request(_: TracedPart, _: impl FnOnce() -> String, _: &HeaderMap) -> Self {
        NoSpan
    }

    /// Ignores an attribute.
    pub(crate) fn note(&mut self, _: &'static str, _: impl FnOnce() -> String) {}

    /// Ignores a failure.
    pub(crate) fn fail(&mut self, _: impl FnOnce() -> String) {}

    /// Adds no header field.
    pub(crate) fn hand_to(&self, _: &mut HeaderMap) {}
}

/// Returns the future unchanged.
pub(crate) fn within<F: Future>(_: &NoSpan, future: F) -> F {
    future
}

/// Publications have no parent span to pass on.
pub(crate) fn handed_on() -> Option<String> {
    None
}

/// A stand-in for an export, which sends nothing.
pub(crate) struct NoExport;

impl NoExport {
    /// Returns at once, because no span waits to be sent.
    pub(crate) fn stop(self) {}
}

/// Starts nothing. Settings that ask for traces were refused before.
///
/// # Errors
/// This function never fails.
pub(crate) fn start(_: &OpenTelemetrySettings, _: &str) -> Result<Option<NoExport>, StartError> {
    Ok(None)
}
