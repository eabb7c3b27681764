//! The questions that a session asks the backend.

use std::sync::Arc;

use bytes::Bytes;

/// The kinds of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// Asked before a client without a token is connected.
    Connect,
    /// Asked when a connection expires.
    Refresh,
    /// Asked before a client subscribes.
    Subscribe,
    /// Asked before a client publishes.
    Publish,
    /// Asked when a subscription expires.
    SubRefresh,
    /// Answers an RPC instead of the server.
    Rpc,
    /// Asked which of two clients keeps a name of the registry.
    Conflict,
}

impl HookKind {
    /// Every kind, in the order of their discriminants.
    pub const ALL: [HookKind; 7] = [
        HookKind::Connect,
        HookKind::Refresh,
        HookKind::Subscribe,
        HookKind::Publish,
        HookKind::SubRefresh,
        HookKind::Rpc,
        HookKind::Conflict,
    ];

    /// The name of the kind in metrics, logs and the configuration.
    pub fn name(self) -> &'static str {
        match self {
            HookKind::Connect => "connect",
            HookKind::Refresh => "refresh",
            HookKind::Subscribe => "subscribe",
            HookKind::Publish => "publish",
            HookKind::SubRefresh => "sub_refresh",
            HookKind::Rpc => "rpc",
            HookKind::Conflict => "conflict",
        }
    }
}

/// Names, in lower case, and values of header fields that a client has claimed.
pub type EmulatedHeaders = Arc<[(Box<str>, Box<str>)]>;

/// A question of a session to the backend. The answer goes to [`crate::Session::handle_hook`].
#[derive(Debug)]
pub struct HookCall {
    /// The number of the call within its session; it comes back with the answer.
    pub serial: u32,
    /// The user of the client; empty = anonymous, or not known yet.
    pub user: Box<str>,
    /// The `meta` that the backend returned at connect, a JSON object; `None` = there is none.
    pub meta: Option<Bytes>,
    /// The labels of the connection, a JSON object whose values are texts; `None` = it has none.
    pub labels: Option<Bytes>,
    /// The header fields that the client claimed in its connect command and that some hook forwards.
    pub emulated_headers: Option<EmulatedHeaders>,
    /// The question to the backend.
    pub request: HookRequest,
}

/// A question to the backend.
#[derive(Debug)]
pub enum HookRequest {
    /// Asks who the client is.
    Connect {
        /// The data of the client's connect command, JSON; `None` = none.
        data: Option<Bytes>,
        /// The name of the client's program.
        name: Box<str>,
        /// The version of the client's program.
        version: Box<str>,
        /// The channels whose positions the client knows.
        channels: Vec<Box<str>>,
    },
    /// Asks whether the connection may continue.
    Refresh,
    /// Asks whether the client may subscribe.
    Subscribe {
        /// The name of the proxy to ask.
        proxy: Box<str>,
        /// The channel to subscribe to.
        channel: Box<str>,
        /// The data of the client's subscribe command, JSON; `None` = none.
        data: Option<Bytes>,
    },
    /// Asks whether the client may publish.
    Publish {
        /// The name of the proxy to ask.
        proxy: Box<str>,
        /// The channel to publish into.
        channel: Box<str>,
        /// The data to publish, JSON.
        data: Bytes,
    },
    /// Asks whether the subscription may continue.
    SubRefresh {
        /// The name of the proxy to ask.
        proxy: Box<str>,
        /// The channel of the subscription.
        channel: Box<str>,
    },
    /// Asks for the answer to an RPC.
    Rpc {
        /// The name of the proxy to ask.
        proxy: Box<str>,
        /// The name of the method; empty = the client named none.
        method: Box<str>,
        /// The data of the client's RPC, JSON; `None` = none.
        data: Option<Bytes>,
    },
    /// Asks which of two clients keeps a name of the registry.
    Conflict {
        /// The scope of the name.
        scope: Box<str>,
        /// The name that both clients claim.
        name: Box<str>,
        /// Both claims, the earlier one first.
        claims: [ConflictClaim; 2],
    },
}

/// A client's claim to a name.
#[derive(Debug, Clone)]
pub struct ConflictClaim {
    /// The client id, a UUID in its usual text form.
    pub client: Box<str>,
    /// The client's user; empty = anonymous; `None` = not known, because its node has not sent it.
    pub user: Option<Box<str>>,
    /// The node of the client.
    pub node: Arc<str>,
    /// The metadata of the name, JSON; empty = none.
    pub meta: Bytes,
    /// When the client registered the name, Unix milliseconds.
    pub time_ms: u64,
}

impl HookRequest {
    /// The memory of its texts and payloads, bytes.
    pub fn size(&self) -> usize {
        let texts = match self {
            HookRequest::Connect { name, version, channels, .. } => {
                let channels = channels.iter().map(|channel| size_of::<Box<str>>() + channel.len());
                name.len() + version.len() + channels.sum::<usize>()
            }
            HookRequest::Refresh => 0,
            HookRequest::Subscribe { proxy, channel, .. }
            | HookRequest::Publish { proxy, channel, .. }
            | HookRequest::SubRefresh { proxy, channel } => proxy.len() + channel.len(),
            HookRequest::Rpc { proxy, method, .. } => proxy.len() + method.len(),
            HookRequest::Conflict { scope, name, claims } => {
                scope.len() + name.len() + claims.iter().map(|claim| claim.meta.len()).sum::<usize>()
            }
        };
        texts + self.data().map_or(0, Bytes::len)
    }

    /// The kind of the hook.
    pub fn kind(&self) -> HookKind {
        match self {
            HookRequest::Connect { .. } => HookKind::Connect,
            HookRequest::Refresh => HookKind::Refresh,
            HookRequest::Subscribe { .. } => HookKind::Subscribe,
            HookRequest::Publish { .. } => HookKind::Publish,
            HookRequest::SubRefresh { .. } => HookKind::SubRefresh,
            HookRequest::Rpc { .. } => HookKind::Rpc,
            HookRequest::Conflict { .. } => HookKind::Conflict,
        }
    }

    /// The name of the proxy to ask; `None` = there is only one of its kind.
    pub fn proxy(&self) -> Option<&str> {
        match self {
            HookRequest::Connect { .. } | HookRequest::Refresh | HookRequest::Conflict { .. } => None,
            HookRequest::Subscribe { proxy, .. }
            | HookRequest::Publish { proxy, .. }
            | HookRequest::SubRefresh { proxy, .. }
            | HookRequest::Rpc { proxy, .. } => Some(proxy),
        }
    }

    /// The channel of the question; `None` = it concerns no channel.
    pub fn channel(&self) -> Option<&str> {
        match self {
            HookRequest::Subscribe { channel, .. }
            | HookRequest::Publish { channel, .. }
            | HookRequest::SubRefresh { channel, .. } => Some(channel),
            HookRequest::Connect { .. }
            | HookRequest::Refresh
            | HookRequest::Rpc { .. }
            | HookRequest::Conflict { .. } => None,
        }
    }

    /// The data that the client sent, JSON; `None` = none.
    pub fn data(&self) -> Option<&Bytes> {
        match self {
            HookRequest::Connect { data, .. } | HookRequest::Subscribe { data, .. } | HookRequest::Rpc { data, .. } => {
                data.as_ref()
            }
            HookRequest::Publish { data, .. } => Some(data),
            HookRequest::Refresh | HookRequest::SubRefresh { .. } | HookRequest::Conflict { .. } => None,
        }
    }
}
