//! A push to many clients, which is framed only once.

use bytes::Bytes;

use super::cache::{EncodingCache, EncodingKey, PushKind};
use super::transcode::push_of_json;
use crate::encoding::Encoding;
use crate::websocket::{Opcode, encode_header};
use crate::wire::Wire;

/// A push to many clients. The most common form is made at once, and the other forms are derived from it on demand.
#[derive(Debug)]
pub struct EncodedPush {
    /// The WebSocket frame that contains `{"push":…}`.
    pub(super) frame: Bytes,
    head: u8,
    pub(super) forms: EncodingCache,
}

/// The lengths of `{"push":` and `}` around a push.
const PUSH_WRAPPER: (usize, usize) = (8, 1);

impl EncodedPush {
    /// Frames a push. The closure writes its JSON without `{"push":…}` around it. `size` is a capacity hint in bytes.
    pub fn encode(size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        // The length of the head depends on the body. So the body is written after space for the longest head, and the
        // head is then placed directly before the body.
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

    /// The whole message as JSON, with `{"push":…}` around it.
    pub fn json(&self) -> &[u8] {
        &self.frame[usize::from(self.head)..]
    }

    /// The JSON of the push without `{"push":…}` around it.
    pub(super) fn push(&self) -> &[u8] {
        let message = self.json();
        &message[PUSH_WRAPPER.0..message.len() - PUSH_WRAPPER.1]
    }

    /// The push encoded and framed for `wire`.
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
