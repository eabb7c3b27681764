//! The transports of clients.

use std::time::Duration;

use touchline_config::Settings;
use touchline_engine::session::TransportMode;

/// The ways in which clients can connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    WebSocket,
    HttpStream,
    Sse,
    UniWebSocket,
    UniHttpStream,
    UniSse,
    Tcp,
}

impl Transport {
    /// All transports, in the order of their numbers.
    pub(crate) const ALL: [Transport; 7] = [
        Transport::WebSocket,
        Transport::HttpStream,
        Transport::Sse,
        Transport::UniWebSocket,
        Transport::UniHttpStream,
        Transport::UniSse,
        Transport::Tcp,
    ];

    /// The name in metrics and statistics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Transport::WebSocket => "websocket",
            Transport::HttpStream => "http_stream",
            Transport::Sse => "sse",
            Transport::UniWebSocket => "uni_websocket",
            Transport::UniHttpStream => "uni_http_stream",
            Transport::UniSse => "uni_sse",
            Transport::Tcp => "tcp",
        }
    }

    /// The time between two pings.
    pub(crate) fn ping_interval(self, settings: &Settings) -> Duration {
        let own = match self {
            Transport::WebSocket => Duration::ZERO,
            Transport::HttpStream => settings.http_stream.ping_interval,
            Transport::Sse => settings.sse.ping_interval,
            Transport::UniWebSocket => settings.uni_websocket.ping_interval,
            Transport::UniHttpStream => settings.uni_http_stream.ping_interval,
            Transport::UniSse => settings.uni_sse.ping_interval,
            Transport::Tcp => settings.tcp.ping_interval,
        };
        if own.is_zero() { settings.client.ping_interval } else { own }
    }

    /// What the transport can do, in the terms of sessions.
    pub(crate) fn mode(self) -> TransportMode {
        match self {
            Transport::WebSocket => TransportMode::Duplex,
            Transport::HttpStream | Transport::Sse => TransportMode::Emulated,
            Transport::UniWebSocket | Transport::UniHttpStream | Transport::UniSse => TransportMode::OneWay,
            Transport::Tcp => TransportMode::Lines,
        }
    }
}
