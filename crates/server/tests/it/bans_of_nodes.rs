//! Bans of several nodes: in each backend that they can share, with links that are cut, and over restarts.

use serde_json::{Value, json};
use touchline_server::{Settings, WhenCutOff};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::until;

use super::bans::{Scratch, code, connected, done, is_served, refusal};
use super::link::Link;
use super::support::TestServer;

/// Starts a node over a link, and waits until it is ready.
fn node(name: &str, link: &Link, change: impl FnOnce(&mut Settings, &Link)) -> TestServer {
    let server = TestServer::with(|settings| {
        settings.node.name = name.to_owned();
        change(settings, link);
    });
    ready(&server);
    server
}

fn health(server: &TestServer) -> u16 {
    server.http("GET", "/readyz", "", "").0
}

fn ready(server: &TestServer) {
    until("the node is ready", || health(server) == 200);
}

fn is_current(server: &TestServer) -> bool {
    server.metric("touchline_bans_current") == 1
}

fn on_postgres(settings: &mut Settings, link: &Link) {
    settings.store.primary.url = format!("postgres://postgres@{}/postgres?sslmode=disable", link.address);
    // Short: the tests wait until the database is lost.
    settings.store.primary.timeout = std::time::Duration::from_secs(2);
}

fn in_cluster(settings: &mut Settings, link: &Link) {
    settings.cluster.engine = "nats".to_owned();
    settings.cluster.nats_url = vec![format!("nats://{}", link.address)];
}

/// One node bans, and the other one must apply the bans. After a restart both nodes still know them.
fn bans_reach_every_node(port: u16, change: fn(&mut Settings, &Link)) {
    let links = [Link::to(port), Link::to(port)];
    let one = node("one", &links[0], change);
    let mut two = node("two", &links[1], change);
    let claims = |jti: &str, iat: u64| json!({"sub": "bob", "jti": jti, "iat": iat});
    let (mut ann, mut eve) = (connected(&two, json!({"sub": "ann"})), connected(&two, json!({"sub": "eve"})));
    let (mut old, mut new) = (connected(&two, claims("t1", 50)), connected(&two, claims("t2", 100)));
    let mut near = connected(&one, json!({"sub": "ann"}));
    done(&one, "block_user", json!({"user": "ann"}));
    assert_eq!(refusal(&one, json!({"sub": "ann"})), 3503, "the node that was asked knows it when it answers");
    assert_eq!((code(&mut near), code(&mut ann)), (3503, 3503));
    done(&one, "invalidate_user_tokens", json!({"user": "bob", "issued_before": 100}));
    assert_eq!(code(&mut old), 3500);
    is_served(&mut new);
    done(&one, "revoke_token", json!({"uid": "t2"}));
    assert_eq!(code(&mut new), 3500);
    is_served(&mut eve);
    // The other direction, and lifted bans.
    done(&two, "block_user", json!({"user": "zoe"}));
    until("the other node knows it", || refusal(&one, json!({"sub": "zoe"})) == 3503);
    done(&one, "unblock_user", json!({"user": "zoe"}));
    done(&one, "unblock_user", json!({"user": "nobody"}));
    until("the other node knows it", || refusal(&two, json!({"sub": "zoe"})) == 0);
    two.stop();
    let two = node("two", &links[1], change);
    let judged = [json!({"sub": "ann"}), claims("t9", 99), claims("t2", 200), json!({"sub": "zoe"})];
    assert_eq!(judged.map(|claims| refusal(&two, claims)), [3503, 3500, 3500, 0]);
}

/// A node that is cut off serves its clients. It judges new clients by what it knows, or refuses them for the time
/// being. When it is back, it ends the connections that were banned meanwhile.
fn a_cut_is_survived(port: u16, change: fn(&mut Settings, &Link)) {
    let links = [Link::to(port), Link::to(port), Link::to(port)];
    let near = node("near", &links[0], change);
    let lenient = node("lenient", &links[1], change);
    let strict = node("strict", &links[2], |settings, link| {
        change(settings, link);
        settings.security.when_cut_off = WhenCutOff::RefuseNew;
    });
    done(&near, "block_user", json!({"user": "old"}));
    done(&near, "block_user", json!({"user": "pardoned"}));
    let knows = |server: &TestServer| refusal(server, json!({"sub": "pardoned"})) == 3503;
    until("all nodes know it", || knows(&lenient) && knows(&strict));
    let claims = |user: &str| json!({"sub": user, "jti": format!("of-{user}")});
    let mut clients: Vec<_> =
        [&lenient, &strict].map(|server| ["ann", "bob", "eve"].map(|user| connected(server, claims(user)))).into();
    links[1].cut();
    links[2].cut();
    done(&near, "block_user", json!({"user": "ann"}));
    done(&near, "revoke_token", json!({"uid": "of-bob"}));
    done(&near, "unblock_user", json!({"user": "pardoned"}));
    until("the nodes notice the cut", || !is_current(&lenient) && !is_current(&strict));
    // They keep what they know, and do not know what has changed.
    assert_eq!(refusal(&lenient, json!({"sub": "old"})), 3503);
    assert_eq!(refusal(&lenient, json!({"sub": "pardoned"})), 3503);
    let mut late = connected(&lenient, claims("ann"));
    assert_eq!(refusal(&strict, claims("eve")), 100, "for the time being, not for good");
    assert_eq!(refusal(&strict, json!({"sub": "old"})), 100);
    assert_eq!(health(&strict), 503);
    let code_of = |answer: Value| answer["error"]["code"].as_u64().unwrap_or_default();
    assert!([4009, 4010].contains(&code_of(lenient.api("block_user", json!({"user": "x"})))));
    clients.iter_mut().flatten().for_each(is_served);
    is_served(&mut late);
    links[1].heal();
    links[2].heal();
    for of_node in &mut clients {
        let [ann, bob, eve] = of_node;
        assert_eq!((code(ann), code(bob)), (3503, 3500));
        is_served(eve);
    }
    assert_eq!(code(&mut late), 3503);
    until("the nodes are back", || is_current(&lenient) && is_current(&strict));
    for server in [&lenient, &strict] {
        until("it lets clients in", || refusal(server, json!({"sub": "pardoned"})) == 0);
        assert_eq!(refusal(server, claims("ann")), 3503);
    }
}

/// A node that has never known the bans accepts no client, and refuses none for good.
fn a_node_waits_for_the_bans(link: &Link, change: fn(&mut Settings, &Link), comes: impl FnOnce()) {
    let server = TestServer::with(|settings| change(settings, link));
    assert_eq!(refusal(&server, json!({"sub": "ann"})), 100);
    assert_eq!(refusal(&server, json!({"sub": "blocked"})), 100);
    assert_eq!(health(&server), 503);
    comes();
    ready(&server);
    assert_eq!(refusal(&server, json!({"sub": "ann"})), 0);
    assert_eq!(refusal(&server, json!({"sub": "blocked"})), 3503);
}

#[test]
fn postgres_shares_bans() {
    let scratch = Scratch::new("bans-postgres");
    let postgres = PostgresServer::start(&scratch.0);
    bans_reach_every_node(port_of(&postgres), on_postgres);
    // What an operator sees in the database.
    let kept = "SELECT string_agg(kind || ' ' || name, ', ' ORDER BY kind) FROM touchline.fact WHERE value IS NOT NULL";
    assert_eq!(postgres.sql(kept), "token_revoke t2, user_block ann, user_tokens_invalidate bob");
}

#[test]
fn nodes_that_postgres_joins_survive_a_cut() {
    let scratch = Scratch::new("bans-postgres-cut");
    let postgres = PostgresServer::start(&scratch.0);
    a_cut_is_survived(port_of(&postgres), on_postgres);
}

#[test]
fn a_node_waits_for_postgres() {
    let scratch = Scratch::new("bans-postgres-wait");
    let postgres = PostgresServer::start(&scratch.0);
    let link = Link::to(port_of(&postgres));
    let first = node("first", &link, on_postgres);
    done(&first, "block_user", json!({"user": "blocked"}));
    drop(first);
    postgres.kill();
    a_node_waits_for_the_bans(&link, on_postgres, || postgres.again());
}

#[test]
fn nats_shares_bans() {
    let nats = NatsServer::start(JETSTREAM);
    bans_reach_every_node(nats.port, in_cluster);
}

#[test]
fn nodes_that_nats_joins_survive_a_cut() {
    let nats = NatsServer::start(JETSTREAM);
    a_cut_is_survived(nats.port, in_cluster);
}

#[test]
fn a_node_waits_for_nats() {
    let mut nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let first = node("first", &link, in_cluster);
    done(&first, "block_user", json!({"user": "blocked"}));
    drop(first);
    nats.stop();
    a_node_waits_for_the_bans(&link, in_cluster, || nats.again());
}

fn strict(settings: &mut Settings, link: &Link) {
    in_cluster(settings, link);
    settings.security.when_cut_off = WhenCutOff::RefuseNew;
    // No other part of the cluster needs JetStream.
    settings.channel.namespaces.retain(|namespace| namespace.options.history_size == 0);
}

/// A NATS server that does not answer for a while over a lasting connection is an outage that ends.
#[test]
fn a_nats_that_stands_still_is_a_cut_that_ends() {
    let nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let server = node("pause", &link, strict);
    done(&server, "block_user", json!({"user": "ann"}));
    for _ in 0..2 {
        until("the bans are known", || is_current(&server));
        nats.stand_still(true);
        until("the node counts as cut off", || !is_current(&server));
        assert_eq!(refusal(&server, json!({"sub": "eve"})), 100);
        nats.stand_still(false);
        until("it is back", || is_current(&server));
        assert_eq!((refusal(&server, json!({"sub": "eve"})), refusal(&server, json!({"sub": "ann"}))), (0, 3503));
    }
}

/// A missing JetStream does not mean that there are no bans.
#[test]
fn a_nats_that_loses_jetstream_takes_no_ban_away() {
    let mut nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let lenient = |settings: &mut Settings, link: &Link| {
        strict(settings, link);
        settings.security.when_cut_off = WhenCutOff::Allow;
    };
    let (one, two) = (node("one", &link, lenient), node("two", &link, strict));
    done(&one, "block_user", json!({"user": "ann"}));
    until("both know it", || [&one, &two].iter().all(|server| refusal(server, json!({"sub": "ann"})) == 3503));
    nats.again_with("");
    let late = TestServer::with(|settings| strict(settings, &link));
    let plain = node("plain", &link, lenient);
    until("the nodes are in the cluster again", || health(&one) == 200);
    assert_eq!((refusal(&one, json!({"sub": "ann"})), refusal(&one, json!({"sub": "eve"}))), (3503, 0));
    assert_eq!((refusal(&two, json!({"sub": "ann"})), refusal(&two, json!({"sub": "eve"}))), (100, 100));
    assert_eq!((health(&late), refusal(&late, json!({"sub": "eve"}))), (503, 100), "it knows nothing, and may not");
    assert_eq!(refusal(&plain, json!({"sub": "ann"})), 0);
    until("the node cannot know", || !is_current(&plain));
    nats.again_with(JETSTREAM);
    for server in [&one, &two, &late, &plain] {
        until("the bans are known", || is_current(server));
        until("and hold", || refusal(server, json!({"sub": "ann"})) == 3503);
    }
}

/// Nodes that keep bans in different places do not share them. They report it, and serve clients.
#[test]
fn nodes_that_keep_bans_in_different_places_say_so() {
    let (nats, scratch) = (NatsServer::start(JETSTREAM), Scratch::new("bans-places"));
    let postgres = PostgresServer::start(&scratch.0);
    let links = [Link::to(nats.port), Link::to(port_of(&postgres))];
    let one = node("one", &links[0], in_cluster);
    let mut two = TestServer::with(|settings| {
        in_cluster(settings, &links[0]);
        on_postgres(settings, &links[1]);
    });
    let others = |server: &TestServer| {
        let (status, body) = server.http("GET", "/readyz", "", "");
        let information: Value = serde_json::from_str(&body).unwrap_or_default();
        (status, information["nodes_with_other_bans"].as_array().map_or(0, Vec::len))
    };
    for server in [&one, &two] {
        until("it names the other one", || others(server) == (200, 1));
    }
    two.stop();
    until("the other one has gone", || others(&one) == (200, 0));
}

/// A cluster without bans needs no JetStream for them.
#[test]
fn a_cluster_without_jetstream_has_no_bans_and_serves() {
    let nats = NatsServer::start("");
    let link = Link::to(nats.port);
    let without_history = |settings: &mut Settings, link: &Link| {
        in_cluster(settings, link);
        settings.channel.namespaces.retain(|namespace| namespace.options.history_size == 0);
    };
    let server = node("plain", &link, without_history);
    let mut ann = connected(&server, json!({"sub": "ann"}));
    assert_eq!(server.api("block_user", json!({"user": "ann"}))["error"]["code"], 4009);
    is_served(&mut ann);
    connected(&server, json!({"sub": "ann"}));
}

pub(crate) fn port_of(postgres: &PostgresServer) -> u16 {
    let url = postgres.url();
    url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()?.parse().ok()).expect("the URL has a port")
}
