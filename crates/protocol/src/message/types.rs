//! Replies and pushes as Rust values.

use std::sync::Arc;

use crate::code::{Disconnect, Error, Unsubscribe};
use crate::publication::{Publication, Recovered};

/// The content of a reply.
#[derive(Debug, Clone, Copy)]
pub enum Reply<'a> {
    /// The server refused the command.
    Error(Error),
    /// The operator's backend refused the command with an error of its own.
    Refusal {
        /// The backend's error number.
        code: u32,
        /// The backend's error text.
        message: &'a str,
        /// True if the same command may succeed later.
        temporary: bool,
    },
    /// The session is open.
    Connect(ConnectResult<'a>),
    /// The client is subscribed.
    Subscribe(SubscribeResult<'a>),
    /// The client is no longer subscribed.
    Unsubscribe,
    /// The publication was accepted.
    Publish,
    /// The clients in the channel: `PresenceResult` as JSON.
    Presence(&'a [u8]),
    /// The number of clients and users in the channel: `PresenceStatsResult` as JSON.
    PresenceStats(&'a [u8]),
    /// Publications from the channel's history.
    History {
        /// The requested publications, in the requested order.
        publications: &'a [Arc<Publication>],
        /// The channel's current epoch.
        epoch: &'a str,
        /// The channel's last offset.
        offset: u64,
    },
    /// The answer to an RPC call, as a payload.
    Rpc(&'a [u8]),
    /// The connection was extended.
    Refresh {
        /// The client id of the connection.
        client: &'a str,
        /// The version of the server.
        version: &'a str,
        /// Seconds until the client must send a new token. `None` = never.
        ttl_s: Option<u64>,
    },
    /// The subscription was extended.
    SubRefresh {
        /// Seconds until the client must send a new token. `None` = never.
        ttl_s: Option<u64>,
    },
}

/// The content of a push.
#[derive(Debug, Clone, Copy)]
pub enum Push<'a> {
    /// A publication of the channel.
    Publication(&'a Publication),
    /// The server ended the subscription.
    Unsubscribe(Unsubscribe),
    /// A message for this client only, as a payload.
    Message(&'a [u8]),
    /// The server subscribed the client.
    Subscribe(SubscribeResult<'a>),
    /// The server ended the connection.
    Disconnect(&'a Disconnect),
    /// The connection was extended.
    Refresh {
        /// Seconds until the connection expires.
        ttl_s: u64,
    },
}

/// The content of a connect reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectResult<'a> {
    /// The client id of the connection.
    pub client: &'a str,
    /// The version of the server.
    pub version: &'a str,
    /// Seconds until the client must send a new token. `None` = never.
    pub ttl_s: Option<u64>,
    /// A payload for the client. `None` = no payload.
    pub data: Option<&'a [u8]>,
    /// Server-side subscriptions: each channel with the bytes that [`super::Messages::result`] wrote.
    pub subs: &'a [(String, Vec<u8>)],
    /// The ping interval in seconds. 0 = no pings.
    pub ping_s: u64,
    /// True if the client must answer pings.
    pub pong: bool,
    /// The proof for `/emulation` that a request belongs to this client. Empty = the transport does not need it.
    pub session: &'a str,
    /// The node that holds the session. Empty = the transport does not need it.
    pub node: &'a str,
    /// The server's time, Unix milliseconds. 0 = not stated.
    pub time_ms: u64,
}

/// The content of a subscribe reply.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubscribeResult<'a> {
    /// Seconds until the client must send a new token. `None` = never.
    pub ttl_s: Option<u64>,
    /// True if the client can recover missed publications later.
    pub recoverable: bool,
    /// True if the subscription has a position.
    pub positioned: bool,
    /// The epoch of the position.
    pub epoch: &'a str,
    /// The offset of the position.
    pub offset: u64,
    /// True if `missed` holds everything that the client missed.
    pub recovered: bool,
    /// True if the client asked to recover.
    pub was_recovering: bool,
    /// True if publications come as deltas to the previous one.
    pub delta: bool,
    /// A payload for the client. `None` = no payload.
    pub data: Option<&'a [u8]>,
    /// The publications that the client missed.
    pub missed: Recovered<'a>,
}
