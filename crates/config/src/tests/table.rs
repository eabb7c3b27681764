//! The table of keys compared with the settings that the keys set.

use touchline_engine::directory::ScopeOptions;
use touchline_engine::hook::{ProxySettings, RpcOptions};
use touchline_engine::setting::{SettingsTable, WrittenValue};
use touchline_engine::{ChannelOptions, ProviderOptions};

use crate::keys::{
    API_KEY_OPTIONS, CONSUMER_OPTIONS, EVENT_OPTIONS, KEYS, Key, OPTIONS, PROVIDER_OPTIONS, PROXY_OPTIONS, RPC_OPTIONS,
    SCOPE_OPTIONS, ValueKind,
};
use crate::*;

/// A value that differs from the key's default, as a configuration contains it.
fn other_than_default(key: &Key) -> String {
    match key.kind {
        ValueKind::Boolean => (key.default == "false").to_string(),
        ValueKind::Integer(_, most) | ValueKind::Optional(_, most) => most.to_string(),
        ValueKind::Duration => "7h".to_owned(),
        ValueKind::Path => "/elsewhere".to_owned(),
        ValueKind::Choice(words) => {
            (*words.iter().find(|word| **word != key.default && !word.is_empty()).expect("two words")).to_owned()
        }
        ValueKind::Text | ValueKind::Secret | ValueKind::Pem | ValueKind::Pattern | ValueKind::Texts => {
            "something-else".to_owned()
        }
        ValueKind::StringMap => r#"{"a":"b"}"#.to_owned(),
        ValueKind::Buckets => r#"[{"interval":"1s","rate":7}]"#.to_owned(),
        ValueKind::Overrides(name) => {
            format!(r#"[{{"buckets":[{{"interval":"1s","rate":7}}],"enabled":true,"{name}":"one"}}]"#)
        }
        ValueKind::OverrideTable => r#"{"one":{"buckets":[{"interval":"1s","rate":7}],"enabled":true}}"#.to_owned(),
        ValueKind::Transforms => {
            r#"[{"status_code":404,"to_error":{"code":404,"message":"gone","temporary":false}}]"#.to_owned()
        }
        ValueKind::ClaimPaths => r#"[{"key":"tenant","value":"org.id"}]"#.to_owned(),
    }
}

/// Sets every key of a table to another value, and back to the default that the table names. Each key must set its own
/// field and no other field. In the end the fields must have their first values.
fn each_key_sets_its_own_field(table: &mut dyn SettingsTable, expected: usize) {
    let defaults = table.keys();
    assert_eq!(defaults.len(), expected);
    let mut write = |path: &str, text: &str| {
        let set = table.set(path, &WrittenValue::Text(text)).expect("there is such a key");
        assert!(set.is_ok(), "{path} = {text}: {set:?}");
        table.keys()
    };
    for (index, key) in defaults.iter().enumerate() {
        let other = other_than_default(key);
        let changed = write(&key.path, &other);
        for (at, (before, after)) in defaults.iter().zip(&changed).enumerate() {
            let expected = if at == index { &other } else { &before.default };
            assert_eq!(&after.default, expected, "{} after {} was set", after.path, key.path);
        }
        assert_eq!(write(&key.path, &key.default), defaults, "{}", key.path);
    }
}

#[test]
fn the_documented_defaults_are_the_real_ones() {
    each_key_sets_its_own_field(&mut Configuration::default(), KEYS.len());
    each_key_sets_its_own_field(&mut ChannelOptions::default(), OPTIONS.len());
    each_key_sets_its_own_field(&mut ScopeOptions::default(), SCOPE_OPTIONS.len());
    each_key_sets_its_own_field(&mut ProxySettings::default(), PROXY_OPTIONS.len());
    each_key_sets_its_own_field(&mut RpcOptions::default(), RPC_OPTIONS.len());
    each_key_sets_its_own_field(&mut ProviderOptions::default(), PROVIDER_OPTIONS.len());
    each_key_sets_its_own_field(&mut ApiKeySettings::default(), API_KEY_OPTIONS.len());
    each_key_sets_its_own_field(&mut EventsSettings::default(), EVENT_OPTIONS.len());
    each_key_sets_its_own_field(&mut ConsumerSettings::default(), CONSUMER_OPTIONS.len());
}

#[test]
fn no_debugger_is_shown_a_secret() {
    let mut configuration = Configuration::default();
    for key in KEYS.iter().filter(|key| matches!(key.kind, ValueKind::Secret | ValueKind::Pem)) {
        let set = configuration.set(&key.path, &WrittenValue::Text("tops3cret"));
        assert!(set.is_some_and(|set| set.is_ok()), "{}", key.path);
    }
    let urls = configuration.set("cluster.nats_url", &WrittenValue::Text("nats://me:tops3cret@a"));
    assert!(urls.is_some_and(|set| set.is_ok()));
    let headers = WrittenValue::Text(r#"{"authorization":"tops3cret"}"#);
    assert!(configuration.set("rpc.proxy.http.static_headers", &headers).is_some_and(|set| set.is_ok()));
    let shown = format!("{configuration:?}");
    assert!(shown.contains("history_meta_ttl") && !shown.contains("tops3cret"), "{shown}");
}

#[test]
fn no_two_entries_speak_of_one_key() {
    let mut paths: Vec<&str> = KEYS
        .iter()
        .map(|key| key.path.as_str())
        .chain(unsupported::UNSUPPORTED.iter().map(|unsupported_key| unsupported_key.path))
        .collect();
    paths.sort_unstable();
    assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    for key in KEYS.iter() {
        assert!(unsupported::find(unsupported::UNSUPPORTED, &key.path).is_none(), "{}", key.path);
        assert_eq!(
            matches!(key.kind, ValueKind::Secret),
            ["secret_key", "_password", "credentials_value", "_token", ".key_pem", "nats_credentials", "nats_tls_key"]
                .iter()
                .any(|end| key.path.ends_with(end))
                && !key.path.ends_with("without_token")
                || [
                    "admin.password",
                    "admin.secret",
                    "grpc_api.key",
                    "http_api.key",
                    "http_server.tls_autocert.eab_hmac_key",
                    "store.primary.url",
                    "store.stats.url"
                ]
                .contains(&key.path.as_str()),
            "{}",
            key.path
        );
    }
}
