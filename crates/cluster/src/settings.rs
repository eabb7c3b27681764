//! What a node must know to join.

use std::time::Duration;

/// How to join.
#[derive(Clone, Default)]
pub struct JoinOptions {
    /// Addresses of NATS servers.
    pub urls: Vec<String>,
    /// Try them in this order, not in a random one.
    pub retains_order: bool,
    /// The cluster's name.
    pub cluster: String,
    /// This node's name, other than all others'.
    pub node: String,
    /// User and password; empty = none.
    pub user: String,
    /// See `user`.
    pub password: String,
    /// A token; empty = none.
    pub token: String,
    /// The text of a credentials file; empty = none.
    pub credentials: String,
    /// Path of authorities (PEM) besides the system's; empty = none.
    pub tls_ca: String,
    /// Path of this node's certificate (PEM) for NATS; empty = none.
    pub tls_cert: String,
    /// Path of its key.
    pub tls_key: String,
    /// The program's own version, for people.
    pub program: String,
    /// When this node started, Unix milliseconds.
    pub started_ms: u64,
    /// Between two heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a node is gone.
    pub timeout: Duration,
    /// How long a node must have been without subscriptions before it is gone.
    pub grace: Duration,
    /// Scopes of the registry.
    pub scopes: Vec<String>,
    /// Namespaces with history.
    pub streams: Vec<StreamSettings>,
    /// Copies of each stream, 1 … 5.
    pub replicas: usize,
    /// Where streams are kept.
    pub storage: Storage,
    /// How often the streams are inspected while no trouble is known; at least a second.
    pub check_delay: Duration,
    /// Most bytes of each stream; 0 = as many as NATS allows.
    pub stream_max_bytes: u64,
}

/// Where JetStream keeps a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// On disk.
    #[default]
    File,
    /// In memory.
    Memory,
}

/// The history of one namespace's channels.
#[derive(Debug, Clone)]
pub struct StreamSettings {
    /// The namespace; empty = channels without one.
    pub namespace: String,
    /// Publications kept of each channel.
    pub size: usize,
    /// How long.
    pub ttl: Duration,
}
