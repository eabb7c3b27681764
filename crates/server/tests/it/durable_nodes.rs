//! Durable events of nodes whose configurations are not the same.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::Settings;
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::until;

use super::bans::Scratch;
use super::bans_of_nodes::port_of;
use super::durable_events::{Receiver, on_postgres, subscribed};
use super::link::Link;
use super::support::TestServer;

/// A node with one endpoint of this name, which receives events of these types.
fn node(link: &Link, receiver: &Receiver, (name, endpoint): (&str, &str), types: &[&str]) -> TestServer {
    TestServer::with(|settings| {
        settings.node.name = name.to_owned();
        on_postgres(settings, link);
        with_endpoint(settings, receiver, endpoint, types);
    })
}

fn with_endpoint(settings: &mut Settings, receiver: &Receiver, endpoint: &str, types: &[&str]) {
    receiver.told(settings, |options| options.types = types.iter().map(|word| (*word).to_owned()).collect());
    settings.events[0].name = endpoint.to_owned();
}

fn ready(server: &TestServer) -> Value {
    serde_json::from_str(&server.http("GET", "/readyz", "", "").1).unwrap_or_default()
}

#[test]
fn each_node_tells_the_endpoints_of_all_nodes() {
    let scratch = Scratch::new("durable-unlike");
    let postgres = PostgresServer::start(&scratch.0);
    let link = Link::to(port_of(&postgres));
    let (of_one, of_two) = (Receiver::start(), Receiver::start());
    let one = node(&link, &of_one, ("one", "first"), &["connected", "disconnected"]);
    let (early, early_id) = subscribed(&one, "ann", "chat");
    of_one.wait_for("client.connected", &early_id);
    // The second node wants events that the first one never sent, about clients that were there before.
    let two = node(&link, &of_two, ("two", "second"), &["user_online", "user_offline", "occupied", "vacated"]);
    of_two.wait_for("user.online", "ann");
    of_two.wait_for("channel.occupied", "chat");
    until("the start is reported", || of_two.events().iter().any(|event| event["data"]["why"] == "start"));
    // A user on both nodes is online until the last connection ends. The first endpoint receives an event of each
    // client.
    let (late, late_id) = subscribed(&two, "ann", "chat");
    of_one.wait_for("client.connected", &late_id);
    drop(early);
    of_one.wait_for("client.disconnected", &early_id);
    let (_other, other_id) = subscribed(&one, "bob", "news");
    of_two.wait_for("user.online", "bob");
    of_one.wait_for("client.connected", &other_id);
    assert_eq!((of_two.count("user.offline", "ann"), of_two.count("channel.vacated", "chat")), (0, 0));
    drop(late);
    of_one.wait_for("client.disconnected", &late_id);
    of_two.wait_for("user.offline", "ann");
    of_two.wait_for("channel.vacated", "chat");
    of_two.check();
    assert_eq!(of_two.count("client.connected", &late_id), 0, "it did not ask for that");
    assert!(ready(&one)["events_differing"].is_null() && ready(&two)["events_differing"].is_null());
}

#[test]
fn an_endpoint_that_nodes_describe_otherwise_is_told_what_any_wants() {
    let scratch = Scratch::new("durable-differing");
    let postgres = PostgresServer::start(&scratch.0);
    let link = Link::to(port_of(&postgres));
    let receiver = Receiver::start();
    let one = node(&link, &receiver, ("one", "backend"), &["user_online"]);
    let two = node(&link, &receiver, ("two", "backend"), &["user_online", "user_offline"]);
    for server in [&one, &two] {
        until("it is named", || ready(server)["events_differing"] == json!(["backend"]));
    }
    for (server, user) in [(&one, "ann"), (&two, "bob")] {
        let client = subscribed(server, user, "chat");
        receiver.wait_for("user.online", user);
        drop(client);
        receiver.wait_for("user.offline", user);
    }
    receiver.check();
}

#[test]
fn a_node_without_durable_events_is_named() {
    let (scratch, nats) = (Scratch::new("durable-silent"), NatsServer::start(JETSTREAM));
    let postgres = PostgresServer::start(&scratch.0);
    let (link, to_nats, receiver) = (Link::to(port_of(&postgres)), Link::to(nats.port), Receiver::start());
    let in_cluster = |settings: &mut Settings, name: &str| {
        settings.node.name = name.to_owned();
        settings.cluster.engine = "nats".to_owned();
        settings.cluster.nats_url = vec![format!("nats://{}", to_nats.address)];
        // Short: it only makes the test faster.
        settings.cluster.heartbeat_interval = Duration::from_millis(200);
        settings.cluster.node_timeout = Duration::from_secs(5);
        on_postgres(settings, &link);
    };
    let teller = TestServer::with(|settings| {
        in_cluster(settings, "teller");
        with_endpoint(settings, &receiver, "backend", &["user_online", "user_offline"]);
    });
    let silent = TestServer::with(|settings| in_cluster(settings, "silent"));
    let nodes = || ready(&teller)["nodes_without_durable_events"].as_array().map_or(0, Vec::len);
    until("it is named", || nodes() == 1);
    let resets = || receiver.events().iter().filter(|event| event["data"]["why"] == "node_silent").count();
    until("earlier events may be wrong", || resets() == 1);
    drop(silent);
    until("all take part", || nodes() == 0 && resets() == 2);
}
