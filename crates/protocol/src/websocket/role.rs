//! The two ends of a connection.

/// The end of the connection that reads. A server demands masked frames, and a client demands unmasked frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The server, which reads the frames of clients.
    Server,
    /// The server on a connection that negotiated permessage-deflate.
    DeflatedServer,
    /// The client, which reads the frames of a server.
    Client,
}
