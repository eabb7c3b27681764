//! Spans of a program without traces: there are none.

use hyper::header::HeaderMap;
use touchline_config::OpenTelemetrySettings;

use super::part::TracedPart;
use crate::start_error::StartError;

/// A span that is not there.
pub(crate) struct NoSpan;

impl NoSpan {
    /// None.
    pub(crate) fn begin(_: TracedPart, _: impl FnOnce() -> String, _: Option<&str>) -> Self {
        NoSpan
    }

    /// None.
    pub(crate) fn of_request(_: TracedPart, _: impl FnOnce() -> String, _: &HeaderMap) -> Self {
        NoSpan
    }

    /// Nothing is noted.
    pub(crate) fn note(&mut self, _: &'static str, _: impl FnOnce() -> String) {}

    /// Nothing is noted.
    pub(crate) fn fail(&mut self, _: impl FnOnce() -> String) {}

    /// No header field is added.
    pub(crate) fn hand_to(&self, _: &mut HeaderMap) {}
}

/// Runs the future.
pub(crate) fn within<F: Future>(_: &NoSpan, future: F) -> F {
    future
}

/// Publications hand nothing on.
pub(crate) fn handed_on() -> Option<String> {
    None
}

/// An export that is not there.
pub(crate) struct NoExport;

impl NoExport {
    /// Nothing waits to be sent.
    pub(crate) fn stop(self) {}
}

/// There is nothing to start: settings that ask for traces are refused before.
///
/// # Errors
/// None.
pub(crate) fn start(_: &OpenTelemetrySettings, _: &str) -> Result<Option<NoExport>, StartError> {
    Ok(None)
}
