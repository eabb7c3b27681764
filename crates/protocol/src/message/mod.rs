//! What the server says to one client: replies and pushes as values, written in the client's own encoding.

mod json;
mod protobuf;

use std::sync::Arc;

use crate::publication::Recovered;
use crate::{Disconnect, Error, Publication, Unsubscribe};

pub(crate) use protobuf::{publication_of_json, push_of_json};

/// How messages are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Replies as JSON, one a line.
    #[default]
    Json,
    /// Replies as Protobuf, each with its length before it.
    Protobuf,
    /// For a client that only listens: pushes as JSON, without anything around them, one a line.
    Push,
}

/// What a reply says.
#[derive(Debug, Clone, Copy)]
pub enum Reply<'a> {
    /// The command was refused.
    Error(Error),
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
    /// The answer to a call, JSON.
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
    /// A message that is for this client alone, JSON.
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
    /// Server-side subscriptions: channel, and what [`Messages::result`] wrote.
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
    /// JSON for the client.
    pub data: Option<&'a [u8]>,
    /// Publications that it missed.
    pub missed: Recovered<'a>,
}

/// Room that is kept for the next messages, bytes.
const KEPT_MAX: usize = 64 * 1024;

/// Messages for one client, one behind the other.
#[derive(Debug, Default)]
pub struct Messages {
    body: Encoding,
    bytes: Vec<u8>,
}

impl Messages {
    /// Messages are written like this from now on.
    pub fn encode_as(&mut self, body: Encoding) {
        debug_assert!(self.bytes.is_empty(), "messages of one client at a time");
        self.body = body;
    }

    /// How messages are written.
    pub fn encoding(&self) -> Encoding {
        self.body
    }

    /// What has been written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what has been written. The room of large messages is given back.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_MAX);
    }

    /// Writes a reply. A client that only listens is told of its connect alone.
    pub fn reply(&mut self, command: u32, reply: &Reply<'_>) {
        match (self.body, reply) {
            (Encoding::Json, _) => json::reply(self.line(), command, reply),
            (Encoding::Protobuf, _) => protobuf::reply(&mut self.bytes, command, reply),
            (Encoding::Push, Reply::Connect(result)) => json::connect_push(self.line(), result),
            (Encoding::Push, _) => {}
        }
    }

    /// Writes a push of a channel; empty for the connection's own.
    pub fn push(&mut self, channel: &str, push: &Push<'_>) {
        match self.body {
            Encoding::Json => json::push(self.line(), channel, push),
            Encoding::Protobuf => protobuf::push(&mut self.bytes, channel, push),
            Encoding::Push => json::bare_push(self.line(), channel, push),
        }
    }

    /// `SubscribeResult` by itself, for [`ConnectResult::subs`].
    pub fn result(&self, result: &SubscribeResult<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        match self.body {
            Encoding::Json | Encoding::Push => json::subscribe_result(&mut out, result),
            Encoding::Protobuf => protobuf::subscribe_result(&mut crate::protobuf::Fields(&mut out), result),
        }
        out
    }

    fn line(&mut self) -> &mut Vec<u8> {
        if !self.bytes.is_empty() {
            self.bytes.push(b'\n');
        }
        &mut self.bytes
    }
}
