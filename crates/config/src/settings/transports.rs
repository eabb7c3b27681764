//! The settings of the transports.

use std::time::Duration;

use serde::Deserialize;
use touchline_engine::duration;

use super::tls::TlsSettings;

/// The WebSocket transport.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocketSettings {
    /// Not served.
    pub disabled: bool,
    /// Its path.
    pub handler_prefix: String,
    /// Largest message of a client, bytes; for a compressed one, after decompression.
    pub message_size_limit: usize,
    /// Negotiate permessage-deflate with clients that offer it.
    pub compression: bool,
    /// Messages shorter than this stay as they are, bytes.
    pub compression_min_size: usize,
}

impl Default for WebSocketSettings {
    fn default() -> Self {
        let handler_prefix = "/connection/websocket".into();
        WebSocketSettings {
            disabled: false,
            handler_prefix,
            message_size_limit: 65_536,
            compression: false,
            compression_min_size: COMPRESSION_MIN_SIZE,
        }
    }
}

/// Largest body of a request that opens a stream or carries commands, bytes.
const BODY_MAX: usize = 65_536;
/// Shorter messages hardly shrink when they are compressed, bytes.
const COMPRESSION_MIN_SIZE: usize = 256;

/// A transport that is an endless answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpStreamSettings {
    /// Served or not.
    pub enabled: bool,
    /// Its path; empty = the default one, `/connection/` and the section's name.
    pub handler_prefix: String,
    /// Largest body of the request, bytes; 0 = 65,536.
    pub max_request_body_size: usize,
    /// Compress for clients that accept gzip.
    pub compression: bool,
    /// Messages shorter than this stay as they are, bytes.
    pub compression_min_size: usize,
    /// Time between two pings; zero = that of `client`.
    #[serde(with = "duration")]
    pub ping_interval: Duration,
}

impl Default for HttpStreamSettings {
    fn default() -> Self {
        HttpStreamSettings {
            enabled: false,
            handler_prefix: String::new(),
            max_request_body_size: 0,
            compression: false,
            compression_min_size: COMPRESSION_MIN_SIZE,
            ping_interval: Duration::ZERO,
        }
    }
}

impl HttpStreamSettings {
    /// Largest body of the request, bytes.
    pub fn max_request_body_size(&self) -> usize {
        if self.max_request_body_size == 0 { BODY_MAX } else { self.max_request_body_size }
    }
}

/// The endpoint to which clients of HTTP streaming and server-sent events send their commands.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmulationSettings {
    /// Its path; empty = `/emulation`.
    pub handler_prefix: String,
    /// Largest body of the request, bytes; 0 = 65,536.
    pub max_request_body_size: usize,
}

impl EmulationSettings {
    /// Largest body of the request, bytes.
    pub fn max_request_body_size(&self) -> usize {
        if self.max_request_body_size == 0 { BODY_MAX } else { self.max_request_body_size }
    }
}

/// Lines over bare TCP.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpSettings {
    /// Served or not.
    pub enabled: bool,
    /// Address to bind; empty = every address.
    pub address: String,
    /// Port to bind; 0 = any free one.
    pub port: u16,
    /// Longest line of a client, bytes.
    pub message_size_limit: usize,
    /// A client that sends nothing for so long, not even the answer to a ping, is disconnected; 0 = never.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// Time between two pings; zero = that of `client`.
    #[serde(with = "duration")]
    pub ping_interval: Duration,
    /// Every connection begins with a header of the PROXY protocol, of one of `http_server.trusted_proxies`.
    pub proxy_protocol: bool,
    /// TLS on this port.
    pub tls: TlsSettings,
}

impl Default for TcpSettings {
    fn default() -> Self {
        let idle_timeout = Duration::from_secs(300);
        TcpSettings {
            enabled: false,
            address: String::new(),
            port: 8_001,
            message_size_limit: 65_536,
            idle_timeout,
            ping_interval: Duration::ZERO,
            proxy_protocol: false,
            tls: TlsSettings::default(),
        }
    }
}

/// WebSocket for clients that only listen.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UniWebSocketSettings {
    /// Served or not.
    pub enabled: bool,
    /// Its path; empty = `/connection/uni_websocket`.
    pub handler_prefix: String,
    /// Time between two pings; zero = that of `client`.
    #[serde(with = "duration")]
    pub ping_interval: Duration,
}
