//! Every setting of a node, defined once: its type, its default, its key and its meaning. This crate reads the
//! configuration file, the environment and flags into [`Settings`]. Each fault names its place.
//!
//! The crate is not a server. It calls [`Probes`] for what only a server can check, such as whether a certificate can
//! be used.
//!
//! ```
//! use touchline_config::{Probes, Sources, read};
//!
//! let file = std::env::temp_dir().join(format!("touchline-config-page-{}.toml", std::process::id()));
//! std::fs::write(&file, "[client]\nchannel_limit = 4\n\n[http_server]\nport = 9000\n")?;
//! let variables = vec![("TOUCHLINE_CLIENT_CHANNEL_LIMIT".to_owned(), "5".to_owned())];
//!
//! let sources = Sources { file: Some(file.clone()), variables, ..Sources::default() };
//! let (configuration, _) = read(&sources, &Probes::NONE).into_result()?;
//! // The environment wins over the file.
//! assert_eq!(configuration.settings.client.channel_limit, 5);
//! assert_eq!(configuration.settings.http_server.port, 9000);
//! std::fs::remove_file(&file)?;
//!
//! let variables = vec![("TOUCHLINE_CLIENT_CHANNEL_LIMIT".to_owned(), "many".to_owned())];
//! assert!(read(&Sources { variables, ..Sources::default() }, &Probes::NONE).into_result().is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. `settings/node.rs`: the settings of a node, section by section. Each row is a setting.
//! 2. `load/mod.rs`: how sources become settings. `load/tree.rs` holds the written values with their places.
//! 3. `load/interpret.rs`: how each value is read into its field.
//! 4. `check/rules.rs`: values that contradict each other.
//!
//! The macro behind these tables is in `touchline-engine` (`setting/macros.rs`), together with the tables of the
//! engine's own settings.
//!
//! # What never happens
//!
//! - No key, default or meaning is written down twice: the reference and the JSON Schema come from the same tables.
//! - No reading stops at the first fault: it gathers all findings.
//! - No finding shows the value of a secret.
//! - Nothing here binds a port or connects to anything.

mod check;
mod configuration;
mod finding;
mod item_path;
pub mod keys;
#[cfg(test)]
mod limits;
mod live;
mod load;
mod nearest;
mod networks;
mod pem;
mod probes;
mod redact;
mod regular_file;
mod schema;
mod settings;
mod table_name;
#[cfg(test)]
mod tests;
mod unsupported;

pub use check::events::{EVENT_ENDPOINTS_MAX, event_faults, signing_key};
pub use check::hook_headers::header_faults;
pub use configuration::Configuration;
pub use finding::{Finding, Severity};
pub use live::{digest, lies_in, takes_restart};
pub use load::tree::Location;
pub use load::{
    ConfigErrors, ConfigOutcome, DevelopmentPurpose, DevelopmentSecrets, Flags, Sources, WrittenKey, changed_keys,
    process_variables, read, read_to_serve,
};
pub use nearest::nearest;
pub use networks::{BadNetwork, Networks};
pub use pem::{inline_pem, is_inline_pem};
pub use probes::Probes;
pub use redact::redact;
pub use regular_file::read_regular_file;
pub use schema::json_schema;
pub use settings::{
    AdminSettings, ApiJwksSettings, ApiKeySettings, AutocertSettings, ClientAuth, ClientUser, ClusterSettings,
    ConsumerSettings, ConsumerSources, ConsumerType, EmulationSettings, EndpointSettings, EventsSettings,
    GrpcApiSettings, HttpApiSettings, HttpServerSettings, HttpStreamSettings, InternalTlsSettings, JetStreamSettings,
    LogSettings, NamedApiKey, NamedConsumer, NamedEvents, NodeSettings, OpenTelemetrySettings, OutboxSettings,
    PrimarySettings, PublicationDataSettings, RegistrySettings, SecuritySettings, Settings, ShutdownSettings,
    StatsSettings, StoreSettings, TcpSettings, TlsSettings, UniWebSocketSettings, UserStatusSettings,
    WebSocketSettings, WhenCutOff, resolve,
};
pub use table_name::{BadTableName, TableName};
pub use touchline_engine::hook::ClientTlsSettings;
