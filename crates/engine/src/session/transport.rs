//! What the transport of a client can do.

/// What a client's transport can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportMode {
    /// Messages go both ways, for example over a WebSocket.
    Duplex,
    /// Messages go to the client only; its commands come in separate requests.
    Emulated,
    /// Messages go to the client only, and it sends no commands.
    OneWay,
    /// Lines go both ways. A person who types them gets an error for a mistake, and need not reply to pings.
    Lines,
}

impl TransportMode {
    /// Whether the client must reply to pings. For the other transports, TCP's acknowledgements show that the client is
    /// still there.
    pub fn answers_pings(self) -> bool {
        matches!(self, TransportMode::Duplex | TransportMode::Emulated)
    }
}
