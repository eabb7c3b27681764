//! Tickets: what the reply to a session's request is for.

use super::counts::CommandMethod;
use super::weight::Weight;
use crate::namespace::NamespaceIndex;

/// What a home's or the directory's reply is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticket {
    /// A command whose reply is the home's reply.
    Reply {
        /// The command.
        command: u32,
        /// Its method.
        method: CommandMethod,
        /// The size that the reply may have.
        weight: Weight,
    },
    /// A command that the directory replies to.
    Directory {
        /// The command.
        command: u32,
        /// The field of the reply.
        kind: ReplyKind,
        /// The size that the reply may have.
        weight: Weight,
    },
    /// The names and groups of the token, which the connect reply waits for.
    Registrations,
    /// A subscription of the client.
    Subscribe {
        /// The command.
        command: u32,
        /// The subscription.
        serial: u32,
        /// The namespace of its channel.
        namespace: NamespaceIndex,
        /// The size that the reply may have.
        weight: Weight,
    },
    /// A server-side subscription that the connect reply waits for.
    Connect {
        /// The subscription.
        serial: u32,
    },
    /// A server-side subscription made by the server API.
    Server {
        /// The subscription.
        serial: u32,
    },
}

/// The field of a reply that has the directory's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// `rpc`, with the directory's reply as its data.
    Rpc,
    /// `presence`.
    Presence,
    /// `presence_stats`.
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

    /// The method of the command that the reply is for.
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

    /// Whether its reply may be large.
    pub(super) fn is_large(self) -> bool {
        self.weight() == Some(Weight::Large)
    }
}
