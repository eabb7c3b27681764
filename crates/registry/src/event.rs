//! What comes out of a replica.

use std::sync::Arc;

use crate::entry::Entry;

/// Why something changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Somebody asked for it.
    Normal = 0,
    /// The owner is gone.
    Closed = 1,
    /// Two authorities owned the name, and the scope's policy decided.
    Conflict = 2,
    /// A node came, or came back, with it.
    NodeUp = 3,
    /// Its node fell silent, left or restarted.
    NodeDown = 4,
    /// Another owner took the name over.
    TakenOver = 5,
}

impl Reason {
    /// As it is told to people.
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

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryChange {
    /// A name has an owner.
    Registered,
    /// The metadata of a name.
    Updated,
    /// A name has no owner any more.
    Unregistered,
    /// A member came.
    Joined,
    /// The metadata of a member.
    MemberUpdated,
    /// A member went.
    Left,
}

/// A change of what this node sees; each is told exactly once, so that replaying them gives the table.
#[derive(Debug, Clone)]
pub struct RegistryEvent {
    /// What happened.
    pub change: EntryChange,
    /// The entry: as it is now, or as it last was.
    pub entry: Entry,
    /// Why.
    pub reason: Reason,
}

/// What a replica wants done.
#[derive(Debug)]
pub enum Output {
    /// A message for one node, or for all.
    Send {
        /// The node; `None` = all of the scope.
        to: Option<Arc<str>>,
        /// The message.
        message: Arc<[u8]>,
    },
    /// Something changed.
    Event(RegistryEvent),
    /// A local owner has lost a name: it must be told.
    Lost {
        /// What was lost, by whom.
        lost: Entry,
        /// Who has it now.
        winner: Entry,
        /// By conflict, or taken over.
        reason: Reason,
    },
    /// Ask the backend who keeps a name; the answer goes to [`crate::Replica::resolve`].
    Resolve {
        /// This node's claim.
        mine: Entry,
        /// The other one, which is later.
        other: Entry,
    },
    /// A node's entries are here, or are gone.
    Node {
        /// Which.
        node: Arc<str>,
        /// Whether they are here now.
        is_up: bool,
        /// When the node was last heard and followed: what it has said later is not known here.
        heard_ms: u64,
    },
    /// Other nodes have purged this one while it stood still: some of its owners may be gone. The host looks at its
    /// connections, closes the dead ones and calls [`crate::Replica::probed`]. Until then nothing is sent.
    Probe,
    /// Another node has other options for this scope. All nodes follow the strictest policy and the smallest limits.
    Differs {
        /// Which node.
        node: Arc<str>,
    },
}
