//! The identity of events. An id stands for one event only, whatever names clients use, and however often their node
//! was reported as lost. The names of clients never hold an event back.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::Server;
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{until, until_eq};

use super::backend::Backend;
use super::events::{accepting, connected, events, told, wait_for};
use super::link::Link;
use super::registry::devices;
use super::support::{TestServer, settings, token};

/// All events by source and id; each pair has one content. On a slow machine, a node may be lost twice before it knows
/// of the first time. Then the end of its client is reported once more, with another time (`What does not hold` of the
/// guide).
fn by_id(backend: &Backend) -> BTreeMap<(String, String), Value> {
    let mut known = BTreeMap::<(String, String), Value>::new();
    for mut event in events(backend) {
        if event["data"]["cause"] == "node_down" {
            event["time"] = Value::Null;
        }
        let id = (event["source"].to_string(), event["id"].as_str().expect("a text").to_owned());
        assert_eq!(known.entry(id).or_insert_with(|| event.clone()), &event, "an id has one content");
    }
    known
}

#[test]
fn subscriptions_of_one_moment_have_ids_of_their_own() {
    let backend = accepting();
    let server = TestServer::with(|settings| told(settings, &backend, &["subscribed", "unsubscribed"]));
    let (mut client, client_id) = connected(&server);
    // On most machines, several of them fall into one millisecond.
    let rounds = 50;
    for round in 0..rounds {
        for (number, verb) in [(10, "subscribe"), (11, "unsubscribe")] {
            let reply = client.ask(json!({"id": 2 * round + number, verb: {"channel": "news"}}));
            assert!(reply[verb].is_object(), "{reply}");
        }
    }
    let begun = wait_for(&backend, "channel.subscribed", rounds as usize);
    let ended = wait_for(&backend, "channel.unsubscribed", rounds as usize);
    assert_eq!(by_id(&backend).len(), 2 * rounds as usize);
    for (number, (begun, ended)) in (1..).zip(begun.iter().zip(&ended)) {
        assert_eq!(begun["id"], format!("{client_id}:s:news:{number}"));
        assert_eq!(ended["id"], format!("{client_id}:u:news:{number}"), "the same number");
    }
}

#[test]
fn no_client_is_untold_because_of_what_it_says_of_itself() {
    let backend = accepting();
    let types = ["connected", "disconnected", "subscribed", "unsubscribed", "occupied", "user_online", "user_offline"];
    let server = TestServer::with(|settings| {
        settings.channel.max_length = 20_000;
        settings.websocket.message_size_limit = 1_000_000;
        told(settings, &backend, &types);
    });
    let channel = "c".repeat(15_000);
    // A control character takes six bytes of JSON.
    for (index, size) in [200, 3_000, 30_000].into_iter().enumerate() {
        let (user, name) = (format!("{}{index}", "u\"".repeat(100)), "\u{2}".repeat(size));
        let mut client = server.websocket();
        let token = token(json!({"sub": user, "meta": {"text": "m".repeat(size)}}));
        let reply = client.ask(json!({"id": 1, "connect": {"token": token, "name": name, "version": name}}));
        let id = reply["connect"]["client"].as_str().expect("it is accepted").to_owned();
        let reply = client.ask(json!({"id": 2, "subscribe": {"channel": channel}}));
        assert!(reply["subscribe"].is_object(), "it may subscribe");
        // A client that leaves at once is never reported.
        wait_for(&backend, "user.online", index + 1);
        drop(client);
        wait_for(&backend, "user.offline", index + 1);
        wait_for(&backend, "channel.unsubscribed", index + 1);
        let event = wait_for(&backend, "client.connected", index + 1).remove(index);
        assert_eq!(event["id"], format!("{id}:c:1"));
        let (told, is_short) = (event["data"]["name"].as_str().expect("a text"), size == 200);
        assert!(name.starts_with(told) && (told.len() == size) == is_short, "{} of {size}", told.len());
        assert_eq!(event["data"]["truncated"].as_bool(), (!is_short).then_some(true));
        let key = event["partitionkey"].as_str().expect("a text");
        assert_eq!(key, format!("user:{user}"));
        let ended = wait_for(&backend, "client.disconnected", index + 1).remove(index);
        assert_eq!(ended["partitionkey"], key, "the order holds");
    }
    assert!(events(&backend).iter().all(|event| event.to_string().len() <= 16 * 1_024));
    let keys: std::collections::BTreeSet<_> = events(&backend).iter().map(|e| e["partitionkey"].to_string()).collect();
    assert_eq!(keys.len(), 4, "three users and a channel");
    by_id(&backend);
    let dropped = "touchline_events_dropped_total{endpoint=\"backend\",reason=\"too_large\"}";
    until_eq(0, || server.metric(dropped));
}

/// A node whose clients another node reports as gone.
fn node(nats: &NatsServer, backend: &Backend, name: &str) -> (TestServer, Link) {
    let link = Link::to(nats.port);
    let mut settings = settings();
    settings.node.name = name.to_owned();
    settings.cluster.engine = "nats".to_owned();
    settings.cluster.nats_url = vec![format!("nats://{}", link.address)];
    // Short: it only makes the test faster.
    settings.cluster.heartbeat_interval = Duration::from_millis(200);
    settings.cluster.node_timeout = Duration::from_secs(5);
    devices(&mut settings);
    told(&mut settings, backend, &["connected", "disconnected"]);
    let server = TestServer::of(Server::bind(settings).expect("the settings are good").start().expect("it starts"));
    until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
    (server, link)
}

/// A client with presence, so that other nodes know it.
fn seen(server: &TestServer) -> (WebSocket, String) {
    let (mut client, id) = connected(server);
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "room:a"}}));
    assert!(reply["subscribe"].is_object(), "{reply}");
    (client, id)
}

#[test]
fn a_node_that_was_told_as_lost_tells_its_clients_in_a_new_life() {
    let nats = NatsServer::start(JETSTREAM);
    let backend = accepting();
    let (one, _link) = node(&nats, &backend, "one");
    let (two, link) = node(&nats, &backend, "two");
    // The other side of a cut reports nothing of this client, because it has no presence.
    let (on_one, _) = connected(&one);
    let (client, id) = seen(&two);
    let has = |what: String| by_id(&backend).keys().any(|(_, id)| *id == what);
    until("both are reported", || events(&backend).len() >= 2);
    for life in 1..=2 {
        until("others see its presence", || {
            one.api("presence", json!({"channel": "room:a"}))["result"]["presence"].as_object().map(|p| p.len())
                == Some(1)
        });
        link.cut();
        until("it is reported as gone", || has(format!("{id}:d:{life}")));
        link.heal();
        until("it is reported again", || has(format!("{id}:c:{}", life + 1)));
    }
    // A client that connects now is reported once.
    let (late, late_id) = seen(&two);
    until("it is reported", || has(format!("{late_id}:c:3")));
    drop((client, late, on_one));
    until("its real end is reported", || has(format!("{id}:d:3")) && has(format!("{late_id}:d:3")));
    let all = by_id(&backend);
    let of_client: Vec<&str> = all.keys().filter_map(|(_, of)| of.strip_prefix(&id)).collect();
    assert_eq!(of_client, [":c:1", ":c:2", ":c:3", ":d:1", ":d:2", ":d:3"]);
    let sources: std::collections::BTreeSet<_> =
        all.keys().filter(|(_, of)| of.starts_with(&id)).map(|k| &k.0).collect();
    assert_eq!(sources.len(), 1, "they are those of its node, whichever node sends them");
    let again = all.iter().find(|((_, of), _)| *of == format!("{id}:c:2")).map(|(_, event)| &event["data"]);
    let again = again.expect("it is there");
    assert_eq!((again["address"].as_str(), again["transport"].as_str()), (Some("127.0.0.1"), Some("websocket")));
}
