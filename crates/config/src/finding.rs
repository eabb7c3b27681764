//! Findings: errors, warnings and notes about a configuration.

use std::fmt;

use crate::load::tree::Location;
use crate::redact::redact;

/// How serious a finding is. Errors sort first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but probably does not mean what the operator intends.
    Warning,
    /// A fact that is useful to know.
    Note,
}

/// An error, a warning or a note, and the place that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How serious the finding is.
    pub severity: Severity,
    /// The text. It begins with the key and never contains the value of a secret.
    pub text: String,
    /// The location of the value. `None` = no value was written.
    pub location: Option<Location>,
}

impl Finding {
    /// An error: the node does not start.
    pub(crate) fn error(text: impl Into<String>, location: Option<&Location>) -> Self {
        Finding { severity: Severity::Error, text: text.into(), location: location.cloned() }
    }

    /// A warning: the operator probably intends something else.
    pub(crate) fn warning(text: impl Into<String>, location: Option<&Location>) -> Self {
        Finding { severity: Severity::Warning, text: text.into(), location: location.cloned() }
    }

    /// A note: a fact that is useful to know. It has no location.
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
