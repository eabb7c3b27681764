//! The process: the node itself, its log, how it stops, and the scopes of its registry.

use std::time::Duration;

use touchline_engine::directory::ScopeOptions;
use touchline_engine::hook::RegistryProxySettings;
use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

/// Bytes of memory: more than 4 GiB too.
const MEMORY: ValueKind = ValueKind::Integer(0, 1 << 50);
/// The words of `log.level`.
const LEVELS: ValueKind = ValueKind::Choice(&["none", "error", "warn", "info", "debug", "trace"]);

settings! {
    /// The node itself.
    pub struct NodeSettings {
        /// The node's name in `info`; empty is the host's name, `_` and the port.
        key name: String = "";
        /// Event loops, one thread each; 0 is as many as cores.
        own shards: usize = 0, ValueKind::Integer(0, 1024);
        /// Bytes that the node may hold for single connections: queues, answers, input that waits. From 80 % on,
        /// history and presence answer 111 and new connections get 503; beyond it the connections that hold most end
        /// with 3008. 0: a quarter of the memory that the process may use.
        own buffer_max_size: usize = 0, MEMORY;
        /// Channels with subscribers or a history that this node keeps at once, in equal parts by shard; a million of
        /// them with a short history each are about 0.9 GB. What would make one more is refused with 106. 0 is any
        /// number.
        own channel_limit: usize = 2_000_000;
        /// Publications that may wait at one shard until publishers are refused with error 111.
        own publish_backlog_max: usize = 65_536, SOME;
    }
}

settings! {
    /// How the process logs.
    #[derive(PartialEq, Eq)]
    pub struct LogSettings {
        /// How much is logged, to stderr.
        key level: String = "info", LEVELS;
        /// How logs are written.
        own format: String = "text", ValueKind::Choice(&["text", "json"]);
    }
}

settings! {
    /// How the node stops.
    pub struct ShutdownSettings {
        /// Longest time that a stop takes.
        key timeout: Duration = Duration::from_secs(30);
        /// Time over which clients are told to go, so that they don't all come back at once.
        own spread: Duration = Duration::from_secs(5);
    }
}

settings! {
    /// Names and groups of clients.
    pub struct RegistrySettings {
        /// Hooks about names.
        section proxy: RegistryProxySettings = RegistryProxySettings::default();
        /// The scopes.
        plain scopes: Vec<ScopeOptions> = Vec::new();
    }
}
