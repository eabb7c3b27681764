//! How the nodes of a cluster find each other.

use std::time::Duration;

use touchline_engine::setting::ValueKind;
use touchline_engine::settings;

settings! {
    /// How the nodes of a cluster find each other.
    pub struct ClusterSettings {
        /// How the nodes of a cluster find each other. Empty: this node is not part of a cluster.
        own engine: String = "", ValueKind::Choice(&["nats", ""]);
        /// Name of the cluster. All nodes of a cluster must have the same name; several clusters may share NATS
        /// servers.
        own name: String = "touchline";
        /// Addresses of the NATS servers. An address that begins with `tls://` uses TLS. An address may
        /// contain the user and the password (`nats://USER:PASSWORD@HOST`), the same in all addresses.
        own nats_url: Vec<String> = &["nats://127.0.0.1:4222"];
        /// Try the addresses of `nats_url` in the given order. Off: in random order, so that the nodes spread over the
        /// servers.
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
        /// Path of a PEM file with the CA certificates that verify the NATS servers, instead of the system's. The node
        /// reads this file, `nats_tls_cert` and `nats_tls_key` at every connect.
        own nats_tls_ca: String = "";
        /// Path of the client certificate (PEM) that the node presents to NATS, where NATS asks for one.
        own nats_tls_cert: String = "";
        /// Path of the private key (PEM) of `nats_tls_cert`.
        own nats_tls_key: String = "", ValueKind::Secret;
        /// Replicas of each history stream in NATS. With 3, the stream survives the loss of one NATS server.
        own stream_replicas: usize = 1, ValueKind::Integer(1, 5);
        /// Where JetStream stores the history streams.
        own stream_storage: String = "file", ValueKind::Choice(&["file", "memory"]);
        /// Maximum size of each history stream, bytes; the oldest publications are removed first. 0: the limit that
        /// NATS has.
        own stream_max_bytes: u64 = 0;
        /// Time between two heartbeats of a node.
        own heartbeat_interval: Duration = Duration::from_secs(1);
        /// Time without a heartbeat after which a node counts as gone, with all names on it.
        own node_timeout: Duration = Duration::from_secs(4);
        /// A node does not listen on NATS any more if its process has ended, or if it has lost its connection to NATS.
        /// If NATS reports this about a node for so long, the node counts as gone.
        own suspect_grace: Duration = Duration::from_secs(1);
        /// The times of this node's registry entries follow the clock of another node that is ahead by at most so much.
        /// The node does not follow a clock that is further ahead; it only counts the difference.
        own clock_drift_max: Duration = Duration::from_secs(10);
    }
}

impl ClusterSettings {
    /// Whether the node is part of a cluster.
    pub fn is_on(&self) -> bool {
        !self.engine.is_empty()
    }
}
