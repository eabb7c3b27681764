//! What a session counts, for the metrics of its shard.

use touchline_protocol::command::{Command, CommandKind};

use crate::namespace::NamespaceIndex;

/// The method of a client's command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CommandMethod {
    /// No method: a line that is not a command, or a command without a method.
    #[default]
    None,
    /// The command `connect`.
    Connect,
    /// The command `subscribe`.
    Subscribe,
    /// The command `unsubscribe`.
    Unsubscribe,
    /// The command `publish`.
    Publish,
    /// The command `presence`.
    Presence,
    /// The command `presence_stats`.
    PresenceStats,
    /// The command `history`.
    History,
    /// `rpc`, including the methods of the registry.
    Rpc,
    /// The command `refresh`.
    Refresh,
    /// The command `sub_refresh`.
    SubRefresh,
    /// The command `send`.
    Send,
}

impl CommandMethod {
    /// All methods, in the order of their discriminants.
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

    /// The method's name in metrics.
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

    /// Returns the method of a command.
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

/// The outcome of a subscribe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeOutcome {
    /// The subscription has begun.
    Accepted,
    /// The client was refused. Trying again would not help.
    Refused,
    /// The subscribe failed with a temporary error. The client may try again.
    Failed,
}

impl SubscribeOutcome {
    /// All outcomes, in the order of their discriminants.
    pub const ALL: [SubscribeOutcome; 3] =
        [SubscribeOutcome::Accepted, SubscribeOutcome::Refused, SubscribeOutcome::Failed];

    /// The outcome's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            SubscribeOutcome::Accepted => "accepted",
            SubscribeOutcome::Refused => "refused",
            SubscribeOutcome::Failed => "failed",
        }
    }
}

/// Something that a session has done, for the metrics of its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionCount {
    /// The session has executed or refused a command.
    Command(CommandMethod),
    /// The session has sent an error to the client.
    Error {
        /// The method of the failed command.
        method: CommandMethod,
        /// The number of the error.
        code: u32,
    },
    /// A subscribe of the client or of the server is finished.
    Subscribe {
        /// The namespace of the channel.
        namespace: NamespaceIndex,
        /// The outcome of the subscribe.
        outcome: SubscribeOutcome,
    },
    /// A subscription has begun whose client asked to recover missed publications.
    Recovery {
        /// The namespace of the channel.
        namespace: NamespaceIndex,
        /// The number of missed publications; `None` = the log no longer has all of them.
        publications: Option<usize>,
    },
    /// A subscription has ended before its connection. The code is the reason; 0 = the client has unsubscribed.
    Unsubscribe(u32),
}
