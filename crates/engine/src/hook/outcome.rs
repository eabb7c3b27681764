//! What the backend has answered.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Disconnect;
use touchline_protocol::publication::Tags;

use crate::caps::{Capabilities, Capability};
use crate::claims::{ConnectionClaims, Overrides};

/// The outcome of a [`super::HookCall`].
#[derive(Debug)]
pub enum HookOutcome {
    /// The backend has decided.
    Result(HookResult),
    /// The backend has answered `{}`: what that means depends on the hook.
    Empty,
    /// The backend refuses with an error.
    Error(HookError),
    /// The backend ends the connection.
    Disconnect(Disconnect),
    /// There is no answer, or none that can be used.
    Failed,
    /// The status of the answer is one that the configuration turns into a refusal. It ends nothing on refresh.
    Refused(Box<HookOutcome>),
    /// Too many calls wait: nothing was asked.
    Busy,
}

/// An error of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookError {
    /// The number, 400–1999.
    pub code: u32,
    /// The text.
    pub message: Box<str>,
    /// The same command may succeed later.
    pub temporary: bool,
}

/// The result of a hook, checked as the input of a client is.
#[derive(Debug)]
pub enum HookResult {
    /// Of a connect hook.
    Connect(Box<ConnectAnswer>),
    /// Of a refresh hook.
    Refresh(RefreshAnswer),
    /// Of a subscribe hook.
    Subscribe(SubscribeAnswer),
    /// Of a publish hook.
    Publish(Box<PublishAnswer>),
    /// Of an RPC hook: JSON; `None` = no data.
    Rpc(Option<Bytes>),
    /// Of a hook about a subscription that expires.
    SubRefresh(SubRefreshAnswer),
    /// Of a hook about a name: the id of the client that keeps it.
    Conflict(Box<str>),
}

/// Who a client is.
#[derive(Debug, Default)]
pub struct ConnectAnswer {
    /// User, expiry, info, subscriptions, names and groups.
    pub claims: ConnectionClaims,
    /// JSON for the client.
    pub data: Option<Bytes>,
    /// JSON object for later hooks.
    pub meta: Option<Bytes>,
    /// What the client may do in channels.
    pub caps: Option<Arc<Capabilities>>,
    /// Labels, a JSON object of texts.
    pub labels: Option<Bytes>,
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Default)]
pub struct RefreshAnswer {
    /// It ends.
    pub expired: bool,
    /// When it expires next, Unix seconds; 0 = never.
    pub expire_at: u64,
    /// Replaces what other clients see of it; `None` = it stays.
    pub info: Option<Bytes>,
    /// Replaces the JSON object for later hooks; `None` = it stays.
    pub meta: Option<Bytes>,
    /// Replaces what the client may do in channels; `None` = it stays.
    pub caps: Option<Arc<Capabilities>>,
}

/// A subscription that is allowed.
#[derive(Debug, Clone, Default)]
pub struct SubscribeAnswer {
    /// When the subscription expires, Unix seconds; 0 = never.
    pub expire_at: u64,
    /// Shown to others as `chan_info`.
    pub info: Option<Bytes>,
    /// JSON for the client.
    pub data: Option<Bytes>,
    /// Options other than the namespace's.
    pub overrides: Overrides,
    /// What the client may do in the channel.
    pub allow: Capability,
    /// For how long the answer holds for later calls, seconds, at most 300; 0 = for none.
    pub cache_for: u64,
    /// Whether it holds for all users.
    pub is_for_channel: bool,
}

impl SubscribeAnswer {
    /// Bytes that it holds.
    pub fn size(&self) -> usize {
        let payloads = [&self.info, &self.data].into_iter().flatten();
        size_of::<Self>() + payloads.map(Bytes::len).sum::<usize>()
    }
}

/// A publication that is allowed.
#[derive(Debug, Clone, Default)]
pub struct PublishAnswer {
    /// JSON that is published instead; `None` = what the client has sent.
    pub data: Option<Bytes>,
    /// Nothing is published; the client is told that it is.
    pub skip_publish: bool,
    /// Deliver it, but do not keep it.
    pub skip_history: bool,
    /// Labels of the publication.
    pub tags: Tags,
    /// The same key again publishes nothing.
    pub idempotency_key: Box<str>,
    /// A version at or below the channel's is dropped; 0 = unversioned.
    pub version: u64,
    /// Versions compare within one epoch of the application.
    pub version_epoch: Box<str>,
}

/// Whether a subscription goes on.
#[derive(Debug, Clone, Default)]
pub struct SubRefreshAnswer {
    /// It ends.
    pub expired: bool,
    /// When it expires next, Unix seconds; 0 = never.
    pub expire_at: u64,
    /// Replaces what other clients see of it; `None` = it stays.
    pub info: Option<Bytes>,
}
