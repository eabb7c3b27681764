//! The transports of the lab's subscribers: the bytes that a subscriber sends until it is subscribed, and how to split
//! received bytes into messages.

use std::borrow::Cow;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use touchline_protocol::message::Encoding;
use touchline_protocol::protobuf::{Fields, delimited};
use touchline_protocol::publication::{Content, Delta};
use touchline_protocol::websocket::{Opcode, encode_masked_frame};
use touchline_protocol::wire::{Coding, Framing};
use touchline_protocol::{Publication, Wire, deflate};

use crate::wire;

/// A transport between subscribers and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientTransport {
    /// JSON in WebSocket frames.
    #[default]
    Websocket,
    /// Protobuf in WebSocket frames.
    Protobuf,
    /// JSON in compressed WebSocket frames.
    Deflate,
    /// HTTP streaming, one way.
    HttpStream,
    /// Server-sent events, one way.
    Sse,
    /// Lines over bare TCP.
    Tcp,
    /// JSON in WebSocket frames over TLS.
    Tls,
}

/// First byte of a compressed text frame.
const DEFLATED: u8 = 0xc1;
/// Longest message of a server, bytes after decompression.
const MESSAGE_MAX: usize = 1 << 20;

impl ClientTransport {
    /// The encoding and framing of a server's messages.
    pub(crate) fn wire(self) -> Wire {
        let (encoding, framing) = match self {
            ClientTransport::Websocket | ClientTransport::Tls => (Encoding::Json, Framing::WebSocket),
            ClientTransport::Protobuf => (Encoding::Protobuf, Framing::WebSocket),
            ClientTransport::Deflate => (Encoding::Json, Framing::Deflated { from: 0 }),
            ClientTransport::HttpStream => (Encoding::Push, Framing::Stream(Coding::Identity)),
            ClientTransport::Sse => (Encoding::Push, Framing::EventStream(Coding::Identity)),
            ClientTransport::Tcp => (Encoding::Json, Framing::Stream(Coding::Identity)),
        };
        Wire { encoding, framing }
    }

    /// The bytes of a publication.
    pub(crate) fn publication(self, channel: &str, data: &str) -> Vec<u8> {
        let content = Content { data: data.to_owned().into(), ..Content::default() };
        Publication::encode(channel, &content, None).framed(self.wire(), Delta::None).to_vec()
    }

    /// An empty message, by which the floor acknowledges a reader.
    pub(crate) fn acknowledgement(self) -> &'static [u8] {
        self.wire().ping()
    }

    /// Whether the server's first bytes are the head of an HTTP answer.
    pub(crate) fn begins_with_http(self) -> bool {
        self != ClientTransport::Tcp
    }

    /// Whether the request already holds the connect command and the subscriptions, and no other command follows.
    pub(crate) fn is_one_way(self) -> bool {
        matches!(self, ClientTransport::HttpStream | ClientTransport::Sse)
    }

    /// The first bytes that a subscriber sends on a new connection.
    pub(crate) fn opening(self, host: &str, path: &str, channel: &str) -> Vec<u8> {
        let connect = format!("{{\"subs\":{{\"{channel}\":{{}}}}}}");
        match self {
            ClientTransport::Websocket | ClientTransport::Tls => wire::handshake(host, path),
            ClientTransport::Protobuf => wire::handshake(host, &format!("{path}?format=protobuf")),
            ClientTransport::Deflate => {
                let request = String::from_utf8(wire::handshake(host, path)).unwrap_or_default();
                request.replacen("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", 1).into_bytes()
            }
            ClientTransport::HttpStream | ClientTransport::Sse => {
                let path =
                    if self == ClientTransport::Sse { "/connection/uni_sse" } else { "/connection/uni_http_stream" };
                let length = connect.len();
                format!(
                    "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
                     Content-Length: {length}\r\n\r\n{connect}"
                )
                .into_bytes()
            }
            ClientTransport::Tcp => Vec::new(),
        }
    }

    /// A command of a client, as JSON; `fields` writes the same command as Protobuf.
    pub(crate) fn command(self, json: &str, fields: impl FnOnce(&mut Fields<'_>)) -> Vec<u8> {
        match self {
            ClientTransport::Protobuf => {
                let mut message = Vec::new();
                delimited(&mut message, |out| fields(&mut Fields(out)));
                let mut frame = Vec::new();
                encode_masked_frame(Opcode::Binary, &message, wire::MASK, &mut frame);
                frame
            }
            ClientTransport::Tcp => format!("{json}\n").into_bytes(),
            _ => wire::text(json),
        }
    }

    /// The answer to a ping. None = this transport expects none.
    pub(crate) fn pong(self) -> Option<Vec<u8>> {
        match self {
            ClientTransport::Protobuf => {
                let mut frame = Vec::new();
                encode_masked_frame(Opcode::Binary, &[0], wire::MASK, &mut frame);
                Some(frame)
            }
            ClientTransport::Websocket | ClientTransport::Deflate | ClientTransport::Tls => Some(wire::text("{}")),
            ClientTransport::HttpStream | ClientTransport::Sse | ClientTransport::Tcp => None,
        }
    }

    /// One message at the beginning of `bytes`: the first byte of its frame (0 where there are none), its payload and
    /// its whole length.
    pub(crate) fn message(self, bytes: &[u8]) -> Option<(u8, Cow<'_, [u8]>, usize)> {
        match self {
            ClientTransport::HttpStream | ClientTransport::Sse | ClientTransport::Tcp => {
                let end = bytes.iter().position(|byte| *byte == b'\n')?;
                Some((0, Cow::Borrowed(&bytes[..end]), end + 1))
            }
            _ => {
                let (head, payload, length) = wire::frame(bytes)?;
                let payload = match head {
                    DEFLATED => Cow::Owned(deflate::inflate(payload, MESSAGE_MAX).unwrap_or_default()),
                    _ => Cow::Borrowed(payload),
                };
                Some((head, payload, length))
            }
        }
    }

    /// Most bytes of memory for an idle connection: fresh, and after all connections were closed and opened again.
    pub(crate) fn idle_bounds(self) -> (f64, f64) {
        match self {
            ClientTransport::HttpStream | ClientTransport::Sse => (2_560.0, 2_560.0),
            ClientTransport::Tls => (12_288.0, 12_288.0),
            ClientTransport::Websocket
            | ClientTransport::Protobuf
            | ClientTransport::Deflate
            | ClientTransport::Tcp => (1_300.0, 1_500.0),
        }
    }

    /// Enables this transport in a server's configuration; `tcp_port` is the port for lines.
    pub(crate) fn configure(self, configuration: &mut serde_json::Value, tcp_port: u16) {
        use serde_json::json;
        match self {
            ClientTransport::Deflate => {
                configuration["websocket"] = json!({"compression": true, "compression_min_size": 64})
            }
            ClientTransport::HttpStream => configuration["uni_http_stream"] = json!({"enabled": true}),
            ClientTransport::Sse => configuration["uni_sse"] = json!({"enabled": true}),
            ClientTransport::Tcp => {
                configuration["tcp"] = json!({"enabled": true, "address": "127.0.0.1", "port": tcp_port})
            }
            ClientTransport::Websocket | ClientTransport::Protobuf | ClientTransport::Tls => {}
        }
    }
}
