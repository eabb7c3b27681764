//! What a node can be told, section by section.

mod node;
mod tls;
mod transports;

pub use self::node::{
    ClusterSettings, EndpointSettings, HttpApiSettings, HttpServerSettings, NodeSettings, Page, PrimarySettings,
    RegistrySettings, Settings, ShutdownSettings, StatsSettings, StoreSettings, resolve,
};
pub use self::tls::{AutocertSettings, ClientAuth, ClientUser, InternalTlsSettings, TlsSettings};
pub use self::transports::{
    EmulationSettings, HttpStreamSettings, TcpSettings, UniWebSocketSettings, WebSocketSettings,
};
