//! What a session asks the backend.

use std::sync::Arc;

use bytes::Bytes;

/// The kinds of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookKind {
    /// Before a client without a token is connected.
    Connect,
    /// When a connection expires.
    Refresh,
    /// Before a client subscribes.
    Subscribe,
    /// Before a client publishes.
    Publish,
    /// When a subscription expires.
    SubRefresh,
    /// Instead of a method of the server.
    Rpc,
    /// Which of two clients keeps a name of the registry.
    Conflict,
}

impl HookKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [HookKind; 7] = [
        HookKind::Connect,
        HookKind::Refresh,
        HookKind::Subscribe,
        HookKind::Publish,
        HookKind::SubRefresh,
        HookKind::Rpc,
        HookKind::Conflict,
    ];

    /// Its name in metrics, logs and the configuration.
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
    /// The user; empty = anonymous, or not known yet.
    pub user: Box<str>,
    /// What the backend said of the connection when it connected, a JSON object; `None` = nothing.
    pub meta: Option<Bytes>,
    /// Labels of the connection, a JSON object of texts; `None` = it has none.
    pub labels: Option<Bytes>,
    /// Header fields that the client claimed in its connect command, of those that some hook forwards.
    pub emulated_headers: Option<EmulatedHeaders>,
    /// What is asked.
    pub request: HookRequest,
}

/// What is asked of the backend.
#[derive(Debug)]
pub enum HookRequest {
    /// Who is this client?
    Connect {
        /// JSON of the client.
        data: Option<Bytes>,
        /// Name of the client's program.
        name: Box<str>,
        /// Version of the client's program.
        version: Box<str>,
        /// Channels whose positions the client knows.
        channels: Vec<Box<str>>,
    },
    /// May the connection go on?
    Refresh,
    /// May the client subscribe?
    Subscribe {
        /// The name of the proxy that is asked.
        proxy: Box<str>,
        /// The channel.
        channel: Box<str>,
        /// JSON of the client.
        data: Option<Bytes>,
    },
    /// May the client publish?
    Publish {
        /// The name of the proxy that is asked.
        proxy: Box<str>,
        /// The channel.
        channel: Box<str>,
        /// JSON of the client.
        data: Bytes,
    },
    /// May the subscription go on?
    SubRefresh {
        /// The name of the proxy that is asked.
        proxy: Box<str>,
        /// The channel.
        channel: Box<str>,
    },
    /// What is the answer?
    Rpc {
        /// The name of the proxy that is asked.
        proxy: Box<str>,
        /// The method; empty = the client named none.
        method: Box<str>,
        /// JSON of the client.
        data: Option<Bytes>,
    },
    /// Which of two clients keeps a name of the registry?
    Conflict {
        /// The scope of the name.
        scope: Box<str>,
        /// The name.
        name: Box<str>,
        /// Both claims, the earlier one first.
        claims: [ConflictClaim; 2],
    },
}

/// A client's claim of a name.
#[derive(Debug, Clone)]
pub struct ConflictClaim {
    /// The client id, a UUID in its usual form.
    pub client: Box<str>,
    /// Its user; empty = anonymous; `None` = not known, because its node has not told it.
    pub user: Option<Box<str>>,
    /// The node of the client.
    pub node: Arc<str>,
    /// The metadata of the name, JSON; empty = none.
    pub meta: Bytes,
    /// When the name was registered, Unix milliseconds.
    pub time_ms: u64,
}

impl HookRequest {
    /// Bytes of its texts and payloads.
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

    /// The kind of the hook that is asked.
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

    /// The name of the proxy that is asked; `None` = the only one of its kind.
    pub fn proxy(&self) -> Option<&str> {
        match self {
            HookRequest::Connect { .. } | HookRequest::Refresh | HookRequest::Conflict { .. } => None,
            HookRequest::Subscribe { proxy, .. }
            | HookRequest::Publish { proxy, .. }
            | HookRequest::SubRefresh { proxy, .. }
            | HookRequest::Rpc { proxy, .. } => Some(proxy),
        }
    }

    /// The channel that it is about; `None` = it is about none.
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

    /// What the client has sent, JSON; `None` = nothing.
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
