//! The words of rate limits: what is limited, by which layer, and what became of it.

/// A command that has a rate. Every name is also the name of a block of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedCommand {
    /// `connect`, limited by user and by address only.
    Connect,
    /// `subscribe`.
    Subscribe,
    /// `unsubscribe`: charged; it is never refused and never waits.
    Unsubscribe,
    /// `publish`.
    Publish,
    /// `history`.
    History,
    /// `presence`.
    Presence,
    /// `presence_stats`.
    PresenceStats,
    /// `refresh`.
    Refresh,
    /// `sub_refresh`.
    SubRefresh,
    /// `rpc`.
    Rpc,
}

impl LimitedCommand {
    /// All commands, in the order of their numbers.
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

    /// The name in the configuration and in metrics.
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

/// Whose buckets a command is charged to, in the order in which they are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitLayer {
    /// Those of the connection.
    Client,
    /// Those of the user, over all connections of the user to this node.
    User,
    /// Those of the client's address, over all connections of the address to this node.
    Address,
}

impl LimitLayer {
    /// All layers, in the order of their numbers.
    pub const ALL: [LimitLayer; 3] = [LimitLayer::Client, LimitLayer::User, LimitLayer::Address];

    /// The name of the section of the configuration, and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitLayer::Client => "client_command",
            LimitLayer::User => "user_command",
            LimitLayer::Address => "address_command",
        }
    }
}

/// What became of a command for which a bucket had no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOutcome {
    /// It was refused.
    Refused,
    /// It waited.
    Slowed,
    /// It was carried out all the same: the layer is on trial (`dry_run`), or the command is never refused.
    Allowed,
}

impl LimitOutcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [LimitOutcome; 3] = [LimitOutcome::Refused, LimitOutcome::Slowed, LimitOutcome::Allowed];

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitOutcome::Refused => "refused",
            LimitOutcome::Slowed => "slowed",
            LimitOutcome::Allowed => "allowed",
        }
    }
}
