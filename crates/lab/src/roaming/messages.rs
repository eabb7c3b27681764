//! The messages between a process of roaming clients and the conductor, one JSON line each.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A command to a process of roaming clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RoamingCommand {
    /// Its specification: sent once, before any other command.
    Become(RoamingSpec),
    /// Connect and subscribe all clients, `concurrency` at a time. The report is [`RoamingReport::Opened`].
    Open { concurrency: usize },
    /// Start a new window. `leaving` is the node that is about to be restarted, by its place among the addresses; the
    /// clients of all other nodes stay. The report is [`RoamingReport::Begun`].
    Begin { leaving: Option<usize> },
    /// Report when every client is subscribed and has all publications up to `due`, the last number of each channel, or
    /// when the time is over. The report is [`RoamingReport::Settled`].
    Settle { due: Vec<u64>, timeout_ms: u64 },
}

/// The parameters of the clients of one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RoamingSpec {
    /// The addresses of the nodes.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) connections: usize,
    /// The channel of each client is `prefix` and the remainder of its number by `channels`.
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    /// Number of the first client.
    pub(crate) first: usize,
    /// Second octet of the addresses from which they connect: 127.x.0.1 and on.
    pub(crate) network: u8,
}

/// A report of a process of roaming clients.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RoamingReport {
    /// How many are subscribed; the others have failed.
    Opened { open: usize, first_failure: Option<String> },
    /// A new window has begun. `held` is the number of clients of the node that is about to be restarted.
    Begun { held: u64 },
    /// The counts since [`RoamingCommand::Begin`].
    Settled(WindowReport),
}

/// The observations of clients in a window of time. Times are Unix microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WindowReport {
    /// Clients whose connection to the leaving node ended with 3001.
    pub(crate) told: u64,
    /// The time of the last such disconnect; 0 = there was none.
    pub(crate) last_told_us: u64,
    /// When the last client was subscribed again; 0 = none was.
    pub(crate) last_back_us: u64,
    /// The times at which nodes that stay answered connect commands.
    pub(crate) accepted_us: Vec<u64>,
    /// Tries to connect, or to subscribe, that failed.
    pub(crate) refused: u64,
    /// Connections that ended in another way while they were subscribed.
    pub(crate) cut: u64,
    pub(crate) first_cut: Option<String>,
    /// Clients that are not subscribed at the end.
    pub(crate) away: u64,
    /// Publications that never came.
    pub(crate) lost: u64,
    /// Publications that arrived again, or after a later one.
    pub(crate) repeated: u64,
    /// Number of received publications.
    pub(crate) delivered: u64,
    /// Pairs of time (microseconds, from the first try to publish) and count, of live deliveries to clients that stay.
    pub(crate) times: Vec<(u64, u64)>,
}
