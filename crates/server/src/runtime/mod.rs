//! What every thread of a node uses: mailboxes, handles of shards, clock, metrics, random numbers.

pub(crate) mod ban_metrics;
pub(crate) mod clock;
pub(crate) mod connected_users;
pub(crate) mod connection_guard;
pub(crate) mod here;
pub(crate) mod hook_mailbox;
pub(crate) mod hook_metrics;
pub(crate) mod key_metrics;
pub(crate) mod limit_metrics;
pub(crate) mod limit_tables;
pub(crate) mod mailbox;
pub(crate) mod memory;
pub(crate) mod meters;
pub(crate) mod metrics;
pub(crate) mod poller;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod random;
pub(crate) mod rate_limiter;
pub(crate) mod refusals;
pub(crate) mod registry_mailbox;
pub(crate) mod reply_to;
mod run_lock;
pub(crate) mod shard_handle;
pub(crate) mod signer;
mod sync;
pub(crate) mod user_counts;
