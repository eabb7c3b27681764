//! Settings of the process: the node, its log, how it stops, and the scopes of its registry.

use std::time::Duration;

use touchline_engine::directory::ScopeOptions;
use touchline_engine::hook::RegistryProxySettings;
use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

/// Bytes of memory. Values above 4 GiB are valid too.
const MEMORY: ValueKind = ValueKind::Integer(0, 1 << 50);
/// The values of `log.level`.
const LEVELS: ValueKind = ValueKind::Choice(&["none", "error", "warn", "info", "debug", "trace"]);

settings! {
    /// The node itself.
    pub struct NodeSettings {
        /// Name of the node in `info`. Empty: the name of the host, `_` and the port.
        key name: String = "";
        /// Number of event loops, one thread each. 0: one for each core.
        own shards: usize = 0, ValueKind::Integer(0, 1024);
        /// Bytes that the node may buffer for its connections: queues, answers, and input that waits. From 80 % on,
        /// history and presence answer 111 and new connections get 503. Beyond the limit, the connections that hold
        /// most are closed with 3008. 0: a quarter of the memory that the process may use.
        own buffer_max_size: usize = 0, MEMORY;
        /// Maximum number of channels with subscribers or a history on this node, divided equally among its shards. A
        /// million channels with a short history take about 0.9 GB. A command that would create one more channel is
        /// refused with 106. 0: no limit.
        own channel_limit: usize = 2_000_000;
        /// Publications that may wait at one shard. Further publications are refused with error 111.
        own publish_backlog_max: usize = 65_536, SOME;
    }
}

settings! {
    /// How the process logs.
    #[derive(PartialEq, Eq)]
    pub struct LogSettings {
        /// Level of the log. Logs are written to stderr.
        key level: String = "info", LEVELS;
        /// Format of the log.
        own format: String = "text", ValueKind::Choice(&["text", "json"]);
    }
}

settings! {
    /// How the node stops.
    pub struct ShutdownSettings {
        /// Maximum time that a stop takes.
        key timeout: Duration = Duration::from_secs(30);
        /// Minimum time over which a node that stops disconnects its clients, so that they do not all reconnect at
        /// once. It takes longer if the other nodes need longer to accept them, at most 0.8 of `shutdown.timeout`.
        own spread: Duration = Duration::from_secs(5);
        /// Clients per second that this node can accept from a node that stops. 0: the node divides the processor time
        /// that it has for them by the measured processor time of one client. It has a twentieth of its processors for
        /// them, or a quarter of the idle time of its processors if that is less.
        own connect_rate: usize = 0;
    }
}

settings! {
    /// Names and groups of clients.
    pub struct RegistrySettings {
        /// Hooks about registered names.
        section proxy: RegistryProxySettings = RegistryProxySettings::default();
        /// The scopes of the registry.
        plain scopes: Vec<ScopeOptions> = Vec::new();
    }
}
