//! Issuers of tokens, and keys of the server API in configurations.

use super::*;

/// The errors of a TOML text, without their places.
fn errors(text: &str) -> Vec<String> {
    let found = unplaced(&toml(text));
    found.iter().filter_map(|text| text.strip_prefix("Error ")).map(|text| text.replacen("c.toml: ", "", 1)).collect()
}

/// A provider with these fields, in TOML.
fn provider(name: &str, fields: &str) -> String {
    format!("[[client.token.jwks.providers]]\nname = \"{name}\"\nenabled = true\n{fields}\n")
}

#[test]
fn issuers_that_cannot_be_told_apart_or_verify_nothing_are_refused() {
    let on = "[client.token.jwks]\nenabled = true\n";
    let good = provider("kc", "issuer = \"https://id\"\nendpoint = \"https://id/keys\"");
    let beside = |name: &str, fields: &str| format!("{on}{good}{}", provider(name, fields));
    for (text, expected) in [
        (format!("{on}{good}"), None),
        (beside("own", "issuer = \"https://own\"\nhmac_secret_key = \"a secret that is long enough for all\""), None),
        (beside("kd", "issuer = \"https://id\"\naudience = \"a\"\nendpoint = \"https://id/keys\""), None),
        (
            beside("kd", "issuer = \"https://id\"\nendpoint = \"https://other/keys\""),
            Some("client.token.jwks.providers[kd].audience: another issuer has the same issuer and audience"),
        ),
        (
            beside("kd", "issuer = \"https://other\""),
            Some("client.token.jwks.providers[kd].endpoint: missing, and there is no key"),
        ),
        (
            beside("kd", "issuer = \"x\"\nendpoint = \"https://x/keys\"\nhmac_secret_key = \"x\""),
            Some("client.token.jwks.providers[kd].endpoint: cannot be combined with a key: keep one of them"),
        ),
        (
            beside("kd", "endpoint = \"https://x/keys\""),
            Some("client.token.jwks.providers[kd].issuer: missing; it identifies the tokens of this issuer"),
        ),
        (
            beside("kd", "issuer = \"x\"\nissuer_regex = \"x\"\nendpoint = \"https://x/keys\""),
            Some("client.token.jwks.providers[kd].issuer_regex: cannot be combined with issuer: keep one of them"),
        ),
        (
            beside("k d", "issuer = \"x\"\nendpoint = \"https://x/keys\""),
            Some("client.token.jwks.providers[1].name: expected two or more of letters, digits and \"_\""),
        ),
        (
            beside("kc", "issuer = \"x\"\nendpoint = \"https://x/keys\""),
            Some("client.token.jwks.providers[kc].name: used twice"),
        ),
        (on.to_owned(), Some("client.token.jwks.providers: none is enabled, so no token could be verified")),
        (
            format!("[client.token]\naudience = \"fans\"\n{on}{good}"),
            Some("client.token.audience: has no effect, because client.token.jwks is enabled: set it in its providers"),
        ),
        (
            format!("[client.token]\njwks_public_endpoint = \"https://x\"\n{on}{good}"),
            Some("client.token.jwks_public_endpoint: cannot be combined with client.token.jwks: keep one of them"),
        ),
        (
            "client.token = {audience = \"a\", audience_regex = \"a\"}".to_owned(),
            Some("client.token.audience_regex: cannot be combined with audience: keep one of them"),
        ),
        (
            "client.token.user_id_claim = \"user-id\"".to_owned(),
            Some("client.token.user_id_claim: must be the name of a claim, of letters and \"_\""),
        ),
        (
            "client.subscription_token = {enabled = true, issuer = \"a\", issuer_regex = \"a\"}".to_owned(),
            Some("client.subscription_token.issuer_regex: cannot be combined with issuer: keep one of them"),
        ),
    ] {
        assert_eq!(errors(&text), expected.into_iter().collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn a_key_that_does_nothing_is_told() {
    let secret = "hmac_secret_key = \"a secret that is long enough for all\"";
    for (text, expected) in [
        (
            format!("[client.token]\n{secret}\njwks_public_endpoint = \"https://id/keys\""),
            "Warning client.token: keys in this section have no effect beside those of a JSON Web Key Set",
        ),
        (
            "[[client.token.jwks.providers]]\nname = \"kc\"".to_owned(),
            "Warning client.token.jwks.providers: have no effect while client.token.jwks.enabled is false",
        ),
        (
            format!("[client.token]\n{secret}\nhmac_previous_secret_key_valid_until = 1764010800000"),
            "Warning client.token.hmac_previous_secret_key_valid_until: is after the year 5000; \
             the time is in seconds, not milliseconds",
        ),
    ] {
        let found: Vec<String> = unplaced(&toml(&text)).iter().map(|text| text.replacen("c.toml: ", "", 1)).collect();
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn where_the_source_of_keys_is_not_proven_there_is_a_warning() {
    let endpoint = |more: &str| format!("client.token = {{jwks_public_endpoint = {more}}}");
    let plain = "insecure_skip_jwks_endpoint_safety_check = true";
    let provider = provider("kc", "issuer = \"i\"\nendpoint = \"https://id/keys\"\ntls.insecure_skip_verify = true");
    let api = "enabled = true, scope = \"live\", endpoint = \"https://id/keys\"";
    for (text, expected) in [
        (endpoint("\"https://id/keys\""), None),
        (endpoint(&format!("\"http://127.0.0.1:80/keys\", {plain}")), None),
        (endpoint(&format!("\"http://id/keys\", {plain}")), Some("client.token.jwks_public_endpoint: is http://")),
        (
            format!("[client.token.jwks]\nenabled = true\n{provider}"),
            Some("client.token.jwks.providers[kc].tls.insecure_skip_verify: an attacker"),
        ),
        (
            format!("http_api.jwks = {{{api}, tls.insecure_skip_verify = true}}"),
            Some("http_api.jwks.tls.insecure_skip_verify: an attacker"),
        ),
    ] {
        let found = unplaced(&toml(&text));
        let warned = found.iter().filter_map(|text| text.strip_prefix("Warning ")).collect::<Vec<_>>();
        let is_told = warned.iter().any(|text| expected.is_some_and(|expected| text.contains(expected)));
        assert!(
            is_told == expected.is_some() && !warned.iter().any(|text| text.contains("forge tokens") != is_told),
            "{text} {found:?}"
        );
    }
}

#[test]
fn a_secret_whose_time_is_over_is_no_key() {
    let text = |more: &str| format!("[client.token]\nhmac_previous_secret_key = \"{}\"\n{more}", "x".repeat(32));
    let told = "client.token.hmac_previous_secret_key: its time (hmac_previous_secret_key_valid_until) is over, \
                and there is no other key";
    let now = format!("hmac_secret_key = \"{}\"\n", "y".repeat(32));
    for (more, expected) in [
        ("hmac_previous_secret_key_valid_until = 1764010800".to_owned(), Some(told)),
        ("hmac_previous_secret_key_valid_until = 99999999999".to_owned(), None),
        (String::new(), None),
        (format!("{now}hmac_previous_secret_key_valid_until = 1764010800"), None),
    ] {
        assert_eq!(errors(&text(&more)), expected.into_iter().collect::<Vec<_>>(), "{more}");
    }
}

#[test]
fn tokens_of_clients_are_no_keys_of_the_server_api() {
    let api = |more: &str| format!("[http_api.jwks]\nenabled = true\nendpoint = \"https://id/keys\"\n{more}\n");
    let client = |more: &str| format!("[client.token]\njwks_public_endpoint = \"https://id/keys\"\n{more}\n");
    let several = "[client.token.jwks]\nenabled = true\n".to_owned()
        + &provider("kc", "issuer = \"i\"\naudience = \"live\"\nendpoint = \"https://id/keys\"");
    let told = |section: &str| {
        format!(
            "http_api.jwks: accepts every token of {section}, so every client could use the server API; \
             set scope, or an audience that client tokens do not have"
        )
    };
    for (text, expected) in [
        (api("audience = \"live\"") + &client("audience = \"live\""), Some(told("client.token"))),
        (api("audience = \"live\"") + &several, Some(told("client.token.jwks.providers[kc]"))),
        (api("audience = \"api\"") + &client("audience = \"live\""), None),
        (api("audience = \"api\"") + &client(""), None),
        (api("audience = \"live\"\nscope = \"api\"") + &client("audience = \"live\""), None),
        (api("audience = \"live\"\nissuer = \"j\"") + &several, None),
        (api("audience = \"live\"") + &client("audience = \"live\"").replace("//id", "//other"), None),
    ] {
        assert_eq!(errors(&text), expected.into_iter().collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn what_stands_where_a_name_belongs_is_not_shown() {
    let file = File::new("c.toml", "http_api.key = \"a-key-of-twenty-bytes\"\n");
    let secret = "zT9-9f1c!a secret";
    for variable in ["TOUCHLINE_HTTP_API_KEYS", "TOUCHLINE_CLIENT_TOKEN_JWKS_PROVIDERS"] {
        for (value, expected) in [
            (secret.to_owned(), "expected a JSON list"),
            ("9f1c9f1c9f1c9f1c".to_owned(), "expected a JSON list"),
            (format!("[{{\"name\": {secret:?}, \"unknown\": 1}}]"), "[0].unknown: unknown key"),
            (format!("[{{\"name\": {secret:?}}}]"), "[0].name: expected two or more of letters"),
        ] {
            let found = texts(&file.read(&[(variable, &value)]));
            assert!(found.iter().any(|text| text.contains(expected)), "{variable} {value}: {found:?}");
            assert!(!found.iter().any(|text| text.contains("9f1c")), "{found:?}");
        }
    }
}

#[test]
fn every_setting_of_tokens_is_read() {
    let text = "[client.subscription_token]\nenabled = true\nhmac_secret_key = \"now\"\n\
                hmac_previous_secret_key = \"before\"\n\
                hmac_previous_secret_key_valid_until = 1764010800\nissuer_regex = \"https://.*\"\n\
                user_id_claim = \"uid\"\nmeta_from_claim = [{key = \"tenant\", value = \"org.id\"}]\n\
                [client.subscription_token.jwks]\nproviders = [{name = \"kc\", issuer = \"i\", \
                tls = {server_name = \"n\"}, labels_from_claim = [{key = \"a\", value = \"b\"}]}]\n";
    let token = settings(toml(text)).client.subscription_token.token;
    assert_eq!((token.hmac_previous_secret_key.as_str(), token.user_id_claim.as_str()), ("before", "uid"));
    assert_eq!(token.hmac_previous_secret_key_valid_until, 1_764_010_800);
    assert!(token.issuer_regex.is_some_and(|pattern| pattern.as_str() == "https://.*"));
    assert_eq!(
        (token.meta_from_claim.0[0].key.as_str(), token.meta_from_claim.0[0].value.as_str()),
        ("tenant", "org.id")
    );
    let provider = &token.jwks.providers[0];
    assert_eq!((provider.name.as_str(), provider.options.issuer.as_str()), ("kc", "i"));
    assert_eq!(provider.options.tls.server_name, "n");
    assert_eq!(provider.options.labels_from_claim.0[0].value, "b");
}

#[test]
fn keys_of_the_server_api_have_a_name_a_secret_and_something_to_do() {
    let key = |name: &str, more: &str| format!("[[http_api.keys]]\nname = \"{name}\"\n{more}\n");
    let secret = "key = \"a-key-of-twenty-bytes\"";
    for (text, expected) in [
        (key("news", secret), None),
        (format!("{}{}", key("news", secret), key("live", "key = \"another-of-twenty-bytes\"")), None),
        (key("news", ""), Some("http_api.keys[news].key: missing")),
        (key("n-s", secret), Some("http_api.keys[0].name: expected two or more of letters, digits and \"_\"")),
        (
            key("default", secret),
            Some(
                "http_api.keys[default].name: default, grpc, insecure and jwks are the names of other callers in \
             metrics",
            ),
        ),
        (
            format!("{}{}", key("news", secret), key("live", secret)),
            Some("http_api.keys[live].key: another entry has the same key, so it would be unclear which one is meant"),
        ),
        (
            format!("[http_api]\n{secret}\n{}", key("live", secret)),
            Some("http_api.keys[live].key: another entry has the same key, so it would be unclear which one is meant"),
        ),
        (
            key("news", &format!("{secret}\noperations = []")),
            Some("http_api.keys[news].operations: empty, so the key would permit nothing; \"*\" permits all"),
        ),
        (
            key("news", &format!("{secret}\nchannels = []")),
            Some("http_api.keys[news].channels: empty, so the key would permit nothing; \"*\" permits all"),
        ),
        (
            "http_api.jwks = {enabled = true, audience = \"api\"}".to_owned(),
            Some("http_api.jwks.endpoint: missing, and http_api.jwks is enabled"),
        ),
        (
            "http_api.jwks = {enabled = true, endpoint = \"https://id/keys\"}".to_owned(),
            Some(
                "http_api.jwks: needs audience or scope: without them every token of the issuer, also those of its \
                 users, could use the server API",
            ),
        ),
        ("http_api.jwks = {enabled = true, endpoint = \"https://id/keys\", scope = \"live\"}".to_owned(), None),
    ] {
        assert_eq!(errors(&text), expected.into_iter().collect::<Vec<_>>(), "{text}");
    }
    let short = texts(&toml(&key("news", "key = \"short\"")));
    assert!(short.len() == 1 && short[0].contains("http_api.keys[news].key: shorter than 16 bytes"), "{short:?}");
}
