//! Tickets: they connect the response to a session's request with what it is for.

use super::counts::CommandMethod;
use super::weight::Weight;
use crate::namespace::NamespaceIndex;

/// What the response of a home or of the directory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticket {
    /// A command whose reply is the home's response.
    Reply {
        /// The number of the command.
        command: u32,
        /// The method of the command.
        method: CommandMethod,
        /// The size that the reply can have.
        weight: Weight,
    },
    /// A command that the directory replies to.
    Directory {
        /// The number of the command.
        command: u32,
        /// The field of the reply.
        kind: ReplyKind,
        /// The size that the reply can have.
        weight: Weight,
    },
    /// The names and groups of the token. The connect reply waits for them.
    Registrations,
    /// A subscription of the client.
    Subscribe {
        /// The number of the command.
        command: u32,
        /// The number of the subscription within its session.
        serial: u32,
        /// The namespace of the subscription's channel.
        namespace: NamespaceIndex,
        /// The size that the reply can have.
        weight: Weight,
    },
    /// A server-side subscription. The connect reply waits for it.
    Connect {
        /// The number of the subscription within its session.
        serial: u32,
    },
    /// A server-side subscription that the server API made.
    Server {
        /// The number of the subscription within its session.
        serial: u32,
    },
}

/// The field of a reply that contains the directory's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// `rpc`, with the directory's response as its data.
    Rpc,
    /// A reply to `presence`.
    Presence,
    /// A reply to `presence_stats`.
    PresenceStats,
}

impl Ticket {
    pub(super) fn weight(self) -> Option<Weight> {
        match self {
            Ticket::Reply { weight, .. } | Ticket::Directory { weight, .. } | Ticket::Subscribe { weight, .. } => {
                Some(weight)
            }
            Ticket::Registrations | Ticket::Connect { .. } | Ticket::Server { .. } => None,
        }
    }

    /// The method of the command that the response is for.
    pub(super) fn method(self) -> CommandMethod {
        match self {
            Ticket::Reply { method, .. } => method,
            Ticket::Directory { kind: ReplyKind::Rpc, .. } => CommandMethod::Rpc,
            Ticket::Directory { kind: ReplyKind::Presence, .. } => CommandMethod::Presence,
            Ticket::Directory { kind: ReplyKind::PresenceStats, .. } => CommandMethod::PresenceStats,
            Ticket::Subscribe { .. } => CommandMethod::Subscribe,
            Ticket::Registrations | Ticket::Connect { .. } => CommandMethod::Connect,
            Ticket::Server { .. } => CommandMethod::None,
        }
    }

    /// Whether the reply may be large.
    pub(super) fn is_large(self) -> bool {
        self.weight() == Some(Weight::Large)
    }
}
