//! Which clients are connected to a cluster: `connections`, `get_user_status` and `channels` of several nodes. Some of
//! the nodes are silent or gone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Value, json};
use touchline_server::Settings;
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::until;

use super::connected::{found, ids, of_user, pages, result, set, subscribe};
use super::link::Link;
use super::support::TestServer;

fn uid(server: &TestServer) -> String {
    let name = result(server, "info", json!({}));
    name["nodes"][0]["uid"].as_str().expect("an id").to_owned()
}

/// A node that has joined others over a link and is ready. If the link is cut, the node stays in sight.
fn joined(link: &Link) -> TestServer {
    joined_for(link, 50)
}

/// The same, but the others see it for only this many seconds after its last message.
fn joined_for(link: &Link, seconds: u64) -> TestServer {
    let server = TestServer::with(|settings: &mut Settings| {
        settings.cluster.engine = "nats".to_owned();
        settings.cluster.nats_url = vec![format!("nats://{}", link.address)];
        settings.cluster.node_timeout = std::time::Duration::from_secs(seconds);
        settings.cluster.suspect_grace = std::time::Duration::from_secs(seconds);
        settings.node.shards = 2;
        super::registry::devices(settings);
    });
    until("the node is ready", || server.http("GET", "/readyz", "", "").0 == 200);
    server
}

/// Waits until a node sees this many nodes, itself included.
fn sees(server: &TestServer, nodes: usize) {
    until("the nodes see each other", || {
        result(server, "info", json!({}))["nodes"].as_array().is_some_and(|all| all.len() == nodes)
    });
}

#[test]
fn the_pages_of_several_nodes_are_one_and_each_node_is_told_from_its_start() {
    let nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let (one, two) = (joined(&link), joined(&link));
    sees(&one, 2);
    let mut here: Vec<_> = (0..12).map(|n| of_user(&one, json!({"sub": format!("u{}", n % 3)}), json!({}))).collect();
    let mut there: Vec<_> = (0..30).map(|_| of_user(&two, json!({"sub": "u1"}), json!({}))).collect();
    here.iter_mut().chain(&mut there).for_each(|(client, _)| subscribe(client, "news"));
    let everybody = set(here.iter().chain(&there).map(|(_, id)| id));
    for body in [json!({}), json!({"users": ["u0", "u1", "u2"]}), json!({"channel": "news"})] {
        for limit in [1, 5, 20, 1_000] {
            let mut body = body.clone();
            body["limit"] = limit.into();
            let told = pages(&one, &body, || {});
            assert!(told.iter().all(|page| page.len() <= limit), "{body}");
            assert_eq!(told.iter().map(BTreeSet::len).sum::<usize>(), 42, "{body}");
            assert_eq!(told.into_iter().flatten().collect::<BTreeSet<_>>(), everybody, "{body}");
        }
    }
    let there_id = &there[0].1;
    assert_eq!(found(&one, json!({"client": there_id})), set([there_id]));
    // A node that joins while a list is read is included from its next page on.
    let first = result(&one, "connections", json!({"limit": 2}));
    let three = joined(&link);
    sees(&one, 3);
    let (_late, late_id) = of_user(&three, json!({"sub": "late"}), json!({}));
    let next = result(&one, "connections", json!({"limit": 1_000, "cursor": first["cursor"]}));
    assert_eq!(next["new_nodes"], json!([uid(&three)]));
    assert!(ids(&next).contains(&late_id));
}

#[test]
fn names_in_their_order_are_paged_over_the_nodes() {
    let nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let (one, two) = (joined(&link), joined(&link));
    sees(&one, 2);
    let (ann, bob) = (of_user(&one, json!({}), json!({})), of_user(&two, json!({}), json!({})));
    let register = |name: &str| {
        let number: u32 = name[1..].parse().expect("a number");
        let (server, client) = if number.is_multiple_of(2) { (&one, &ann.1) } else { (&two, &bob.1) };
        result(server, "register", json!({"scope": "devices", "name": name, "client": client}));
    };
    let names: Vec<String> = (10..40).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| register(name));
    for server in [&one, &two] {
        until("both have all names", || result(server, "count", json!({"scope": "devices"}))["names"] == 30);
    }
    let (mut told, mut after, mut round) = (Vec::new(), json!(""), 0);
    while after.is_string() {
        let server = [&one, &two][round % 2];
        let page = result(server, "names", json!({"scope": "devices", "prefix": "n", "after": after, "limit": 4}));
        let page_names = page["names"].as_array().expect("names");
        assert!(page_names.len() <= 4, "{page}");
        told.extend(page_names.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()));
        after = page["last"].clone();
        // Names before and after the cursor appear and disappear. One name moves to the other node and stays there.
        let passing = format!("n{}", 60 + round);
        register(&passing);
        register(&format!("n0{round}"));
        if round > 0 {
            let name = format!("n{}", 59 + round);
            let (server, client) = if round % 2 == 1 { (&one, &ann.1) } else { (&two, &bob.1) };
            result(server, "unregister", json!({"scope": "devices", "name": name, "client": client}));
        }
        let taker = [&ann.1, &bob.1][round % 2];
        let moved = json!({"scope": "devices", "name": "n25", "policy": "newest", "client": taker});
        result(server, "register", moved);
        round += 1;
    }
    assert!(round >= 8 && told.is_sorted_by(|a, b| a < b), "{told:?}");
    let stayed: Vec<&String> = told.iter().filter(|name| names.contains(name)).collect();
    assert_eq!(stayed, names.iter().collect::<Vec<_>>(), "each once");
}

#[test]
fn a_user_is_online_while_any_node_has_a_connection() {
    let nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let (one, two) = (joined(&link), joined(&link));
    sees(&one, 2);
    let (_near, _) = of_user(&one, json!({"sub": "near"}), json!({}));
    let (far, _) = of_user(&two, json!({"sub": "far"}), json!({}));
    let ask =
        || result(&one, "get_user_status", json!({"users": ["far", "nobody", "near", "far"]}))["statuses"].clone();
    let is_online = |statuses: &Value| {
        statuses.as_array().expect("a list").iter().map(|status| status["is_online"] == true).collect::<Vec<_>>()
    };
    let answer = ask();
    assert_eq!(is_online(&answer), [true, false, true, true], "{answer}");
    assert!(answer[0]["online"].as_u64().is_some_and(|at| at.abs_diff(super::bans::now_s()) < 120), "{answer}");
    assert_eq!(answer[1], json!({"user": "nobody", "is_online": false}));
    drop(far);
    until("it is not online any more", || is_online(&ask()) == [false, false, true, false]);
}

#[test]
fn a_node_that_is_cut_off_is_named_and_keeps_its_place() {
    let nats = NatsServer::start(JETSTREAM);
    let links = [Link::to(nats.port), Link::to(nats.port)];
    let (one, two) = (joined(&links[0]), joined(&links[1]));
    sees(&one, 2);
    let mut clients: Vec<_> = (0..12).map(|_| of_user(&one, json!({"sub": "u1"}), json!({}))).collect();
    clients.extend((0..30).map(|_| of_user(&two, json!({"sub": "u1"}), json!({}))));
    clients.iter_mut().for_each(|(client, _)| subscribe(client, "news"));
    let page = |cursor: &Value| result(&one, "connections", json!({"channel": "news", "limit": 15, "cursor": cursor}));
    let first = page(&Value::Null);
    links[1].cut();
    let missing = json!([uid(&two)]);
    let second = page(&first["cursor"]);
    assert_eq!((&second["missing_nodes"], second["cursor"].is_string()), (&missing, true), "{second}");
    for (operation, body) in
        [("channels", json!({})), ("info", json!({})), ("get_user_status", json!({"users": ["u1"]}))]
    {
        assert_eq!(result(&one, operation, body)["missing_nodes"], missing, "{operation}");
    }
    assert!(second["busy_nodes"].is_null(), "it is silent: {second}");
    // Many lists in one batch must not wait a second each.
    let lookup = json!({"connections": {"user": "nobody"}});
    let batch = server_batch(&one, &vec![lookup; 60]);
    assert_eq!(batch[0]["connections"]["missing_nodes"], missing, "{batch}");
    assert_eq!(batch[59]["error"]["code"], 111, "{batch}");
    links[1].heal();
    let there = &clients[20].1;
    until("the other node is back", || {
        result(&one, "connections", json!({"client": there}))["missing_nodes"].is_null()
    });
    let (mut told, mut cursor) = (vec![ids(&first), ids(&second)], second["cursor"].clone());
    while !cursor.is_null() {
        let next = page(&cursor);
        told.push(ids(&next));
        cursor = next["cursor"].clone();
        assert_eq!(next["new_nodes"], Value::Null);
    }
    assert_eq!(told.iter().map(BTreeSet::len).sum::<usize>(), 42, "nobody twice");
    assert_eq!(told.into_iter().flatten().collect::<BTreeSet<_>>(), set(clients.iter().map(|(_, id)| id)));
}

/// The replies to a batch of commands.
fn server_batch(server: &TestServer, commands: &[Value]) -> Value {
    server.api("batch", json!({"commands": commands}))["replies"].clone()
}

#[test]
fn a_node_that_scans_for_another_request_is_named_as_busy() {
    let nats = NatsServer::start(JETSTREAM);
    let link = Link::to(nats.port);
    let (one, two) = (joined(&link), joined(&link));
    sees(&one, 2);
    let _clients: Vec<_> = (0..40).map(|_| of_user(&two, json!({"sub": "ann"}), json!({}))).collect();
    let (busy, is_over) = (uid(&two), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    two.api("connections", json!({"limit": 1_000}));
                }
            });
        }
        until("a page meets another scan", || {
            let page = one.api("connections", json!({"limit": 1_000}))["result"].clone();
            // The threads above ask the other node for its own scans, and may also meet one of this node.
            let is_busy = page["busy_nodes"] == json!([busy]);
            if is_busy {
                assert_eq!((&page["missing_nodes"], &page["is_partial"]), (&json!([busy]), &json!(true)), "{page}");
                assert!(page["cursor"].is_string(), "it keeps its place: {page}");
            }
            is_busy
        });
        is_over.store(true, Relaxed);
    });
    until("it is free again", || one.api("connections", json!({}))["result"]["missing_nodes"].is_null());
}

#[test]
fn a_scan_over_three_nodes_survives_the_death_of_one() {
    let nats = NatsServer::start(JETSTREAM);
    // Its links are cut and the node stays silent for ever. For the others, this is a node that was killed.
    let links = [Link::to(nats.port), Link::to(nats.port)];
    let nodes = [joined_for(&links[0], 2), joined_for(&links[0], 2), joined_for(&links[1], 2)];
    nodes.iter().for_each(|node| sees(node, 3));
    let sizes = [17, 23, 31];
    let clients = nodes
        .iter()
        .zip(sizes)
        .map(|(node, size)| (0..size).map(|_| of_user(node, json!({"sub": "ann"}), json!({}))).collect::<Vec<_>>());
    let clients: Vec<Vec<_>> = clients.collect();
    let of = |node: usize| set(clients[node].iter().map(|(_, id)| id));
    let dead = json!([uid(&nodes[2])]);
    // The node dies after this many pages.
    for pages_before in [0, 1, 3] {
        nodes.iter().for_each(|node| sees(node, 3));
        let (mut told, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
        loop {
            if pages == pages_before {
                links[1].cut();
            }
            let page = result(&nodes[pages % 2], "connections", json!({"limit": 6, "cursor": cursor}));
            told.push(ids(&page));
            if pages >= pages_before {
                assert_eq!((&page["missing_nodes"], &page["is_partial"]), (&dead, &json!(true)), "{page}");
                assert!(page["cursor"].is_string(), "its place is kept: {page}");
            }
            // The cursor stays the same, because only the dead node is left.
            let is_last = page["cursor"] == cursor && told.last().is_some_and(BTreeSet::is_empty);
            cursor = page["cursor"].clone();
            pages += 1;
            if is_last {
                break;
            }
        }
        let all: BTreeSet<String> = told.iter().flatten().cloned().collect();
        assert_eq!(told.iter().map(BTreeSet::len).sum::<usize>(), all.len(), "nobody twice");
        assert!(of(0).union(&of(1)).all(|id| all.contains(id)), "nobody of the living nodes is missed");
        links[1].heal();
    }
}

#[test]
fn a_node_that_leaves_sight_keeps_its_place_and_a_node_alone_says_that_it_is() {
    let nats = NatsServer::start(JETSTREAM);
    let links = [Link::to(nats.port), Link::to(nats.port)];
    let (one, two) = (joined_for(&links[0], 2), joined_for(&links[1], 2));
    sees(&one, 2);
    sees(&two, 2);
    let clients: Vec<_> = (0..12).map(|n| of_user(if n < 4 { &one } else { &two }, json!({}), json!({}))).collect();
    let page = |cursor: &Value| result(&one, "connections", json!({"limit": 4, "cursor": cursor}));
    let (first, missing) = (page(&Value::Null), json!([uid(&two)]));
    assert_eq!((&first["missing_nodes"], &first["is_partial"]), (&Value::Null, &Value::Null), "{first}");
    links[1].cut();
    sees(&one, 1);
    let mut told = vec![ids(&first)];
    let mut cursor = first["cursor"].clone();
    // Reads until only the missing node is left; then the cursor stays the same.
    loop {
        let next = page(&cursor);
        assert_eq!((&next["missing_nodes"], &next["is_partial"]), (&missing, &json!(true)), "{next}");
        told.push(ids(&next));
        assert!(next["cursor"].is_string(), "{next}");
        if next["cursor"] == cursor {
            break;
        }
        cursor = next["cursor"].clone();
    }
    assert!(told.last().is_some_and(BTreeSet::is_empty));
    // The other node sees no node and has no link. It must not answer as if it were the whole cluster.
    let asked =
        [("connections", json!({})), ("channels", json!({})), ("get_user_status", json!({"users": ["", "ann"]}))];
    until("it notes that it is alone", || result(&two, "info", json!({}))["nodes"].as_array().map(Vec::len) == Some(1));
    until("it notes that it is cut off", || result(&two, "channels", json!({}))["missing_nodes"].is_null());
    for (operation, body) in &asked {
        until("its answer says so", || result(&two, operation, body.clone())["is_partial"] == true);
    }
    links[1].heal();
    sees(&one, 2);
    while !cursor.is_null() {
        let next = page(&cursor);
        told.push(ids(&next));
        assert_eq!(next["new_nodes"], Value::Null, "it was not started again: {next}");
        cursor = next["cursor"].clone();
    }
    assert_eq!(told.iter().map(BTreeSet::len).sum::<usize>(), 12, "nobody twice");
    assert_eq!(told.into_iter().flatten().collect::<BTreeSet<_>>(), set(clients.iter().map(|(_, id)| id)));
    for (operation, body) in asked {
        until("both answer for all again", || result(&two, operation, body.clone())["is_partial"].is_null());
    }
}
