//! The settings of a node: one value, built by the command line or by the program that embeds the server.

use std::time::Duration;

use touchline_engine::hook::{HooksSettings, NamedProxy, RpcSettings};
use touchline_engine::reactions::ReactionSettings;
use touchline_engine::{ChannelSettings, ClientSettings, settings};

use super::admin::AdminSettings;
use super::cluster::ClusterSettings;
use super::consumers::NamedConsumer;
use super::events::NamedEvents;
use super::http::{EndpointSettings, GrpcApiSettings, HttpApiSettings, HttpServerSettings};
use super::opentelemetry::OpenTelemetrySettings;
use super::process::{NodeSettings, RegistrySettings, ShutdownSettings};
use super::security::SecuritySettings;
use super::store::StoreSettings;
use super::transports::{EmulationSettings, HttpStreamSettings, TcpSettings, UniWebSocketSettings, WebSocketSettings};
use super::user_status::UserStatusSettings;

settings! {
    /// The settings of one node. Sections and keys are named as in Centrifugo 6 where the concept is the same.
    pub struct Settings {
        /// The HTTP listeners.
        section http_server: HttpServerSettings = HttpServerSettings::default();
        /// The server API.
        section http_api: HttpApiSettings = HttpApiSettings::default();
        /// The server API over gRPC.
        section grpc_api: GrpcApiSettings = GrpcApiSettings::default();
        /// Connections of clients.
        section client: ClientSettings = ClientSettings::default();
        /// Channels and their namespaces.
        section channel: ChannelSettings = ChannelSettings::default();
        /// The WebSocket transport.
        section websocket: WebSocketSettings = WebSocketSettings::default();
        /// The HTTP streaming transport.
        section http_stream: HttpStreamSettings = HttpStreamSettings::at("/connection/http_stream") => with {
            enabled: "Serve HTTP streaming.";
        };
        /// The transport of server-sent events.
        section sse: HttpStreamSettings = HttpStreamSettings::at("/connection/sse") => with {
            enabled: "Serve server-sent events.";
            max_request_body_size: "Maximum body of a request that opens a stream by POST, bytes. 0: 65536.";
        };
        /// The endpoint to which clients of HTTP streaming and server-sent events send their commands.
        section emulation: EmulationSettings = EmulationSettings::default();
        /// WebSocket for clients that only listen.
        section uni_websocket: UniWebSocketSettings = UniWebSocketSettings::default();
        /// HTTP streaming for clients that only listen.
        section uni_http_stream: HttpStreamSettings = HttpStreamSettings::at("/connection/uni_http_stream") => with {
            enabled: "Serve HTTP streaming for clients that only listen.";
        };
        /// Server-sent events for clients that only listen.
        section uni_sse: HttpStreamSettings = HttpStreamSettings::at("/connection/uni_sse") => with {
            enabled: "Serve server-sent events for clients that only listen.";
            max_request_body_size: "Maximum body of a request that opens a stream by POST, bytes. 0: 65536.";
        };
        /// The transport over bare TCP: one JSON message per line.
        section tcp: TcpSettings = TcpSettings::default();
        /// How the node stops.
        section shutdown: ShutdownSettings = ShutdownSettings::default();
        /// The node itself.
        section node: NodeSettings = NodeSettings::default();
        /// Names and groups.
        section registry: RegistrySettings = RegistrySettings::default();
        /// RPCs of clients that a backend answers.
        section rpc: RpcSettings = RpcSettings::default();
        /// Limits of calls to backends.
        section hooks: HooksSettings = HooksSettings::default();
        /// Backends with a name, for hooks.
        plain proxies: Vec<NamedProxy> = Vec::new();
        /// Backends that receive lifecycle events.
        plain events: Vec<NamedEvents> = Vec::new();
        /// Consumers: sources of commands besides requests.
        plain consumers: Vec<NamedConsumer> = Vec::new();
        /// Bans: users and tokens that the nodes refuse, whatever else permits them.
        section security: SecuritySettings = SecuritySettings::default();
        /// Reactions: taps of many clients, counted per channel.
        section reactions: ReactionSettings = ReactionSettings::default();
        /// When users were connected last.
        section user_status: UserStatusSettings = UserStatusSettings::default();
        /// The cluster: how nodes find each other.
        section cluster: ClusterSettings = ClusterSettings::default();
        /// The primary database and the statistics.
        section store: StoreSettings = StoreSettings::default();
        /// The endpoint `GET /health`.
        section health: EndpointSettings = EndpointSettings::at("/health") => with {
            enabled: "`GET /health`, `/livez` and `/readyz` are served. `--dev` enables it.";
            handler_prefix: "Path of `GET /health`. It does not change the paths `/livez` and `/readyz`.";
        };
        /// The endpoint `GET /metrics`.
        section prometheus: EndpointSettings = EndpointSettings::at("/metrics") => with {
            enabled: "`GET /metrics` is served. `--dev` enables it.";
            handler_prefix: "Path of the metrics.";
        };
        /// The console of operators.
        section admin: AdminSettings = AdminSettings::default();
        /// Traces sent by OpenTelemetry.
        section opentelemetry: OpenTelemetrySettings = OpenTelemetrySettings::default();
    }
}

impl Settings {
    /// Whether a setting needs the primary database: a durable namespace, the directory of channels, an inbox, bans,
    /// durable events, durable reactions, or the last connection times of users.
    pub fn needs_primary(&self) -> bool {
        let channel = &self.channel;
        let mut options =
            channel.namespaces.iter().map(|namespace| &namespace.options).chain([&channel.without_namespace]);
        options.any(|options| options.durable || options.reactions_durable)
            || self.store.directory
            || self.stores_messages()
            || self.security.use_primary
            || self.events.iter().any(|events| events.options.durable)
            || self.user_status.enabled && self.user_status.use_primary
            || self.store.primary.is_shared()
    }

    /// The time between two pings for each transport. The name of a transport is the name of its section.
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

    /// Whether a scope has an inbox: messages are stored for names that no connection holds.
    pub fn stores_messages(&self) -> bool {
        self.registry.scopes.iter().any(|scope| scope.inbox_size > 0)
    }
}
