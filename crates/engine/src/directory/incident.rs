//! What backends are told of names, groups and nodes that are gone.

use std::sync::Arc;

use touchline_registry::{Entry, OwnerId, Reason};

use crate::events::EventKind;

/// What backends are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToldChanges {
    /// Changes of names.
    pub names: bool,
    /// Changes of groups.
    pub members: bool,
    /// Clients of nodes that are gone.
    pub clients: bool,
}

/// A client, and its user.
pub(super) type ActingOwner = (OwnerId, Box<str>);

/// A change of a name or a group.
#[derive(Debug)]
pub struct EntryIncident {
    /// What it is.
    pub kind: EventKind,
    /// The scope.
    pub scope: Arc<str>,
    /// The entry: as it is now, or as it last was.
    pub entry: Entry,
    /// Why.
    pub reason: Reason,
    /// The user of the client that has caused it, if that is its owner; empty = it is not known.
    pub user: Box<str>,
    /// Who has the name now, if another one has won it.
    pub winner: Option<Entry>,
    /// The node of the entry is gone: one of the others tells it.
    pub is_of_lost_node: bool,
}

/// A client whose node is gone.
#[derive(Debug)]
pub struct LostClient {
    /// Its node.
    pub node: Arc<str>,
    /// The client.
    pub client: OwnerId,
    /// Its user; empty = anonymous, or not known.
    pub user: Box<str>,
}
