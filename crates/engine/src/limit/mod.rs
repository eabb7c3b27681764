//! Rates of clients' actions: commands of a connection, of a user and of a client address, failed connects, and errors.
//!
//! A rate is a token bucket ([`BucketSpec`]). It begins with `rate` tokens and gets `rate` more in each `interval`,
//! evenly, up to `rate`. [`CommandRules`] says which buckets a command is charged to. [`BucketLevels`] holds how full
//! the buckets of one connection, user or address are. [`DueTable`] holds such levels for a limited number of keys.
//! Sessions charge commands (`session/limits.rs`). The host owns the tables that several shards share
//! ([`SharedLimits`]). Times are arguments: nanoseconds of a clock that the host chooses.

mod bucket;
mod command;
mod rules;
mod settings;
mod shared;
mod table;
mod value;

pub use bucket::{BucketLevels, BucketSpec};
pub use command::{LimitLayer, LimitOutcome, LimitedCommand};
pub use rules::{BlockRules, CommandCharge, CommandRules, EscalationRules, FailedConnectRules, HEED_NS, LimitVerdict};
pub use settings::{
    BucketBlock, ChannelCommandBlock, CommandLimitSettings, ErrorLimitSettings, EscalationSettings,
    FailedConnectSettings, OnLimit, RateLimitSettings, RpcBlock, SharedCommandLimitSettings,
};
pub use shared::{AddressKey, RateLimits, SharedLimits, Sharer};
pub use table::DueTable;
pub use value::{MethodOverrideTable, MethodOverrides, NamespaceOverrides, RateBucket, RateBuckets, RateOverride};
