//! The forms in which messages are sent: their encoding and the framing around them.

use crate::deflate;
use crate::encoding::Encoding;
use crate::websocket::{Opcode, encode_frame};

/// The framing around encoded messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// Uncompressed WebSocket frames.
    #[default]
    WebSocket,
    /// WebSocket frames, compressed (RFC 7692) from a minimum message length on.
    Deflated {
        /// The minimum length in bytes. Shorter messages are not compressed.
        from: u32,
    },
    /// Only a line end after each message, or its length before it: HTTP streaming and raw TCP.
    Stream(Coding),
    /// The events of an HTTP event stream (server-sent events).
    EventStream(Coding),
}

/// The compression of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    /// The stream is not compressed.
    #[default]
    Identity,
    /// Compressed by gzip (RFC 1952), each message separately. All clients with the same form share the bytes, and a
    /// connection does not hold a compressor. The stream begins with [`crate::deflate::GZIP_HEAD`]. It has no end and
    /// therefore no trailer.
    Gzip {
        /// The minimum length in bytes. Shorter messages are sent uncompressed, in a stored block.
        from: u32,
    },
}

impl Coding {
    /// Appends the output of `write`, compressed if this coding compresses.
    fn put(self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        match self {
            Coding::Identity => write(out),
            Coding::Gzip { from } => {
                let mut plain = Vec::new();
                write(&mut plain);
                deflate::encode_blocks(&plain, from as usize, out);
            }
        }
    }
}

/// The form in which messages are sent to one client. Clients with the same form share the bytes of shared messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wire {
    /// The encoding of the messages.
    pub encoding: Encoding,
    /// The framing around the messages.
    pub framing: Framing,
}

impl Wire {
    /// The most common form: JSON in WebSocket frames.
    pub const JSON: Wire = Wire { encoding: Encoding::Json, framing: Framing::WebSocket };

    /// Adds the framing to messages that [`crate::message::Messages`] has written.
    pub fn frame(self, messages: &[u8], out: &mut Vec<u8>) {
        let opcode = if self.encoding == Encoding::Protobuf { Opcode::Binary } else { Opcode::Text };
        match self.framing {
            // A client that only listens gets each push in a separate frame.
            Framing::WebSocket if self.encoding == Encoding::Push => {
                messages.split(|byte| *byte == b'\n').for_each(|message| encode_frame(opcode, message, out));
            }
            Framing::WebSocket => encode_frame(opcode, messages, out),
            Framing::Deflated { from } if messages.len() < from as usize => encode_frame(opcode, messages, out),
            Framing::Deflated { .. } => deflate::encode_frame(opcode, messages, out),
            Framing::Stream(coding) => coding.put(out, |out| {
                out.extend_from_slice(messages);
                if self.encoding != Encoding::Protobuf {
                    out.push(b'\n');
                }
            }),
            Framing::EventStream(coding) => coding.put(out, |out| {
                for message in messages.split(|byte| *byte == b'\n') {
                    out.extend_from_slice(b"data: ");
                    out.extend_from_slice(message);
                    out.extend_from_slice(b"\n\n");
                }
            }),
        }
    }

    /// A ping: an empty message in this form.
    pub fn ping(self) -> &'static [u8] {
        match (self.framing, self.encoding) {
            (Framing::WebSocket | Framing::Deflated { .. }, Encoding::Protobuf) => b"\x82\x01\0",
            (Framing::WebSocket | Framing::Deflated { .. }, _) => b"\x81\x02{}",
            (Framing::Stream(Coding::Identity), Encoding::Protobuf) => b"\0",
            (Framing::Stream(Coding::Identity), _) => b"{}\n",
            (Framing::EventStream(Coding::Identity), _) => b"data: {}\n\n",
            // Stored blocks (RFC 1951 section 3.2.4).
            (Framing::Stream(Coding::Gzip { .. }), Encoding::Protobuf) => b"\0\x01\0\xfe\xff\0",
            (Framing::Stream(Coding::Gzip { .. }), _) => b"\0\x03\0\xfc\xff{}\n",
            (Framing::EventStream(Coding::Gzip { .. }), _) => b"\0\x0a\0\xf5\xffdata: {}\n\n",
        }
    }

    /// Whether the framing is that of a WebSocket.
    pub fn is_websocket(self) -> bool {
        matches!(self.framing, Framing::WebSocket | Framing::Deflated { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Framing = Framing::Stream(Coding::Identity);
    const EVENTS: Framing = Framing::EventStream(Coding::Identity);

    fn framed(body: Encoding, envelope: Framing, messages: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Wire { encoding: body, framing: envelope }.frame(messages.as_bytes(), &mut out);
        out
    }

    #[test]
    fn messages_get_what_belongs_around_them() {
        assert_eq!(framed(Encoding::Json, Framing::WebSocket, "{}\n{}"), b"\x81\x05{}\n{}");
        assert_eq!(framed(Encoding::Push, Framing::WebSocket, "{}\n{}"), b"\x81\x02{}\x81\x02{}");
        assert_eq!(framed(Encoding::Protobuf, Framing::WebSocket, "\x01\n"), b"\x82\x02\x01\n");
        assert_eq!(framed(Encoding::Json, PLAIN, "{}\n{}"), b"{}\n{}\n");
        assert_eq!(framed(Encoding::Protobuf, PLAIN, "\x01\n"), b"\x01\n");
        assert_eq!(framed(Encoding::Json, EVENTS, "{}\n{}"), b"data: {}\n\ndata: {}\n\n");
    }

    #[test]
    fn frames_are_compressed_from_so_many_bytes_on() {
        let text = "1".repeat(100);
        for (from, is_compressed) in [(0, true), (99, true), (100, true), (101, false)] {
            let frame = framed(Encoding::Json, Framing::Deflated { from }, &text);
            assert_eq!(frame.len() < 100, is_compressed, "{from}");
            assert_eq!(frame[0], if is_compressed { 0xc1 } else { 0x81 }, "{from}");
        }
    }

    #[test]
    fn a_websocket_is_what_has_its_frames() {
        for (framing, is_websocket) in
            [(Framing::WebSocket, true), (Framing::Deflated { from: 0 }, true), (PLAIN, false), (EVENTS, false)]
        {
            assert_eq!(Wire { encoding: Encoding::Json, framing }.is_websocket(), is_websocket, "{framing:?}");
        }
    }

    #[test]
    fn a_ping_is_the_empty_message() {
        let gzip = Coding::Gzip { from: 64 };
        for framing in [Framing::WebSocket, PLAIN, EVENTS, Framing::Stream(gzip), Framing::EventStream(gzip)] {
            assert_eq!(Wire { encoding: Encoding::Json, framing }.ping(), framed(Encoding::Json, framing, "{}"));
        }
        for framing in [PLAIN, Framing::Stream(gzip)] {
            assert_eq!(
                Wire { encoding: Encoding::Protobuf, framing }.ping(),
                framed(Encoding::Protobuf, framing, "\0")
            );
        }
    }
}
