//! Why a node can't start.

use std::io;
use std::net::{IpAddr, SocketAddr};

use touchline_config::BadNetwork;

use crate::net::origin::BadOrigin;
use crate::tls::TlsError;

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The keys of an issuer cannot be fetched, which a reload has brought.
    #[error("{section}: its keys cannot be fetched; see that its endpoint answers")]
    KeysAway {
        /// The section.
        section: String,
    },
    /// An address to bind is neither an IP address nor a host that is known.
    #[error("{key}: {address:?} is neither an IP address nor a host that is known here")]
    Address {
        /// The setting.
        key: &'static str,
        /// The value that was given.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// This machine does not have the address.
    #[error("{key}: this machine can't listen on {ip}")]
    NotLocal {
        /// The setting.
        key: &'static str,
        /// The given value, resolved.
        ip: IpAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Two listeners of this node are to have one address.
    #[error("{key}: {address} can't be had beside {first}, which is {first_key}'s: give {key} a number of its own")]
    Shared {
        /// The setting of the port of the second.
        key: &'static str,
        /// Its address.
        address: SocketAddr,
        /// The setting of the port of the first.
        first_key: &'static str,
        /// Its address.
        first: SocketAddr,
    },
    /// The address can't be bound: most often another process has it.
    #[error("{key}: can't listen on {address}")]
    Bind {
        /// The setting of the port.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A path of the program around the server can't be served.
    #[error("the path {path:?} {reason}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No token could be verified by a configured key.
    #[error("{section}.{name}: {reason}")]
    Key {
        /// Section of the configuration.
        section: String,
        /// The setting in it.
        name: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// A key of the server API may use something that does not exist.
    #[error("http_api.keys[{name}].{key}: {word:?} {reason}")]
    ApiKey {
        /// The name of the key.
        name: String,
        /// The list.
        key: &'static str,
        /// What stands there.
        word: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The address of a database is not valid.
    #[error("store.{database}.url")]
    DatabaseAddress {
        /// Which database.
        database: &'static str,
        /// What is expected.
        source: touchline_store::UrlError,
    },
    /// A database can't be used.
    #[error("store.{database}.url: {source}")]
    Database {
        /// Which database.
        database: &'static str,
        /// Why.
        source: touchline_store::OpenError,
    },
    /// Both databases are one file.
    #[error("store.stats.url: the same file as store.primary.url")]
    OneFile,
    /// TLS can't be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The cluster can't be joined.
    #[error(transparent)]
    Join(#[from] touchline_cluster::JoinError),
    /// A trusted proxy is neither an address nor a network.
    #[error("http_server.trusted_proxies: {0}")]
    Proxy(#[from] BadNetwork),
    /// An allowed origin is not a valid pattern.
    #[error("client.allowed_origins: {0}")]
    Origin(#[from] BadOrigin),
    /// Proxies cannot name users in this header field.
    #[error("client.user_id_http_header: {reason}")]
    UserField {
        /// Why.
        reason: &'static str,
    },
    /// The PROXY protocol is expected, but no proxy is trusted.
    #[error("{section}.proxy_protocol needs http_server.trusted_proxies: its headers are taken from them only")]
    NoProxies {
        /// The port's section.
        section: &'static str,
    },
    /// A limit of the settings contradicts another.
    #[error("client.pong_timeout must be above zero, and shorter than every ping_interval")]
    PingInterval,
    /// A time that must not be zero is zero.
    #[error("{key}: must be above zero")]
    NoTime {
        /// The key.
        key: &'static str,
    },
    /// A scope of the registry has the name of one of the server's own.
    #[error("registry.scopes: {name:?} begins with $, as the server's own scopes do")]
    ScopeName {
        /// The name.
        name: String,
    },
    /// A hook that is switched on can't be used.
    #[error("{0}")]
    Hook(String),
    /// Events can't be told.
    #[error("{0}")]
    Events(String),
    /// A consumer that is switched on can't be used.
    #[error("consumers[{name}]: {reason}")]
    Consumer {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The server API is to be served over gRPC, which this program can't.
    #[cfg(not(feature = "grpc"))]
    #[error("{key}: this program was built without the feature `grpc`: build it with, or use HTTP")]
    NoGrpc {
        /// The key.
        key: &'static str,
    },
    /// Traces are switched on, which this program can't send.
    #[cfg(not(feature = "otel"))]
    #[error(
        "opentelemetry.enabled: this program was built without the feature `otel`: build it with, or switch it off"
    )]
    NoTraces,
    /// Traces are switched on, and a variable of the environment can't be used.
    #[cfg(feature = "otel")]
    #[error("opentelemetry.enabled: {0}")]
    Traces(String),
    /// The system refused threads, sockets or random numbers.
    #[error("the system refused {what}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// The system's reason, if it gave one.
        source: io::Error,
    },
}

impl StartError {
    /// A hook that is switched on can't be used.
    pub(crate) fn hook(fault: impl std::error::Error) -> Self {
        let cause = fault.source().map_or(String::new(), |cause| format!(": {cause}"));
        StartError::Hook(format!("{fault}{cause}"))
    }

    /// The system has no random numbers.
    pub(crate) fn no_random_numbers() -> Self {
        StartError::System { what: "random numbers", source: io::ErrorKind::Other.into() }
    }
}
