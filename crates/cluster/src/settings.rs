//! The options with which a node joins.

use std::time::Duration;

use touchline_config::ClusterSettings;

/// How a node joins the cluster.
#[derive(Clone, Default)]
pub struct JoinOptions {
    /// The `cluster` part of the configuration. Its `nats_credentials` are not read.
    pub cluster: ClusterSettings,
    /// The id of this node, which must differ from all other nodes' ids.
    pub node: String,
    /// The text of a credentials file. Empty = none.
    pub credentials: String,
    /// The version of the program, for people.
    pub program: String,
    /// When this node started, Unix milliseconds.
    pub started_ms: u64,
    /// The scopes of the registry.
    pub scopes: Vec<String>,
    /// The namespaces with history.
    pub streams: Vec<StreamSettings>,
    /// How often the streams are inspected while no trouble is known. At least one second.
    pub check_delay: Duration,
    /// True if the shared facts are kept in NATS: they are loaded and followed.
    pub has_facts: bool,
    /// The limit of messages that wait to be written to NATS, bytes. Beyond it messages are refused. 0 = 64 MiB.
    pub outgoing_max_size: usize,
    /// The name of the node, for people. Empty = it has none.
    pub name: String,
    /// A digest of the configuration, which should be the same on all nodes. 0 = not stated.
    pub configuration: u32,
}

/// The limit of waiting messages if none is set, bytes.
const OUTGOING_SIZE_DEFAULT: usize = 64 << 20;

impl JoinOptions {
    /// The limit of messages that wait to be written to NATS, bytes.
    pub(crate) fn outgoing_max_size(&self) -> usize {
        if self.outgoing_max_size == 0 { OUTGOING_SIZE_DEFAULT } else { self.outgoing_max_size }
    }

    /// Where the streams are stored.
    pub(crate) fn storage(&self) -> Storage {
        if self.cluster.stream_storage == "memory" { Storage::Memory } else { Storage::File }
    }
}

/// Where JetStream stores a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// The stream is stored on disk.
    File,
    /// The stream is stored in memory.
    Memory,
}

/// The history of one namespace's channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// The name of the namespace. Empty = channels without a namespace.
    pub namespace: String,
    /// The number of publications that are kept for each channel.
    pub size: usize,
    /// How long publications are kept.
    pub ttl: Duration,
}
