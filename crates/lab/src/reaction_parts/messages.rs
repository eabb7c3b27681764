//! What the conductor and the parts say to each other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The channel in which the crowd reacts.
pub(crate) const CHANNEL: &str = "match:42";
/// What it reacts with.
pub(crate) const OPTIONS: [&str; 2] = ["applause", "boo"];

/// An order to a crowd.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CrowdOrder {
    /// Connect so many clients. `is_bare`: to the bare loop, which wants no handshake and answers nothing.
    Open { address: SocketAddr, connections: usize, is_bare: bool },
    /// React so many times a second, for so many seconds.
    React { rate: u64, seconds: u64 },
    /// Read what has come, until every client has seen this sum or ten seconds are over.
    Watch { seq: u64 },
}

/// What a crowd reports.
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

/// What the bare loop reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CountingReport {
    /// It listens.
    Listening { address: SocketAddr },
    /// So many reactions were counted.
    Counted { reactions: u64 },
}

/// An order to the bare loop.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CountingOrder {
    /// Tell what was counted.
    Count,
}
