//! What events report of a connection, besides what its session knows.

use std::net::IpAddr;

/// The close code of a connection that broke off (RFC 6455 section 7.4.1); it is never sent.
pub(super) const BROKEN_OFF: u16 = 1_006;

/// What is known of a connection before its client has connected; kept only if an endpoint wants it.
#[derive(Debug, Default)]
pub(super) struct ConnectingFacts {
    pub(super) address: Option<IpAddr>,
    pub(super) name: Box<str>,
    pub(super) version: Box<str>,
}

/// Which side has ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndCause {
    /// The client or the network ended it.
    Client,
    /// The server ended it.
    Server,
    /// The server ended it because the node stops.
    Restart,
}

impl EndCause {
    /// The name of the cause in events.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            EndCause::Client => "client",
            EndCause::Server => "server",
            EndCause::Restart => "restart",
        }
    }
}
