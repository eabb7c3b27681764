//! Tokens that are verified with the keys of issuers: every algorithm, several issuers, rotation, endpoints that fail.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ClaimPath, ClaimPaths, ProviderOptions, Regex, Settings, TokenProvider};
use touchline_testkit::websocket::{Heard, WebSocket};
use touchline_testkit::{until, until_eq};

use super::backend::{Answer, Backend};
use super::issuer::{KeyEndpoint, Signer, hmac_token};
use super::support::{SECRET, TestServer, token};

/// The shortest time between two fetches of a set.
const FETCH_INTERVAL: Duration = Duration::from_secs(10);

/// The result of a connect with a token: the user, or the number of the refusal.
#[derive(Debug, PartialEq)]
enum Outcome {
    In,
    Error(u64, bool),
    Close(u16),
}

fn connect(server: &TestServer, token: &str) -> Outcome {
    let mut client = server.websocket();
    client.send_json(json!({"id": 1, "connect": {"token": token}}));
    match client.next_message() {
        Ok(reply) if reply["connect"].is_object() => Outcome::In,
        Ok(reply) => Outcome::Error(
            reply["error"]["code"].as_u64().expect("a number"),
            reply["error"]["temporary"].as_bool().unwrap_or_default(),
        ),
        Err(Heard::Close(code, _)) => Outcome::Close(code),
        Err(other) => panic!("{other:?}"),
    }
}

const TEMPORARY: Outcome = Outcome::Error(100, true);
const FINAL: Outcome = Outcome::Close(3500);

/// A server that verifies connection tokens by the keys of an endpoint. Its clock stands still.
fn server(endpoint: &KeyEndpoint) -> TestServer {
    stopped(|settings| settings.client.token.jwks_public_endpoint = endpoint.url())
}

fn stopped(change: impl FnOnce(&mut Settings)) -> TestServer {
    let server = TestServer::timed(change);
    server.clock().stop();
    server
}

/// Lets the endpoint be asked once more, and waits until this holds.
#[track_caller]
fn until_asked(server: &TestServer, what: &str, is_true: impl FnMut() -> bool) {
    server.clock().advance(FETCH_INTERVAL);
    until(what, is_true);
}

fn with(mut json: Value, key: &str, value: Value) -> Value {
    json[key] = value;
    json
}

#[test]
fn every_algorithm_of_a_set_is_verified_and_one_bad_key_does_not_spoil_it() {
    let signers = [
        Signer::rsa("rsa"),
        Signer::elliptic("p256", "ES256"),
        Signer::elliptic("p384", "ES384"),
        Signer::elliptic("p521", "ES512"),
        Signer::edwards("ed"),
    ];
    let [for_encryption, for_deriving, only_rs512, said_sig] = ["enc", "derive", "rs512", "sig"].map(Signer::rsa);
    let mut keys: Vec<Value> = signers.iter().map(Signer::jwk).collect();
    keys.extend([
        with(for_encryption.jwk(), "use", json!("enc")),
        with(for_deriving.jwk(), "key_ops", json!(["deriveKey"])),
        with(only_rs512.jwk(), "alg", json!("RS512")),
        with(with(said_sig.jwk(), "use", json!("sig")), "key_ops", json!(["verify"])),
        json!({"kty": "oct", "kid": "oct", "k": "c2VjcmV0"}),
        json!({"kty": "RSA", "kid": "broken", "n": "!!", "e": "AQAB"}),
        json!({"kty": "RSA", "kid": "short", "n": "AQAB", "e": "AQAB"}),
        json!({"kty": "EC", "kid": "off", "crv": "P-256", "x": "AQAB", "y": "AQAB"}),
        json!({"kty": "AKP", "kid": "new", "alg": "ML-DSA-44", "pub": "AAAA"}),
        json!({"kty": 7}),
        json!("no key at all"),
    ]);
    let endpoint = KeyEndpoint::with(keys);
    let server = server(&endpoint);
    let claims = json!({"sub": "ann"});
    for signer in &signers {
        for alg in signer.algorithms() {
            assert_eq!(connect(&server, &signer.token_by(alg, &claims)), Outcome::In, "{alg}");
        }
    }
    assert_eq!(connect(&server, &only_rs512.token_by("RS512", &claims)), Outcome::In);
    assert_eq!(connect(&server, &said_sig.token(&claims)), Outcome::In);
    assert_eq!(endpoint.fetches(), 1, "the set is fetched once, before clients are accepted");
    until_eq(7, || server.metric("touchline_issuer_keys{section=\"client.token\"}"));
    until_eq(9, || server.metric("touchline_issuer_keys_skipped{section=\"client.token\"}"));

    let modulus = signers[0].jwk()["n"].as_str().expect("text").to_owned();
    let head = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let forged = Signer::rsa("rsa").token(&claims);
    for (name, token) in [
        ("no kid", signers[0].token_with(&json!({"alg": "RS256"}), "RS256", &claims)),
        ("alg none", signers[0].token_with(&head("none", "rsa"), "RS256", &claims)),
    ] {
        assert_eq!(connect(&server, &token), FINAL, "{name}");
    }
    // The endpoint may have replaced the key of a kid.
    let cases = [
        ("another algorithm than the key's", only_rs512.token_by("RS256", &claims)),
        ("the key of another kid", signers[0].token_with(&head("RS256", "sig"), "RS256", &claims)),
        ("an algorithm of another family", signers[0].token_with(&head("ES256", "rsa"), "RS256", &claims)),
        ("the public key as a secret", hmac_token(&head("HS256", "rsa"), modulus.as_bytes(), &claims)),
        ("a secret of the configuration", hmac_token(&head("HS256", "rsa"), SECRET.as_bytes(), &claims)),
        ("forged", forged),
    ];
    for (name, token) in &cases {
        assert_eq!(connect(&server, token), TEMPORARY, "{name}");
    }
    // Skipped keys do not belong to the set, so the set is fetched once more.
    for kid in ["enc", "derive", "oct", "broken", "short", "off", "new"] {
        let token = signers[0].token_with(&head("RS256", kid), "RS256", &claims);
        assert_eq!(connect(&server, &token), TEMPORARY, "{kid}");
    }
    assert_eq!(connect(&server, &hmac_token(&head("HS256", "oct"), b"secret", &claims)), TEMPORARY);
    for (name, token) in &cases {
        until_asked(&server, "the endpoint was asked", || connect(&server, token) != TEMPORARY);
        assert_eq!(connect(&server, token), FINAL, "{name}");
    }
}

#[test]
fn what_a_stranger_has_shown_makes_no_token_of_others_final() {
    let [first, second, stranger] = ["first", "second", "second"].map(Signer::edwards);
    let endpoint = KeyEndpoint::with(vec![first.jwk()]);
    let server = server(&endpoint);
    let claims = json!({"sub": "ann"});
    let forged = stranger.token(&claims);
    assert_eq!(connect(&server, &forged), TEMPORARY);
    until_asked(&server, "the endpoint was asked for the key", || connect(&server, &forged) == FINAL);
    endpoint.keys(vec![first.jwk(), second.jwk()]);
    let good = second.token(&claims);
    assert_eq!(connect(&server, &good), TEMPORARY, "the endpoint was not asked since this one was shown");
    until_asked(&server, "the key has come", || connect(&server, &good) == Outcome::In);
    until_asked(&server, "the stranger is refused for good", || connect(&server, &forged) == FINAL);
}

#[test]
fn a_key_that_was_replaced_under_the_same_name_is_fetched() {
    let [before, after] = ["a", "a"].map(Signer::edwards);
    let endpoint = KeyEndpoint::with(vec![before.jwk()]);
    let server = server(&endpoint);
    let [of_before, of_after] = [&before, &after].map(|signer| signer.token(&json!({"sub": "ann"})));
    assert_eq!(connect(&server, &of_before), Outcome::In);
    endpoint.keys(vec![after.jwk()]);
    assert_eq!(connect(&server, &of_after), TEMPORARY);
    until_asked(&server, "the key has come", || connect(&server, &of_after) == Outcome::In);
    assert_eq!(connect(&server, &of_before), TEMPORARY);
}

#[test]
fn keys_are_rotated_while_the_endpoint_fails_in_between_and_nobody_is_locked_out() {
    let [first, second] = ["first", "second"].map(Signer::edwards);
    let endpoint = KeyEndpoint::with(vec![first.jwk()]);
    let server = server(&endpoint);
    let [of_first, of_second] = [&first, &second].map(|signer| signer.token(&json!({"sub": "ann"})));
    assert_eq!(connect(&server, &of_first), Outcome::In);
    endpoint.answer(|| Answer::Status(500, "{}".into()));
    assert_eq!(connect(&server, &of_second), TEMPORARY, "the key may be new");
    until_asked(&server, "the endpoint was asked", || endpoint.fetches() == 2);
    until("the failure was counted", || {
        server.metric("touchline_key_fetches_total{section=\"client.token\",outcome=\"failed\"}") == 1
    });
    assert_eq!(connect(&server, &of_second), TEMPORARY, "nobody can tell yet");
    assert_eq!(connect(&server, &of_first), Outcome::In, "old keys stay");
    let (both, only_second) = (vec![first.jwk(), second.jwk()], vec![second.jwk()]);
    endpoint.keys(both);
    until_asked(&server, "the new key has come", || connect(&server, &of_second) == Outcome::In);
    assert_eq!(connect(&server, &of_first), Outcome::In);
    endpoint.keys(only_second);
    let unknown = Signer::edwards("unknown").token(&json!({"sub": "ann"}));
    let asked = endpoint.fetches();
    assert_eq!(connect(&server, &unknown), TEMPORARY);
    until_asked(&server, "the set was fetched again", || {
        endpoint.fetches() > asked && connect(&server, &of_first) != Outcome::In
    });
    assert_eq!(connect(&server, &of_second), Outcome::In);
    assert_eq!(connect(&server, &unknown), FINAL, "the endpoint was asked after it had been shown");
}

#[test]
fn an_endpoint_that_fails_is_a_temporary_error_and_never_a_final_one() {
    let signer = Signer::edwards("a");
    let claims = json!({"sub": "ann"});
    let good = signer.token(&claims);
    let set = json!({"keys": [signer.jwk()]}).to_string();
    type Make = Box<dyn Fn() -> Answer + Send>;
    let redirected = KeyEndpoint::with(vec![signer.jwk()]);
    let to = redirected.url();
    let large = format!("{{\"keys\":[{}],\"padding\":\"{}\"}}", signer.jwk(), "x".repeat(10_000_000));
    let many = json!({"keys": vec![signer.jwk(); 101]}).to_string();
    let cases: Vec<(&str, Make)> = vec![
        ("500", Box::new(move || Answer::Status(500, set.clone()))),
        ("404", Box::new(|| Answer::Status(404, String::new()))),
        (
            "a redirect",
            Box::new(move || {
                Answer::Raw(format!("HTTP/1.1 302 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes())
            }),
        ),
        ("10 MB", Box::new(move || Answer::Status(200, large.clone()))),
        ("more than 100 keys", Box::new(move || Answer::Status(200, many.clone()))),
        ("no keys", Box::new(|| Answer::Json(json!({"keys": []})))),
        ("none that verifies", Box::new(|| Answer::Json(json!({"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]})))),
        ("no JSON", Box::new(|| Answer::Status(200, "<html>".into()))),
        ("another JSON", Box::new(|| Answer::Json(json!({"jwks_uri": "https://id.example"})))),
        ("a list", Box::new(|| Answer::Json(json!([])))),
        ("nothing", Box::new(|| Answer::Raw(Vec::new()))),
        ("half of it", Box::new(|| Answer::Raw(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{\"keys\"".to_vec()))),
    ];
    for (name, answer) in cases {
        let endpoint = KeyEndpoint::with(Vec::new());
        endpoint.answer(answer);
        let server = server(&endpoint);
        assert_eq!(endpoint.fetches(), 1, "{name}: it was asked before clients were accepted");
        for _ in 0..3 {
            assert_eq!(connect(&server, &good), TEMPORARY, "{name}");
        }
    }
    assert_eq!(redirected.fetches(), 0, "a redirect is not followed");
}

#[test]
fn every_command_with_a_token_waits_for_the_keys() {
    let signer = Signer::elliptic("a", "ES256");
    let endpoint = KeyEndpoint::with(Vec::new());
    endpoint.answer(|| Answer::Status(503, String::new()));
    let server = stopped(|settings| {
        settings.uni_sse.enabled = true;
        let own = &mut settings.client.subscription_token;
        (own.enabled, own.token.jwks_public_endpoint) = (true, endpoint.url());
        settings.client.token.jwks_public_endpoint = endpoint.url();
    });
    let mut client = server.connected();
    let of_user = signer.token(&json!({"sub": ""}));
    let of_channel = signer.token(&json!({"sub": "", "channel": "closed:a"}));
    let commands = |id: u64| {
        [
            json!({"id": id, "refresh": {"token": of_user}}),
            json!({"id": id + 1, "subscribe": {"channel": "closed:a", "token": of_channel}}),
            json!({"id": id + 2, "sub_refresh": {"channel": "closed:a", "token": of_channel}}),
        ]
    };
    for command in commands(2) {
        let reply = client.ask(command.clone());
        assert_eq!((&reply["error"]["code"], &reply["error"]["temporary"]), (&json!(100), &json!(true)), "{command}");
    }
    let connect = json!({"token": of_user}).to_string().replace('"', "%22").replace('{', "%7B").replace('}', "%7D");
    let body = server.http("GET", &format!("/connection/uni_sse?cf_connect={connect}"), "", "").1;
    assert!(body.contains("\"code\":3004"), "a client that only listens comes back: {body}");
    endpoint.keys(vec![signer.jwk()]);
    let mut id = 10;
    until_asked(&server, "the keys have come", || {
        id += 10;
        client.ask(commands(id)[0].clone())["refresh"].is_object()
    });
    let [_, subscribe, sub_refresh] = commands(id);
    assert!(client.ask(subscribe)["subscribe"].is_object());
    assert!(client.ask(sub_refresh)["sub_refresh"].is_object());
}

#[test]
fn a_flood_of_invented_kids_is_one_fetch_in_ten_seconds() {
    let signer = Signer::edwards("a");
    let endpoint = KeyEndpoint::with(vec![signer.jwk()]);
    let server = stopped(|settings| {
        let own = &mut settings.client.subscription_token;
        (own.enabled, own.token.jwks_public_endpoint) = (true, endpoint.url());
        settings.client.command_rate_limit = 0;
    });
    let mut client = server.connected();
    let mut id = 2;
    let claims = json!({"sub": "", "channel": "closed:a"});
    let mut flood = || {
        for _ in 0..500 {
            let token = signer.token_with(&json!({"alg": "EdDSA", "kid": format!("invented {id}")}), "EdDSA", &claims);
            let reply = client.ask(json!({"id": id, "subscribe": {"channel": "closed:a", "token": token}}));
            assert_eq!(reply["error"]["code"], 100, "{reply}");
            id += 1;
        }
    };
    for fetches in 1..4 {
        flood();
        assert_eq!(endpoint.fetches(), fetches, "the clock stands still");
        server.clock().advance(FETCH_INTERVAL);
        until_eq(fetches + 1, || endpoint.fetches());
    }
    let good = signer.token(&claims);
    let reply = client.ask(json!({"id": id, "subscribe": {"channel": "closed:a", "token": good}}));
    assert!(reply["subscribe"].is_object(), "a client with a good token is served: {reply}");
}

fn provider(name: &str, options: ProviderOptions) -> TokenProvider {
    TokenProvider { name: name.into(), options: ProviderOptions { enabled: true, ..options } }
}

fn issuers(settings: &mut Settings, providers: Vec<TokenProvider>) {
    let jwks = &mut settings.client.token.jwks;
    (jwks.enabled, jwks.providers) = (true, providers);
}

#[test]
fn the_key_of_one_issuer_signs_for_no_other() {
    // Both issuers use the same key id.
    let (staff, fans) = (Signer::edwards("k1"), Signer::edwards("k1"));
    let (of_staff, of_fans) = (KeyEndpoint::with(vec![staff.jwk()]), KeyEndpoint::with(vec![fans.jwk()]));
    let server = TestServer::with(|settings| {
        let staff = |endpoint: String| ProviderOptions {
            issuer: "https://id/staff".into(),
            endpoint,
            ..ProviderOptions::default()
        };
        issuers(
            settings,
            vec![
                provider("staff", staff(of_staff.url())),
                provider("press", ProviderOptions { audience: "press".into(), ..staff(of_fans.url()) }),
                provider(
                    "fans",
                    ProviderOptions {
                        issuer_regex: Regex::new("https://id/fans-(a|b)").ok(),
                        audience_regex: Regex::new("live|app").ok(),
                        endpoint: of_fans.url(),
                        ..ProviderOptions::default()
                    },
                ),
                provider(
                    "own",
                    ProviderOptions {
                        issuer: "https://own".into(),
                        hmac_secret_key: SECRET.into(),
                        ..ProviderOptions::default()
                    },
                ),
            ],
        );
    });
    assert_eq!((of_staff.fetches(), of_fans.fetches()), (1, 1), "issuers with one endpoint share its keys");
    let claims = |iss: &str, aud: Value| json!({"sub": "ann", "iss": iss, "aud": aud});
    let own = |iss: &str| token(json!({"sub": "ann", "iss": iss}));
    let cases = [
        ("its own", staff.token(&claims("https://id/staff", json!(null))), Outcome::In),
        ("another audience", staff.token(&claims("https://id/staff", json!("x"))), Outcome::In),
        (
            "of the issuer with this audience",
            fans.token(&claims("https://id/staff", json!(["x", "press"]))),
            Outcome::In,
        ),
        ("the other key for it", staff.token(&claims("https://id/staff", json!(["x", "press"]))), TEMPORARY),
        ("the key of another", fans.token(&claims("https://id/staff", json!(null))), TEMPORARY),
        ("a pattern", fans.token(&claims("https://id/fans-a", json!("live"))), Outcome::In),
        ("the key of another for it", staff.token(&claims("https://id/fans-a", json!("live"))), TEMPORARY),
        ("more than the pattern", fans.token(&claims("https://id/fans-a.evil", json!("live"))), FINAL),
        ("before the pattern", fans.token(&claims("xhttps://id/fans-a", json!("live"))), FINAL),
        ("more than the audience", fans.token(&claims("https://id/fans-a", json!("livex"))), FINAL),
        ("no audience", fans.token(&claims("https://id/fans-a", json!(null))), FINAL),
        ("a secret", own("https://own"), Outcome::In),
        ("a secret for another", own("https://id/staff"), FINAL),
        ("a key for the secret's", staff.token(&claims("https://own", json!(null))), FINAL),
        ("nobody's", staff.token(&claims("https://other", json!(null))), FINAL),
        ("of no issuer", staff.token(&json!({"sub": "ann"})), FINAL),
    ];
    for (name, token, expected) in cases {
        assert_eq!(connect(&server, &token), expected, "{name}");
    }
}

/// The user, the meta and the labels of a connection, as a backend receives them.
fn told(server: &TestServer, backend: &Backend, token: &str) -> [Value; 3] {
    let mut client: WebSocket = server.websocket();
    let reply = client.ask(json!({"id": 1, "connect": {"token": token}}));
    assert!(reply["connect"].is_object(), "{reply}");
    client.ask(json!({"id": 2, "rpc": {"method": "who"}}));
    let question = backend.questions().pop().expect("it was asked").body;
    ["user", "meta", "labels"].map(|name| question[name].clone())
}

#[test]
fn claims_of_other_names_are_the_user_and_the_meta() {
    let backend = Backend::start(|_| Answer::Json(json!({"result": {}})));
    let path = |key: &str, value: &str| ClaimPath { key: key.into(), value: value.into() };
    let server = TestServer::with(|settings| {
        let token = &mut settings.client.token;
        token.user_id_claim = "uid".into();
        token.meta_from_claim = ClaimPaths(vec![path("tenant", "org.id"), path("roles", "roles"), path("no", "x.y")]);
        token.labels_from_claim = ClaimPaths(vec![path("plan", "org.plan"), path("roles", "roles"), path("no", "x.y")]);
        settings.rpc.proxy.endpoint = backend.url("/rpc");
        settings.rpc.proxy.include_connection_meta = true;
        settings.rpc.without_namespace.proxy_enabled = true;
    });
    for (claims, user, meta, labels) in [
        (json!({"uid": "ann"}), "ann", json!(null), json!(null)),
        (json!({"uid": 12345678901234567890_u64, "sub": 7}), "12345678901234567890", json!(null), json!(null)),
        (
            json!({"uid": 42, "sub": "bob", "org": {"id": 7, "plan": 3}}),
            "42",
            json!({"tenant": 7}),
            json!({"plan": "3"}),
        ),
        (
            json!({
                "uid": "ann", "roles": ["a"], "org": {"id": "o", "plan": "gold"},
                "meta": {"tenant": "mine", "own": 1}, "labels": {"plan": "mine", "own": "1"},
            }),
            "ann",
            json!({"tenant": "o", "own": 1, "roles": ["a"]}),
            json!({"plan": "gold", "own": "1", "roles": "[\"a\"]"}),
        ),
        (
            json!({"uid": "ann", "org": "flat", "x": {"z": 1}, "meta": {"own": 1}}),
            "ann",
            json!({"own": 1}),
            json!(null),
        ),
    ] {
        assert_eq!(told(&server, &backend, &token(claims.clone())), [json!(user), meta, labels], "{claims}");
    }
    for claims in [
        json!({"sub": "ann"}),
        json!({"uid": ""}),
        json!({"uid": null}),
        json!({"uid": ["ann"]}),
        json!({"uid": true}),
        json!({"uid": "ann", "org": {"id": 1}, "meta": "no object"}),
        json!({"uid": "ann", "org": {"plan": 1}, "labels": "no object"}),
    ] {
        assert_eq!(connect(&server, &token(claims.clone())), FINAL, "{claims}");
    }
    let mut client = server.websocket();
    client.ask(json!({"id": 1, "connect": {"token": token(json!({"uid": 42}))}}));
    let subscribe = |claims: Value| json!({"id": 2, "subscribe": {"channel": "closed:a", "token": token(claims)}});
    let reply = client.ask(subscribe(json!({"sub": "42", "channel": "closed:a"})));
    assert_eq!(reply["error"]["code"], 103, "{reply}");
    let reply = client.ask(subscribe(json!({"uid": "42", "channel": "closed:a"})));
    assert!(reply["subscribe"].is_object(), "{reply}");
}

#[test]
fn an_endpoint_may_have_places_that_only_fixed_texts_fill() {
    let signer = Signer::edwards("a");
    let endpoint = KeyEndpoint::with(vec![signer.jwk()]);
    let server = TestServer::with(|settings| {
        let token = &mut settings.client.token;
        token.issuer_regex = Regex::new("https://id/(?P<realm>one|two)").ok();
        token.jwks_public_endpoint = endpoint.url().replace("/keys", "/{{realm}}/keys");
    });
    let mut paths = endpoint.paths();
    paths.sort();
    assert_eq!(paths, ["/one/keys", "/two/keys"]);
    for (iss, expected) in [
        (json!("https://id/one"), Outcome::In),
        (json!("https://id/three"), FINAL),
        (json!("https://id/one/../two"), FINAL),
        (json!(null), FINAL),
    ] {
        assert_eq!(connect(&server, &signer.token(&json!({"sub": "ann", "iss": iss}))), expected, "{iss}");
    }
    assert_eq!(endpoint.fetches(), 2);
}

#[test]
fn the_secret_before_counts_until_its_time() {
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let of_before = hmac_token(&json!({"alg": "HS256"}), b"the secret before", &json!({"sub": "ann"}));
    for (until_s, expected) in [(0, Outcome::In), (now_s + 1_000, Outcome::In), (now_s - 1, FINAL)] {
        let server = TestServer::with(|settings| {
            let token = &mut settings.client.token;
            token.hmac_previous_secret_key = "the secret before".into();
            token.hmac_previous_secret_key_valid_until = until_s;
        });
        assert_eq!(connect(&server, &of_before), expected, "{until_s}");
        assert_eq!(connect(&server, &token(json!({"sub": "ann"}))), Outcome::In);
    }
}

#[test]
fn a_node_with_an_endpoint_that_does_not_answer_starts_all_the_same() {
    let endpoint = KeyEndpoint::with(Vec::new());
    endpoint.answer(|| Answer::Late(Duration::from_secs(600), Box::new(Answer::Json(json!({"keys": []})))));
    let server = server(&endpoint);
    assert_eq!(connect(&server, &Signer::edwards("a").token(&json!({"sub": "ann"}))), TEMPORARY);
    let anonymous = server.connected();
    drop(anonymous);
}
