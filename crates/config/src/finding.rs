//! One thing that is to be said about a configuration.

use std::fmt;

use crate::load::tree::Location;
use crate::redact::redact;

/// How much a finding matters. Errors come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can, but hardly means what its writer thinks.
    Warning,
    /// Good to know.
    Note,
}

/// A fault, a warning or a note, and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The text, beginning with the key; never with the value of a secret.
    pub text: String,
    /// The location of the value; `None` when no value was written.
    pub location: Option<Location>,
}

impl Finding {
    /// A fault that stops the start.
    pub(crate) fn error(text: impl Into<String>, location: Option<&Location>) -> Self {
        Finding { severity: Severity::Error, text: text.into(), location: location.cloned() }
    }

    /// Something that is not as its writer thinks.
    pub(crate) fn warning(text: impl Into<String>, location: Option<&Location>) -> Self {
        Finding { severity: Severity::Warning, text: text.into(), location: location.cloned() }
    }

    /// Something good to know.
    pub(crate) fn note(text: impl Into<String>) -> Self {
        Finding { severity: Severity::Note, text: text.into(), location: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(location) if *location != Location::Defaults => {
                f.write_str(&redact(&format!("{location}: {}", self.text)))
            }
            _ => f.write_str(&redact(&self.text)),
        }
    }
}
