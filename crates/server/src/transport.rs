//! The ways in which clients come.

use touchline_engine::session::Link;

/// A way in which clients come.
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
    /// All of them.
    pub(crate) const ALL: [Transport; 7] = [
        Transport::WebSocket,
        Transport::HttpStream,
        Transport::Sse,
        Transport::UniWebSocket,
        Transport::UniHttpStream,
        Transport::UniSse,
        Transport::Tcp,
    ];

    /// As it stands in metrics and statistics.
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

    /// What it can do.
    pub(crate) fn link(self) -> Link {
        match self {
            Transport::WebSocket => Link::Duplex,
            Transport::HttpStream | Transport::Sse => Link::Emulated,
            Transport::UniWebSocket | Transport::UniHttpStream | Transport::UniSse => Link::Listening,
            Transport::Tcp => Link::Lines,
        }
    }
}
