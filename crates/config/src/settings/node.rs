//! The settings of a node: one value, made by the command line or by the program that embeds the server.

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
    /// The settings of one node. Sections and keys are those of Centrifugo 6 where the concept is the same.
    pub struct Settings {
        /// The HTTP listeners.
        section http_server: HttpServerSettings = HttpServerSettings::default();
        /// The server API.
        section http_api: HttpApiSettings = HttpApiSettings::default();
        /// The server API over gRPC.
        section grpc_api: GrpcApiSettings = GrpcApiSettings::default();
        /// Client connections.
        section client: ClientSettings = ClientSettings::default();
        /// Channels and their namespaces.
        section channel: ChannelSettings = ChannelSettings::default();
        /// The WebSocket transport.
        section websocket: WebSocketSettings = WebSocketSettings::default();
        /// HTTP streaming.
        section http_stream: HttpStreamSettings = HttpStreamSettings::at("/connection/http_stream") => with {
            enabled: "Serve HTTP streaming.";
        };
        /// Server-sent events.
        section sse: HttpStreamSettings = HttpStreamSettings::at("/connection/sse") => with {
            enabled: "Serve server-sent events.";
            max_request_body_size: "Largest body of a request that opens a stream by POST, bytes; 0 is 65536.";
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
            max_request_body_size: "Largest body of a request that opens a stream by POST, bytes; 0 is 65536.";
        };
        /// Lines over bare TCP.
        section tcp: TcpSettings = TcpSettings::default();
        /// How the node stops.
        section shutdown: ShutdownSettings = ShutdownSettings::default();
        /// The node itself.
        section node: NodeSettings = NodeSettings::default();
        /// Names and groups.
        section registry: RegistrySettings = RegistrySettings::default();
        /// RPCs of clients that a backend answers.
        section rpc: RpcSettings = RpcSettings::default();
        /// Hooks: what they may cost.
        section hooks: HooksSettings = HooksSettings::default();
        /// Backends that have a name.
        plain proxies: Vec<NamedProxy> = Vec::new();
        /// Backends that are told what happens.
        plain events: Vec<NamedEvents> = Vec::new();
        /// Where commands come from besides requests.
        plain consumers: Vec<NamedConsumer> = Vec::new();
        /// Bans: who is not let in, whatever else permits it.
        section security: SecuritySettings = SecuritySettings::default();
        /// Reactions of a crowd.
        section reactions: ReactionSettings = ReactionSettings::default();
        /// When users were connected last.
        section user_status: UserStatusSettings = UserStatusSettings::default();
        /// The cluster: how nodes find each other.
        section cluster: ClusterSettings = ClusterSettings::default();
        /// The databases.
        section store: StoreSettings = StoreSettings::default();
        /// `GET /health`.
        section health: EndpointSettings = EndpointSettings::at("/health") => with {
            enabled: "`GET /health`, `/livez` and `/readyz` are served. `--dev` sets it.";
            handler_prefix: "Path of `GET /health`; `/livez` and `/readyz` stay where they are.";
        };
        /// `GET /metrics`.
        section prometheus: EndpointSettings = EndpointSettings::at("/metrics") => with {
            enabled: "`GET /metrics` is served. `--dev` sets it.";
            handler_prefix: "Path of the metrics.";
        };
        /// The console.
        section admin: AdminSettings = AdminSettings::default();
        /// Traces.
        section opentelemetry: OpenTelemetrySettings = OpenTelemetrySettings::default();
    }
}

impl Settings {
    /// Whether a setting needs the primary database: a durable namespace, the directory of channels, an inbox, bans,
    /// durable events or reactions, or when users were connected last.
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
    pub fn stores_messages(&self) -> bool {
        self.registry.scopes.iter().any(|scope| scope.inbox_size > 0)
    }
}
