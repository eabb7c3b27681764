//! The hello message, in which a node describes itself.

use serde::{Deserialize, Serialize};

/// The description that each node sends of itself. Every version of Touchline must be able to read it, so fields are
/// added, and never changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) node: String,
    /// When the node started, Unix milliseconds.
    pub(crate) started_ms: u64,
    /// The lowest and the highest message version that the node supports.
    pub(crate) versions: (u32, u32),
    /// The version of the program, for people.
    #[serde(default)]
    pub(crate) program: String,
    /// True if the sender leaves the cluster.
    #[serde(default)]
    pub(crate) leaves: bool,
    /// True if the sender takes no part, because it shares no version with another node.
    #[serde(default)]
    pub(crate) aside: bool,
    /// Where the sender keeps shared facts. Empty = not stated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) facts: String,
    /// The name of the sender, for people. Empty = not stated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// A digest of the sender's configuration. 0 = not stated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) configuration: u32,
    /// The number of clients per second that the sender can take when another node drains. 0 = not stated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) connect_rate: u32,
    /// True if the sender drains, so that it takes no more clients.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) draining: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Hello {
    pub(crate) fn shares(&self, other: &Hello) -> bool {
        self.versions.0 <= other.versions.1 && other.versions.0 <= self.versions.1
    }

    /// Whether both nodes state where they keep shared facts, and the places differ.
    pub(crate) fn has_other_fact_place(&self, other: &Hello) -> bool {
        !self.facts.is_empty() && !other.facts.is_empty() && self.facts != other.facts
    }

    /// Whether both nodes state a digest of their configuration, and the digests differ.
    pub(crate) fn has_other_configuration(&self, other: &Hello) -> bool {
        self.configuration != 0 && other.configuration != 0 && self.configuration != other.configuration
    }

    /// The name of the node; its id, if it states no name.
    pub(crate) fn label(&self) -> &str {
        if self.name.is_empty() { &self.node } else { &self.name }
    }

    pub(crate) fn is_before(&self, other: &Hello) -> bool {
        (self.started_ms, &self.node) < (other.started_ms, &other.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_by_its_name_or_by_its_id() {
        let of = |name: &str| Hello { node: "1f".into(), name: name.into(), ..Hello::default() };
        assert_eq!([of("vm_1").label(), of("").label()], ["vm_1", "1f"]);
    }
}
