//! Why a pull has ended.

use std::fmt::Display;

/// What ended a pull; its text is a cause, and what to do.
pub(super) struct PullFailure(pub(super) String);

impl PullFailure {
    pub(super) fn of(what: &str, cause: impl Display) -> Self {
        PullFailure(format!("{what}: {cause}"))
    }
}
