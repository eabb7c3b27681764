//! Configuration keys on the command line.

use std::net::IpAddr;

use super::environment::named_tables;
use super::tree::{ConfigNode, ConfigValue, Location};
use crate::keys::LISTS;

/// The flags of the command line that set a configuration key. `None` = the flag is absent.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The value of `--address`, for `http_server.address`.
    pub address: Option<IpAddr>,
    /// The value of `--port`, for `http_server.port`.
    pub port: Option<u16>,
    /// The value of `--log-level`, for `log.level`.
    pub log_level: Option<String>,
    /// The value of `--shards`, for `node.shards`.
    pub shards: Option<u16>,
    /// Paths and values of other keys, as in `--health.enabled true`.
    pub keys: Vec<(String, String)>,
}

/// Overrides all other values with those of the flags.
pub(crate) fn apply(flags: &Flags, tree: &mut ConfigNode) {
    for (path, value) in &flags.keys {
        let location = Location::Variable(format!("--{path}"));
        let list = if LISTS.iter().any(|(list, _)| list == path) {
            named_tables(value, &location, tree.get(path))
        } else {
            None
        };
        tree.set(path, list.unwrap_or(ConfigNode { location, value: ConfigValue::Text(value.clone()) }));
    }
    let mut set = |path, flag, value| {
        if let Some(value) = value {
            tree.set(path, ConfigNode { location: Location::Flag(flag), value });
        }
    };
    set("http_server.address", "--address", flags.address.map(|address| ConfigValue::Text(address.to_string())));
    set("http_server.port", "--port", flags.port.map(|port| ConfigValue::Integer(port.into())));
    set("log.level", "--log-level", flags.log_level.clone().map(ConfigValue::Text));
    set("node.shards", "--shards", flags.shards.map(|shards| ConfigValue::Integer(shards.into())));
}
