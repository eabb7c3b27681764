//! Why a pull has ended.

use std::fmt::Display;

/// The failure that ended a pull. Its text contains the cause and a remedy.
pub(super) struct PullFailure(pub(super) String);

impl PullFailure {
    pub(super) fn of(what: &str, cause: impl Display) -> Self {
        PullFailure(format!("{what}: {cause}"))
    }
}
