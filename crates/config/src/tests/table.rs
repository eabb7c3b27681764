//! The table of keys against the settings that they fill.

use serde::de::DeserializeOwned;

use crate::keys::{KEYS, OPTIONS, SCOPE_OPTIONS, ValueKind};
use crate::*;

/// What `deny_unknown_fields` says it would have taken, from serde's own words.
fn fields<T: DeserializeOwned>() -> Vec<String> {
    let error = serde_json::from_str::<T>(r#"{"?": 0}"#).err().expect("there is no such field").to_string();
    let (_, list) = error.split_once("expected ").expect("the fields are listed");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_field_of_the_settings_has_a_key() {
    use touchline_engine::directory::ScopeOptions;
    use touchline_engine::*;
    let documented = |section: &str| -> Vec<String> {
        let mut names: Vec<String> = KEYS
            .iter()
            .filter_map(|key| key.path.strip_prefix(section)?.strip_prefix('.'))
            .map(|rest| rest.split('.').next().unwrap_or(rest).to_owned())
            .collect();
        names.sort();
        names.dedup();
        names
    };
    let sections = [
        ("http_server", fields::<HttpServerSettings>()),
        ("http_api", fields::<HttpApiSettings>()),
        ("client", fields::<ClientSettings>()),
        ("client.token", fields::<TokenSettings>()),
        ("client.subscription_token", fields::<SubscriptionTokenSettings>()),
        ("client.subscribe_to_user_personal_channel", fields::<PersonalChannel>()),
        ("cluster", fields::<ClusterSettings>()),
        ("websocket", fields::<WebSocketSettings>()),
        ("http_stream", fields::<HttpStreamSettings>()),
        ("sse", fields::<HttpStreamSettings>()),
        ("emulation", fields::<EmulationSettings>()),
        ("uni_websocket", fields::<UniWebSocketSettings>()),
        ("uni_http_stream", fields::<HttpStreamSettings>()),
        ("uni_sse", fields::<HttpStreamSettings>()),
        ("tcp", fields::<TcpSettings>()),
        ("shutdown", fields::<ShutdownSettings>()),
        ("node", fields::<NodeSettings>()),
        ("health", fields::<EndpointSettings>()),
        ("prometheus", fields::<EndpointSettings>()),
    ];
    for (section, mut fields) in sections {
        fields.sort();
        assert_eq!(documented(section), fields, "{section}");
    }
    let (mut options, mut fields) =
        (OPTIONS.iter().map(|key| key.path.to_owned()).collect::<Vec<_>>(), fields::<ChannelOptions>());
    options.sort();
    fields.sort();
    assert_eq!(options, fields);
    let (mut options, mut fields) =
        (SCOPE_OPTIONS.iter().map(|key| key.path.to_owned()).collect::<Vec<_>>(), self::fields::<ScopeOptions>());
    options.push("name".into());
    options.sort();
    fields.sort();
    assert_eq!(options, fields);
}

#[test]
fn no_two_entries_speak_of_one_key() {
    let mut paths: Vec<&str> = KEYS
        .iter()
        .map(|key| key.path)
        .chain(unsupported::UNSUPPORTED.iter().map(|unsupported_key| unsupported_key.path))
        .collect();
    paths.sort_unstable();
    assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
    for key in KEYS {
        assert!(unsupported::find(unsupported::UNSUPPORTED, key.path).is_none(), "{}", key.path);
        assert_eq!(
            matches!(key.kind, ValueKind::Secret),
            ["secret_key", "_password", "_token", ".key_pem", "nats_credentials", "nats_tls_key"]
                .iter()
                .any(|end| key.path.ends_with(end))
                && !key.path.ends_with("without_token")
                || ["http_api.key", "http_server.tls_autocert.eab_hmac_key", "store.primary.url", "store.stats.url"]
                    .contains(&key.path),
            "{}",
            key.path
        );
    }
}
