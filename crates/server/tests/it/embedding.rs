//! A program that embeds the server: its handlers answer hooks, and its handle does what the server API does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{
    HookAnswer, HookCall, HookClient, HookFuture, HookHandler, HookKind, Running, Server, ServerHandle, Settings,
};
use touchline_testkit::websocket::Heard;

use super::support::{TestServer, open, settings};

/// Answers by a function, and records the kinds of its questions.
struct Handler<F> {
    decide: F,
    asked: Arc<Mutex<Vec<HookKind>>>,
}

impl<F: Fn(&HookCall) -> HookAnswer + Send + Sync + 'static> HookHandler for Handler<F> {
    fn answer(&self, client: HookClient, call: HookCall) -> HookFuture {
        assert_eq!(client.id.len(), 36);
        self.asked.lock().expect("nobody panics with it").push(call.request.kind());
        let answer = (self.decide)(&call);
        Box::pin(async move { answer })
    }
}

fn start(
    change: impl FnOnce(&mut Settings),
    decide: impl Fn(&HookCall) -> HookAnswer + Send + Sync + 'static,
) -> (Running, Arc<Mutex<Vec<HookKind>>>) {
    let mut settings = settings();
    settings.client.proxy.connect.enabled = true;
    change(&mut settings);
    let asked = Arc::default();
    let handler = Handler { decide, asked: Arc::clone(&asked) };
    let running = Server::builder(settings).hooks(handler).build().expect("good settings").start().expect("it starts");
    (running, asked)
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[test]
fn handlers_answer_hooks_as_a_backend_does() {
    let (running, asked) = start(
        |settings| {
            settings.channel.without_namespace = open();
            settings.channel.without_namespace.publish_proxy_enabled = true;
        },
        |call| match call.request.kind() {
            HookKind::Connect => HookAnswer::result(json!({"user": "ann"})),
            HookKind::Publish if &call.request.data().expect("it has data")[..] == b"0" => {
                HookAnswer::error(450, "no zeros", false)
            }
            HookKind::Publish => HookAnswer::result(json!({"data": {"of": *call.user}})),
            _ => HookAnswer::disconnect(4501, "not asked"),
        },
    );
    let server = TestServer::of(running);
    let mut client = server.connected();
    client.ask(json!({"id": 2, "subscribe": {"channel": "news"}}));
    let reply = client.ask(json!({"id": 3, "publish": {"channel": "news", "data": 0}}));
    assert_eq!(reply["error"], json!({"code": 450, "message": "no zeros"}));
    client.send_json(json!({"id": 4, "publish": {"channel": "news", "data": 1}}));
    assert_eq!(client.publication()["data"], json!({"of": "ann"}));
    assert_eq!(*asked.lock().expect("nobody panics"), [HookKind::Connect, HookKind::Publish, HookKind::Publish]);
}

#[test]
fn a_handler_that_panics_or_hangs_or_lies_is_a_failure_of_its_action_only() {
    struct Broken;
    impl HookHandler for Broken {
        fn answer(&self, _: HookClient, call: HookCall) -> HookFuture {
            Box::pin(async move {
                match call.request.data().map(|data| data.to_vec()).as_deref() {
                    Some(b"\"panic\"") => panic!("a fault that this test has put in"),
                    Some(b"\"hang\"") => std::future::pending().await,
                    Some(b"\"lie\"") => HookAnswer::result(json!("a text")),
                    _ => HookAnswer::result(json!({"data": 1})),
                }
            })
        }
    }
    let mut settings = settings();
    settings.rpc.without_namespace.proxy_enabled = true;
    // Short: the test waits for the timeout.
    settings.rpc.proxy.timeout = Duration::from_millis(200);
    let running = Server::builder(settings).hooks(Broken).build().expect("good settings").start().expect("it starts");
    let server = TestServer::of(running);
    let mut client = server.connected();
    for (id, data) in ["panic", "hang", "lie"].into_iter().enumerate() {
        let reply = client.ask(json!({"id": id + 2, "rpc": {"method": "x", "data": data}}));
        assert_eq!(reply["error"]["code"], 100, "{data}: {reply}");
    }
    let reply = client.ask(json!({"id": 9, "rpc": {"method": "x", "data": "fine"}}));
    assert_eq!(reply["rpc"]["data"], 1);
}

#[test]
fn a_hook_without_endpoint_and_handler_does_not_start() {
    let mut settings = settings();
    settings.client.proxy.connect.enabled = true;
    let fault = Server::bind(settings).err().expect("nobody would answer").to_string();
    assert!(fault.starts_with("client.proxy.connect.endpoint: missing"), "{fault}");
}

#[test]
fn a_handle_does_what_the_server_api_does() {
    let (running, _) = start(|_| {}, |_| HookAnswer::result(json!({"user": "ann"})));
    let handle: ServerHandle = running.clone();
    let server = TestServer::of(running);
    let mut client = server.connected();
    wait(async {
        handle.subscribe("ann", "room:1").await.expect("she is connected");
        assert_eq!(client.message()["push"]["channel"], "room:1");
        let offset = handle.publish("history:1", &json!({"n": 1})).await.expect("it is published");
        assert_eq!(offset, 1);
        let history = handle.history("history:1", 10).await.expect("it has history");
        assert_eq!(history[0]["data"], json!({"n": 1}));
        let presence = handle.presence("room:1").await.expect("it has presence");
        assert_eq!(presence.as_object().map(serde_json::Map::len), Some(1), "{presence}");
        let refusal = handle.publish("none:1", &1).await.expect_err("there is no such namespace");
        assert_eq!(refusal.code, 102);
        let refusal = handle.call("publish", json!({"channel": 7})).await.expect_err("a channel is text");
        assert_eq!(refusal.code, 107);
        let refusal = handle.call("nothing", Value::Null).await.expect_err("there is no such operation");
        assert!([104, 107].contains(&refusal.code), "{refusal}");
        handle.unsubscribe("ann", "room:1").await.expect("she is connected");
        while client.message()["push"]["unsubscribe"]["code"] != 2000 {}
        handle.disconnect("ann").await.expect("she is connected");
        assert!(matches!(client.close(), Heard::Close(3503, _)));
        assert!(handle.metrics().contains("touchline_hook_calls_total{hook=\"connect\",outcome=\"answered\"} 1"));
    });
    drop(server);
    let refusal = wait(handle.publish("news", &1)).expect_err("it has stopped");
    assert_eq!((refusal.code, handle.metrics().as_str()), (100, ""));
}
