//! Shards, HTTP, operations, metrics: the server that people embed or run.
//!
//! ```no_run
//! let mut settings = touchline_server::Settings::default();
//! settings.http_api.key = "a long secret".into();
//! settings.client.token.hmac_secret_key = "another long secret".into();
//! let running = touchline_server::Server::bind(settings)?.start()?;
//! println!("listening on {}", running.address());
//! running.stop();
//! # Ok::<(), touchline_server::StartError>(())
//! ```

mod api;
mod auth;
mod backend;
mod net;
mod node;
mod preparation;
mod registry;
mod runtime;
mod server;
mod shard;
mod tls;
mod transport;
mod trial;

pub use api::{COMMON_ERRORS, OperationDescription, OperationScope, operations};
pub use auth::{check_token, check_token_keys};
pub use preparation::{PROBES, check};
pub use server::{Running, Server, StartError};
pub use tls::{TlsError, read_pem};
pub use touchline_config::{
    AutocertSettings, BadNetwork, ClientAuth, ClientUser, ClusterSettings, EmulationSettings, EndpointSettings,
    HttpApiSettings, HttpServerSettings, HttpStreamSettings, InternalTlsSettings, NodeSettings, Page, PrimarySettings,
    RegistrySettings, Settings, ShutdownSettings, StoreSettings, TcpSettings, TlsSettings, UniWebSocketSettings,
    WebSocketSettings, is_inline_pem,
};
pub use touchline_engine::directory::{ConflictPolicy, ScopeOptions};
pub use touchline_engine::{ChannelOptions, ChannelSettings, ClientSettings, Namespace};
pub use touchline_engine::{PersonalChannel, RefusalReport, SubscriptionTokenSettings, TokenError, TokenSettings};
pub use trial::try_token;

/// The version of this server, as clients and `info` see it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
