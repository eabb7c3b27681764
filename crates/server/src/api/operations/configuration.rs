//! The operation `configuration`.

use schemars::JsonSchema;
use serde::Serialize;
use touchline_config::keys::KEYS;
use touchline_config::{redact, takes_restart};
use touchline_protocol::Error;

use super::info::InfoRequest;
use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, RequestNode};

/// The configuration that a node uses.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ConfigurationReply {
    /// The number of the configuration: 1 at the start, plus 1 for each reload that changes it.
    generation: u64,
    /// The configured keys in their order, then the keys with default values.
    keys: Vec<ConfigurationKey>,
}

/// A configuration key with its value.
#[derive(Serialize, JsonSchema)]
struct ConfigurationKey {
    /// The name of the key, with dots.
    key: String,
    /// The value as JSON; absent = the value is a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// `true`: the value is a secret.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    secret: bool,
    /// The place that sets the value, or `default`.
    origin: String,
    /// `true`: a change takes effect only after a restart.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    restart: bool,
}

/// The operation `configuration`.
pub(crate) struct ConfigurationOperation;

impl Operation for ConfigurationOperation {
    const NAME: &'static str = "configuration";
    const SUMMARY: &'static str = "Returns the configuration that the asked node uses, without secrets";
    const RESULT: &'static str = "`generation`, `keys`, each with `key`, `value` (JSON; absent for a secret), \
                                  `origin`, `restart`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "generation": 1, "keys": [{"key": "http_server.port", "value": "8000", "origin": "default", "restart": true}]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InfoRequest;
    type Reply = ConfigurationReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<ConfigurationReply, OperationError> {
        let generation = node.generation();
        let restart = |key: &str| takes_restart(key, &generation.settings);
        let written = generation.written.iter().map(|written| {
            let secret = written.is_hidden();
            ConfigurationKey {
                key: written.path.clone(),
                value: (!secret).then(|| redact(written.shown()).into_owned()),
                secret,
                origin: written.location.to_string(),
                restart: restart(&written.path),
            }
        });
        let is_written = |key: &str| generation.written.iter().any(|written| written.path == key);
        let absent = KEYS.iter().filter(|key| !is_written(&key.path)).map(|key| ConfigurationKey {
            key: key.path.clone(),
            value: Some(key.default.clone()),
            secret: false,
            origin: "default".to_owned(),
            restart: restart(&key.path),
        });
        Ok(ConfigurationReply { generation: generation.number, keys: written.chain(absent).collect() })
    }
}
