//! The messages between the conductor and the parts.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The channel in which the crowd reacts.
pub(crate) const CHANNEL: &str = "match:42";
/// The options that the crowd uses.
pub(crate) const OPTIONS: [&str; 2] = ["applause", "boo"];

/// An order to a crowd.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CrowdOrder {
    /// Connect so many clients. `is_bare`: to the bare loop, which wants no handshake and answers nothing.
    Open { address: SocketAddr, connections: usize, is_bare: bool },
    /// React so many times a second, for so many seconds.
    React { rate: u64, seconds: u64 },
    /// Read until every client has seen this sum, or ten seconds are over.
    Watch { seq: u64 },
}

/// A report of a crowd.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CrowdReport {
    /// All are connected and subscribed.
    Open,
    /// So many reactions were sent, in this time.
    Reacted { sent: u64, seconds: f64 },
    /// So many clients have seen the sum.
    Watched { clients: usize },
}

/// A report of the bare loop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CountingReport {
    /// The bare loop listens at this address.
    Listening { address: SocketAddr },
    /// So many reactions were counted.
    Counted { reactions: u64 },
}

/// An order to the bare loop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CountingOrder {
    /// Report the counts.
    Count,
}
