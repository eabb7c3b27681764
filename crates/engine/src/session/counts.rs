//! What a session counts, for the metrics of its shard.

use touchline_protocol::command::{Command, CommandKind};

use crate::namespace::NamespaceIndex;

/// The method of a command of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommandMethod {
    /// None: a line that is not a command, or a command without a method.
    #[default]
    None,
    /// `connect`.
    Connect,
    /// `subscribe`.
    Subscribe,
    /// `unsubscribe`.
    Unsubscribe,
    /// `publish`.
    Publish,
    /// `presence`.
    Presence,
    /// `presence_stats`.
    PresenceStats,
    /// `history`.
    History,
    /// `rpc`, with the methods of the registry.
    Rpc,
    /// `refresh`.
    Refresh,
    /// `sub_refresh`.
    SubRefresh,
    /// `send`.
    Send,
}

impl CommandMethod {
    /// All methods, in the order of their numbers.
    pub const ALL: [CommandMethod; 12] = [
        CommandMethod::None,
        CommandMethod::Connect,
        CommandMethod::Subscribe,
        CommandMethod::Unsubscribe,
        CommandMethod::Publish,
        CommandMethod::Presence,
        CommandMethod::PresenceStats,
        CommandMethod::History,
        CommandMethod::Rpc,
        CommandMethod::Refresh,
        CommandMethod::SubRefresh,
        CommandMethod::Send,
    ];

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            CommandMethod::None => "none",
            CommandMethod::Connect => "connect",
            CommandMethod::Subscribe => "subscribe",
            CommandMethod::Unsubscribe => "unsubscribe",
            CommandMethod::Publish => "publish",
            CommandMethod::Presence => "presence",
            CommandMethod::PresenceStats => "presence_stats",
            CommandMethod::History => "history",
            CommandMethod::Rpc => "rpc",
            CommandMethod::Refresh => "refresh",
            CommandMethod::SubRefresh => "sub_refresh",
            CommandMethod::Send => "send",
        }
    }

    /// The method of a command.
    pub(super) fn of(command: &Command<'_>) -> Self {
        match &command.operation {
            None => CommandMethod::None,
            Some(CommandKind::Connect(_)) => CommandMethod::Connect,
            Some(CommandKind::Subscribe(_)) => CommandMethod::Subscribe,
            Some(CommandKind::Unsubscribe(_)) => CommandMethod::Unsubscribe,
            Some(CommandKind::Publish(_)) => CommandMethod::Publish,
            Some(CommandKind::Presence(_)) => CommandMethod::Presence,
            Some(CommandKind::PresenceStats(_)) => CommandMethod::PresenceStats,
            Some(CommandKind::History(_)) => CommandMethod::History,
            Some(CommandKind::Rpc(_)) => CommandMethod::Rpc,
            Some(CommandKind::Refresh(_)) => CommandMethod::Refresh,
            Some(CommandKind::SubRefresh(_)) => CommandMethod::SubRefresh,
            Some(CommandKind::Send(_)) => CommandMethod::Send,
        }
    }
}

/// What has become of a subscribe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeOutcome {
    /// The subscription has begun.
    Accepted,
    /// The client was refused, and would be again.
    Refused,
    /// The client may try again: the error is temporary.
    Failed,
}

impl SubscribeOutcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [SubscribeOutcome; 3] =
        [SubscribeOutcome::Accepted, SubscribeOutcome::Refused, SubscribeOutcome::Failed];

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            SubscribeOutcome::Accepted => "accepted",
            SubscribeOutcome::Refused => "refused",
            SubscribeOutcome::Failed => "failed",
        }
    }
}

/// Something that a session has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCount {
    /// It has executed or refused a command.
    Command(CommandMethod),
    /// It has told the client an error.
    Error {
        /// The method of the command.
        method: CommandMethod,
        /// The number of the error.
        code: u32,
    },
    /// A subscribe of the client or of the server has come to its end.
    Subscribe {
        /// The namespace of the channel.
        namespace: NamespaceIndex,
        /// What has become of it.
        outcome: SubscribeOutcome,
    },
    /// A subscription has begun whose client asked for what it has missed.
    Recovery {
        /// The namespace of the channel.
        namespace: NamespaceIndex,
        /// How many publications it had missed; `None` = the log does not have them all any more.
        publications: Option<usize>,
    },
    /// A subscription has ended before its connection; the code says why, 0 = the client has unsubscribed.
    Unsubscribe(u32),
}
