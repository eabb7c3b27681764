//! What a node must know to join.

use std::time::Duration;

use touchline_config::ClusterSettings;

/// How to join.
#[derive(Clone, Default)]
pub struct JoinOptions {
    /// The `cluster` part of the configuration. Its `nats_credentials` are not read.
    pub cluster: ClusterSettings,
    /// This node's name, other than all others'.
    pub node: String,
    /// The text of a credentials file; empty = none.
    pub credentials: String,
    /// The program's own version, for people.
    pub program: String,
    /// When this node started, Unix milliseconds.
    pub started_ms: u64,
    /// Scopes of the registry.
    pub scopes: Vec<String>,
    /// Namespaces with history.
    pub streams: Vec<StreamSettings>,
    /// How often the streams are inspected while no trouble is known; at least a second.
    pub check_delay: Duration,
    /// The shared facts are kept in NATS: they are loaded and followed.
    pub has_facts: bool,
    /// A digest of the configuration, which should be the same on all nodes; 0 = the node does not say.
    pub configuration: u32,
}

impl JoinOptions {
    /// Where streams are kept.
    pub(crate) fn storage(&self) -> Storage {
        if self.cluster.stream_storage == "memory" { Storage::Memory } else { Storage::File }
    }
}

/// Where JetStream keeps a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// On disk.
    File,
    /// In memory.
    Memory,
}

/// The history of one namespace's channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// The namespace; empty = channels without one.
    pub namespace: String,
    /// Publications kept of each channel.
    pub size: usize,
    /// How long.
    pub ttl: Duration,
}
