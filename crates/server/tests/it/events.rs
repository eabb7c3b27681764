//! Lifecycle events: what a backend is told, in which order, and what follows its answers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use touchline_server::{EventsSettings, NamedEvents, Settings};

use super::backend::{Answer, Backend};
use super::support::{PATIENCE, TestServer, WebSocket};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Has a backend told of these types.
fn told(settings: &mut Settings, backend: &Backend, types: &[&str]) {
    let options = EventsSettings {
        endpoint: backend.url("/events"),
        types: types.iter().map(|kind| (*kind).to_owned()).collect(),
        secret: SECRET.into(),
        batch_wait: Duration::from_millis(20),
        delay: Duration::from_millis(200),
        ..EventsSettings::default()
    };
    settings.events.push(NamedEvents { name: "backend".into(), options });
}

fn accepting() -> Backend {
    Backend::start(|_| Answer::Status(204, String::new()))
}

/// The events that a backend was sent, without those that say that there may be more.
fn events(backend: &Backend) -> Vec<Value> {
    let batches = backend.questions().into_iter().map(|question| question.body);
    let all = batches.flat_map(|batch| batch.as_array().expect("a batch is a list").clone());
    all.filter(|event| event["type"] != "io.touchline.state.reset").collect()
}

/// Waits for so many events of a type.
fn wait_for(backend: &Backend, kind: &str, count: usize) -> Vec<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut found = events(backend);
        found.retain(|event| event["type"].as_str() == Some(&format!("io.touchline.{kind}")));
        if found.len() >= count {
            return found;
        }
        assert!(Instant::now() < until, "{count} of {kind}: {:?}", backend.questions());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn connected(server: &TestServer) -> (WebSocket, String) {
    let mut client = server.websocket();
    let reply = client.ask(json!({"id": 1, "connect": {"name": "js", "version": "2"}}));
    let id = reply["connect"]["client"].as_str().expect("it is let in").to_owned();
    (client, id)
}

#[test]
fn a_backend_is_told_who_connects_and_leaves() {
    let backend = accepting();
    let server = TestServer::with(|settings| told(settings, &backend, &["connected", "disconnected"]));
    let (client, id) = connected(&server);
    let event = wait_for(&backend, "client.connected", 1).remove(0);
    assert_eq!(event["id"], format!("{id}:c:1"));
    assert_eq!(event["partitionkey"], format!("client:{id}"));
    let data = &event["data"];
    assert_eq!((data["client"].as_str(), data["transport"].as_str()), (Some(id.as_str()), Some("websocket")));
    assert_eq!((data["name"].as_str(), data["version"].as_str()), (Some("js"), Some("2")));
    assert_eq!((data["address"].as_str(), data["encoding"].as_str()), (Some("127.0.0.1"), Some("json")));
    assert_eq!(data["session"].as_str().map(str::len), Some(32));
    drop(client);
    let event = wait_for(&backend, "client.disconnected", 1).remove(0);
    let data = &event["data"];
    assert_eq!((data["code"].as_u64(), data["cause"].as_str()), (Some(1006), Some("client")));
    assert!(data["duration_ms"].is_u64() && data["user"].is_null(), "{data}");
}
