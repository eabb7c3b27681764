//! What comes out of a replica.

use std::sync::Arc;

use crate::clock::Stamp;
use crate::owners::OwnerId;
use crate::record::Record;

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

/// An owned name or a membership, and where its owner lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The node that the owner lives on.
    pub node: Arc<str>,
    /// What it says.
    pub record: Record,
}

impl Entry {
    /// The name, or the group.
    pub fn key(&self) -> &str {
        self.record.key()
    }

    /// Whose it is.
    pub fn owner(&self) -> OwnerId {
        self.record.owner()
    }

    /// Its metadata.
    pub fn meta(&self) -> &[u8] {
        self.record.meta()
    }

    /// When it was claimed or joined.
    pub fn stamp(&self) -> Stamp {
        self.record.stamp()
    }

    /// How often its metadata has been replaced since.
    pub fn revision(&self) -> u32 {
        self.record.revision()
    }
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
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
pub struct Event {
    /// What happened.
    pub change: Change,
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
    Event(Event),
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
    /// A node came into sight, or went out of it.
    Node {
        /// Which.
        node: Arc<str>,
        /// Whether it is there now.
        is_up: bool,
    },
}
