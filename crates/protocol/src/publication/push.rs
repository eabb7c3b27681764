//! A push that many clients get, framed once.

use bytes::Bytes;

use super::cache::{EncodingCache, EncodingKey, PushKind};
use super::transcode::push_of_json;
use crate::encoding::Encoding;
use crate::websocket::{Opcode, encode_header};
use crate::wire::Wire;

/// A push that many get. The commonest form is there from the start, the others are made of it.
#[derive(Debug)]
pub struct EncodedPush {
    /// A WebSocket frame with `{"push":…}` in it.
    pub(super) frame: Bytes,
    head: u8,
    pub(super) forms: EncodingCache,
}

/// `{"push":` and `}` are around a push.
const PUSH_WRAPPER: (usize, usize) = (8, 1);

impl EncodedPush {
    /// Frames a push whose JSON, without `{"push":…}` around it, the closure writes.
    pub fn encode(size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        // The head's length depends on the body's, so the body is written behind the longest head and the head put
        // right before it.
        const HEAD_MAX: usize = 10;
        let mut buffer = Vec::with_capacity(HEAD_MAX + 96 + size);
        buffer.resize(HEAD_MAX, 0);
        buffer.extend_from_slice(b"{\"push\":");
        write(&mut buffer);
        buffer.push(b'}');
        let mut head = Vec::with_capacity(HEAD_MAX);
        encode_header(Opcode::Text, buffer.len() - HEAD_MAX, &mut head);
        let skipped = HEAD_MAX - head.len();
        buffer[skipped..HEAD_MAX].copy_from_slice(&head);
        EncodedPush {
            frame: Bytes::from(buffer).slice(skipped..),
            head: head.len() as u8,
            forms: EncodingCache::default(),
        }
    }

    /// The whole message as JSON.
    pub fn json(&self) -> &[u8] {
        &self.frame[usize::from(self.head)..]
    }

    /// The push alone as JSON.
    pub(super) fn push(&self) -> &[u8] {
        let message = self.json();
        &message[PUSH_WRAPPER.0..message.len() - PUSH_WRAPPER.1]
    }

    /// As it leaves in this form.
    pub fn framed(&self, wire: Wire) -> Bytes {
        if wire == Wire::JSON {
            return self.frame.clone();
        }
        self.forms.get(EncodingKey::Framed(wire, PushKind::Plain), || frame_push(self.push(), wire, false))
    }
}

pub(super) fn frame_push(push: &[u8], wire: Wire, is_text: bool) -> Bytes {
    let mut out = Vec::with_capacity(push.len() + 32);
    match wire.encoding {
        Encoding::Push => wire.frame(push, &mut out),
        Encoding::Protobuf => wire.frame(&push_of_json(push, is_text), &mut out),
        Encoding::Json => {
            let mut message = Vec::with_capacity(push.len() + PUSH_WRAPPER.0 + PUSH_WRAPPER.1);
            message.extend_from_slice(b"{\"push\":");
            message.extend_from_slice(push);
            message.push(b'}');
            wire.frame(&message, &mut out);
        }
    }
    out.into()
}
