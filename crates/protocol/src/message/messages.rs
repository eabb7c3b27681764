//! Messages for one client, written in the client's encoding.

use super::types::{Push, Reply, SubscribeResult};
use super::{json, protobuf};
use crate::encoding::Encoding;

/// The maximum capacity of the buffer that is kept for the next messages, in bytes.
const KEPT_MAX: usize = 64 * 1024;

/// Messages for one client, one after the other in a buffer.
#[derive(Debug, Default)]
pub struct Messages {
    body: Encoding,
    bytes: Vec<u8>,
}

impl Messages {
    /// Sets the encoding of the following messages.
    pub fn encode_as(&mut self, body: Encoding) {
        debug_assert!(self.bytes.is_empty(), "messages of one client at a time");
        self.body = body;
    }

    /// The encoding of the messages.
    pub fn encoding(&self) -> Encoding {
        self.body
    }

    /// The bytes of all messages written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the buffer holds no messages.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Discards all messages. A large buffer is freed.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_MAX);
    }

    /// Writes a reply. A client that only listens gets only the reply to its connect, as a push.
    pub fn reply(&mut self, command: u32, reply: &Reply<'_>) {
        match (self.body, reply) {
            (Encoding::Json, _) => json::reply(self.line(), command, reply),
            (Encoding::Protobuf, _) => protobuf::reply(&mut self.bytes, command, reply),
            (Encoding::Push, Reply::Connect(result)) => json::connect_push(self.line(), result),
            (Encoding::Push, _) => {}
        }
    }

    /// Writes a push of a channel. An empty channel means the connection's own pushes.
    pub fn push(&mut self, channel: &str, push: &Push<'_>) {
        match self.body {
            Encoding::Json => json::push(self.line(), channel, push),
            Encoding::Protobuf => protobuf::push(&mut self.bytes, channel, push),
            Encoding::Push => json::bare_push(self.line(), channel, push),
        }
    }

    /// Encodes a `SubscribeResult` by itself, for [`super::ConnectResult::subs`].
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
