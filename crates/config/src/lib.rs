//! Every setting of a node, said once: its type, its default, its key and what it means. What is written in a file, in
//! the environment or as a flag becomes [`Settings`]; each fault names its place.
//!
//! ```
//! use touchline_config::{Probes, Sources, read};
//!
//! let variables = vec![("TOUCHLINE_CLIENT_CHANNEL_LIMIT".to_owned(), "5".to_owned())];
//! let (configuration, _) = read(&Sources { variables, ..Sources::default() }, &Probes::NONE).into_result()?;
//! assert_eq!(configuration.settings.client.channel_limit, 5);
//! # Ok::<(), touchline_config::ConfigErrors>(())
//! ```

mod check;
mod configuration;
mod finding;
pub mod keys;
#[cfg(test)]
mod limits;
mod load;
mod nearest;
mod networks;
mod pem;
mod probes;
mod redact;
mod schema;
mod settings;
#[cfg(test)]
mod tests;
mod unsupported;

pub use configuration::Configuration;
pub use finding::{Finding, Severity};
pub use load::tree::Location;
pub use load::{
    ConfigErrors, ConfigOutcome, DevelopmentSecrets, Flags, Sources, process_variables, read, read_to_serve,
};
pub use networks::{BadNetwork, Networks};
pub use pem::{inline_pem, is_inline_pem};
pub use probes::Probes;
pub use redact::redact;
pub use schema::json_schema;
pub use settings::{
    AutocertSettings, ClientAuth, ClientUser, ClusterSettings, EmulationSettings, EndpointSettings, HttpApiSettings,
    HttpServerSettings, HttpStreamSettings, InternalTlsSettings, LogSettings, NodeSettings, Page, PrimarySettings,
    RegistrySettings, Settings, ShutdownSettings, StatsSettings, StoreSettings, TcpSettings, TlsSettings,
    UniWebSocketSettings, WebSocketSettings, resolve,
};
