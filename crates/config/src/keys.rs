//! Every key that the server acts on, with its kind, its default and its meaning, collected from the tables of
//! settings. `docs/reference/configuration.md` is generated from these lists.

use std::sync::LazyLock;

use touchline_engine::directory::ScopeOptions;
use touchline_engine::hook::{ProxySettings, RpcOptions};
use touchline_engine::setting::SettingsTable as _;
pub use touchline_engine::setting::{Key, ValueKind};
use touchline_engine::{ChannelOptions, ProviderOptions};

use crate::configuration::Configuration;
use crate::settings::{ApiKeySettings, ConsumerSettings, EventsSettings};

/// All keys outside lists, by their whole path.
pub static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| Configuration::default().keys());

/// Options of channels: under `channel.without_namespace`, and in each of `channel.namespaces`.
pub static OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| ChannelOptions::default().keys());

/// Options of a scope of the registry, in each of `registry.scopes`.
pub static SCOPE_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| ScopeOptions::default().keys());

/// Options of a backend, in each of `proxies`.
pub static PROXY_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| ProxySettings::default().keys());

/// Options of methods, in each of `rpc.namespaces`.
pub static RPC_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| RpcOptions::default().keys());

/// Options of an issuer of tokens, in each of `client.token.jwks.providers`.
pub static PROVIDER_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| ProviderOptions::default().keys());

/// Options of a key of the server API, in each of `http_api.keys`.
pub static API_KEY_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| ApiKeySettings::default().keys());

/// Options of a backend that receives lifecycle events, in each of `events`.
pub static EVENT_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| EventsSettings::default().keys());
/// Options of a consumer, in each of `consumers`.
pub static CONSUMER_OPTIONS: LazyLock<Vec<Key>> = LazyLock::new(|| ConsumerSettings::default().keys());

/// The lists of named tables, and the options of their tables.
pub static LISTS: [(&str, &LazyLock<Vec<Key>>); 9] = [
    (NAMESPACES, &OPTIONS),
    (SCOPES, &SCOPE_OPTIONS),
    (PROXIES, &PROXY_OPTIONS),
    (RPC_NAMESPACES, &RPC_OPTIONS),
    (EVENTS, &EVENT_OPTIONS),
    (API_KEYS, &API_KEY_OPTIONS),
    (CONSUMERS, &CONSUMER_OPTIONS),
    (TOKEN_PROVIDERS, &PROVIDER_OPTIONS),
    (SUBSCRIPTION_TOKEN_PROVIDERS, &PROVIDER_OPTIONS),
];

/// The list of backends that receive lifecycle events.
pub const EVENTS: &str = "events";
/// The list of keys of the server API.
pub const API_KEYS: &str = "http_api.keys";
/// The list of consumers.
pub const CONSUMERS: &str = "consumers";
/// The list of issuers of connection tokens.
pub const TOKEN_PROVIDERS: &str = "client.token.jwks.providers";
/// The list of issuers of subscription tokens, if these have their own settings.
pub const SUBSCRIPTION_TOKEN_PROVIDERS: &str = "client.subscription_token.jwks.providers";
/// The list of backends that have a name.
pub const PROXIES: &str = "proxies";
/// The list of namespaces of methods.
pub const RPC_NAMESPACES: &str = "rpc.namespaces";
/// The list of scopes of the registry.
pub const SCOPES: &str = "registry.scopes";
/// The list of channel namespaces.
pub const NAMESPACES: &str = "channel.namespaces";
/// The options of channels without a namespace.
pub const WITHOUT_NAMESPACE: &str = "channel.without_namespace";

/// The key with this path in a table. `None` = the table has no such key.
pub fn find<'k>(keys: &'k [Key], path: &str) -> Option<&'k Key> {
    keys.iter().find(|key| key.path == path)
}

/// Whether the path is a section, so that some key or list is below it.
pub(crate) fn is_section(path: &str) -> bool {
    let lies_beneath = |key: &str| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().any(|key| lies_beneath(&key.path))
        || LISTS.iter().any(|(list, _)| lies_beneath(list))
        || path == WITHOUT_NAMESPACE
}

/// Every path that a configuration may contain, for suggestions.
pub(crate) fn paths() -> Vec<String> {
    let options = OPTIONS.iter().map(|option| format!("{WITHOUT_NAMESPACE}.{}", option.path));
    let of_lists =
        LISTS.iter().flat_map(|(list, options)| options.iter().map(move |key| format!("{list}[].{}", key.path)));
    let sections = KEYS.iter().filter_map(|key| key.path.rsplit_once('.')).map(|(section, _)| section.to_owned());
    let mut all: Vec<String> =
        KEYS.iter().map(|key| key.path.clone()).chain(options).chain(of_lists).chain(sections).collect();
    all.extend(LISTS.iter().map(|(list, _)| (*list).to_owned()).chain([WITHOUT_NAMESPACE.to_owned()]));
    all
}
