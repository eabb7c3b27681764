//! Why a node can't start.

use std::io;
use std::net::{IpAddr, SocketAddr};

use touchline_config::BadNetwork;

use crate::net::origin::BadOrigin;
use crate::tls::TlsError;

/// Why a node can't start, or why a reload was refused.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The keys of an issuer that a reload has added cannot be fetched.
    #[error("{section}: its keys cannot be fetched; check that its endpoint answers")]
    KeysAway {
        /// The section of the configuration that names the issuer.
        section: String,
    },
    /// An address to bind is neither an IP address nor a known host name.
    #[error("{key}: {address:?} is neither an IP address nor a host that is known here")]
    Address {
        /// The configuration key of the address.
        key: &'static str,
        /// The value that was given.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// This machine does not have the address.
    #[error("{key}: this machine can't listen on {ip}")]
    NotLocal {
        /// The configuration key of the address.
        key: &'static str,
        /// The given address, resolved.
        ip: IpAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Two listeners of this node would have the same address.
    #[error("{key}: {address} can't be used together with {first} of {first_key}: set {key} to another port")]
    Shared {
        /// The configuration key of the second port.
        key: &'static str,
        /// The address of the second port.
        address: SocketAddr,
        /// The configuration key of the first port.
        first_key: &'static str,
        /// The address of the first port.
        first: SocketAddr,
    },
    /// The address can't be bound: most often another process uses it.
    #[error("{key}: can't listen on {address}")]
    Bind {
        /// The configuration key of the port.
        key: &'static str,
        /// The address that was to be bound.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// A path that the embedding program has added can't be served.
    #[error("the path {path:?} {reason}")]
    Path {
        /// The path, as the program gave it.
        path: String,
        /// What is wrong with the path.
        reason: &'static str,
    },
    /// A key for tokens is configured so that it could verify no token.
    #[error("{section}.{name}: {reason}")]
    Key {
        /// The section of the configuration.
        section: String,
        /// The name of the setting in the section.
        name: &'static str,
        /// What is wrong with the setting.
        reason: &'static str,
    },
    /// A key of the server API lists something that does not exist.
    #[error("http_api.keys[{name}].{key}: {word:?} {reason}")]
    ApiKey {
        /// The name of the API key.
        name: String,
        /// The list that has the wrong entry.
        key: &'static str,
        /// The wrong entry.
        word: String,
        /// What is wrong with the entry.
        reason: &'static str,
    },
    /// The URL of a database is not valid.
    #[error("store.{database}.url")]
    DatabaseAddress {
        /// Which database: `primary` or `stats`.
        database: &'static str,
        /// What the URL should be.
        source: touchline_store::UrlError,
    },
    /// A database can't be used.
    #[error("store.{database}.url: {source}")]
    Database {
        /// Which database: `primary` or `stats`.
        database: &'static str,
        /// Why the database can't be used.
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
    /// A trusted proxy cannot name users in this header field.
    #[error("client.user_id_http_header: {reason}")]
    UserField {
        /// Why the header field can't be used.
        reason: &'static str,
    },
    /// The PROXY protocol is expected, but no proxy is trusted.
    #[error("{section}.proxy_protocol needs http_server.trusted_proxies: its headers are accepted only from them")]
    NoProxies {
        /// The section of the port.
        section: &'static str,
    },
    /// The timeout for pongs is zero, or not shorter than an interval of pings.
    #[error("client.pong_timeout must be above zero, and shorter than every ping_interval")]
    PingInterval,
    /// A time that must not be zero is zero.
    #[error("{key}: must be above zero")]
    NoTime {
        /// The configuration key of the time.
        key: &'static str,
    },
    /// A scope of the registry has a name that is reserved for the server's own scopes.
    #[error("registry.scopes: {name:?} begins with $, as the server's own scopes do")]
    ScopeName {
        /// The name of the scope.
        name: String,
    },
    /// A hook that is switched on can't be used.
    #[error("{0}")]
    Hook(String),
    /// Events can't be sent as configured.
    #[error("{0}")]
    Events(String),
    /// A consumer that is switched on can't be used.
    #[error("consumers[{name}]: {reason}")]
    Consumer {
        /// The name of the consumer.
        name: String,
        /// What is wrong with the consumer.
        reason: String,
    },
    /// gRPC is configured for the server API, but this program was built without it.
    #[cfg(not(feature = "grpc"))]
    #[error("{key}: this program was built without the feature `grpc`: rebuild it with `grpc`, or use HTTP")]
    NoGrpc {
        /// The configuration key that needs gRPC.
        key: &'static str,
    },
    /// Traces are switched on, but this program was built without them.
    #[cfg(not(feature = "otel"))]
    #[error(
        "opentelemetry.enabled: this program was built without `otel`: rebuild it with this feature, or switch it off"
    )]
    NoTraces,
    /// Traces are switched on, but a variable of the environment can't be used.
    #[cfg(feature = "otel")]
    #[error("opentelemetry.enabled: {0}")]
    Traces(String),
    /// The system refused a thread, a socket or random numbers.
    #[error("the system refused {what}")]
    System {
        /// What the node asked the system for.
        what: &'static str,
        /// The system's reason, if it gave one.
        source: io::Error,
    },
}

impl StartError {
    /// Makes the error of a hook that is switched on and can't be used.
    pub(crate) fn hook(fault: impl std::error::Error) -> Self {
        let cause = fault.source().map_or(String::new(), |cause| format!(": {cause}"));
        StartError::Hook(format!("{fault}{cause}"))
    }

    /// Makes the error of a system that has no random numbers.
    pub(crate) fn no_random_numbers() -> Self {
        StartError::System { what: "random numbers", source: io::ErrorKind::Other.into() }
    }
}
