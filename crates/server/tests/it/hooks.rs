//! Hooks over HTTP: what a backend is asked, and what its answers do.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace, Settings};
use touchline_testkit::websocket::{Heard, WebSocket};

use super::backend::{Answer, Backend, Question};
use super::support::{TestServer, open};

/// Switches every hook on, with one backend.
fn with_hooks(settings: &mut Settings, backend: &Backend) {
    let client = &mut settings.client.proxy;
    for (switched, path) in [(&mut client.connect, "/connect"), (&mut client.refresh, "/refresh")] {
        switched.enabled = true;
        switched.proxy.endpoint = backend.url(path);
        switched.proxy.timeout = Duration::from_secs(5);
        switched.proxy.include_connection_meta = true;
    }
    let channel = &mut settings.channel.proxy;
    for (proxy, path) in [
        (&mut channel.subscribe, "/subscribe"),
        (&mut channel.publish, "/publish"),
        (&mut channel.sub_refresh, "/sub_refresh"),
        (&mut settings.rpc.proxy, "/rpc"),
    ] {
        proxy.endpoint = backend.url(path);
        proxy.timeout = Duration::from_secs(5);
        proxy.include_connection_meta = true;
    }
    settings.rpc.without_namespace.proxy_enabled = true;
    let options = ChannelOptions {
        subscribe_proxy_enabled: true,
        publish_proxy_enabled: true,
        sub_refresh_proxy_enabled: true,
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        allow_history_for_subscriber: true,
        allow_history_for_anonymous: true,
        presence: true,
        ..ChannelOptions::default()
    };
    settings.channel.namespaces.push(Namespace { name: "chat".into(), options });
}

fn server(backend: &Backend) -> TestServer {
    TestServer::with(|settings| with_hooks(settings, backend))
}

/// A backend that admits every client as `ann`, and answers everything else by a function.
fn backend(decide: impl Fn(&Question) -> Answer + Send + Sync + 'static) -> Backend {
    Backend::start(move |question| match question.path.as_str() {
        "/connect" => Answer::Json(json!({"result": {"user": "ann", "meta": {"tenant": "a"}}})),
        _ => decide(question),
    })
}

fn connected(server: &TestServer) -> WebSocket {
    let mut client = server.websocket();
    let reply = client.ask(json!({"id": 1, "connect": {}}));
    assert!(reply["connect"]["client"].is_string(), "{reply}");
    client
}

fn without_client(mut body: Value) -> Value {
    let client = body.as_object_mut().and_then(|body| body.remove("client")).expect("every question names the client");
    assert_eq!(client.as_str().map(str::len), Some(36));
    body
}

#[test]
fn a_backend_is_asked_with_the_fields_of_each_hook() {
    let backend = backend(|question| match question.path.as_str() {
        "/rpc" => Answer::Json(json!({"result": {"data": {"price": 7}}})),
        _ => Answer::Json(json!({"result": {}})),
    });
    let server = server(&backend);
    let mut client = server.websocket();
    let connect =
        json!({"id": 1, "connect": {"data": {"lang": "de"}, "name": "js", "version": "2", "subs": {"news": {}}}});
    let reply = client.ask(connect);
    assert!(reply["connect"]["ttl"].is_null(), "{reply}");
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "chat:1", "data": {"since": 5}}}));
    assert!(reply["subscribe"].is_object(), "{reply}");
    let reply = client.ask(json!({"id": 3, "publish": {"channel": "chat:1", "data": {"input": "hi"}}}));
    assert!(reply["publish"].is_object(), "{reply}");
    let reply = client.ask(json!({"id": 4, "rpc": {"method": "price", "data": {"id": 12}}}));
    assert_eq!(reply["rpc"]["data"], json!({"price": 7}));
    let questions = backend.questions();
    let common = |more: Value| {
        let mut all = json!({"transport": "websocket", "protocol": "json", "encoding": "json"});
        let more = more.as_object().expect("an object").clone();
        all.as_object_mut().expect("an object").extend(more);
        all
    };
    let expected = [
        ("/connect", common(json!({"data": {"lang": "de"}, "name": "js", "version": "2", "channels": ["news"]}))),
        (
            "/subscribe",
            common(json!({"user": "ann", "channel": "chat:1", "data": {"since": 5}, "meta": {"tenant": "a"}})),
        ),
        (
            "/publish",
            common(json!({"user": "ann", "channel": "chat:1", "data": {"input": "hi"}, "meta": {"tenant": "a"}})),
        ),
        ("/rpc", common(json!({"user": "ann", "method": "price", "data": {"id": 12}, "meta": {"tenant": "a"}}))),
    ];
    assert_eq!(questions.len(), expected.len());
    for (question, (path, body)) in questions.iter().zip(expected) {
        assert_eq!((question.path.as_str(), without_client(question.body.clone())), (path, body));
        assert_eq!(question.header("content-type"), ["application/json"]);
    }
    for id in 5..15 {
        client.ask(json!({"id": id, "rpc": {"method": "price"}}));
    }
    assert_eq!(backend.connections.load(SeqCst), 4, "each hook keeps its connection");
}

#[test]
fn a_connect_answer_says_all_of_the_connection() {
    let backend = Backend::start(|_| {
        Answer::Json(json!({"result": {
            "user": "56", "info": {"name": "Ada"}, "data": {"welcome": true},
            "subs": {"room:a": {"data": {"v": 1}, "override": {"presence": {"value": true}}}}, "channels": ["news"],
            "caps": [{"channels": ["closed:*"], "match": "wildcard", "allow": ["sub", "pub"]}],
        }}))
    });
    let server = TestServer::with(|settings| {
        with_hooks(settings, &backend);
        settings.client.proxy.refresh.enabled = false;
    });
    let mut client = server.websocket();
    let reply = client.ask(json!({"id": 1, "connect": {}}));
    let connect = &reply["connect"];
    assert_eq!(connect["data"], json!({"welcome": true}));
    assert_eq!(connect["subs"]["room:a"]["data"], json!({"v": 1}), "{reply}");
    assert!(connect["subs"]["news"].is_object(), "{reply}");
    let presence = server.api("presence", json!({"channel": "room:a"}));
    let clients = presence["result"]["presence"].as_object().expect("clients").values().next().expect("one").clone();
    assert_eq!((&clients["user"], &clients["conn_info"]), (&json!("56"), &json!({"name": "Ada"})));
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "closed:x"}}));
    assert!(reply["subscribe"].is_object(), "a capability opens it: {reply}");
    let reply = client.ask(json!({"id": 3, "publish": {"channel": "closed:x", "data": 1}}));
    assert!(reply["publish"].is_object(), "{reply}");
    let reply = client.ask(json!({"id": 4, "history": {"channel": "closed:x"}}));
    assert_eq!(reply["error"]["code"], 108);
}

#[test]
fn a_backend_refuses_with_its_own_codes() {
    let backend = backend(|question| match question.body["channel"].as_str().unwrap_or_default() {
        "chat:error" => Answer::Json(json!({"error": {"code": 450, "message": "no room", "temporary": true}})),
        "chat:end" => Answer::Json(json!({"disconnect": {"code": 4501, "reason": "spam"}})),
        _ => Answer::Json(json!({"error": {"code": 403, "message": "no"}})),
    });
    let server = server(&backend);
    let mut client = connected(&server);
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "chat:error"}}));
    assert_eq!(reply["error"], json!({"code": 450, "message": "no room", "temporary": true}));
    let reply = client.ask(json!({"id": 3, "rpc": {"method": "x"}}));
    assert_eq!(reply["error"], json!({"code": 403, "message": "no"}));
    client.send_json(json!({"id": 4, "publish": {"channel": "chat:end", "data": 1}}));
    assert_eq!(client.close(), Heard::Close(4501, "spam".into()));
}

#[test]
fn an_answer_that_cannot_be_used_permits_nothing() {
    let backend = backend(|question| match question.body["channel"].as_str().unwrap_or_default() {
        "chat:foreign" => Answer::Json(json!({"detail": "forbidden"})),
        "chat:types" => Answer::Json(json!({"result": {"expire_at": "soon"}})),
        "chat:list" => Answer::Json(json!([])),
        "chat:text" => Answer::Status(200, "yes".into()),
        "chat:500" => Answer::Status(500, "{\"result\":{}}".into()),
        "chat:204" => Answer::Status(204, String::new()),
        "chat:302" => Answer::Raw(b"HTTP/1.1 302 X\r\nLocation: /yes\r\nContent-Length: 0\r\n\r\n".to_vec()),
        "chat:half" => Answer::Raw(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{\"result\":{}".to_vec()),
        "chat:large" => Answer::Json(json!({"result": {"data": "x".repeat(2_000_000)}})),
        "chat:code" => Answer::Json(json!({"error": {"code": 5, "message": "x"}})),
        "chat:disconnect" => Answer::Json(json!({"disconnect": {"code": 3000, "reason": "x"}})),
        "chat:base64" => Answer::Json(json!({"result": {"b64data": "%%%"}})),
        "chat:allow" => Answer::Json(json!({"result": {"allow": ["everything"]}})),
        _ => Answer::Json(json!({})),
    });
    let server = server(&backend);
    let mut client = connected(&server);
    for (id, channel) in [
        "foreign",
        "types",
        "list",
        "text",
        "500",
        "204",
        "302",
        "half",
        "large",
        "code",
        "disconnect",
        "base64",
        "allow",
    ]
    .iter()
    .enumerate()
    {
        let reply = client.ask(json!({"id": id + 2, "subscribe": {"channel": format!("chat:{channel}")}}));
        assert_eq!(reply["error"]["code"], 100, "{channel}: {reply}");
        assert_eq!(reply["error"]["temporary"], true, "{channel}");
    }
    let reply = client.ask(json!({"id": 99, "subscribe": {"channel": "chat:empty"}}));
    assert!(reply["subscribe"].is_object(), "an empty object is a permission: {reply}");
}

#[test]
fn commands_of_one_channel_wait_for_its_hook_and_others_go_on() {
    let backend = backend(|question| match question.body["channel"].as_str() {
        Some("chat:slow") => Answer::Late(Duration::from_millis(700), Box::new(Answer::Json(json!({})))),
        _ => Answer::Json(json!({})),
    });
    let server = TestServer::with(|settings| {
        with_hooks(settings, &backend);
        settings.channel.without_namespace = open();
    });
    let mut client = connected(&server);
    client.send_json(json!({"id": 2, "subscribe": {"channel": "chat:slow"}}));
    client.send_json(json!({"id": 3, "history": {"channel": "chat:slow"}}));
    client.send_json(json!({"id": 4, "publish": {"channel": "chat:slow", "data": 1}}));
    client.send_json(json!({"id": 5, "subscribe": {"channel": "news"}}));
    client.send_json(json!({"id": 6, "subscribe": {"channel": "chat:fast"}}));
    let mut ids = Vec::new();
    while ids.len() < 5 {
        if let Some(id) = client.message()["id"].as_u64() {
            ids.push(id);
        }
    }
    assert!(ids[..2].contains(&5) && ids[..2].contains(&6), "{ids:?}");
    assert_eq!(ids[2..], [2, 3, 4], "the order of the channel is kept");
}

#[test]
fn however_much_waits_behind_a_question_all_of_it_is_answered() {
    let backend = backend(|question| match question.path.as_str() {
        "/subscribe" => Answer::Late(Duration::from_millis(300), Box::new(Answer::Json(json!({})))),
        _ => Answer::Json(json!({})),
    });
    let server = server(&backend);
    let mut client = connected(&server);
    let text = "x".repeat(30_000);
    client.send_json(json!({"id": 2, "subscribe": {"channel": "chat:a"}}));
    for id in 0..4 {
        client.send_json(json!({"id": 4 * id + 3, "history": {"channel": "chat:a", "limit": 10}}));
        client.send_json(json!({"id": 4 * id + 4, "presence": {"channel": "chat:a"}}));
        client.send_json(json!({"id": 4 * id + 5, "publish": {"channel": "chat:a", "data": text}}));
        client.send_json(json!({"id": 4 * id + 6, "publish": {"channel": "chat:a", "data": text}}));
    }
    let mut ids = Vec::new();
    while ids.len() < 17 {
        ids.extend(client.message()["id"].as_u64());
    }
    assert!(ids.is_sorted(), "{ids:?}");
}

#[test]
fn a_client_whose_backend_does_not_answer_is_told_to_go_all_the_same() {
    let backend = backend(|_| Answer::Late(Duration::from_secs(20), Box::new(Answer::Json(json!({})))));
    let mut server = TestServer::with(|settings| {
        with_hooks(settings, &backend);
        settings.rpc.proxy.timeout = Duration::from_secs(60);
        // Short: the test waits for the timeout.
        settings.shutdown.timeout = Duration::from_secs(2);
    });
    let mut client = connected(&server);
    client.send_json(json!({"id": 2, "rpc": {"method": "x"}}));
    touchline_testkit::until("the backend is asked", || backend.under_way.load(SeqCst) > 0);
    server.stop();
    assert_eq!(client.close(), Heard::Close(3001, "shutdown".into()));
}

#[test]
fn a_field_is_of_the_node_or_of_the_client() {
    let backend = backend(|_| Answer::Json(json!({})));
    let refused = |change: fn(&mut Settings)| {
        let mut settings = super::support::settings();
        with_hooks(&mut settings, &backend);
        change(&mut settings);
        let error = touchline_server::Server::builder(settings).build().err().expect("the start is refused");
        error.to_string()
    };
    let both = refused(|settings| {
        let proxy = &mut settings.rpc.proxy;
        proxy.http.static_headers.0.insert("X-Key".into(), "secret".into());
        proxy.emulated_headers = vec!["x-key".into()];
    });
    assert!(both.contains("rpc.proxy.emulated_headers") && !both.contains("secret"), "{both}");
    let cookies = refused(|settings| {
        settings.client.allowed_origins = vec!["*".into()];
        settings.client.proxy.connect.proxy.http_headers = vec!["Cookie".into()];
    });
    assert!(cookies.contains("client.proxy.connect.http_headers"), "{cookies}");
}
