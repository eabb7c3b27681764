//! The ends of a connection.

/// Which end of the connection reads: a server demands masked frames, a client demands unmasked ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads what clients send.
    Server,
    /// The same where permessage-deflate is agreed upon.
    DeflatedServer,
    /// Reads what a server sends.
    Client,
}
