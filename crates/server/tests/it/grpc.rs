//! The server API over gRPC: every method is its operation, and what callers can do wrong.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use touchline_server::{ApiKeySettings, NamedApiKey, Settings, operations};
use touchline_testkit::{until, until_eq};

use super::grpc_client::{GrpcCaller, encode, method_of, methods};
use super::issuer::{KeyEndpoint, Signer};
use super::support::{KEY, TestServer};
use super::unauthenticated::certificate;

const GRPC_KEY: &str = "key-of-grpc";
const PUBLISH: &str = "/centrifugal.centrifugo.api.CentrifugoApi/Publish";

pub(crate) fn with_grpc(settings: &mut Settings) {
    settings.grpc_api.enabled = true;
    settings.grpc_api.address = "127.0.0.1".into();
    settings.grpc_api.port = 0;
    settings.grpc_api.key = GRPC_KEY.into();
    settings.grpc_api.reflection = true;
}

fn server() -> TestServer {
    TestServer::with(with_grpc)
}

pub(crate) fn caller(server: &TestServer) -> GrpcCaller {
    GrpcCaller::plain(server.grpc(), &format!("apikey {GRPC_KEY}"))
}

/// Removes empty values, because over gRPC an empty field is absent.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
    };
    match value {
        Value::Object(object) => {
            let kept = object.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(kept.filter(|(key, value)| key == "result" || !is_empty(value)).collect())
        }
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Number(number) => number.as_f64().into(),
        value => value.clone(),
    }
}

#[test]
fn only_who_shows_a_key_calls_as_often_as_it_likes() {
    let server = TestServer::with(|settings| {
        with_grpc(settings);
        settings.client.command_rate_limit = 200;
    });
    let throttled = || server.metric("touchline_throttled_total");
    let message = encode(&method_of("publish").input(), &json!({"channel": "news", "data": 1}));
    // A connection may be ahead of its rate by 1,000 frames, and a call has at least one.
    let call_often = |caller: &GrpcCaller, calls: usize| {
        let calls = (0..calls).map(|_| caller.send(PUBLISH, message.clone()));
        let answers = caller.runtime.block_on(futures_util::future::join_all(calls));
        answers.iter().filter(|answer| answer.is_ok()).count()
    };
    let known = caller(&server);
    assert!(known.call("publish", json!({"channel": "news", "data": 1})).is_ok());
    assert_eq!(call_often(&known, 1_500), 1_500);
    until_eq(0, throttled);
    let unknown = GrpcCaller::plain(server.grpc(), "apikey wrong");
    assert_eq!(call_often(&unknown, 1_200), 0);
    until("a caller without a key is held back", || throttled() > 0);
}

#[test]
fn every_operation_answers_over_grpc_what_it_answers_over_http() {
    let server = server();
    let _client = server.connected();
    let caller = caller(&server);
    server.publish("history:a", json!({"n": 1}));
    let mut answers = 0;
    // These operations return figures that change from one call to the next, or a page that ends early on a busy
    // machine.
    let passing = ["connections", "info", "overview", "overview_history", "publish", "broadcast"];
    for operation in operations() {
        let example: Value = serde_json::from_str(operation.example).expect("JSON");
        let over_http = without_empty(&server.api(operation.name, example.clone()));
        let over_grpc = caller.call(operation.name, example).expect("it is answered");
        let over_grpc = without_empty(&over_grpc);
        if passing.contains(&operation.name) {
            assert_eq!(over_grpc["error"], over_http["error"], "{}", operation.name);
        } else {
            assert_eq!(over_grpc, over_http, "{}", operation.name);
        }
        answers += usize::from(over_grpc["error"].is_null());
    }
    assert!(answers >= 15, "{answers} of them are results");
    assert_eq!(methods().len(), operations().count() + 1, "and there is a batch");
}

#[test]
fn a_token_of_an_issuer_calls_as_a_key_does() {
    let signer = Signer::rsa("a");
    let endpoint = KeyEndpoint::with(vec![signer.jwk()]);
    let server = TestServer::with(|settings| {
        with_grpc(settings);
        let jwks = &mut settings.http_api.jwks;
        (jwks.enabled, jwks.endpoint) = (true, endpoint.url());
        (jwks.audience, jwks.scope) = ("api".into(), "publish".into());
    });
    let publish = |authorization: &str| {
        let caller = GrpcCaller::plain(server.grpc(), authorization);
        caller.call("publish", json!({"channel": "news", "data": 1})).map_err(|status| status.code())
    };
    let token = |claims: Value| format!("Bearer {}", signer.token(&claims));
    let good = json!({"aud": "api", "scope": "publish"});
    until("the keys have come", || publish(&token(good.clone())).is_ok());
    for (authorization, expected) in [
        (token(json!({"aud": "api", "scope": "read"})), Code::Unauthenticated),
        (token(json!({"aud": "web", "scope": "publish"})), Code::Unauthenticated),
        (token(json!({"aud": "api", "scope": "publish", "exp": 1_000})), Code::Unauthenticated),
        ("Bearer x".to_owned(), Code::Unauthenticated),
        (format!("Bearer {GRPC_KEY}"), Code::Unauthenticated),
        // The key may be there by now, so it is fetched again.
        (format!("Bearer {}", Signer::rsa("a").token(&good)), Code::Unavailable),
    ] {
        assert_eq!(publish(&authorization), Err(expected), "{authorization}");
    }
    assert!(publish(&format!("apikey {GRPC_KEY}")).is_ok(), "a key is good all the same");
    until("touchline_api_requests_total >= 1", || server.metric("touchline_api_requests_total{key=\"jwks\"}") >= 1);
}

#[test]
fn a_publish_reaches_subscribers_and_history_with_all_that_it_has() {
    let server = server();
    let caller = caller(&server);
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "history:live"}}));
    let publish = json!({
        "channel": "history:live", "data": {"goal": 1}, "tags": {"league": "a"}, "idempotency_key": "k",
        "version": 7, "version_epoch": "e", "delta": true,
    });
    let first = caller.call("publish", publish.clone()).expect("it is answered");
    assert_eq!(first["result"]["offset"], 1);
    assert_eq!(caller.call("publish", publish).expect("it is answered"), first, "the key is known");
    let older = json!({"channel": "history:live", "data": {}, "version": 6, "version_epoch": "e"});
    caller.call("publish", older).expect("it is answered");
    let publication = client.publication();
    assert_eq!((&publication["data"], &publication["tags"]), (&json!({"goal": 1}), &json!({"league": "a"})));
    let hidden = json!({"channel": "history:live", "b64data": "eyJoIjoxfQ==", "skip_history": true});
    assert!(caller.call("publish", hidden).expect("it is answered")["error"].is_null());
    assert_eq!(client.publication()["data"], json!({"h": 1}));
    let history = caller.call("history", json!({"channel": "history:live", "limit": -1})).expect("it is answered");
    let publications = history["result"]["publications"].as_array().expect("a list");
    assert_eq!(publications.len(), 1);
    assert_eq!(publications[0]["data"], json!({"goal": 1}));
    let gone = json!({"channel": "history:gone", "data": 1, "expires_in": 1});
    caller.call("publish", gone).expect("it is answered");
    until("it has expired", || {
        let history = caller.call("history", json!({"channel": "history:gone", "limit": -1}));
        history.expect("it is answered")["result"]["publications"].as_array().is_none_or(Vec::is_empty)
    });
}

#[test]
fn a_broadcast_answers_for_each_channel_and_a_batch_for_each_operation() {
    let server = server();
    let caller = caller(&server);
    let broadcast = json!({"channels": ["history:a", "nothing:a", "b"], "data": [1]});
    let answer = caller.call("broadcast", broadcast).expect("it is answered");
    let responses = answer["result"]["responses"].as_array().expect("a list");
    let codes: Vec<_> = responses.iter().map(|response| response["error"]["code"].as_u64()).collect();
    assert_eq!(codes, [None, Some(102), None]);
    assert_eq!(responses[0]["result"]["offset"], 1);
    let commands = json!([
        {"publish": {"channel": "history:a", "data": {"n": 2}}},
        {"presence_stats": {"channel": "room:a"}},
        {"history": {"channel": "nothing:a"}},
        {},
        {"info": {}},
    ]);
    let answer = caller.call("batch", json!({"commands": commands, "parallel": true})).expect("it is answered");
    let replies = answer["replies"].as_array().expect("a list");
    assert_eq!(replies.len(), 5);
    assert_eq!(replies[0]["publish"]["offset"], 2);
    assert!(replies[1]["presence_stats"].is_object() && replies[4]["info"]["nodes"].is_array());
    assert_eq!((&replies[2]["error"]["code"], &replies[3]["error"]["code"]), (&json!(102), &json!(107)));
    let many: Vec<Value> = vec![json!({"info": {}}); 10_001];
    let refused = caller.call("batch", json!({"commands": many})).expect("it is answered");
    assert_eq!(refused["error"]["code"], 107);
}

#[test]
fn errors_stand_in_the_answer_with_their_numbers() {
    let server = server();
    let caller = caller(&server);
    let long = "x".repeat(300);
    for (operation, request, code) in [
        ("publish", json!({"channel": "nothing:a", "data": 1}), 102),
        ("publish", json!({"channel": "history:a"}), 107),
        ("publish", json!({"channel": "history:a", "b64data": "!"}), 107),
        ("publish", json!({"channel": "", "data": 1}), 107),
        ("publish", json!({"channel": "history:a", "data": 1, "idempotency_key": long}), 107),
        ("broadcast", json!({"data": 1}), 107),
        ("broadcast", json!({"channels": ["a"], "data": 1, "dry_run": true}), 107),
        ("presence", json!({"channel": "history:a"}), 108),
        ("disconnect", json!({"user": "a", "disconnect": {"code": 1}}), 107),
        ("rpc", json!({"method": "none"}), 104),
        ("lookup", json!({"scope": "none", "name": "a"}), 4003),
        ("client_user", json!({"client": "no id"}), 107),
        ("stats_top", json!({}), 108),
        ("subscribe", json!({"channel": "history:a", "expire_at": -1}), 107),
    ] {
        let answer = caller.call(operation, request.clone()).expect("it is answered");
        assert_eq!(answer["error"]["code"], code, "{operation} {request}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap_or_default().is_empty() && answer["result"].is_null());
    }
    // Bytes that are not JSON. `data` is field 2 of a publish, into a channel of JSON, and field 7 of a subscribe,
    // which takes any bytes.
    for (operation, bytes, is_refused) in
        [("publish", &b"\x0a\x01a\x12\x01{"[..], true), ("subscribe", b"\x0a\x01a\x12\x01u\x3a\x01{", false)]
    {
        let method = method_of(operation);
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let answer = caller.runtime.block_on(caller.send(&path, bytes.to_vec())).expect("it is answered");
        let has_code = answer.starts_with(b"\x0a") && answer.get(2..4) == Some(b"\x08\x6b");
        assert_eq!(has_code, is_refused, "{operation}: {answer:?}");
    }
    let malformed = caller.runtime.block_on(caller.send(PUBLISH, b"\x0a\xff".to_vec())).expect_err("no message");
    assert_eq!(malformed.code(), Code::Internal, "as of every server of gRPC");
    let unknown = "/centrifugal.centrifugo.api.CentrifugoApi/DeviceList";
    let unknown = caller.runtime.block_on(caller.send(unknown, Vec::new())).expect_err("no method");
    assert_eq!(unknown.code(), Code::Unimplemented);
}

#[test]
fn keys_of_http_and_the_key_of_grpc_are_accepted_with_their_rights() {
    let server = TestServer::with(|settings| {
        with_grpc(settings);
        let options = ApiKeySettings {
            key: "key-of-news".into(),
            operations: vec!["publish".into(), "history".into()],
            channels: vec!["history:*".into()],
        };
        settings.http_api.keys.push(NamedApiKey { name: "news".into(), options });
    });
    let publish = |authorization: &str, channel: &str| {
        let caller = GrpcCaller::plain(server.grpc(), authorization);
        caller.call("publish", json!({"channel": channel, "data": 1})).map(|answer| answer["error"]["code"].as_u64())
    };
    for good in [format!("apikey {GRPC_KEY}"), format!("APIKEY {KEY}"), "apikey key-of-news".to_owned()] {
        assert_eq!(publish(&good, "history:a").expect("it is answered"), None, "{good}");
    }
    for bad in ["", "apikey", "apikey ", "apikey wrong", "Bearer a.b.c", &format!("basic  {KEY}"), KEY] {
        let refused = publish(bad, "history:a").expect_err("it is refused");
        assert_eq!(refused.code(), Code::Unauthenticated, "{bad:?}");
        assert!(!refused.message().contains(KEY));
    }
    assert_eq!(publish("apikey key-of-news", "room:a").expect("it is answered"), Some(103));
    let news = GrpcCaller::plain(server.grpc(), "apikey key-of-news");
    let answer = news.call("info", json!({})).expect("it is answered");
    assert_eq!(
        answer["error"]["message"],
        "permission denied: the key may not use info: add it to operations of the key"
    );
    let headers = format!("X-API-Key: {GRPC_KEY}\r\n");
    assert_eq!(server.http("POST", "/api/info", &headers, "{}").0, 401, "it is not a key of HTTP");
    until_eq(1, || server.metric("touchline_api_requests_total{key=\"grpc\"}"));
    until_eq(3, || server.metric("touchline_api_requests_total{key=\"news\"}"));
}

#[test]
fn without_any_key_every_call_is_refused_and_with_insecure_none() {
    for (is_open, expected) in [(false, Code::Unauthenticated), (true, Code::Ok)] {
        let server = TestServer::with(|settings| {
            with_grpc(settings);
            settings.grpc_api.key = String::new();
            settings.http_api.key = String::new();
            settings.http_api.insecure = is_open;
        });
        let outcome = GrpcCaller::plain(server.grpc(), "").call("info", json!({}));
        assert_eq!(outcome.err().map_or(Code::Ok, |status| status.code()), expected);
    }
}

#[test]
fn a_request_that_is_too_large_is_refused_compressed_or_not_and_one_at_the_limit_is_not() {
    let server = TestServer::with(|settings| {
        with_grpc(settings);
        settings.grpc_api.max_receive_message_size = 10_000;
    });
    let plain = caller(&server);
    let data = |length: usize| json!({"channel": "history:a", "data": "x".repeat(length)});
    assert!(plain.call("publish", data(9_000)).is_ok());
    assert_eq!(plain.call("publish", data(10_000)).expect_err("too large").code(), Code::ResourceExhausted);
    let compressed = caller(&server).compressed();
    let answer = compressed.call("publish", data(9_000)).expect("it is answered");
    assert_eq!(answer["result"]["offset"], 2);
    let bomb = compressed.call("publish", data(1_000_000)).expect_err("too large");
    assert!(matches!(bomb.code(), Code::ResourceExhausted | Code::OutOfRange), "{bomb:?}");
    assert!(plain.call("info", json!({})).is_ok(), "the connection continues");
}

#[test]
fn what_is_not_grpc_is_refused_in_terms_of_http() {
    let server = server();
    let at_grpc = |bytes: &str| {
        use std::io::Write as _;
        let mut socket = std::net::TcpStream::connect(server.grpc()).expect("it listens");
        socket.set_read_timeout(Some(touchline_testkit::PATIENCE)).expect("sockets have timeouts");
        socket.write_all(bytes.as_bytes()).expect("it reads");
        touchline_testkit::http::to_the_end(&mut socket)
    };
    // read once: the test reads the page, not its values.
    for path in ["/api/info", "/metrics", "/health", "/connection/websocket"] {
        let answer = at_grpc(&format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 505"), "{path}: {answer}");
    }
    let upgrade = touchline_testkit::websocket::handshake("");
    assert!(at_grpc(&upgrade.replace("Connection: Upgrade", "Connection: close, Upgrade")).starts_with("HTTP/1.1 505"));
}

#[test]
fn many_calls_at_a_time_are_all_answered() {
    let server = server();
    let caller = caller(&server);
    let method = method_of("publish");
    let message = encode(&method.input(), &json!({"channel": "history:flood", "data": 1}));
    caller.runtime.block_on(async {
        let calls = (0..2_000).map(|_| caller.send(PUBLISH, message.clone()));
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    });
    let history = caller.call("history", json!({"channel": "history:flood"})).expect("it is answered");
    assert_eq!(history["result"]["offset"], 2_000);
}

/// Watches the health of the node.
fn watch(caller: &GrpcCaller, origin: &str) -> tonic::Streaming<tonic_health::pb::HealthCheckResponse> {
    let connector = hyper_util::client::legacy::connect::HttpConnector::new();
    let _runtime = caller.runtime.enter();
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build::<_, tonic::body::Body>(connector);
    let mut health = HealthClient::with_origin(client, origin.parse().expect("an address"));
    let watching = health.watch(HealthCheckRequest { service: String::new() });
    caller.runtime.block_on(watching).expect("it is answered").into_inner()
}

#[test]
fn health_is_told_without_a_key_and_its_streams_end_when_the_node_drains() {
    let mut server = server();
    let caller = GrpcCaller::plain(server.grpc(), "");
    let check = |service: &str| {
        let mut message = vec![0x0a, service.len() as u8];
        message.extend_from_slice(service.as_bytes());
        caller.runtime.block_on(caller.send("/grpc.health.v1.Health/Check", message))
    };
    for service in ["", "centrifugal.centrifugo.api.CentrifugoApi", "touchline.api.v1.TouchlineApi"] {
        assert_eq!(check(service).expect("it is known"), [8, 1], "{service} serves");
    }
    assert_eq!(check("nothing").expect_err("it is unknown").code(), Code::NotFound);
    let mut watched = watch(&caller, &format!("http://{}", server.grpc()));
    let mut next = || caller.runtime.block_on(watched.message());
    assert_eq!(next().expect("a status").expect("one").status, 1);
    let began = Instant::now();
    let stopping = std::thread::spawn(move || server.stop());
    let mut last = next();
    while matches!(&last, Ok(Some(status)) if status.status == 2) {
        last = next();
    }
    assert_eq!(last.expect_err("the stream ends").code(), Code::Unavailable);
    stopping.join().expect("it stops");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn reflection_tells_the_services_where_it_is_switched_on() {
    // `list_services` is field 7, a text.
    let ask = |server: &TestServer, version: &str| {
        let caller = GrpcCaller::plain(server.grpc(), "");
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        caller.runtime.block_on(caller.send(&path, b"\x3a\x00".to_vec()))
    };
    let on = server();
    for version in ["v1", "v1alpha"] {
        let answer = ask(&on, version).expect("it is answered");
        let text = String::from_utf8_lossy(&answer);
        for service in ["centrifugal.centrifugo.api.CentrifugoApi", "touchline.api.v1.TouchlineApi", "grpc.health.v1"] {
            assert!(text.contains(service), "{service} in {text}");
        }
        assert!(!text.contains("CentrifugoProxy"), "it is not served: {text}");
    }
    let off = TestServer::with(|settings| {
        with_grpc(settings);
        settings.grpc_api.reflection = false;
    });
    assert!(matches!(ask(&off, "v1").expect_err("off").code(), Code::Unauthenticated));
}

#[test]
fn a_call_under_way_is_answered_when_the_node_stops_and_later_ones_are_told_to_go() {
    let mut server = TestServer::with(|settings| {
        with_grpc(settings);
        settings.registry.scopes.push(touchline_server::ScopeOptions { name: "d".into(), ..Default::default() });
    });
    let address = server.grpc();
    let mut callee = server.websocket();
    let client = callee.ask(json!({"id": 1, "connect": {}}))["connect"]["client"].clone();
    let register = json!({"scope": "d", "name": "a", "client": client, "meta": {"m": 1}});
    let registered = caller(&server).call("register", register).expect("it is answered");
    assert_eq!(registered["result"]["meta"], json!({"m": 1}), "{registered}");
    let calling = std::thread::spawn(move || {
        let caller = GrpcCaller::plain(address, &format!("apikey {GRPC_KEY}"));
        caller.call("call", json!({"scope": "d", "name": "a", "data": {"q": 1}}))
    });
    let question = callee.message();
    assert_eq!(question["push"]["message"]["data"]["data"], json!({"q": 1}), "{question}");
    server.stop();
    let answer = calling.join().expect("it ends").expect("it is answered");
    assert_eq!(answer["error"]["code"], 4006, "the callee has gone: {answer}");
    let refused = GrpcCaller::plain(address, &format!("apikey {GRPC_KEY}")).call("info", json!({}));
    assert!(refused.is_err(), "nobody listens");
}

#[test]
fn the_port_speaks_tls_and_asks_for_certificates_where_it_is_told_to() {
    let certificate = certificate("grpc");
    let server = TestServer::with(|settings| {
        with_grpc(settings);
        let tls = &mut settings.grpc_api.tls;
        tls.enabled = true;
        (tls.cert_pem, tls.key_pem) = certificate.paths();
    });
    let origin = format!("https://localhost:{}", server.grpc().port());
    let trusting = GrpcCaller::with(&origin, certificate.roots(), &format!("apikey {GRPC_KEY}"));
    let answer = trusting.call("publish", json!({"channel": "history:a", "data": 1})).expect("it is answered");
    assert_eq!(answer["result"]["offset"], 1);
    let plain = caller(&server).call("info", json!({})).expect_err("it speaks TLS only");
    assert!(matches!(plain.code(), Code::Unavailable | Code::Unknown), "{plain:?}");
    let doubting = GrpcCaller::with(&origin, rustls::RootCertStore::empty(), "").call("info", json!({}));
    assert!(doubting.is_err(), "its certificate is checked");
    let strict = TestServer::with(|settings| {
        with_grpc(settings);
        let tls = &mut settings.grpc_api.tls;
        tls.enabled = true;
        (tls.cert_pem, tls.key_pem) = certificate.paths();
        tls.client_ca_pem = certificate.paths().0;
    });
    let origin = format!("https://localhost:{}", strict.grpc().port());
    let without = GrpcCaller::with(&origin, certificate.roots(), &format!("apikey {GRPC_KEY}"));
    assert!(without.call("info", json!({})).is_err(), "a caller needs a certificate");
}
