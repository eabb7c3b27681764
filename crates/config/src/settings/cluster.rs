//! How nodes find each other.

use std::time::Duration;

use touchline_engine::setting::ValueKind;
use touchline_engine::settings;

settings! {
    /// How nodes find each other.
    pub struct ClusterSettings {
        /// How nodes find each other; empty: this node is alone.
        own engine: String = "", ValueKind::Choice(&["nats", ""]);
        /// Nodes of one cluster have one name; several clusters may share NATS servers.
        own name: String = "touchline";
        /// Addresses of NATS servers; `tls://` for TLS.
        own nats_url: Vec<String> = &["nats://127.0.0.1:4222"];
        /// Try the addresses of `nats_url` in their order; else in a random one, so that nodes spread over the servers.
        own nats_no_randomize: bool = false;
        /// User for NATS.
        own nats_user: String = "";
        /// Password for NATS.
        own nats_password: String = "", ValueKind::Secret;
        /// Token for NATS, instead of `nats_user` and `nats_password`.
        own nats_token: String = "", ValueKind::Secret;
        /// NATS credentials, instead of user, password and token: the text of a credentials file, base64 of it, or the
        /// path of the file.
        own nats_credentials: String = "", ValueKind::Secret;
        /// Path of a PEM file: authorities that NATS servers are trusted by, instead of the system's. It is read at
        /// every connect, as `nats_tls_cert` and `nats_tls_key` are.
        own nats_tls_ca: String = "";
        /// Path of this node's certificate (PEM), where NATS asks for one.
        own nats_tls_cert: String = "";
        /// Path of the key (PEM) of `nats_tls_cert`.
        own nats_tls_key: String = "", ValueKind::Secret;
        /// Copies of each stream of history; 3 survive a lost NATS server.
        own stream_replicas: usize = 1, ValueKind::Integer(1, 5);
        /// Where JetStream keeps streams of history.
        own stream_storage: String = "file", ValueKind::Choice(&["file", "memory"]);
        /// Most bytes of each stream, the oldest publications go first; 0 is what NATS allows.
        own stream_max_bytes: u64 = 0;
        /// Between two heartbeats of a node.
        own heartbeat_interval: Duration = Duration::from_secs(1);
        /// Silence after which a node counts as gone, with all names on it.
        own node_timeout: Duration = Duration::from_secs(4);
        /// How long nobody must have listened in a node's place before it counts as gone: its process has ended, or has
        /// lost its connection to NATS.
        own suspect_grace: Duration = Duration::from_secs(1);
        /// How far another node's clock may pull this one's stamps ahead; more is counted.
        own clock_drift_max: Duration = Duration::from_secs(10);
    }
}

impl ClusterSettings {
    /// Whether the node is part of a cluster.
    pub fn is_on(&self) -> bool {
        !self.engine.is_empty()
    }
}
