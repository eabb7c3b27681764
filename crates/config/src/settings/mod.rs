//! The settings of a node, section by section. Each `settings!` table defines a struct, its defaults and its keys.

mod addresses;
mod admin;
mod backends;
mod cluster;
mod consumers;
mod events;
mod http;
mod node;
mod opentelemetry;
mod process;
mod security;
mod store;
mod tls;
mod transports;
mod user_status;

pub use self::addresses::resolve;
pub use self::admin::AdminSettings;
pub use self::cluster::ClusterSettings;
pub use self::consumers::{
    ConsumerSettings, ConsumerSources, ConsumerType, JetStreamSettings, NamedConsumer, OutboxSettings,
    PublicationDataSettings,
};
pub use self::events::{EventsSettings, NamedEvents};
pub use self::http::{
    ApiJwksSettings, ApiKeySettings, EndpointSettings, GrpcApiSettings, HttpApiSettings, HttpServerSettings,
    NamedApiKey,
};
pub use self::node::Settings;
pub use self::opentelemetry::OpenTelemetrySettings;
pub use self::process::{LogSettings, NodeSettings, RegistrySettings, ShutdownSettings};
pub use self::security::{SecuritySettings, WhenCutOff};
pub use self::store::{PrimarySettings, StatsSettings, StoreSettings};
pub use self::tls::{AutocertSettings, ClientAuth, ClientUser, InternalTlsSettings, TlsSettings};
pub use self::transports::{
    EmulationSettings, HttpStreamSettings, TcpSettings, UniWebSocketSettings, WebSocketSettings,
};
pub use self::user_status::UserStatusSettings;
