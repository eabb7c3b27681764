//! Every setting of a node, said once.

mod networks;
mod pem;
mod settings;

pub use networks::{BadNetwork, Networks};
pub use pem::{inline_pem, is_inline_pem};
pub use settings::{
    AutocertSettings, ClientAuth, ClientUser, ClusterSettings, EmulationSettings, EndpointSettings, HttpApiSettings,
    HttpServerSettings, HttpStreamSettings, InternalTlsSettings, NodeSettings, Page, PrimarySettings, RegistrySettings,
    Settings, ShutdownSettings, StatsSettings, StoreSettings, TcpSettings, TlsSettings, UniWebSocketSettings,
    WebSocketSettings, resolve,
};
