//! The outputs of a replica.

use std::sync::Arc;

use crate::entry::Entry;

/// Why an entry changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A client or the backend requested the change.
    Normal = 0,
    /// The owner is gone.
    Closed = 1,
    /// Two authorities owned the name, and the scope's policy decided.
    Conflict = 2,
    /// A node joined or returned with the entry.
    NodeUp = 3,
    /// The owner's node fell silent, left or restarted.
    NodeDown = 4,
    /// Another owner took over the name.
    TakenOver = 5,
}

impl Reason {
    /// The name of the reason, as it appears in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Normal => "normal",
            Reason::Closed => "closed",
            Reason::Conflict => "conflict",
            Reason::NodeUp => "node_up",
            Reason::NodeDown => "node_down",
            Reason::TakenOver => "taken_over",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Reason> {
        use Reason::{Closed, Conflict, NodeDown, NodeUp, Normal, TakenOver};
        [Normal, Closed, Conflict, NodeUp, NodeDown, TakenOver].get(usize::from(byte)).copied()
    }
}

/// The kind of change of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryChange {
    /// A name has a new owner.
    Registered,
    /// The metadata of a name changed.
    Updated,
    /// A name no longer has an owner.
    Unregistered,
    /// A member joined a group.
    Joined,
    /// The metadata of a member changed.
    MemberUpdated,
    /// A member left a group.
    Left,
}

/// A change in this node's table. Each change is reported exactly once, so replaying the events results in the table.
#[derive(Debug, Clone)]
pub struct RegistryEvent {
    /// The kind of change.
    pub change: EntryChange,
    /// The new entry, or the last one if it was removed.
    pub entry: Entry,
    /// The reason of the change.
    pub reason: Reason,
}

/// A task for the host of the replica.
#[derive(Debug)]
pub enum Output {
    /// Send a message to one node or to all nodes.
    Send {
        /// The receiving node. `None` = all nodes of the scope.
        to: Option<Arc<str>>,
        /// The bytes of the message.
        message: Arc<[u8]>,
    },
    /// Report a change of the table.
    Event(RegistryEvent),
    /// Notify a local owner that it has lost a name.
    Lost {
        /// The lost entry, with the owner that lost it.
        lost: Entry,
        /// The entry that owns the name now.
        winner: Entry,
        /// Why the name was lost: a conflict or a takeover.
        reason: Reason,
    },
    /// Ask the backend which claim of a name stays. The host passes the answer to [`crate::Replica::resolve`].
    Resolve {
        /// This node's claim of the name.
        mine: Entry,
        /// The other node's claim, which is later.
        other: Entry,
    },
    /// The entries of a node are now complete here, or were removed.
    Node {
        /// The name of the node.
        node: Arc<str>,
        /// True if the node's entries are here now.
        is_up: bool,
        /// When the node was last heard and in sync. Later messages of the node are not known here.
        heard_ms: u64,
    },
    /// Other nodes purged this one while it stood still, so some of its owners may be gone. The host must check its
    /// connections, close the dead ones and call [`crate::Replica::probed`]. Until then nothing is sent.
    Probe,
    /// Another node has other options for this scope. All nodes follow the strictest policy and the smallest limits.
    Differs {
        /// The node with the other options.
        node: Arc<str>,
    },
}
