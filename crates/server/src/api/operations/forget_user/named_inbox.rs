//! An inbox, named by its scope and its name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name of a scope with waiting messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NamedInbox {
    /// The scope of the name.
    pub(super) scope: Box<str>,
    /// The name that messages wait for.
    #[schemars(length(min = 1))]
    pub(super) name: Box<str>,
}
