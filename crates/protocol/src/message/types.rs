//! Replies and pushes as values.

use std::sync::Arc;

use crate::code::{Disconnect, Error, Unsubscribe};
use crate::publication::{Publication, Recovered};

/// What a reply says.
#[derive(Debug, Clone, Copy)]
pub enum Reply<'a> {
    /// The command was refused.
    Error(Error),
    /// The backend has refused the command, with an error of its own.
    Refusal {
        /// Its number.
        code: u32,
        /// Its text.
        message: &'a str,
        /// The same command may succeed later.
        temporary: bool,
    },
    /// The session is open.
    Connect(ConnectResult<'a>),
    /// The client is subscribed.
    Subscribe(SubscribeResult<'a>),
    /// It no longer is.
    Unsubscribe,
    /// It is published.
    Publish,
    /// Who is in the channel: `PresenceResult` as JSON.
    Presence(&'a [u8]),
    /// How many are in it: `PresenceStatsResult` as JSON.
    PresenceStats(&'a [u8]),
    /// Publications of the channel.
    History {
        /// Those that were asked for.
        publications: &'a [Arc<Publication>],
        /// The channel's epoch.
        epoch: &'a str,
        /// Its last offset.
        offset: u64,
    },
    /// The answer to a call, a payload.
    Rpc(&'a [u8]),
    /// The connection lasts longer.
    Refresh {
        /// The client id.
        client: &'a str,
        /// The server's version.
        version: &'a str,
        /// Seconds until the client must show a new token; none = never.
        ttl_s: Option<u64>,
    },
    /// The subscription lasts longer.
    SubRefresh {
        /// Seconds until the client must show a new token; none = never.
        ttl_s: Option<u64>,
    },
}

/// What a push says.
#[derive(Debug, Clone, Copy)]
pub enum Push<'a> {
    /// A publication.
    Publication(&'a Publication),
    /// The subscription has ended.
    Unsubscribe(Unsubscribe),
    /// A message that is for this client alone, a payload.
    Message(&'a [u8]),
    /// The server has subscribed the client.
    Subscribe(SubscribeResult<'a>),
    /// The connection has ended.
    Disconnect(&'a Disconnect),
    /// The connection lasts so many seconds more.
    Refresh {
        /// Seconds.
        ttl_s: u64,
    },
}

/// What a connect reply says.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectResult<'a> {
    /// The client id.
    pub client: &'a str,
    /// The server's version.
    pub version: &'a str,
    /// Seconds until the client must show a new token; none = never.
    pub ttl_s: Option<u64>,
    /// A payload for the client.
    pub data: Option<&'a [u8]>,
    /// Server-side subscriptions: channel, and what [`super::Messages::result`] wrote.
    pub subs: &'a [(String, Vec<u8>)],
    /// Ping interval in seconds; 0 = no pings.
    pub ping_s: u64,
    /// The client is to answer pings.
    pub pong: bool,
    /// Proves to `/emulation` that a request is of this client; empty = not needed.
    pub session: &'a str,
    /// The node that the session is on; empty = not needed.
    pub node: &'a str,
    /// The server's time, Unix milliseconds; 0 = untold.
    pub time_ms: u64,
}

/// What a subscribe reply says.
#[derive(Debug, Clone, Copy, Default)]
pub struct SubscribeResult<'a> {
    /// Seconds until the client must show a new token; none = never.
    pub ttl_s: Option<u64>,
    /// The subscription can be recovered.
    pub recoverable: bool,
    /// The subscription has a position.
    pub positioned: bool,
    /// Epoch of the position.
    pub epoch: &'a str,
    /// Offset of the position.
    pub offset: u64,
    /// Everything missed is in `missed`.
    pub recovered: bool,
    /// The client had asked to recover.
    pub was_recovering: bool,
    /// Publications come as changes to the one before.
    pub delta: bool,
    /// A payload for the client.
    pub data: Option<&'a [u8]>,
    /// Publications that it missed.
    pub missed: Recovered<'a>,
}
