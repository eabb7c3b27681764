//! What is told of a connection, besides what its session knows.

use std::net::IpAddr;

/// The close code of a connection that broke off (RFC 6455 section 7.4.1); it is never sent.
pub(super) const BROKEN_OFF: u16 = 1_006;

/// What is known of a connection until its client has connected, where that is told.
#[derive(Debug, Default)]
pub(super) struct ConnectingFacts {
    pub(super) address: Option<IpAddr>,
    pub(super) name: Box<str>,
    pub(super) version: Box<str>,
}

/// Who has ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndCause {
    /// The client, or the network.
    Client,
    /// The server.
    Server,
    /// The server, because it stops.
    Restart,
}

impl EndCause {
    /// The name in events.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            EndCause::Client => "client",
            EndCause::Server => "server",
            EndCause::Restart => "restart",
        }
    }
}
