//! The settings of the transports.

use std::time::Duration;

use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

use super::tls::TlsSettings;

/// Maximum body of a request that opens a stream or carries commands, bytes, if the configured value is 0.
const BODY_MAX: usize = 65_536;

settings! {
    /// The WebSocket transport.
    pub struct WebSocketSettings {
        /// The WebSocket transport is not served.
        key disabled: bool = false;
        /// Path of the WebSocket transport.
        key handler_prefix: String = "/connection/websocket", ValueKind::Path;
        /// Maximum size of a message from a client, bytes. For a compressed message its decompressed size counts.
        key message_size_limit: usize = 65_536, SOME;
        /// Use permessage-deflate with clients that offer it. A publication is compressed once for all such clients.
        key compression: bool = false;
        /// Messages shorter than this are not compressed, bytes.
        key compression_min_size: usize = 256;
    }
}

settings! {
    /// A transport whose server side is an endless HTTP response: HTTP streaming or server-sent events.
    pub struct HttpStreamSettings (path: &'static str) {
        /// The transport is served.
        key enabled: bool = false;
        /// Path of the transport.
        key handler_prefix: String = path, ValueKind::Path;
        /// Maximum body of the request that opens a stream, bytes. 0: 65536.
        key max_request_body_size: usize = 0;
        /// Compress for clients that accept gzip (`Accept-Encoding`). A publication is compressed once for all such
        /// clients.
        own compression: bool = false;
        /// Messages shorter than this are not compressed, bytes.
        own compression_min_size: usize = 256;
        /// Time between two pings. 0: `client.ping_interval`.
        own ping_interval: Duration = Duration::ZERO;
    }
}

impl HttpStreamSettings {
    /// The maximum body of the request, bytes, with the default applied.
    pub fn max_request_body_size(&self) -> usize {
        if self.max_request_body_size == 0 { BODY_MAX } else { self.max_request_body_size }
    }
}

settings! {
    /// The endpoint to which clients of HTTP streaming and server-sent events send their commands.
    pub struct EmulationSettings {
        /// Path to which clients of HTTP streaming and server-sent events send their commands.
        key handler_prefix: String = "/emulation", ValueKind::Path;
        /// Maximum body of a request with commands of HTTP streaming and server-sent events, bytes. 0: 65536.
        key max_request_body_size: usize = 0;
    }
}

impl EmulationSettings {
    /// The maximum body of the request, bytes, with the default applied.
    pub fn max_request_body_size(&self) -> usize {
        if self.max_request_body_size == 0 { BODY_MAX } else { self.max_request_body_size }
    }
}

settings! {
    /// WebSocket for clients that only listen.
    pub struct UniWebSocketSettings {
        /// Serve WebSocket for clients that only listen.
        key enabled: bool = false;
        /// Path of the transport.
        key handler_prefix: String = "/connection/uni_websocket", ValueKind::Path;
        /// Time between two pings. 0: `client.ping_interval`.
        own ping_interval: Duration = Duration::ZERO;
    }
}

settings! {
    /// The transport over bare TCP: one JSON message per line.
    pub struct TcpSettings {
        /// Serve bare TCP: a client sends one JSON command per line and receives one JSON reply per line.
        own enabled: bool = false;
        /// Address or host name to bind. Empty: every address, IPv6 and IPv4. With `--dev`: `127.0.0.1`.
        own address: String = "";
        /// Port to bind. 0: any free port.
        own port: u16 = 8_001;
        /// Maximum length of a line from a client, bytes.
        own message_size_limit: usize = 65_536, SOME;
        /// How long a client may send nothing, not even the answer to a ping. It is then disconnected (4000) when its
        /// next ping is due, so up to one ping interval later. 0: no limit.
        own idle_timeout: Duration = Duration::from_mins(5);
        /// Time between two pings. 0: `client.ping_interval`.
        own ping_interval: Duration = Duration::ZERO;
        /// Every connection must come from one of `http_server.trusted_proxies` and begin with a header of the PROXY
        /// protocol. Other connections are closed.
        own proxy_protocol: bool = false;
        /// TLS on this port.
        section tls: TlsSettings = TlsSettings::default() => own {
            cert_pem: "Certificate chain, the server's certificate first: PEM, base64 of it, or the path of a file. The node reads the files of this section again when they change. Empty: the certificates of `http_server.tls_autocert`.";
        };
    }
}
