//! The words of rate limits: what is limited, in which layer, and the outcome.

/// A command that has a rate. Each name is also the name of a block of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedCommand {
    /// `connect`, limited by user and by address only.
    Connect,
    /// The command `subscribe`.
    Subscribe,
    /// `unsubscribe`: it is charged, but it is never refused and never waits.
    Unsubscribe,
    /// The command `publish`.
    Publish,
    /// The command `history`.
    History,
    /// The command `presence`.
    Presence,
    /// The command `presence_stats`.
    PresenceStats,
    /// The command `refresh`.
    Refresh,
    /// The command `sub_refresh`.
    SubRefresh,
    /// The command `rpc`.
    Rpc,
}

impl LimitedCommand {
    /// All commands, in the order of their discriminants.
    pub const ALL: [LimitedCommand; 10] = [
        LimitedCommand::Connect,
        LimitedCommand::Subscribe,
        LimitedCommand::Unsubscribe,
        LimitedCommand::Publish,
        LimitedCommand::History,
        LimitedCommand::Presence,
        LimitedCommand::PresenceStats,
        LimitedCommand::Refresh,
        LimitedCommand::SubRefresh,
        LimitedCommand::Rpc,
    ];

    /// The command's name in the configuration and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitedCommand::Connect => "connect",
            LimitedCommand::Subscribe => "subscribe",
            LimitedCommand::Unsubscribe => "unsubscribe",
            LimitedCommand::Publish => "publish",
            LimitedCommand::History => "history",
            LimitedCommand::Presence => "presence",
            LimitedCommand::PresenceStats => "presence_stats",
            LimitedCommand::Refresh => "refresh",
            LimitedCommand::SubRefresh => "sub_refresh",
            LimitedCommand::Rpc => "rpc",
        }
    }
}

/// The layer whose buckets a command is charged to, in the order in which layers are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitLayer {
    /// The buckets of the connection.
    Client,
    /// The buckets of the user, over all connections of the user to this node.
    User,
    /// The buckets of the client's address, over all connections of the address to this node.
    Address,
}

impl LimitLayer {
    /// All layers, in the order of their discriminants.
    pub const ALL: [LimitLayer; 3] = [LimitLayer::Client, LimitLayer::User, LimitLayer::Address];

    /// The layer's name, as the section of the configuration and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitLayer::Client => "client_command",
            LimitLayer::User => "user_command",
            LimitLayer::Address => "address_command",
        }
    }
}

/// The outcome of a command for which a bucket had no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOutcome {
    /// The command was refused.
    Refused,
    /// The command waited for its token.
    Slowed,
    /// The command was executed nevertheless: the layer is in trial mode (`dry_run`), or the command is never refused.
    Allowed,
}

impl LimitOutcome {
    /// All outcomes, in the order of their discriminants.
    pub const ALL: [LimitOutcome; 3] = [LimitOutcome::Refused, LimitOutcome::Slowed, LimitOutcome::Allowed];

    /// The outcome's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitOutcome::Refused => "refused",
            LimitOutcome::Slowed => "slowed",
            LimitOutcome::Allowed => "allowed",
        }
    }
}
