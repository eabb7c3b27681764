//! The settings of rate limits (`client.rate_limit`). Sections and keys are those of Centrifugo where it has them.

use std::time::Duration;

use super::value::{MethodOverrideTable, MethodOverrides, NamespaceOverrides, RateBuckets, nanos};
use crate::setting::{Filled, Key, Misfit, SOME, SettingsTable, ValueKind, WrittenValue};

/// What happens to a command for which a bucket has no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLimit {
    /// It is refused with error 111.
    Error,
    /// It waits until a token is there, and so do the commands after it.
    Slow,
}

words_of! { OnLimit { Error = "error", Slow = "slow" } }

settings! {
    /// Rates of what clients do.
    pub struct RateLimitSettings {
        /// Rates of the commands of one connection.
        section client_command: CommandLimitSettings = CommandLimitSettings::default();
        /// Rates of the commands of one user, over all connections of the user to this node.
        section user_command: SharedCommandLimitSettings = SharedCommandLimitSettings::default();
        /// Rates of the commands of one client address, over all its connections to this node.
        section address_command: SharedCommandLimitSettings = SharedCommandLimitSettings::default() => own {};
        /// The rate of errors that one connection may cause.
        section client_error: ErrorLimitSettings = ErrorLimitSettings::default();
        /// The rate of failed connects of one client address.
        section failed_connect: FailedConnectSettings = FailedConnectSettings::default() => own {};
        /// What happens to a command for which a bucket has no token: `error` refuses it with 111, `slow` lets it wait
        /// until a token is there, and reads no more of the connection meanwhile.
        own on_limit: OnLimit = OnLimit::Error;
        /// With `on_limit = "slow"`: the longest time for which a command waits after it was read, behind others too,
        /// 1ms to 1h; one that would wait longer is refused with 111. Keep it below the time after which clients give
        /// up: 5s in the SDKs.
        own slow_wait_max: Duration = Duration::from_secs(4);
        /// What follows when commands are refused again and again.
        section escalation: EscalationSettings = EscalationSettings::default() => own {};
        /// Users that this node remembers, because a bucket of theirs is not full or because it refuses them; of more,
        /// the one is forgotten of which least is left to remember.
        own users_max_entries: usize = 100_000, SOME;
        /// The same for client addresses; of IPv6 a /64 is one.
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
    /// Rates of commands.
    pub struct CommandLimitSettings {
        /// The rates of this section hold.
        key enabled: bool = false;
        /// Commands are charged and counted in the metrics as if the rates of this section held, and none is refused.
        key dry_run: bool = false;
        /// The rate of all commands together; charged after the command's own rate allowed it.
        section total: BucketBlock = BucketBlock::default() => with {
            enabled: "All commands together have a rate too.";
            buckets: "The rates of all commands together; charged after the command's own rates allowed it.";
        };
        /// The rate of each command that has none of its own.
        section default: BucketBlock = BucketBlock::default() => with {
            enabled: "Commands without rates of their own have these, each for itself.";
            buckets: "The rates of each command that has none of its own.";
        };
        /// The rate of `subscribe`.
        section subscribe: ChannelCommandBlock = ChannelCommandBlock::default();
        /// The rate of `unsubscribe`.
        section unsubscribe: ChannelCommandBlock = ChannelCommandBlock::default() => with {
            enabled: "`unsubscribe` has rates of its own. It is charged, never refused and never waits: a client that \
                may not leave a channel connects anew, which costs more.";
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
        /// Its rates, all of which hold: a list of tables with `interval` (1ms to 24h) and `rate`, the commands that
        /// may come at once and then again in each interval.
        key buckets: RateBuckets = ();
    }
}

settings! {
    /// The rates of a command that is about a channel.
    pub struct ChannelCommandBlock {
        /// The command has rates of its own.
        key enabled: bool = false;
        /// Its rates.
        key buckets: RateBuckets = ();
        /// What replaces `buckets` for channels of single namespaces: a list of tables with `namespace_name`, `enabled`
        /// and `buckets`.
        key namespace_overrides: NamespaceOverrides = ();
    }
}

settings! {
    /// The rates of `rpc`.
    pub struct RpcBlock {
        /// The command has rates of its own.
        key enabled: bool = false;
        /// Its rates.
        key buckets: RateBuckets = ();
        /// What replaces `buckets` for single methods: a list of tables with `method`, `enabled` and `buckets`.
        key method_overrides: MethodOverrides = ();
        /// The same in an older form: a table by method.
        key method_override: MethodOverrideTable = ();
    }
}

/// Rates of commands that several connections share: the keys of `connect` stand among the others.
#[derive(Debug, Clone, Default)]
pub struct SharedCommandLimitSettings {
    /// The rates of `connect`.
    pub connect: BucketBlock,
    /// The rates of all other commands, and the switches of the section.
    pub commands: CommandLimitSettings,
}

/// How the paths of the keys of [`SharedCommandLimitSettings::connect`] begin.
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
        /// A connection whose client causes more errors than `total` allows is ended with 3509. Errors that are
        /// temporary are not counted, nor are tokens whose time is over (109, 110).
        key enabled: bool = false;
        /// Errors are charged and counted in the metrics as if the rate held, and no connection is ended.
        key dry_run: bool = false;
        /// The rate.
        section total: BucketBlock = BucketBlock::default() => with {
            enabled: "The rates of `total` hold.";
            buckets: "The rates of errors, written as those of commands.";
        };
    }
}

settings! {
    /// The rate of failed connects of one client address.
    pub struct FailedConnectSettings {
        /// An address whose clients fail to connect more often than `buckets` allow is refused for a while: a token
        /// that is not valid, none where one is needed, or a refusal of the connect hook that is not temporary. While
        /// the hook is asked, an attempt counts as a failure.
        key enabled: bool = false;
        /// The rates of failed connects, written as those of commands.
        key buckets: RateBuckets = ();
        /// For how long new connections of the address are refused (HTTP status 429; lines are closed).
        key refused_for: Duration = Duration::from_secs(60);
    }
}

settings! {
    /// What follows when commands are refused again and again.
    pub struct EscalationSettings {
        /// Whoever has `refusals` commands refused within `interval` by rates of its own is refused for a while: a user
        /// by `client_command` and `user_command`, whose connection is ended with 3013, an address by
        /// `address_command`. An anonymous connection is ended.
        key enabled: bool = false;
        /// How many refused commands are too many; those of one second count as one.
        key refusals: u32 = 20, ValueKind::Integer(1, 1_000_000);
        /// The time within which they come.
        key interval: Duration = Duration::from_secs(60);
        /// For how long new connections are refused: those of a user with error 111, those of an address with HTTP
        /// status 429 (lines are closed).
        key refused_for: Duration = Duration::from_secs(60);
    }
}
