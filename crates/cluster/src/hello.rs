//! What nodes say of themselves.

use serde::{Deserialize, Serialize};

/// What each node says of itself. Every version of Touchline must be able to read this: fields are added, never
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) node: String,
    /// When the node started, Unix milliseconds.
    pub(crate) started_ms: u64,
    /// The lowest and the highest version that it speaks.
    pub(crate) versions: (u32, u32),
    /// The program's own version, for people.
    #[serde(default)]
    pub(crate) program: String,
    /// The sender leaves.
    #[serde(default)]
    pub(crate) leaves: bool,
    /// The sender takes no part, because it shares no version with another node.
    #[serde(default)]
    pub(crate) aside: bool,
    /// Where the sender keeps shared facts; empty = it does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) facts: String,
    /// A digest of the sender's configuration; 0 = it does not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) configuration: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Hello {
    pub(crate) fn shares(&self, other: &Hello) -> bool {
        self.versions.0 <= other.versions.1 && other.versions.0 <= self.versions.1
    }

    /// Whether both say where they keep shared facts, and mean different places.
    pub(crate) fn has_other_fact_place(&self, other: &Hello) -> bool {
        !self.facts.is_empty() && !other.facts.is_empty() && self.facts != other.facts
    }

    /// Whether both say what configuration they have, and mean different ones.
    pub(crate) fn has_other_configuration(&self, other: &Hello) -> bool {
        self.configuration != 0 && other.configuration != 0 && self.configuration != other.configuration
    }

    pub(crate) fn is_before(&self, other: &Hello) -> bool {
        (self.started_ms, &self.node) < (other.started_ms, &other.node)
    }
}
