//! The answers of `token_check` about a token.

use serde_json::{Value, json};
use touchline_server::{ApiKeySettings, NamedApiKey};

use super::bans::{done, now_s};
use super::support::{TestServer, token, without_details};

fn check(server: &TestServer, token: &str) -> Value {
    let answer = server.api("token_check", json!({"token": token}));
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// Whether a token is accepted, and why.
fn verdict(server: &TestServer, token: &str) -> (bool, String) {
    let checked = check(server, token);
    (checked["valid"] == true, checked["words"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_good_token_is_explained() {
    let server = TestServer::start();
    let good = token(json!({"sub": "ann", "exp": 4_102_444_800_u64, "jti": "t1", "team": {"a": 1}}));
    let checked = check(&server, &good);
    assert_eq!(checked["valid"], true);
    assert_eq!(checked["words"], r#"It is accepted as a connection token of the user "ann"."#);
    assert_eq!(checked["header"], json!({"alg": "HS256", "typ": "JWT"}));
    let claims = checked["claims"].as_array().expect("a list");
    let names: Vec<_> = claims.iter().filter_map(|claim| claim["claim"].as_str()).collect();
    assert_eq!(names, ["exp", "jti", "sub", "team"]);
    assert!(claims[0]["words"].as_str().is_some_and(|words| words.starts_with("2100-01-01 00:00:00 UTC (in ")));
    assert_eq!((&claims[2]["value"], &claims[3]["value"]), (&json!("\"ann\""), &json!("{\"a\":1}")));
    let anonymous = verdict(&server, &token(json!({})));
    assert_eq!(anonymous, (true, "It is accepted as a connection token of the anonymous user.".into()));
    let of_channel = token(json!({"sub": "ann", "channel": "closed:a"}));
    let words = r#"It is accepted as a subscription token of the user "ann" for the channel "closed:a"."#;
    assert_eq!(verdict(&server, &of_channel), (true, words.into()));
}

#[test]
fn a_bad_token_is_no_error_and_the_cause_is_told() {
    let server = TestServer::start();
    let good = token(json!({"sub": "ann"}));
    let (head, _) = good.rsplit_once('.').expect("three parts");
    for (token, cause) in [
        ("x".repeat(16_384), "not a JWT"),
        ("a.b.c".into(), "not a JWT"),
        (format!("{head}.AAAA"), "signature"),
        (token(json!({"sub": "ann", "exp": now_s() - 60})), "exp of the token has passed"),
        (token(json!({"sub": "ann", "nbf": now_s() + 600})), "nbf of the token is in the future"),
        (token(json!({"sub": 7})), "sub of the token is a number"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiI0MiJ9.".into(), "alg of the token"),
    ] {
        let (is_valid, words) = verdict(&server, &token);
        assert!(!is_valid && words.starts_with("It is refused: ") && words.contains(cause), "{cause}: {words}");
        assert!(words.ends_with('.') && !words.contains("AAAA"), "{words}");
    }
    // The claims of a refused token are shown too.
    assert_eq!(check(&server, &format!("{head}.AAAA"))["claims"][0]["claim"], "sub");
    for token in ["x".repeat(16_385), String::new()] {
        let refused = without_details(server.api("token_check", json!({"token": token})));
        assert_eq!(refused["error"], json!({"code": 107, "message": "bad request", "field": "token"}));
    }
}

#[test]
fn bans_count() {
    let server = TestServer::start();
    let of = |user: &str| token(json!({"sub": user, "jti": format!("of {user}"), "iat": now_s() - 10}));
    done(&server, "block_user", json!({"user": "ann"}));
    done(&server, "revoke_token", json!({"uid": "of bob"}));
    done(&server, "invalidate_user_tokens", json!({"user": "eve"}));
    for (user, cause) in [("ann", "block_user"), ("bob", "revoke_token"), ("eve", "invalidate_user_tokens")] {
        let (is_valid, words) = verdict(&server, &of(user));
        assert!(!is_valid && words.contains(cause), "{user}: {words}");
    }
    assert!(verdict(&server, &of("joe")).0);
}

/// The operation reveals more of a token than its issuer may want, so a key that only reads may not call it.
#[test]
fn a_key_needs_the_group_of_tokens() {
    let server = TestServer::with(|settings| {
        for (name, group) in [("reader", "@read"), ("checker", "@tokens")] {
            let options = ApiKeySettings {
                key: format!("key-of-{name}"),
                operations: vec![group.to_owned()],
                channels: vec!["*".into()],
            };
            settings.http_api.keys.push(NamedApiKey { name: name.to_owned(), options });
        }
    });
    let status = |name: &str| {
        let header = format!("X-API-Key: key-of-{name}\r\n");
        server.http("POST", "/api/token_check", &header, "{\"token\":\"x\"}").0
    };
    assert_eq!((status("reader"), status("checker")), (403, 200));
}
