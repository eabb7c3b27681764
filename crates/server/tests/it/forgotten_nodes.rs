//! `forget_user` in a cluster: every node does its part, and the answer names a node that is missing.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::until;

use super::bans::{Scratch, code, connected};
use super::bans_of_nodes::port_of;
use super::forgotten::{is_known, keep, keeping, named, over, register, reported, result, track, waiting};
use super::link::Link;
use super::support::TestServer;

/// A node of a cluster, ready. If it is cut off, it stays in sight.
fn node(name: &str, nats: &Link, database: &Link) -> TestServer {
    node_that_is_seen(name, nats, database, Duration::from_secs(50))
}

/// A node of a cluster, ready. `timeout`: how long it sees other nodes that are silent.
fn node_that_is_seen(name: &str, nats: &Link, database: &Link, timeout: Duration) -> TestServer {
    let server = TestServer::with(|settings| {
        keeping(settings);
        over(settings, database);
        settings.node.name = name.to_owned();
        settings.cluster.engine = "nats".to_owned();
        settings.cluster.nats_url = vec![format!("nats://{}", nats.address)];
        settings.cluster.node_timeout = timeout;
        settings.cluster.suspect_grace = timeout;
    });
    until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
    server
}

#[test]
fn a_user_is_forgotten_on_every_node() {
    let scratch = Scratch::new("forgotten-nodes");
    let (nats, postgres) = (NatsServer::start(JETSTREAM), PostgresServer::start(&scratch.0));
    let database = Link::to(port_of(&postgres));
    let links = [Link::to(nats.port), Link::to(nats.port)];
    let (one, two) = (node("one", &links[0], &database), node("two", &links[1], &database));
    for server in [&one, &two] {
        until("the nodes see each other", || {
            result(server, "info", json!({}))["nodes"].as_array().map(Vec::len) == Some(2)
        });
    }
    let claims = || json!({"sub": "ann"});
    let (mut here, mut there, mut bob) =
        (connected(&one, claims()), connected(&two, claims()), connected(&two, json!({"sub": "bob"})));
    register(&mut there, "ann/phone");
    register(&mut there, "truck");
    register(&mut bob, "bob/phone");
    [&mut here, &mut there, &mut bob].into_iter().for_each(track);
    ["ann/phone", "truck", "bob/phone"].iter().for_each(|name| keep(&one, name));
    let of = |name: &str| one.api("lookup", json!({"scope": "devices", "name": name}));
    until("the name is known on the other node", || of("ann/phone")["result"].is_object());

    let told = result(&one, "forget_user", about("ann"));
    assert_eq!((&told["done"], &told["missing_nodes"]), (&json!(true), &Value::Null), "{told}");
    let removed = &told["removed"];
    let counts = ["connections", "names", "inbox_messages", "stats_events"].map(|of| removed[of].as_u64());
    assert_eq!(counts, [Some(2), Some(2), Some(0), Some(2)], "{told}");
    assert!(removed["last_seen"].as_u64() >= Some(1), "{told}");
    assert_eq!(told["remains"]["inboxes"], named(&["ann/phone", "truck"]));
    assert_eq!((code(&mut here), code(&mut there)), (3503, 3503));
    until("the name is free on every node", || of("ann/phone")["error"]["code"] == 4002);
    assert_eq!(
        (waiting(&one), reported(&two)),
        (["ann/phone", "bob/phone", "truck"].map(str::to_owned).to_vec(), (json!(1), json!(1)))
    );
    for server in [&one, &two] {
        assert_eq!((is_known(server, "ann"), is_known(server, "bob")), (false, true));
    }

    // The answer names a node that does not answer. The work begins again when the node is back.
    let mut late = connected(&two, claims());
    links[1].cut();
    let told = result(&one, "forget_user", about("ann"));
    assert_eq!((&told["done"], &told["cursor"], &told["is_partial"]), (&json!(false), &Value::Null, &json!(true)));
    assert_eq!(told["missing_nodes"].as_array().map(Vec::len), Some(1), "{told}");
    links[1].heal();
    until("it is done", || result(&one, "forget_user", about("ann"))["done"] == true);
    assert_eq!(code(&mut late), 3503);
}

#[test]
fn it_is_not_done_while_a_node_that_is_out_of_sight_may_serve_the_user() {
    let scratch = Scratch::new("forgotten-lost");
    let (nats, postgres) = (NatsServer::start(JETSTREAM), PostgresServer::start(&scratch.0));
    let database = Link::to(port_of(&postgres));
    let links = [Link::to(nats.port), Link::to(nats.port)];
    let of = |name, link| node_that_is_seen(name, link, &database, Duration::from_secs(3));
    let (one, two) = (of("one", &links[0]), of("two", &links[1]));
    let seen = || result(&one, "info", json!({}))["nodes"].as_array().map(Vec::len);
    until("the nodes see each other", || seen() == Some(2));
    let mut there = connected(&two, json!({"sub": "ann"}));
    links[1].cut();
    until("the other node is out of sight", || seen() == Some(1));
    super::bans::is_served(&mut there);
    let told = result(&one, "forget_user", about("ann"));
    assert_eq!((&told["done"], &told["cursor"], &told["is_partial"]), (&json!(false), &Value::Null, &json!(true)));
    assert_eq!(told["missing_nodes"].as_array().map(Vec::len), Some(1), "{told}");
    links[1].heal();
    until("it is done", || result(&one, "forget_user", about("ann"))["done"] == true);
    assert_eq!(code(&mut there), 3503);
}

/// The request to forget a user.
fn about(user: &str) -> Value {
    json!({ "user": user })
}
