//! The messages between a worker and the conductor, one JSON line each.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::ledger::Wrongs;
use crate::transport::ClientTransport;
use crate::wire::Dialect;

/// A command to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerCommand {
    /// The worker's specification: sent once, before any other command.
    Become(WorkerSpec),
    /// Open all subscribers, `concurrency` at a time. Subscribers that were open before recover what they missed.
    Open { concurrency: usize },
    /// Each subscriber will get `each` more publications.
    Expect { each: u64, timeout_ms: u64 },
    /// Let each subscriber send a request, and wait for the answers.
    Ask { request: SubscriberRequest, timeout_ms: u64 },
    /// Close all subscribers.
    Close,
}

/// The requests that all subscribers send at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SubscriberRequest {
    /// To register a name of its own in the scope `lab`. WebSocket only.
    Register,
    /// To subscribe to one more channel: `prefix` and the remainder of its number by `channels`. Publications that are
    /// expected from now on are those of this channel.
    Join { prefix: String, channels: usize },
}

/// The specification of a worker: its subscribers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerSpec {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) dialect: Dialect,
    pub(crate) transport: ClientTransport,
    pub(crate) connections: usize,
    /// The channel of each subscriber is `prefix` and the remainder of its number by `channels`.
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    /// Number of the first subscriber.
    pub(crate) first: usize,
    /// Second octet of the addresses from which they connect: 127.x.0.1 and on.
    pub(crate) network: u8,
    pub(crate) data_size: usize,
    pub(crate) token_secret: Option<String>,
    pub(crate) has_token_ids: bool,
    pub(crate) is_subscribing: bool,
}

impl WorkerSpec {
    /// The channel of the subscriber with this index.
    pub(super) fn channel(&self, index: usize) -> String {
        channel_name(&self.prefix, (self.first + index) % self.channels)
    }
}

/// Name of a channel of the lab.
pub(crate) fn channel_name(prefix: &str, number: usize) -> String {
    format!("{prefix}{number}")
}

/// A report of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerReport {
    /// How many steps are done, of how many.
    Progress { done: u64, total: u64 },
    /// Each subscriber is open or has failed.
    Opened {
        open: usize,
        failed: usize,
        first_failure: Option<String>,
        recovered: u64,
        wrongs: Wrongs,
        /// Why the first connection ended that was open.
        first_closing: Option<String>,
        times: Vec<(u64, u64)>,
        seconds: f64,
    },
    /// The worker has recorded an expectation, so publications may be sent.
    Expecting,
    /// All expected publications have arrived, or the time is over.
    Delivered { delivered: u64, wrongs: Wrongs, first_closing: Option<String>, times: Vec<(u64, u64)>, reads: u64 },
    /// The number of subscribers whose request was answered, and the duration.
    Answered { answered: u64, seconds: f64 },
    /// All subscribers are closed; `wrongs` are those since the last report.
    Closed { wrongs: Wrongs },
}
