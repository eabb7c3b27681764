//! Publications with exclusions, and publications that are only counted.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace, Settings};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{until, until_eq};

use super::bans::Scratch;
use super::link::Link;
use super::support::{TestServer, open, token};

/// Adds channels with everything that a subscriber may ask for.
fn channels(settings: &mut Settings) {
    settings.node.name = "one".into();
    let options = ChannelOptions {
        history_size: 1_000,
        history_ttl: Duration::from_secs(600),
        force_recovery: true,
        allow_tags_filter: true,
        allowed_delta_types: vec!["fossil".into()],
        ..open()
    };
    settings.channel.namespaces.push(Namespace { name: "all".into(), options });
}

/// Adds the same channels in a database.
fn durable(settings: &mut Settings, url: &str) {
    channels(settings);
    settings.store.primary.url = url.to_owned();
    let options = ChannelOptions {
        durable: true,
        history_size: 1_000,
        history_ttl: Duration::from_secs(600),
        force_recovery: true,
        ..open()
    };
    settings.channel.namespaces.push(Namespace { name: "durable".into(), options });
}

/// The counts of a dry run on the node of this name.
fn counted(server: &TestServer, answer: &Value, name: &str) -> Value {
    let information = server.api("info", json!({}));
    let nodes = information["result"]["nodes"].as_array().cloned().unwrap_or_default();
    let uid = nodes.iter().find(|node| node["name"] == name).and_then(|node| node["uid"].as_str()).expect("an id");
    answer["result"]["audience"]["nodes"][uid].clone()
}

/// A subscriber of one channel, as a test follows it.
struct Subscriber {
    socket: WebSocket,
    client: String,
    user: String,
    /// It gets only publications whose tag `n` has this value.
    filter: Option<&'static str>,
    has_deltas: bool,
}

impl Subscriber {
    fn new(server: &TestServer, user: &str, channel: &str, filter: Option<&'static str>, has_deltas: bool) -> Self {
        let mut socket = server.websocket();
        let connect = if user.is_empty() { json!({}) } else { json!({"token": token(json!({"sub": user}))}) };
        let reply = socket.ask(json!({"id": 1, "connect": connect}));
        let client = reply["connect"]["client"].as_str().expect("an id").to_owned();
        let mut subscribe = json!({"channel": channel});
        if let Some(n) = filter {
            subscribe["tf"] = json!({"key": "n", "cmp": "eq", "val": n});
        }
        if has_deltas {
            subscribe["delta"] = json!("fossil");
        }
        let reply = socket.ask(json!({"id": 2, "subscribe": subscribe}));
        assert!(reply["error"].is_null(), "{reply}");
        Subscriber { socket, client, user: user.to_owned(), filter, has_deltas }
    }

    /// The data of the next publication as a number; of a delta, only that it is one.
    fn next(&mut self) -> Got {
        let publication = self.socket.publication();
        if publication["delta"] == json!(true) {
            return Got::Delta(publication["offset"].as_u64().unwrap_or_default());
        }
        let data = match &publication["data"] {
            Value::String(text) => serde_json::from_str(text).expect("a payload as text"),
            data => data.clone(),
        };
        Got::Whole(data["number"].as_u64().expect("a number"))
    }
}

#[derive(Debug, PartialEq)]
enum Got {
    Whole(u64),
    /// A change to the publication before, with its offset.
    Delta(u64),
}

/// A long payload, so that a change to the one before is shorter.
fn payload(number: u64) -> Value {
    json!({"text": "the same in all of them, and long ".repeat(8), "number": number})
}

/// Random subscribers, publications and exclusions. Excluded subscribers get nothing, and the others lose nothing. A
/// delta goes only to a subscriber that has the publication before. No subscriber sees a gap.
#[test]
fn only_who_is_left_out_gets_nothing() {
    let mut random = fastrand::Rng::with_seed(18);
    let mut below = |n: u64| random.u64(..n);
    let server = TestServer::with(channels);
    for round in 0..6 {
        let channel = format!("all:{round}");
        let mut subscribers: Vec<Subscriber> = (0..12)
            .map(|n| {
                let user = ["ann", "bob", "eve", ""][below(4) as usize];
                let filter = [None, Some("0"), Some("1")][below(3) as usize];
                Subscriber::new(&server, user, &channel, filter, filter.is_none() && n % 2 == 0)
            })
            .collect();
        let mut expected: Vec<Vec<Got>> = subscribers.iter().map(|_| Vec::new()).collect();
        let mut has_last = vec![false; subscribers.len()];
        for number in 1..=40u64 {
            let tag = below(2).to_string();
            let mut publish = json!({"channel": channel, "data": payload(number), "tags": {"n": tag}});
            if below(3) == 0 {
                publish["exclude_client"] = json!(subscribers[below(12) as usize].client);
            }
            if below(3) == 0 {
                publish["exclude_user"] = json!(["ann", "bob", "nobody"][below(3) as usize]);
            }
            let answer = server.api("publish", publish.clone());
            assert_eq!(answer["result"]["offset"], number, "{answer}");
            for (index, subscriber) in subscribers.iter().enumerate() {
                let is_left_out = publish["exclude_client"] == json!(subscriber.client)
                    || publish["exclude_user"] == json!(subscriber.user);
                let fits = subscriber.filter.is_none_or(|n| n == tag);
                if !is_left_out && fits {
                    let is_delta = subscriber.has_deltas && has_last[index];
                    expected[index].push(if is_delta { Got::Delta(number) } else { Got::Whole(number) });
                }
                has_last[index] = !is_left_out;
            }
        }
        for (subscriber, expected) in subscribers.iter_mut().zip(expected) {
            for expected in expected {
                assert_eq!(subscriber.next(), expected, "round {round}, {}", subscriber.client);
            }
        }
        // Nothing is left over, and no client had to subscribe again.
        server.publish(&channel, payload(99));
        let last = json!({"id": 9, "rpc": {"method": "none"}});
        for subscriber in &mut subscribers {
            subscriber.socket.send_json(last.clone());
            loop {
                let message = subscriber.socket.message();
                if message["id"] == 9 {
                    break;
                }
                assert_eq!(message["push"]["pub"]["offset"], 41, "{message}");
            }
        }
    }
}

#[test]
fn who_was_left_out_recovers_the_publication() {
    let server = TestServer::with(channels);
    let mut ann = Subscriber::new(&server, "ann", "all:a", None, false);
    for number in 1..=3 {
        let publish =
            json!({"channel": "all:a", "data": payload(number), "exclude_user": if number == 2 { "ann" } else { "" }});
        assert!(server.api("publish", publish)["error"].is_null());
    }
    assert_eq!((ann.next(), ann.next()), (Got::Whole(1), Got::Whole(3)));
    let mut again = server.connected();
    let reply = again.ask(json!({"id": 2, "subscribe": {"channel": "all:a", "recover": true, "offset": 1}}));
    let missed = reply["subscribe"]["publications"].as_array().expect("publications");
    assert_eq!((missed.len(), &missed[0]["offset"]), (2, &json!(2)), "{reply}");
    assert!(missed.iter().all(|publication| publication["exclude"].is_null()));
}

/// The exclusion applies to a broadcast and outside the history. A repeated key repeats neither.
#[test]
fn a_broadcast_and_what_is_not_kept_leave_out_too() {
    let server = TestServer::with(channels);
    let (mut ann, mut bob) =
        (Subscriber::new(&server, "ann", "news", None, false), Subscriber::new(&server, "bob", "news", None, false));
    let broadcast = json!({"channels": ["news", "all:b"], "data": payload(1), "exclude_client": ann.client,
        "idempotency_key": "k"});
    for _ in 0..2 {
        assert!(server.api("broadcast", broadcast.clone())["error"].is_null());
    }
    server.publish("news", payload(2));
    assert_eq!((ann.next(), bob.next(), bob.next()), (Got::Whole(2), Got::Whole(1), Got::Whole(2)));
    // An SDK that publishes through its backend does not get its own publication.
    let own = json!({"channel": "all:c", "data": payload(1), "skip_history": true, "exclude_user": "ann"});
    let (mut ann, mut bob) =
        (Subscriber::new(&server, "ann", "all:c", None, true), Subscriber::new(&server, "bob", "all:c", None, true));
    assert!(server.api("publish", own)["error"].is_null());
    server.publish("all:c", payload(2));
    assert_eq!((ann.next(), bob.next(), bob.next()), (Got::Whole(2), Got::Whole(1), Got::Whole(2)));
}

#[test]
fn what_cannot_be_left_out_or_counted_is_refused_with_its_field() {
    let server = TestServer::with(channels);
    let cases = [
        ("exclude_client", json!("no id")),
        ("exclude_client", json!(1)),
        ("exclude_client", json!(["a"])),
        ("exclude_user", json!("a\u{0}")),
        ("exclude_user", json!("u".repeat(1_025))),
        ("exclude_user", json!({})),
    ];
    let headers = format!("X-API-Key: {}\r\n", super::support::KEY);
    let field = |operation: &str, body: &Value| {
        let (_, text) = server.http("POST", &format!("/api/{operation}"), &headers, &body.to_string());
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        (answer["error"]["code"].clone(), answer["error"]["field"].clone())
    };
    for (name, value) in cases {
        for (operation, place) in
            [("publish", json!({"channel": "news"})), ("broadcast", json!({"channels": ["news"]}))]
        {
            let mut body = place.clone();
            (body["data"], body[name]) = (json!(1), value.clone());
            assert_eq!(field(operation, &body), (json!(107), json!(name)), "{operation} {body}");
        }
    }
    for value in [json!(1), json!("yes"), json!([])] {
        let body = json!({"channel": "news", "data": 1, "dry_run": value});
        assert_eq!(field("publish", &body), (json!(107), json!("dry_run")), "{body}");
    }
    let nulls = json!({"channel": "news", "data": 1, "dry_run": null, "exclude_client": null, "exclude_user": null});
    assert_eq!(server.api("publish", nulls), json!({"result": {}}));
    assert_eq!(field("publish", &json!({"channel": "nope:a", "data": 1, "dry_run": true})).0, 102);
    assert_eq!(field("publish", &json!({"channel": "news", "dry_run": true})), (json!(107), json!("data")));
    let asks = |dry_run: Value| json!({"channels": ["news"], "data": 1, "dry_run": dry_run});
    for value in [json!(true), json!(1), json!("true")] {
        assert_eq!(field("broadcast", &asks(value.clone())), (json!(107), json!("dry_run")), "{value}");
    }
    for value in [json!(false), Value::Null] {
        assert!(server.api("broadcast", asks(value))["error"].is_null());
    }
    until_eq(0, || server.metric("touchline_panics_total"));
}

#[test]
fn a_dry_run_counts_and_publishes_nothing() {
    let server = TestServer::with(channels);
    let mut all: Vec<Subscriber> = (0..3).map(|_| Subscriber::new(&server, "ann", "all:a", None, false)).collect();
    all.push(Subscriber::new(&server, "bob", "all:a", Some("1"), false));
    all.push(Subscriber::new(&server, "bob", "all:a", Some("0"), false));
    let mut publish = json!({"channel": "all:a", "data": payload(1), "tags": {"n": "1"}, "idempotency_key": "k",
        "dry_run": true, "exclude_client": all[0].client});
    let answer = server.api("publish", publish.clone());
    let here = counted(&server, &answer, "one");
    let counts = ["clients", "filtered", "excluded", "protobuf_bytes"].map(|name| here[name].as_u64());
    assert_eq!(counts, [Some(3), Some(1), Some(1), Some(0)], "{answer}");
    assert_eq!(here["bytes"], here["json_bytes"]);
    assert_eq!(answer["result"]["audience"]["missing_nodes"], Value::Null);
    publish["dry_run"] = json!(false);
    // read once: the value before the publication.
    let written = server.metric("touchline_written_bytes_total");
    assert_eq!(server.api("publish", publish)["result"]["offset"], 1, "the key is not used, nor is an offset");
    for subscriber in &mut all[1..4] {
        assert_eq!(subscriber.next(), Got::Whole(1));
    }
    until("all is written", || server.metric("touchline_written_bytes_total") > written);
    let sent = here["bytes"].as_u64().expect("bytes");
    until("as many bytes as were foretold are written, but for the digits of the time", || {
        server.metric("touchline_written_bytes_total") - written == sent
    });
    let nobody = server.api("publish", json!({"channel": "all:empty", "data": 1, "dry_run": true}));
    assert_eq!(counted(&server, &nobody, "one")["clients"], 0);
    assert_eq!(server.api("channels", json!({"pattern": "all:empty"}))["result"]["channels"], json!({}));
}

/// There are more subscribers than are counted in one turn, some of them with filters.
#[test]
fn a_large_channel_is_counted_in_slices() {
    let server = TestServer::with(|settings| {
        channels(settings);
        settings.client.channel_limit = 128;
    });
    let mut sockets: Vec<WebSocket> = Vec::new();
    for n in 0..2_600u64 {
        let mut socket = server.connected();
        let mut subscribe = json!({"channel": "all:big"});
        if n % 2 == 0 {
            subscribe["tf"] = json!({"key": "n", "cmp": "eq", "val": (n % 100).to_string()});
        }
        socket.ask(json!({"id": 2, "subscribe": subscribe}));
        sockets.push(socket);
    }
    let publish = json!({"channel": "all:big", "data": 1, "tags": {"n": "2"}, "dry_run": true});
    let here = counted(&server, &server.api("publish", publish), "one");
    let counts = ["clients", "filtered", "excluded"].map(|name| here[name].as_u64());
    assert_eq!(counts, [Some(1_326), Some(1_274), Some(0)], "{here}");
}

/// Two nodes with the settings that `change` makes, which let them share channels.
fn nodes(change: impl Fn(&mut Settings)) -> [TestServer; 2] {
    ["one", "two"].map(|name| {
        let server = TestServer::with(|settings| {
            change(settings);
            settings.node.name = name.to_owned();
        });
        until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
        server
    })
}

/// One node publishes into a channel. Every second publication excludes a user who is on both nodes.
fn leaves_out_on_both_nodes([one, two]: &[TestServer; 2], channel: &str) {
    let mut bobs =
        [Subscriber::new(one, "bob", channel, None, false), Subscriber::new(two, "bob", channel, None, false)];
    let mut anns =
        [Subscriber::new(one, "ann", channel, None, false), Subscriber::new(two, "ann", channel, None, false)];
    for number in 1..=10 {
        let left_out = if number % 2 == 0 { "ann" } else { "" };
        let publish = json!({"channel": channel, "data": payload(number), "exclude_user": left_out});
        let answer = one.api("publish", publish);
        assert!(answer["error"].is_null(), "{answer}");
    }
    for bob in &mut bobs {
        for number in 1..=10 {
            assert_eq!(bob.next(), Got::Whole(number));
        }
    }
    for ann in &mut anns {
        for number in [1, 3, 5, 7, 9] {
            assert_eq!(ann.next(), Got::Whole(number));
        }
    }
}

#[test]
fn nodes_of_a_cluster_leave_out_and_count_together() {
    let nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let nodes = nodes(|settings| {
        channels(settings);
        settings.cluster.engine = "nats".to_owned();
        settings.cluster.nats_url = vec![format!("nats://{}", link.address)];
    });
    for node in &nodes {
        until("both nodes see each other", || {
            node.api("info", json!({}))["result"]["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
        });
    }
    leaves_out_on_both_nodes(&nodes, "news");
    leaves_out_on_both_nodes(&nodes, "all:cluster");
    let [one, two] = &nodes;
    let _ann = Subscriber::new(one, "ann", "all:dry", None, false);
    let _bob = Subscriber::new(two, "bob", "all:dry", None, false);
    let answer = one.api("publish", json!({"channel": "all:dry", "data": 1, "dry_run": true, "exclude_user": "bob"}));
    let counts = |node: &str| ["clients", "excluded"].map(|name| counted(one, &answer, node)[name].as_u64());
    assert_eq!((counts("one"), counts("two")), ([Some(1), Some(0)], [Some(0), Some(1)]), "{answer}");
    assert!(answer["result"]["audience"]["missing_nodes"].is_null());
}

#[test]
fn nodes_that_share_a_database_leave_out() {
    let scratch = Scratch::new("exclusion-postgres");
    let postgres = PostgresServer::start(&scratch.0);
    let url = postgres.url();
    let nodes = nodes(|settings| durable(settings, &url));
    leaves_out_on_both_nodes(&nodes, "durable:a");
    // The history contains no trace of the exclusion.
    let history = nodes[1].api("history", json!({"channel": "durable:a", "limit": -1}));
    let publications = history["result"]["publications"].as_array().expect("publications");
    assert_eq!(publications.len(), 10, "{history}");
    assert!(
        publications.iter().all(|publication| publication.as_object().is_some_and(|it| !it.contains_key("exclude")))
    );
}

#[test]
fn a_file_keeps_what_was_left_out_through_a_restart() {
    let scratch = Scratch::new("exclusion-sqlite");
    let url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    let start = || TestServer::with(|settings| durable(settings, &url));
    let mut server = start();
    let mut ann = Subscriber::new(&server, "ann", "durable:a", None, false);
    for (number, user) in [(1, "ann"), (2, "")] {
        let publish = json!({"channel": "durable:a", "data": payload(number), "exclude_user": user});
        assert_eq!(server.api("publish", publish)["result"]["offset"], number);
    }
    assert_eq!(ann.next(), Got::Whole(2));
    server.stop();
    let server = start();
    let mut again = server.connected();
    let reply = again.ask(json!({"id": 2, "subscribe": {"channel": "durable:a", "recover": true, "offset": 0}}));
    let numbers = |reply: &Value| {
        let publications = reply["subscribe"]["publications"].as_array().cloned().unwrap_or_default();
        publications.iter().map(|publication| publication["data"]["number"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&reply), [Some(1), Some(2)], "{reply}");
    assert!(!reply.to_string().contains("exclude"));
}
