//! The settings of a node: one value, made by the command line or by the program that embeds the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use serde::Deserialize;
use touchline_engine::directory::ScopeOptions;
use touchline_engine::{ChannelSettings, ClientSettings, duration};

use super::tls::{AutocertSettings, InternalTlsSettings, TlsSettings};
use super::transports::{EmulationSettings, HttpStreamSettings, TcpSettings, UniWebSocketSettings, WebSocketSettings};
use crate::networks::{BadNetwork, Networks};

/// The settings of one node. Sections and keys are those of Centrifugo 6 where the concept is the same.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The HTTP listeners.
    pub http_server: HttpServerSettings,
    /// The server API.
    pub http_api: HttpApiSettings,
    /// Client connections.
    pub client: ClientSettings,
    /// Channels and their namespaces.
    pub channel: ChannelSettings,
    /// The WebSocket transport.
    pub websocket: WebSocketSettings,
    /// HTTP streaming.
    pub http_stream: HttpStreamSettings,
    /// Server-sent events.
    pub sse: HttpStreamSettings,
    /// The endpoint to which clients of HTTP streaming and server-sent events send their commands.
    pub emulation: EmulationSettings,
    /// WebSocket for clients that only listen.
    pub uni_websocket: UniWebSocketSettings,
    /// HTTP streaming for clients that only listen.
    pub uni_http_stream: HttpStreamSettings,
    /// Server-sent events for clients that only listen.
    pub uni_sse: HttpStreamSettings,
    /// Lines over bare TCP.
    pub tcp: TcpSettings,
    /// Names and groups.
    pub registry: RegistrySettings,
    /// The cluster: how nodes find each other.
    pub cluster: ClusterSettings,
    /// The databases.
    pub store: StoreSettings,
    /// How the node stops.
    pub shutdown: ShutdownSettings,
    /// The node itself.
    pub node: NodeSettings,
    /// `GET /health`.
    pub health: EndpointSettings,
    /// `GET /metrics`.
    pub prometheus: EndpointSettings,
    /// Pages served beside the endpoints, by exact path (the demo); empty in production.
    pub pages: Vec<Page>,
}

impl Settings {
    /// Whether a setting needs the primary database: a durable namespace, the directory of channels, or an inbox.
    pub fn needs_primary(&self) -> bool {
        let channel = &self.channel;
        let mut options =
            channel.namespaces.iter().map(|namespace| &namespace.options).chain([&channel.without_namespace]);
        options.any(|options| options.durable) || self.store.directory || self.keeps_letters()
    }

    /// Time between two pings on every transport, by its name, which is its section's too.
    pub fn ping_intervals(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let common = self.client.ping_interval;
        let own = [
            ("websocket", Duration::ZERO),
            ("http_stream", self.http_stream.ping_interval),
            ("sse", self.sse.ping_interval),
            ("uni_websocket", self.uni_websocket.ping_interval),
            ("uni_http_stream", self.uni_http_stream.ping_interval),
            ("uni_sse", self.uni_sse.ping_interval),
            ("tcp", self.tcp.ping_interval),
        ];
        own.into_iter().map(move |(name, own)| (name, if own.is_zero() { common } else { own }))
    }

    /// Whether messages are kept for names that no connection holds.
    fn keeps_letters(&self) -> bool {
        self.registry.scopes.iter().any(|scope| scope.inbox_size > 0)
    }
}

/// Names and groups of clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrySettings {
    /// The scopes.
    pub scopes: Vec<ScopeOptions>,
}

/// How nodes find each other.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings {
    /// `nats`, or empty: the node is alone.
    pub engine: String,
    /// The cluster's name: nodes with the same name form one cluster.
    pub name: String,
    /// Addresses of NATS servers.
    pub nats_url: Vec<String>,
    /// Try the addresses in this order, not in a random one.
    pub nats_no_randomize: bool,
    /// User and password, token or credentials (the text of a credentials file, base64 of it, or its path) for NATS;
    /// each may be empty.
    pub nats_user: String,
    /// See `nats_user`.
    pub nats_password: String,
    /// See `nats_user`.
    pub nats_token: String,
    /// See `nats_user`.
    pub nats_credentials: String,
    /// Paths of PEM files: authorities that NATS servers are trusted by instead of the system's, this node's
    /// certificate and its key.
    pub nats_tls_ca: String,
    /// See `nats_tls_ca`.
    pub nats_tls_cert: String,
    /// See `nats_tls_ca`.
    pub nats_tls_key: String,
    /// Copies of each stream of history, 1 … 5.
    pub stream_replicas: usize,
    /// Storage of streams: `file` or `memory`.
    pub stream_storage: String,
    /// Most bytes of each stream; 0 = as many as NATS allows.
    pub stream_max_bytes: u64,
    /// Time between two heartbeats of a node.
    #[serde(with = "duration")]
    pub heartbeat_interval: Duration,
    /// Silence after which a node counts as gone.
    #[serde(with = "duration")]
    pub node_timeout: Duration,
    /// How long a node must have no subscriber in NATS before it counts as gone. NATS reports a missing subscriber at
    /// once when a process has ended or lost its connection.
    #[serde(with = "duration")]
    pub suspect_grace: Duration,
    /// How far another node's clock may pull this one's stamps ahead.
    #[serde(with = "duration")]
    pub clock_drift_max: Duration,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            engine: String::new(),
            name: "touchline".into(),
            nats_url: vec!["nats://127.0.0.1:4222".into()],
            nats_no_randomize: false,
            nats_user: String::new(),
            nats_password: String::new(),
            nats_token: String::new(),
            nats_credentials: String::new(),
            nats_tls_ca: String::new(),
            nats_tls_cert: String::new(),
            nats_tls_key: String::new(),
            stream_replicas: 1,
            stream_storage: "file".into(),
            stream_max_bytes: 0,
            heartbeat_interval: Duration::from_secs(1),
            node_timeout: Duration::from_secs(4),
            suspect_grace: Duration::from_secs(1),
            clock_drift_max: Duration::from_secs(10),
        }
    }
}

impl ClusterSettings {
    /// Whether the node is part of a cluster.
    pub fn is_on(&self) -> bool {
        !self.engine.is_empty()
    }
}

impl std::fmt::Debug for ClusterSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Addresses may hold passwords, and the rest are secrets.
        f.debug_struct("ClusterSettings")
            .field("engine", &self.engine)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The databases.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSettings {
    /// The database of what must not be lost. It is opened when a setting needs it.
    pub primary: PrimarySettings,
    /// The database of statistics: large, and it may be lost.
    pub stats: StatsSettings,
    /// Whether there is a directory of channels, with a description of each.
    pub directory: bool,
    /// Migrate the schemas at the start.
    pub migrate: bool,
    /// How long a batch of durable publications waits for more before it is committed.
    #[serde(with = "duration")]
    pub commit_delay: Duration,
    /// Publications in one commit, at most.
    pub commit_size: usize,
    /// Publications that may wait for a commit; more are refused with error 111.
    pub commit_queue: usize,
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            primary: PrimarySettings::default(),
            stats: StatsSettings::default(),
            directory: false,
            migrate: true,
            commit_delay: Duration::ZERO,
            commit_size: 1_000,
            commit_queue: 65_536,
        }
    }
}

/// The database of what must not be lost.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrimarySettings {
    /// `sqlite:PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`.
    pub url: String,
    /// Authorities that PostgreSQL is trusted by besides the system's: PEM, base64 of it, or the path of a file; empty
    /// = none.
    pub tls_ca: String,
    /// How long PostgreSQL may take to answer.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Reads that run at a time.
    pub pool_size: usize,
    /// Reads that may wait; more are refused.
    pub read_queue: usize,
}

impl Default for PrimarySettings {
    fn default() -> Self {
        PrimarySettings {
            url: "sqlite:data/primary.db".into(),
            tls_ca: String::new(),
            timeout: Duration::from_secs(10),
            pool_size: 4,
            read_queue: 65_536,
        }
    }
}

impl std::fmt::Debug for PrimarySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("PrimarySettings").field("pool_size", &self.pool_size).finish_non_exhaustive()
    }
}

/// The database of statistics: large, and it may be lost.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatsSettings {
    /// Whether there are statistics.
    pub enabled: bool,
    /// See [`PrimarySettings::url`].
    pub url: String,
    /// See [`PrimarySettings::tls_ca`].
    pub tls_ca: String,
    /// How long PostgreSQL may take to answer.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Queries that run at a time.
    pub pool_size: usize,
    /// Rows that may wait to be written; more are dropped.
    pub queue_size: usize,
    /// How long rows are kept.
    #[serde(with = "duration")]
    pub retention: Duration,
    /// Events that one connection may report in a second; 0 = none.
    pub track_rate: u32,
    /// Largest properties of such an event, bytes of JSON.
    pub track_size: usize,
}

impl Default for StatsSettings {
    fn default() -> Self {
        StatsSettings {
            enabled: false,
            url: "sqlite:data/stats.db".into(),
            tls_ca: String::new(),
            timeout: Duration::from_secs(30),
            pool_size: 2,
            queue_size: 131_072,
            retention: Duration::from_secs(30 * 24 * 3_600),
            track_rate: 10,
            track_size: 1_024,
        }
    }
}

impl std::fmt::Debug for StatsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The address may hold a password.
        f.debug_struct("StatsSettings")
            .field("enabled", &self.enabled)
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

/// The HTTP listeners.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpServerSettings {
    /// Address or host name to bind; empty = every address.
    pub address: String,
    /// Port to bind; 0 = any free one.
    pub port: u16,
    /// Address or host name of the internal port; empty = that of `address`.
    pub internal_address: String,
    /// A port of its own for the server API, metrics and probes, which then are not on `port`, where clients are; 0 =
    /// any free one. None = they share `port`, unless `internal_address` differs from `address`.
    pub internal_port: Option<u16>,
    /// Hosts that requests may name, with a port or without; `*` stands for any run of characters. Empty = any. An IP
    /// address is always allowed: no foreign name can resolve to a page that is opened by an address.
    pub allowed_hosts: Vec<String>,
    /// Connections that the kernel queues until the node accepts them.
    pub backlog: u32,
    /// Time a client has to send the head of a request.
    #[serde(with = "duration")]
    pub header_timeout: Duration,
    /// Time a client has to send the body of a request, and the server to answer it.
    #[serde(with = "duration")]
    pub request_timeout: Duration,
    /// Time that a connection may wait between two requests.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// Addresses and networks (`10.0.0.0/8`) of proxies that the node trusts to report the address of a client: by
    /// `X-Forwarded-For`, by `Forwarded`, or by the PROXY protocol. For HTTP and for lines.
    pub trusted_proxies: Vec<String>,
    /// Every connection begins with a header of the PROXY protocol, version 1 or 2, of one of these proxies.
    pub proxy_protocol: bool,
    /// TLS handshakes that this node begins in a second, on all ports; more wait in the kernel. 0 = any number.
    pub tls_handshake_rate_limit: usize,
    /// TLS on this port.
    pub tls: TlsSettings,
    /// TLS with certificates from an ACME authority.
    pub tls_autocert: AutocertSettings,
    /// TLS on the internal port, if it differs from that of `port`.
    pub internal_tls: InternalTlsSettings,
    /// The internal port does not speak the TLS of `port`.
    pub tls_external: bool,
}

impl Default for HttpServerSettings {
    fn default() -> Self {
        HttpServerSettings {
            address: String::new(),
            port: 8000,
            internal_address: String::new(),
            internal_port: None,
            allowed_hosts: Vec::new(),
            backlog: 65_535,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            tls_handshake_rate_limit: 2_000,
            tls: TlsSettings::default(),
            tls_autocert: AutocertSettings::default(),
            internal_tls: InternalTlsSettings::default(),
            tls_external: false,
        }
    }
}

/// The server API.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpApiSettings {
    /// The secret that callers send. Empty and not `insecure`: every call is refused.
    pub key: String,
    /// No key is required. For development.
    pub insecure: bool,
    /// The API is not served at all.
    pub disabled: bool,
    /// The API is on the port of clients, also when there is an internal port.
    pub external: bool,
    /// Largest request body, bytes.
    pub body_size_limit: usize,
}

impl Default for HttpApiSettings {
    fn default() -> Self {
        HttpApiSettings {
            key: String::new(),
            insecure: false,
            disabled: false,
            external: false,
            body_size_limit: 10 * 1024 * 1024,
        }
    }
}

impl std::fmt::Debug for HttpApiSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpApiSettings")
            .field("key", &if self.key.is_empty() { "unset" } else { "set" })
            .field("insecure", &self.insecure)
            .field("disabled", &self.disabled)
            .field("external", &self.external)
            .field("body_size_limit", &self.body_size_limit)
            .finish()
    }
}

/// How the node stops.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownSettings {
    /// Longest time that a stop takes.
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Time over which disconnects are spread, so that clients do not all reconnect at once.
    #[serde(with = "duration")]
    pub spread: Duration,
}

impl Default for ShutdownSettings {
    fn default() -> Self {
        ShutdownSettings { timeout: Duration::from_secs(30), spread: Duration::from_secs(5) }
    }
}

/// The node itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSettings {
    /// The node's name in `info`; empty = the host's name, `_` and the port.
    pub name: String,
    /// Event loops, one thread each; 0 = as many as cores.
    pub shards: usize,
    /// Publications that may wait at one shard before publishers are refused with 111.
    pub publish_backlog_max: usize,
    /// Bytes that the node may hold for single connections: queues, answers, input that waits; 0 = a quarter of the
    /// memory that it may use.
    pub buffer_max_size: usize,
    /// Channels with subscribers or a history that this node keeps at once, in equal parts by shard. A request that
    /// would create one more is refused with 106. 0 = any number.
    pub channel_limit: usize,
}

impl Default for NodeSettings {
    fn default() -> Self {
        NodeSettings {
            name: String::new(),
            shards: 0,
            publish_backlog_max: 65_536,
            buffer_max_size: 0,
            channel_limit: 2_000_000,
        }
    }
}

/// An endpoint that can be switched on.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointSettings {
    /// Served or not.
    pub enabled: bool,
    /// Its path; empty = the default one (`/health`, `/metrics`).
    pub handler_prefix: String,
}

/// A static page.
#[derive(Debug, Clone)]
pub struct Page {
    /// The exact path of the request.
    pub path: String,
    /// Media type, with charset.
    pub content_type: &'static str,
    /// The content of the page.
    pub body: bytes::Bytes,
}

impl HttpServerSettings {
    /// The address to bind.
    ///
    /// # Errors
    /// When `address` is neither an IP address nor a known host name.
    pub fn bind_address(&self) -> io::Result<IpAddr> {
        resolve(&self.address)
    }

    /// The address (as the settings give it) and the number of the internal port, if there is one.
    pub fn internal(&self) -> Option<(&str, u16)> {
        let address = if self.internal_address.is_empty() { &self.address } else { &self.internal_address };
        let port = self.internal_port.unwrap_or(self.port);
        let is_same = *address == self.address && (self.internal_port.is_none() || port == self.port && port != 0);
        (!is_same).then_some((address, port))
    }

    /// The address of the internal port, if there is one.
    ///
    /// # Errors
    /// As [`HttpServerSettings::bind_address`].
    pub fn internal_bind_address(&self) -> io::Result<Option<SocketAddr>> {
        self.internal().map(|(address, port)| resolve(address).map(|ip| SocketAddr::new(ip, port))).transpose()
    }

    /// Whether the internal port speaks TLS.
    pub fn has_internal_tls(&self) -> bool {
        self.internal_tls.enabled || !self.tls_external && (self.tls.enabled || self.tls_autocert.enabled)
    }

    /// The first of `trusted_proxies` that is neither an address nor a network, if there is one.
    pub fn bad_proxy(&self) -> Option<BadNetwork> {
        Networks::parse(&self.trusted_proxies).err()
    }
}

/// An address to bind. Empty = every address, IPv6 and IPv4; where the system has no IPv6, every IPv4 address. For a
/// host with several addresses it is the first IPv4 address, else the first.
///
/// # Errors
/// When the text is neither an IP address nor a known host name.
pub fn resolve(text: &str) -> io::Result<IpAddr> {
    if text.is_empty() {
        let has_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
        return Ok(if has_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok(address);
    }
    let found: Vec<IpAddr> = (text, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
    found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}
