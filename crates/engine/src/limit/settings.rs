//! The settings of rate limits (`client.rate_limit`). Sections and keys are those of Centrifugo where it has them.

use std::time::Duration;

use super::value::{MethodOverrideTable, MethodOverrides, NamespaceOverrides, RateBuckets, nanos};
use crate::setting::{Filled, Key, Misfit, SOME, SettingsTable, ValueKind, WrittenValue};

/// What happens to a command for which a bucket has no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLimit {
    /// The command is refused with error 111.
    Error,
    /// The command waits until a token is available, and so do the commands after it.
    Slow,
}

words_of! { OnLimit { Error = "error", Slow = "slow" } }

settings! {
    /// Rates of clients' actions.
    pub struct RateLimitSettings {
        /// Rates for the commands of one connection.
        section client_command: CommandLimitSettings = CommandLimitSettings::default();
        /// Rates for the commands of one user, over all connections of the user to this node.
        section user_command: SharedCommandLimitSettings = SharedCommandLimitSettings::default();
        /// Rates for the commands of one client address, over all its connections to this node.
        section address_command: SharedCommandLimitSettings = SharedCommandLimitSettings::default() => own {};
        /// The rate of errors that one connection may cause.
        section client_error: ErrorLimitSettings = ErrorLimitSettings::default();
        /// The rate of failed connects from one client address.
        section failed_connect: FailedConnectSettings = FailedConnectSettings::default() => own {};
        /// What happens to a command for which a bucket has no token. `error` refuses it with 111. `slow` makes it wait
        /// until a token is available, and no further commands of the connection are read meanwhile.
        own on_limit: OnLimit = OnLimit::Error;
        /// With `on_limit = "slow"`: the longest time that a command may wait after it was read, including waits for
        /// earlier commands, 1ms to 1h. A command that would wait longer is refused with 111. Keep the value below the
        /// timeout of clients: 5s in the SDKs.
        own slow_wait_max: Duration = Duration::from_secs(4);
        /// What happens when commands are refused repeatedly.
        section escalation: EscalationSettings = EscalationSettings::default() => own {};
        /// How many users this node remembers because one of their buckets is not full, or because they are refused. If
        /// there are more, the node forgets the user whose buckets will be full first.
        own users_max_entries: usize = 100_000, SOME;
        /// How many client addresses this node remembers, for the same causes as users. For IPv6, a /64 counts as one
        /// address.
        own addresses_max_entries: usize = 100_000, SOME;
    }
}

impl RateLimitSettings {
    /// How long a command may wait for its tokens, nanoseconds; 0 = it is refused at once.
    pub fn patience_ns(&self) -> u64 {
        if self.on_limit == OnLimit::Slow { nanos(self.slow_wait_max) } else { 0 }
    }
}

settings! {
    /// Rates of the commands of a connection, a user or an address.
    pub struct CommandLimitSettings {
        /// The rates of this section apply.
        key enabled: bool = false;
        /// Trial mode: commands are charged and counted in the metrics as if the rates applied, but none is refused.
        key dry_run: bool = false;
        /// The rate of all commands together. It is charged after the command's own rate allowed the command.
        section total: BucketBlock = BucketBlock::default() => with {
            enabled: "All commands together have a rate too.";
            buckets: "The rates of all commands together. They are charged after the command's own rates allowed it.";
        };
        /// The rate of each command that has no rate of its own.
        section default: BucketBlock = BucketBlock::default() => with {
            enabled: "The rates of this block apply, separately, to each command that has no rates of its own.";
            buckets: "The rates of each command that has no rates of its own.";
        };
        /// The rate of `subscribe`.
        section subscribe: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `unsubscribe`.
        section unsubscribe: ChannelCommandBlock = ChannelCommandBlock::default() => with {
            enabled: "`unsubscribe` has rates of its own. It is charged, but it is never refused and never waits: a \
                client that cannot leave a channel connects again, which costs more.";
        };
        /// The rate of `publish`.
        section publish: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `history`.
        section history: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `presence`.
        section presence: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `presence_stats`.
        section presence_stats: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `refresh`.
        section refresh: BucketBlock = BucketBlock::default();
        /// The rate of `sub_refresh`.
        section sub_refresh: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `rpc`.
        section rpc: RpcBlock = RpcBlock::default();
    }
}

settings! {
    /// A block of rates.
    pub struct BucketBlock {
        /// The command has rates of its own.
        key enabled: bool = false;
        /// The rates, all of which apply: a list of tables with `interval` (1ms to 24h) and `rate`. `rate` is the
        /// number of commands that may come at once. After them, the same number may come in each interval.
        key buckets: RateBuckets = ();
    }
}

settings! {
    /// The rates for a command that concerns a channel.
    pub struct ChannelCommandBlock {
        /// The command has rates of its own.
        key enabled: bool = false;
        /// The rates, written as the `buckets` of `default`.
        key buckets: RateBuckets = ();
        /// The rates that replace `buckets` for channels of certain namespaces: a list of tables with `namespace_name`,
        /// `enabled` and `buckets`.
        key namespace_overrides: NamespaceOverrides = ();
    }
}

settings! {
    /// The rates for `rpc`.
    pub struct RpcBlock {
        /// The command has rates of its own.
        key enabled: bool = false;
        /// The rates, written as the `buckets` of `default`.
        key buckets: RateBuckets = ();
        /// The rates that replace `buckets` for certain methods: a list of tables with `method`, `enabled` and
        /// `buckets`.
        key method_overrides: MethodOverrides = ();
        /// The rates of `method_overrides` in an older form: a table whose keys are the methods.
        key method_override: MethodOverrideTable = ();
    }
}

/// Rates of commands that several connections share. The keys of `connect` are listed among the others.
#[derive(Debug, Clone, Default)]
pub struct SharedCommandLimitSettings {
    /// The rates for `connect`.
    pub connect: BucketBlock,
    /// The rates for all other commands, and the switches of the section.
    pub commands: CommandLimitSettings,
}

/// The prefix of the paths of [`SharedCommandLimitSettings::connect`].
const CONNECT: &str = "connect.";

impl SettingsTable for SharedCommandLimitSettings {
    fn visit(&self, visit: &mut dyn FnMut(Key)) {
        self.commands.visit(visit);
        self.connect.visit(&mut |key| visit(Key { path: format!("{CONNECT}{}", key.path), ..key }));
    }

    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>> {
        match path.strip_prefix(CONNECT) {
            Some(path) => self.connect.set(path, written),
            None => self.commands.set(path, written),
        }
    }
}

settings! {
    /// The rate of errors of one connection.
    pub struct ErrorLimitSettings {
        /// A connection whose client causes more errors than `total` allows is ended with 3509. Temporary errors do not
        /// count, and neither do expired tokens (109, 110).
        key enabled: bool = false;
        /// Trial mode: errors are charged and counted in the metrics as if the rate applied, but no connection is
        /// ended.
        key dry_run: bool = false;
        /// The rate of all errors together.
        section total: BucketBlock = BucketBlock::default() => with {
            enabled: "The rates of `total` apply.";
            buckets: "The rates of errors, written as those of commands.";
        };
    }
}

settings! {
    /// The rate of failed connects from one client address.
    pub struct FailedConnectSettings {
        /// An address whose clients fail to connect more often than `buckets` allow is refused for a while. A failure
        /// is an invalid token, a missing token where one is needed, or a refusal of the connect hook that is not
        /// temporary. An attempt counts as a failure while the hook is being asked.
        key enabled: bool = false;
        /// The rates of failed connects, written as those of commands.
        key buckets: RateBuckets = ();
        /// How long new connections from the address are refused (HTTP status 429; line connections are closed).
        key refused_for: Duration = Duration::from_secs(60);
    }
}

settings! {
    /// What happens when commands are refused repeatedly.
    pub struct EscalationSettings {
        /// If the rates refuse `refusals` commands of a user or address within `interval`, the node refuses new
        /// connections of that user or address for a while. The rates of `client_command` and `user_command` count for
        /// the user, whose connection is ended with 3013. The rates of `address_command` count for the address. An
        /// anonymous connection is ended.
        key enabled: bool = false;
        /// How many refused commands are too many. Refusals within one second count as one.
        key refusals: u32 = 20, ValueKind::Integer(1, 1_000_000);
        /// The time within which these refusals must occur.
        key interval: Duration = Duration::from_secs(60);
        /// How long new connections are refused: those of a user with error 111, those of an address with HTTP status
        /// 429 (line connections are closed).
        key refused_for: Duration = Duration::from_secs(60);
    }
}
