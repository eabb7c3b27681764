//! What one incarnation of a node says about one channel: the unit that is sent to other nodes and kept in the
//! database.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::opening::ReactionOpening;

/// An incarnation of a node. Only the incarnation itself increases its counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Box<str>", into = "Box<str>")]
pub struct Contributor(Arc<str>);

impl Contributor {
    /// The incarnation of a node. `incarnation`: a number that distinguishes it from all others of that node.
    pub fn new(node: &str, incarnation: u64) -> Self {
        Contributor(format!("{node}/{incarnation:016x}").into())
    }

    /// Whether this is an incarnation of the given node.
    pub(super) fn is_of(&self, node: &str) -> bool {
        self.0.rsplit_once('/').is_some_and(|(name, _)| name == node)
    }

    /// The text of the contributor, as messages and rows contain it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Contributor {
    fn from(text: &str) -> Self {
        Contributor(text.into())
    }
}

impl From<Box<str>> for Contributor {
    fn from(text: Box<str>) -> Self {
        Contributor(text.into())
    }
}

impl From<Contributor> for Box<str> {
    fn from(contributor: Contributor) -> Self {
        (&*contributor.0).into()
    }
}

/// What a contributor says about a channel. Within a round every number only grows. So of two records for the same
/// round both are true, and so is their join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReactionRecord {
    #[serde(rename = "c")]
    pub(super) channel: Box<str>,
    /// The number of the contributor's change that this record describes.
    #[serde(rename = "v")]
    pub(super) version: u64,
    /// When the contributor last changed it, Unix milliseconds.
    #[serde(rename = "m")]
    pub(super) changed_ms: u64,
    /// What the server API opened; `None` = the namespace opened it.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub(super) opening: Option<ReactionOpening>,
    /// When the round was closed, Unix milliseconds; 0 = the contributor does not know that it was closed.
    #[serde(rename = "x", default, skip_serializing_if = "is_zero")]
    pub(super) closed_ms: u64,
    /// Whether the closing publication was published.
    #[serde(rename = "p", default, skip_serializing_if = "is_false")]
    pub(super) is_published: bool,
    /// Whether all clients of the contributor may react in the round.
    #[serde(rename = "b", default, skip_serializing_if = "is_false")]
    pub(super) is_begun: bool,
    /// Whether the contributor has counted everything that its clients sent before the round was closed.
    #[serde(rename = "d", default, skip_serializing_if = "is_false")]
    pub(super) is_complete: bool,
    /// The contributor's counts, by option.
    #[serde(rename = "t", default)]
    pub(super) totals: BTreeMap<Box<str>, u64>,
}

impl ReactionRecord {
    /// Until when something happens or has happened in the channel, as far as the contributor knew, Unix milliseconds.
    pub(super) fn used_until_ms(&self) -> u64 {
        let of_opening = self.opening.as_ref().map_or(0, ReactionOpening::used_until_ms);
        self.changed_ms.max(self.closed_ms).max(of_opening)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}
