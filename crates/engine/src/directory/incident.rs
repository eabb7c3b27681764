//! What is reported to backends about names, groups and nodes that are gone.

use std::sync::Arc;

use touchline_registry::{Entry, OwnerId, Reason};

use crate::events::EventKind;

/// Which changes are reported to backends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToldChanges {
    /// Whether changes of names are reported.
    pub names: bool,
    /// Whether changes of groups are reported.
    pub members: bool,
    /// Whether clients of nodes that are gone are reported.
    pub clients: bool,
}

/// A client together with its user.
pub(super) type ActingOwner = (OwnerId, Box<str>);

/// A change of a name or a group, for a report to backends.
#[derive(Debug)]
pub struct EntryIncident {
    /// The kind of the event.
    pub kind: EventKind,
    /// The scope of the entry.
    pub scope: Arc<str>,
    /// The entry: as it is now, or as it was last.
    pub entry: Entry,
    /// The reason for the change.
    pub reason: Reason,
    /// The user of the client that caused the change, if that client owns the entry; empty = not known.
    pub user: Box<str>,
    /// The entry that has the name now, if another client has won it; `None` = none has.
    pub winner: Option<Entry>,
    /// Whether the node of the entry is gone, so that one of the other nodes reports the change.
    pub is_of_lost_node: bool,
}

/// A client whose node is gone, for a report to backends.
#[derive(Debug)]
pub struct LostClient {
    /// The node that is gone.
    pub node: Arc<str>,
    /// The id of the client.
    pub client: OwnerId,
    /// The client's user; empty = anonymous, or not known.
    pub user: Box<str>,
}
