//! Lifecycle events with guaranteed delivery: restarts, cuts from the database, endpoints that fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{EventsSettings, NamedEvents, Settings};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{PATIENCE, until, until_eq, until_some};

use super::backend::{Answer, Backend};
use super::bans::Scratch;
use super::bans_of_nodes::port_of;
use super::link::Link;
use super::support::TestServer;

const TYPES: [&str; 6] = ["connected", "disconnected", "occupied", "vacated", "user_online", "user_offline"];

/// A backend that answers with a status that the test can change.
pub(crate) struct Receiver {
    pub(crate) backend: Backend,
    pub(crate) status: Arc<AtomicU16>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let status = Arc::new(AtomicU16::new(204));
        let of_backend = Arc::clone(&status);
        let backend = Backend::start(move |_| Answer::Status(of_backend.load(SeqCst), String::new()));
        Receiver { backend, status }
    }

    pub(crate) fn told(&self, settings: &mut Settings, change: impl FnOnce(&mut EventsSettings)) {
        let mut options = EventsSettings {
            endpoint: self.backend.url("/events"),
            types: TYPES.map(str::to_owned).into(),
            // Short: it only makes the test faster.
            delay: Duration::from_millis(300),
            durable: true,
            ..EventsSettings::default()
        };
        change(&mut options);
        settings.events.push(NamedEvents { name: "backend".into(), options });
    }

    /// All events, each once, in the order in which they first arrived.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut known = std::collections::BTreeSet::new();
        let batches = self.backend.questions().into_iter().map(|question| question.body);
        let all = batches.flat_map(|batch| batch.as_array().expect("a batch is a list").clone());
        all.filter(|event| known.insert((event["source"].to_string(), event["id"].to_string()))).collect()
    }

    pub(crate) fn count(&self, kind: &str, subject: &str) -> usize {
        let is_it = |event: &Value| event["type"] == format!("io.touchline.{kind}") && event["subject"] == subject;
        self.events().iter().filter(|event| is_it(event)).count()
    }

    pub(crate) fn wait_for(&self, kind: &str, subject: &str) -> Value {
        let is_it = |event: &Value| event["type"] == format!("io.touchline.{kind}") && event["subject"] == subject;
        until_some(format_args!("{kind} of {subject} arrives"), || self.events().into_iter().find(is_it))
    }

    /// The generations of each key, in the order in which they first arrived.
    fn generations(&self) -> BTreeMap<String, Vec<u64>> {
        let mut generations = BTreeMap::<String, Vec<u64>>::new();
        for event in self.events() {
            if let Some(generation) = event["generation"].as_str() {
                let key = event["partitionkey"].as_str().expect("it is a text").to_owned();
                generations.entry(key).or_default().push(generation.parse().expect("it is a number"));
            }
        }
        generations
    }

    /// Asserts that generations arrive in order, without a gap.
    pub(crate) fn check(&self) {
        for (key, told) in self.generations() {
            assert_eq!(told, (1..=told.len() as u64).collect::<Vec<_>>(), "{key}");
        }
    }
}

pub(crate) fn in_file(settings: &mut Settings, scratch: &Scratch) {
    settings.store.primary.url = format!("sqlite:{}", scratch.0.join("primary.db").display());
}

pub(crate) fn on_postgres(settings: &mut Settings, link: &Link) {
    settings.store.primary.url = format!("postgres://postgres@{}/postgres?sslmode=disable", link.address);
    settings.store.primary.timeout = Duration::from_secs(5);
}

/// A session of a user who is subscribed to a channel, with its client id.
pub(crate) fn subscribed(server: &TestServer, user: &str, channel: &str) -> (WebSocket, String) {
    let mut client = server.websocket();
    let token = super::support::token(json!({"sub": user}));
    let reply = client.ask(json!({"id": 1, "connect": {"token": token}}));
    let id = reply["connect"]["client"].as_str().expect("it is accepted").to_owned();
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": channel}}));
    assert!(reply["subscribe"].is_object(), "{reply}");
    (client, id)
}

#[test]
fn a_backend_is_told_all_of_a_client_and_its_restarted_node() {
    let (scratch, receiver) = (Scratch::new("durable-events"), Receiver::start());
    let start = || {
        TestServer::with(|settings| {
            in_file(settings, &scratch);
            receiver.told(settings, |_| {});
        })
    };
    let mut server = start();
    let (client, id) = subscribed(&server, "ann", "chat");
    let (_other, other_id) = subscribed(&server, "bob", "news");
    for (kind, subject) in [("client.connected", &*id), ("user.online", "ann"), ("channel.occupied", "chat")] {
        receiver.wait_for(kind, subject);
    }
    drop(client);
    assert_eq!(receiver.wait_for("client.disconnected", &id)["data"]["cause"], "client");
    let vacated = receiver.wait_for("channel.vacated", "chat");
    assert_eq!((vacated["id"].as_str(), vacated["generation"].as_str()), (Some("channel:chat:2"), Some("2")));
    assert!(vacated["data"]["empty_since"].is_string(), "{vacated}");
    assert!(receiver.wait_for("user.offline", "ann")["data"]["last_seen"].is_string());
    receiver.wait_for("client.connected", &other_id);
    server.stop();
    assert_eq!(receiver.wait_for("client.disconnected", &other_id)["data"]["cause"], "restart");
    // A client that comes back at once is never reported as gone.
    let server = start();
    let (_back, _) = subscribed(&server, "bob", "news");
    let (_fresh, _) = subscribed(&server, "zoe", "other");
    receiver.wait_for("user.online", "zoe");
    assert_eq!((receiver.count("user.offline", "bob"), receiver.count("user.online", "bob")), (0, 1));
    receiver.check();
}

#[test]
fn what_a_killed_node_has_left_is_told_by_its_next_start() {
    let (scratch, receiver) = (Scratch::new("durable-left"), Receiver::start());
    let start = || {
        TestServer::with(|settings| {
            in_file(settings, &scratch);
            receiver.told(settings, |_| {});
        })
    };
    drop(start());
    // The rows as a killed process leaves them.
    let rows = rusqlite::Connection::open(scratch.0.join("primary.db")).expect("it opens");
    rows.execute_batch(
        "INSERT INTO event_node VALUES ('gone', 70, 3); \
         INSERT INTO event_client VALUES ('gone', 70, 'c1', \
             '{\"user\":\"ann\",\"transport\":\"websocket\",\"connected_ms\":1,\"life\":2}'); \
         INSERT INTO event_holder VALUES (2, 'ann', 'gone', 70), (2, 'bob', 'gone', 70); \
         INSERT INTO event_key (kind, key, generation) VALUES (2, 'ann', 7), (2, 'bob', 5)",
    )
    .expect("the rows are good");
    let server = start();
    let lost = receiver.wait_for("client.disconnected", "c1");
    assert_eq!((lost["id"].as_str(), lost["data"]["cause"].as_str()), (Some("c1:d:2"), Some("restart")));
    assert!(lost["source"].as_str().is_some_and(|source| source.contains("/gone/")), "{lost}");
    let (_bob, _) = subscribed(&server, "bob", "chat");
    receiver.wait_for("channel.occupied", "chat");
    // The same a minute later.
    rows.execute("UPDATE event_key SET due_ms = 1 WHERE due_ms IS NOT NULL", []).expect("it is written");
    let gone = receiver.wait_for("user.offline", "ann");
    assert_eq!((gone["generation"].as_str(), gone["data"]["reason"].as_str()), (Some("8"), Some("restart")));
    assert_eq!((receiver.count("user.offline", "bob"), receiver.count("user.online", "bob")), (0, 0));
}

/// The number of events of a type in the outbox.
fn waiting(scratch: &Scratch, kind: &str) -> u64 {
    let rows = rusqlite::Connection::open(scratch.0.join("primary.db")).expect("it opens");
    let count = "SELECT count(*) FROM event_outbox WHERE body LIKE '%\"io.touchline.' || ?1 || '\"%'";
    rows.query_row(count, [kind], |row| row.get(0)).unwrap_or_default()
}

#[test]
fn an_endpoint_that_fails_for_a_while_gets_everything_in_order() {
    let (scratch, receiver) = (Scratch::new("durable-fails"), Receiver::start());
    let server = TestServer::with(|settings| {
        in_file(settings, &scratch);
        receiver.told(settings, |options| options.delay = Duration::ZERO);
    });
    receiver.status.store(500, SeqCst);
    for round in 0..6 {
        let mut client = Some(subscribed(&server, "ann", "chat"));
        for (first, second) in [("user.online", "channel.occupied"), ("user.offline", "channel.vacated")] {
            until("it waits for the endpoint", || {
                waiting(&scratch, first) == round + 1 && waiting(&scratch, second) == round + 1
            });
            client.take();
        }
    }
    receiver.status.store(204, SeqCst);
    until("all have arrived", || {
        receiver.count("user.offline", "ann") == 6 && receiver.count("channel.vacated", "chat") == 6
    });
    receiver.check();
    // The first batch was sent again until it arrived. Before that, nothing else of its lane was sent.
    assert_eq!(receiver.generations()["user:ann"].len(), 12);
}

#[test]
fn a_node_that_is_cut_from_the_database_is_told_as_gone_and_back() {
    let (scratch, receiver) = (Scratch::new("durable-cut"), Receiver::start());
    let postgres = PostgresServer::start(&scratch.0);
    let links = [Link::to(port_of(&postgres)), Link::to(port_of(&postgres))];
    let servers = [0, 1].map(|at| {
        TestServer::with(|settings| {
            settings.node.name = format!("node-{at}");
            on_postgres(settings, &links[at]);
            receiver.told(settings, |_| {});
        })
    });
    let (near, near_id) = subscribed(&servers[0], "ann", "chat");
    let (_far, far_id) = subscribed(&servers[1], "bob", "chat");
    let (_both, _) = subscribed(&servers[1], "ann", "news");
    for id in [&near_id, &far_id] {
        receiver.wait_for("client.connected", id);
    }
    links[1].cut();
    let lost = receiver.wait_for("client.disconnected", &far_id);
    assert_eq!(
        (lost["data"]["cause"].as_str(), lost["data"]["reason"].as_str()),
        (Some("node_down"), Some("node_lost"))
    );
    assert_eq!(receiver.wait_for("user.offline", "bob")["data"]["reason"], "node_down");
    receiver.wait_for("channel.vacated", "news");
    links[1].heal();
    until("the client is reported as connected again", || receiver.count("client.connected", &far_id) == 2);
    until("its user is online", || receiver.generations()["user:bob"].len() == 3);
    until("its channel is occupied", || receiver.generations()["channel:news"].len() == 3);
    drop(near);
    receiver.wait_for("client.disconnected", &near_id);
    assert_eq!((receiver.count("user.offline", "ann"), receiver.count("channel.vacated", "chat")), (0, 0));
    receiver.check();
}

#[test]
fn dead_letters_are_listed_sent_again_and_deleted() {
    let (scratch, receiver) = (Scratch::new("durable-dead"), Receiver::start());
    let server = TestServer::with(|settings| {
        in_file(settings, &scratch);
        receiver.told(settings, |options| {
            options.types = vec!["user_online".to_owned()];
            options.batch_max = 1;
        });
    });
    receiver.status.store(422, SeqCst);
    let clients = ["ann", "bob", "cid"].map(|user| subscribed(&server, user, "chat"));
    let list = |request: Value| server.api("events_dead", request)["result"].clone();
    until("they are dead", || list(json!({}))["letters"].as_array().is_some_and(|letters| letters.len() == 3));
    let first = list(json!({"endpoint": "backend", "limit": 2}));
    let letter = &first["letters"][0];
    assert_eq!((letter["endpoint"].as_str(), letter["tries"].as_u64()), (Some("backend"), Some(5)));
    assert!(letter["error"].as_str().is_some_and(|error| error.contains("422")), "{letter}");
    assert_eq!(letter["event"]["type"], "io.touchline.user.online");
    let rest = list(json!({"cursor": first["cursor"]}));
    assert_eq!((rest["letters"].as_array().map(Vec::len), rest["cursor"].is_null()), (Some(1), true));
    assert_eq!(list(json!({"endpoint": "other"})), json!({"letters": []}));
    let id = |page: &Value, at: usize| page["letters"][at]["id"].as_u64().expect("it has a number");
    let dropped = server.api("events_dead_drop", json!({"ids": [id(&first, 0), 999_999]}));
    assert_eq!(dropped["result"], json!({"count": 1}));
    receiver.status.store(204, SeqCst);
    let retried = server.api("events_dead_retry", json!({"ids": [id(&first, 1)]}));
    assert_eq!(retried["result"], json!({"count": 1}));
    assert_eq!(server.api("events_dead_retry", json!({"endpoint": "backend"}))["result"], json!({"count": 1}));
    until("they arrive, as they were", || waiting(&scratch, "user.online") == 0);
    assert_eq!(list(json!({})), json!({"letters": []}));
    for bad in [json!({}), json!({"ids": [1], "endpoint": "backend"}), json!({"ids": vec![1; 1_001]})] {
        let (status, text) = server.http("POST", "/api/events_dead_drop", "X-API-Key: api-key\r\n", &bad.to_string());
        assert!(status == 200 && text.contains("\"code\":107"), "{bad}: {status} {text}");
    }
    drop(clients);
}

#[test]
fn without_durable_endpoints_no_dead_letter_is_kept() {
    let receiver = Receiver::start();
    for has_events in [true, false] {
        let server = TestServer::with(|settings| {
            if has_events {
                receiver.told(settings, |options| options.durable = false);
            }
        });
        assert_eq!(server.api("events_dead", json!({}))["error"]["code"], 108);
    }
}

#[test]
fn an_endpoint_that_is_gone_gets_the_rest_after_the_next_start() {
    let (scratch, receiver) = (Scratch::new("durable-gone"), Receiver::start());
    receiver.status.store(410, SeqCst);
    let start = || {
        TestServer::with(|settings| {
            in_file(settings, &scratch);
            receiver.told(settings, |options| options.types = vec!["connected".to_owned()]);
        })
    };
    let server = start();
    let (client, id) = subscribed(&server, "ann", "chat");
    until("it was asked once", || !receiver.backend.questions().is_empty());
    let (other, other_id) = subscribed(&server, "ann", "chat");
    until("both wait", || waiting(&scratch, "client.connected") == 2);
    assert_eq!(receiver.backend.questions().len(), 1, "it is left alone");
    drop((client, other));
    drop(server);
    receiver.status.store(204, SeqCst);
    let _server = start();
    receiver.wait_for("client.connected", &id);
    receiver.wait_for("client.connected", &other_id);
    until("they are done", || waiting(&scratch, "client.connected") == 0);
}

/// Puts a row into the outbox, as another version might.
fn put_row(scratch: &Scratch, body: &str) {
    let rows = rusqlite::Connection::open(scratch.0.join("primary.db")).expect("it opens");
    rows.busy_timeout(PATIENCE).expect("it is set");
    let put = "INSERT INTO event_outbox (endpoint, lane, made_ms, body) VALUES ('backend', 0, ?1, ?2)";
    let now_ms = std::time::UNIX_EPOCH.elapsed().expect("it is later").as_millis() as u64;
    rows.execute(put, (now_ms, body)).expect("it is written");
}

#[test]
fn rows_that_are_no_events_are_put_aside_and_the_rest_goes_on() {
    let (scratch, receiver) = (Scratch::new("durable-unreadable"), Receiver::start());
    let server = TestServer::with(|settings| {
        in_file(settings, &scratch);
        receiver.told(settings, |options| (options.lanes, options.types) = (1, vec!["connected".to_owned()]));
    });
    let (_first, id) = subscribed(&server, "ann", "chat");
    receiver.wait_for("client.connected", &id);
    put_row(&scratch, "no JSON");
    put_row(&scratch, r#"{"id": "1", "source": "/s", "type": "io.touchline.of.later", "partitionkey": "all"}"#);
    let (_second, id) = subscribed(&server, "bob", "chat");
    receiver.wait_for("client.connected", &id);
    let list = || server.api("events_dead", json!({}))["result"]["letters"].as_array().cloned().unwrap_or_default();
    until("they are dead", || list().len() == 2);
    let causes: Vec<String> = list().iter().map(|letter| letter["error"].to_string()).collect();
    assert!(causes[0].contains("not an event") && causes[1].contains("io.touchline.of.later"), "{causes:?}");
    until_eq(2, || server.metric("touchline_events_dead_total{endpoint=\"backend\",reason=\"unreadable\"}"));
}

#[test]
fn batches_are_bounded_in_bytes_and_what_waits_is_measured() {
    let (scratch, receiver) = (Scratch::new("durable-bytes"), Receiver::start());
    let server = TestServer::with(|settings| {
        in_file(settings, &scratch);
        receiver.told(settings, |options| (options.lanes, options.types) = (1, vec!["connected".to_owned()]));
    });
    receiver.status.store(500, SeqCst);
    let text = "x".repeat(16_000);
    for number in 0..40 {
        let event = json!({
            "id": number.to_string(), "source": "/s", "type": "io.touchline.client.connected", "partitionkey": "all",
            "subject": "large", "data": {"text": text},
        });
        put_row(&scratch, &event.to_string());
    }
    let metric = |name: &str| {
        let metrics = server.http("GET", "/metrics", "", "").1;
        let line = format!("touchline_{name}{{endpoint=\"backend\"}} ");
        let value = metrics.lines().find_map(|metric| metric.strip_prefix(&line)).map(str::to_owned);
        value.and_then(|value| value.parse::<f64>().ok()).unwrap_or_default()
    };
    until("all are counted", || metric("events_queued") == 40.0 && metric("events_queued_bytes") > 640_000.0);
    until("the oldest gets older", || metric("events_oldest_seconds") > 0.0);
    receiver.status.store(204, SeqCst);
    until("all have arrived", || receiver.events().len() == 40);
    let sizes: Vec<usize> = receiver.backend.questions().iter().map(|batch| batch.body.to_string().len()).collect();
    assert!(sizes.iter().all(|size| *size < 256 * 1_024 + 1_000), "{sizes:?}");
    assert!(sizes.iter().any(|size| *size > 200_000), "they are batches all the same: {sizes:?}");
    until("nothing is counted any more", || metric("events_queued") == 0.0);
}
