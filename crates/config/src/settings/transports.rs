//! The settings of the transports.

use std::time::Duration;

use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

use super::tls::TlsSettings;

/// Largest body of a request that opens a stream or carries commands where its key is 0, bytes.
const BODY_MAX: usize = 65_536;

settings! {
    /// The WebSocket transport.
    pub struct WebSocketSettings {
        /// The WebSocket transport is not served.
        key disabled: bool = false;
        /// Path of the WebSocket transport.
        key handler_prefix: String = "/connection/websocket", ValueKind::Path;
        /// Largest message of a client, bytes; of a compressed one, what it becomes.
        key message_size_limit: usize = 65_536, SOME;
        /// Agree upon permessage-deflate with clients that offer it. A publication is compressed once for all of them.
        key compression: bool = false;
        /// Messages shorter than this stay as they are, bytes.
        key compression_min_size: usize = 256;
    }
}

settings! {
    /// A transport that is an endless answer.
    pub struct HttpStreamSettings (path: &'static str) {
        /// Whether it is served.
        key enabled: bool = false;
        /// Path of this transport.
        key handler_prefix: String = path, ValueKind::Path;
        /// Largest body of the request that opens a stream, bytes; 0 is 65536.
        key max_request_body_size: usize = 0;
        /// Compress for clients that accept gzip (`Accept-Encoding`). A publication is compressed once for all of them.
        own compression: bool = false;
        /// Messages shorter than this stay as they are, bytes.
        own compression_min_size: usize = 256;
        /// Time between two pings; 0 is `client.ping_interval`.
        own ping_interval: Duration = Duration::ZERO;
    }
}

impl HttpStreamSettings {
    /// Largest body of the request, bytes.
    pub fn max_request_body_size(&self) -> usize {
        if self.max_request_body_size == 0 { BODY_MAX } else { self.max_request_body_size }
    }
}

settings! {
    /// The endpoint to which clients of HTTP streaming and server-sent events send their commands.
    pub struct EmulationSettings {
        /// Where clients of HTTP streaming and server-sent events send their commands.
        key handler_prefix: String = "/emulation", ValueKind::Path;
        /// Largest body of a request with commands of HTTP streaming and server-sent events, bytes; 0 is 65536.
        key max_request_body_size: usize = 0;
    }
}

impl EmulationSettings {
    /// Largest body of the request, bytes.
    pub fn max_request_body_size(&self) -> usize {
        if self.max_request_body_size == 0 { BODY_MAX } else { self.max_request_body_size }
    }
}

settings! {
    /// WebSocket for clients that only listen.
    pub struct UniWebSocketSettings {
        /// Serve WebSocket for clients that only listen.
        key enabled: bool = false;
        /// Path of this transport.
        key handler_prefix: String = "/connection/uni_websocket", ValueKind::Path;
        /// Time between two pings; 0 is `client.ping_interval`.
        own ping_interval: Duration = Duration::ZERO;
    }
}

settings! {
    /// Lines over bare TCP.
    pub struct TcpSettings {
        /// Serve bare TCP: a JSON command a line in, a JSON reply a line out.
        own enabled: bool = false;
        /// Address or host name to bind; empty is every address, of IPv6 and of IPv4. With `--dev`: `127.0.0.1`.
        own address: String = "";
        /// Port to bind; 0 is any free one.
        own port: u16 = 8_001;
        /// Longest line of a client, bytes.
        own message_size_limit: usize = 65_536, SOME;
        /// A client that sends nothing for so long, not even the answer to a ping, is told to go (4000) when its next
        /// ping is due, so up to one ping interval later; 0 lets it stay.
        own idle_timeout: Duration = Duration::from_mins(5);
        /// Time between two pings; 0 is `client.ping_interval`.
        own ping_interval: Duration = Duration::ZERO;
        /// Every connection begins with a header of the PROXY protocol, of one of `http_server.trusted_proxies`; others
        /// are closed.
        own proxy_protocol: bool = false;
        /// TLS on this port.
        section tls: TlsSettings = TlsSettings::default() => own {
            cert_pem: "The certificate and those above it: PEM, base64 of it, or the path of a file. Files of this section are read again when they change. Empty: those of `http_server.tls_autocert`.";
        };
    }
}
