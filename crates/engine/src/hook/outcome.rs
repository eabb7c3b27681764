//! The possible answers of a backend.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Disconnect;
use touchline_protocol::publication::Tags;

use crate::caps::{Capabilities, Capability};
use crate::claims::{ConnectionClaims, Overrides};

/// The outcome of a [`super::HookCall`].
#[derive(Debug)]
pub enum HookOutcome {
    /// The backend has decided. This is its result.
    Result(HookResult),
    /// The backend has answered `{}`. Its meaning depends on the hook.
    Empty,
    /// The backend refuses with an error.
    Error(HookError),
    /// The backend wants the connection to end.
    Disconnect(Disconnect),
    /// There is no answer, or the answer cannot be used.
    Failed,
    /// The configuration turns the answer's status into this refusal. On refresh it ends nothing.
    Refused(Box<HookOutcome>),
    /// Too many calls wait, so the backend was not asked.
    Busy,
}

/// An error that a backend has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookError {
    /// The number of the error, 400–1999.
    pub code: u32,
    /// The text of the error.
    pub message: Box<str>,
    /// Whether the same command may succeed later.
    pub temporary: bool,
}

/// The result of a hook, checked in the same way as input of a client.
#[derive(Debug)]
pub enum HookResult {
    /// The result of a connect hook.
    Connect(Box<ConnectAnswer>),
    /// The result of a refresh hook.
    Refresh(RefreshAnswer),
    /// The result of a subscribe hook.
    Subscribe(SubscribeAnswer),
    /// The result of a publish hook.
    Publish(Box<PublishAnswer>),
    /// The result of an RPC hook: JSON; `None` = no data.
    Rpc(Option<Bytes>),
    /// The result of a hook for an expiring subscription.
    SubRefresh(SubRefreshAnswer),
    /// The result of a hook for a contested name: the id of the client that keeps it.
    Conflict(Box<str>),
}

/// The identity of the client and what it gets, from a connect hook.
#[derive(Debug, Default)]
pub struct ConnectAnswer {
    /// The user, expiry, info, subscriptions, names and groups of the client.
    pub claims: ConnectionClaims,
    /// The data for the client, JSON; `None` = none.
    pub data: Option<Bytes>,
    /// The `meta` for later hooks, a JSON object; `None` = none.
    pub meta: Option<Bytes>,
    /// What the client may do in channels; `None` = only what namespaces allow.
    pub caps: Option<Arc<Capabilities>>,
    /// The labels of the connection, a JSON object whose values are texts; `None` = none.
    pub labels: Option<Bytes>,
}

/// Whether a connection continues.
#[derive(Debug, Clone, Default)]
pub struct RefreshAnswer {
    /// Whether the connection ends.
    pub expired: bool,
    /// When the connection expires next, Unix seconds; 0 = never.
    pub expire_at: u64,
    /// The new info that other clients see; `None` = it does not change.
    pub info: Option<Bytes>,
    /// The new `meta` for later hooks, a JSON object; `None` = it does not change.
    pub meta: Option<Bytes>,
    /// What the client may do in channels from now on; `None` = it does not change.
    pub caps: Option<Arc<Capabilities>>,
}

/// The options of a subscription that is allowed.
#[derive(Debug, Clone, Default)]
pub struct SubscribeAnswer {
    /// When the subscription expires, Unix seconds; 0 = never.
    pub expire_at: u64,
    /// The info that other clients see as `chan_info`; `None` = none.
    pub info: Option<Bytes>,
    /// The data for the client, JSON; `None` = none.
    pub data: Option<Bytes>,
    /// Options that differ from those of the namespace.
    pub overrides: Overrides,
    /// What the client may do in the channel.
    pub allow: Capability,
    /// How long the answer may be reused for later calls, seconds, at most 300; 0 = not at all.
    pub cache_for: u64,
    /// Whether the cached answer is valid for all users.
    pub is_for_channel: bool,
}

impl SubscribeAnswer {
    /// The memory that the answer takes, bytes.
    pub fn size(&self) -> usize {
        let payloads = [&self.info, &self.data].into_iter().flatten();
        size_of::<Self>() + payloads.map(Bytes::len).sum::<usize>()
    }
}

/// A publication that is allowed.
#[derive(Debug, Clone, Default)]
pub struct PublishAnswer {
    /// The JSON to publish instead; `None` = what the client has sent.
    pub data: Option<Bytes>,
    /// Whether nothing is published although the client gets a success reply.
    pub skip_publish: bool,
    /// Whether the publication is delivered but not kept.
    pub skip_history: bool,
    /// The labels of the publication.
    pub tags: Tags,
    /// A key for the publication; the same key again publishes nothing.
    pub idempotency_key: Box<str>,
    /// The version of the publication. It is dropped if this is at or below the channel's version; 0 = unversioned.
    pub version: u64,
    /// The application's epoch of versions. Only versions of the same epoch are compared.
    pub version_epoch: Box<str>,
}

/// Whether a subscription continues.
#[derive(Debug, Clone, Default)]
pub struct SubRefreshAnswer {
    /// Whether the subscription ends.
    pub expired: bool,
    /// When the subscription expires next, Unix seconds; 0 = never.
    pub expire_at: u64,
    /// The new info that other clients see; `None` = it does not change.
    pub info: Option<Bytes>,
}
