//! `forget_user` on one node: what is removed and what stays, in memory, in SQLite and in PostgreSQL.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ApiKeySettings, NamedApiKey, Settings};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::websocket::WebSocket;

use super::bans::{Scratch, code, connected, done, is_served};
use super::bans_of_nodes::port_of;
use super::durable_events::Receiver;
use super::link::Link;
use super::registry::devices;
use super::support::TestServer;

/// Makes a node keep everything that it can keep of a user. The caller says where.
pub(crate) fn keeping(settings: &mut Settings) {
    devices(settings);
    let scope = &mut settings.registry.scopes[0];
    scope.inbox_size = 1_000_000;
    scope.allow_register = ["{user}/*", "of-{user}", "truck"].map(String::from).into();
    settings.store.stats.enabled = true;
    settings.user_status.enabled = true;
    settings.user_status.use_primary = true;
    settings.client.subscribe_to_user_personal_channel.enabled = true;
    settings.channel.without_namespace.history_size = 10;
    settings.channel.without_namespace.history_ttl = Duration::from_secs(600);
}

pub(crate) fn in_files(settings: &mut Settings, scratch: &Scratch) {
    settings.store.primary.url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    settings.store.stats.url = format!("sqlite:{}", scratch.0.join("stats.db").display());
}

pub(crate) fn over(settings: &mut Settings, link: &Link) {
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", link.address);
    settings.store.primary.url.clone_from(&url);
    settings.store.stats.url = url;
    // Short: the tests wait until the database is lost.
    settings.store.primary.timeout = Duration::from_secs(2);
    // Short: the tests wait until the database is lost.
    settings.store.stats.timeout = Duration::from_secs(2);
}

/// The result of an operation.
pub(crate) fn result(server: &TestServer, operation: &str, body: Value) -> Value {
    let answer = server.api(operation, body.clone());
    assert!(answer["result"].is_object(), "{operation} {body}: {answer}");
    answer["result"].clone()
}

/// Stores an inbox message for a name.
pub(crate) fn keep(server: &TestServer, name: &str) {
    let kept = result(server, "send", json!({"scope": "devices", "name": name, "data": 1, "store_for": 600}));
    assert!(kept["id"].is_string(), "{kept}");
}

/// Calls a method, which must succeed.
pub(crate) fn call(client: &mut WebSocket, method: &str, data: Value) {
    let reply = client.ask(json!({"id": 7, "rpc": {"method": method, "data": data}}));
    assert!(reply["error"].is_null(), "{method}: {reply}");
}

pub(crate) fn register(client: &mut WebSocket, name: &str) {
    call(client, "registry.register", json!({"scope": "devices", "name": name}));
}

pub(crate) fn track(client: &mut WebSocket) {
    call(client, "stats.track", json!({"event": "goal_seen", "props": {}}));
}

/// The names for which inbox messages wait.
pub(crate) fn waiting(server: &TestServer) -> Vec<String> {
    let names = result(server, "inbox_names", json!({}))["names"].clone();
    names.as_array().into_iter().flatten().filter_map(|name| Some(name["name"].as_str()?.to_owned())).collect()
}

/// How many events users have reported, and how many users there are.
pub(crate) fn reported(server: &TestServer) -> (Value, Value) {
    let now_s = super::bans::now_s();
    let top = result(server, "stats_top", json!({"of": "events", "from": now_s - 3_600, "to": now_s + 60}));
    (top["top"][0]["count"].clone(), top["top"][0]["users"].clone())
}

/// Whether the server knows when a user was connected last.
pub(crate) fn is_known(server: &TestServer, user: &str) -> bool {
    let statuses = result(server, "get_user_status", json!({"users": [user]}));
    statuses["statuses"][0]["online"].is_number()
}

/// Names of the scope, as a request or an answer has them.
pub(crate) fn named(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"scope": "devices", "name": name})).collect()
}

/// The counts of an answer when nothing was removed.
fn nothing() -> Value {
    json!({
        "connections": 0, "names": 0, "groups": 0, "inbox_messages": 0, "last_seen": 0, "dead_letters": 0,
        "stats_events": 0
    })
}

/// One user with everything that can be kept is forgotten, and another user is not. `sql`: runs a statement in the
/// primary database, in the dialect of PostgreSQL.
fn one_user_is_forgotten(server: &TestServer, sql: impl Fn(&str)) {
    let (mut ann, mut bob) = (connected(server, json!({"sub": "ann"})), connected(server, json!({"sub": "bob"})));
    let mut away = connected(server, json!({"sub": "ann"}));
    ["ann/phone", "truck", "of-ann"].iter().for_each(|name| register(&mut ann, name));
    register(&mut bob, "bob/phone");
    call(&mut ann, "registry.join", json!({"scope": "devices", "group": "fleet"}));
    ["ann/phone", "ann/phone", "ann/tablet", "of-ann", "of-ann", "truck", "bob/phone", "of-bob", "bike-7"]
        .iter()
        .for_each(|name| keep(server, name));
    (0..3).for_each(|_| track(&mut ann));
    track(&mut bob);
    for user in ["ann", "bob", "ann"] {
        sql(&format!(
            "INSERT INTO touchline.event_dead (endpoint, lane, made_ms, died_ms, tries, last_error, body) \
             VALUES ('backend', 0, 1, 1, 1, 'x', '{{\"id\":\"x\",\"data\":{{\"client\":\"c\",\"user\":\"{user}\"}}}}')"
        ));
    }
    // One connection ended before, so the server knows when.
    away.send_close();
    drop(away);

    let request = json!({"user": "ann", "names": [{"scope": "devices", "name": "bike-7"}]});
    let mut told = result(server, "forget_user", request.clone());
    let connections = told["removed"]["connections"].as_u64();
    assert!(connections >= Some(1) && connections <= Some(2), "{told}");
    told["removed"]["connections"] = json!(1);
    assert_eq!(
        told,
        json!({
            "done": true,
            "removed": {
                "connections": 1, "names": 3, "groups": 1, "inbox_messages": 3, "last_seen": 1, "dead_letters": 2,
                "stats_events": 3
            },
            "remains": {"channels": ["#ann"], "inboxes": named(&["ann/phone", "ann/tablet", "truck"])}
        })
    );
    assert_eq!(code(&mut ann), 3503);
    is_served(&mut bob);
    assert_eq!(waiting(server), ["ann/phone", "ann/tablet", "bob/phone", "of-bob", "truck"]);
    assert_eq!(server.api("lookup", json!({"scope": "devices", "name": "ann/phone"}))["error"]["code"], 4002);
    assert!(result(server, "lookup", json!({"scope": "devices", "name": "bob/phone"}))["client"].is_string());
    assert_eq!(reported(server), (json!(1), json!(1)));
    assert_eq!((is_known(server, "ann"), is_known(server, "bob")), (false, true));
    let letters = result(server, "events_dead", json!({}))["letters"].clone();
    assert_eq!((letters.as_array().map(Vec::len), &letters[0]["event"]["data"]["user"]), (Some(1), &json!("bob")));

    // A ban stays in force, and forgetting the user twice changes nothing.
    done(server, "block_user", json!({"user": "ann"}));
    // The caller knows which names of `{user}/*` belong to the user, because there may be a user `ann/b`.
    let request = json!({"user": "ann", "names": named(&["ann/phone", "ann/tablet"])});
    let (again, third) = (result(server, "forget_user", request.clone()), result(server, "forget_user", request));
    let remains = json!({"bans": ["user"], "channels": ["#ann"]});
    assert_eq!((&again["removed"]["inbox_messages"], &again["remains"]), (&json!(3), &remains), "{again}");
    assert_eq!(third, json!({"done": true, "removed": nothing(), "remains": remains}));
    assert_eq!(waiting(server), ["bob/phone", "of-bob", "truck"]);
    assert_eq!(super::bans::refusal(server, json!({"sub": "ann"})), 3503);
}

#[test]
fn a_user_is_forgotten_in_sqlite() {
    let (scratch, receiver) = (Scratch::new("forgotten"), Receiver::start());
    let server = TestServer::with(|settings| {
        keeping(settings);
        in_files(settings, &scratch);
        receiver.told(settings, |_| {});
    });
    let database = rusqlite::Connection::open(scratch.0.join("primary.db")).expect("it opens");
    one_user_is_forgotten(&server, |sql| {
        database.execute_batch(&sql.replace("touchline.", "")).expect("it is written");
    });
}

#[test]
fn a_user_is_forgotten_in_postgres_and_again_after_a_cut() {
    let (scratch, receiver) = (Scratch::new("forgotten-postgres"), Receiver::start());
    let postgres = PostgresServer::start(&scratch.0);
    let link = Link::to(port_of(&postgres));
    let server = TestServer::with(|settings| {
        keeping(settings);
        over(settings, &link);
        receiver.told(settings, |_| {});
    });
    one_user_is_forgotten(&server, |sql| drop(postgres.sql(sql)));
    let mut eve = connected(&server, json!({"sub": "eve"}));
    track(&mut eve);
    keep(&server, "of-eve");
    link.cut();
    let cut = server.api("forget_user", json!({"user": "eve"}));
    assert_eq!(cut["error"]["code"], 4010, "{cut}");
    assert_eq!(code(&mut eve), 3503, "what needs no database is done");
    link.heal();
    touchline_testkit::until("it is done", || {
        let again = server.api("forget_user", json!({"user": "eve"}));
        assert!(again["result"].is_object() || again["error"]["code"] == 4010, "{again}");
        again["result"]["done"] == true
    });
    assert!(!waiting(&server).contains(&"of-eve".to_owned()));
    assert!(!is_known(&server, "eve"));
}

#[test]
fn without_any_database_a_user_is_forgotten_in_memory() {
    let server = TestServer::with(|settings| {
        devices(settings);
        settings.user_status.enabled = true;
    });
    let (mut ann, mut bob) = (connected(&server, json!({"sub": "ann"})), connected(&server, json!({"sub": "bob"})));
    register(&mut ann, "bike");
    let told = result(&server, "forget_user", json!({"user": "ann"}));
    let mut removed = nothing();
    (removed["connections"], removed["names"], removed["last_seen"]) = (json!(1), json!(1), json!(1));
    assert_eq!(told, json!({"done": true, "removed": removed, "remains": {}}));
    assert_eq!((code(&mut ann), is_known(&server, "ann")), (3503, false));
    is_served(&mut bob);
    assert_eq!(result(&server, "forget_user", json!({"user": "nobody"}))["removed"], nothing());
    // The operation works in a batch, too.
    let batch = json!({"commands": [{"forget_user": {"user": "bob"}}]});
    let answer = server.api("batch", batch);
    assert_eq!(answer["replies"][0]["forget_user"]["removed"]["connections"], 1, "{answer}");
}

#[test]
fn what_takes_many_steps_is_done_by_several_requests() {
    let scratch = Scratch::new("forgotten-long");
    let server = TestServer::with(|settings| {
        keeping(settings);
        in_files(settings, &scratch);
    });
    keep(&server, "of-ann");
    let database = rusqlite::Connection::open(scratch.0.join("primary.db")).expect("it opens");
    let many = "INSERT INTO inbox_message (scope, name, message, expires_ms, format) \
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 130000) \
                SELECT 'devices', 'of-ann', '{\"data\":1,\"time\":1}', 9000000000000, 1 FROM n";
    database.execute_batch(many).expect("it is written");
    let first = result(&server, "forget_user", json!({"user": "ann"}));
    assert_eq!((&first["done"], first["cursor"].is_string()), (&json!(false), true), "{first}");
    for other in [json!({"user": "bob"}), json!({"user": "ann", "names": named(&["of-ann"])})] {
        let mut mixed = other;
        mixed["cursor"] = first["cursor"].clone();
        let refused = server.api("forget_user", mixed);
        assert_eq!((&refused["error"]["code"], &refused["error"]["field"]), (&json!(107), &json!("cursor")));
    }
    let second = result(&server, "forget_user", json!({"user": "ann", "cursor": first["cursor"]}));
    assert_eq!((&second["done"], &second["cursor"]), (&json!(true), &Value::Null), "{second}");
    let removed = |told: &Value| told["removed"]["inbox_messages"].as_u64().unwrap_or_default();
    assert!(removed(&first) >= 100_000, "{first}");
    assert_eq!(removed(&first) + removed(&second), 130_001);
    assert_eq!(waiting(&server), Vec::<String>::new());
}

#[test]
fn statistics_that_are_locked_are_told_of_in_time() {
    let scratch = Scratch::new("forgotten-locked");
    let server = TestServer::with(|settings| {
        keeping(settings);
        in_files(settings, &scratch);
        // Short: the test waits until the database is lost.
        settings.store.stats.timeout = Duration::from_secs(1);
    });
    track(&mut connected(&server, json!({"sub": "ann"})));
    touchline_testkit::until("the event is written", || reported(&server).0 == json!(1));
    let database = rusqlite::Connection::open(scratch.0.join("stats.db")).expect("it opens");
    database.execute_batch("BEGIN IMMEDIATE").expect("it is locked");
    let locked = server.api("forget_user", json!({"user": "ann"}));
    assert_eq!(locked["error"]["code"], 4010, "{locked}");
    database.execute_batch("ROLLBACK").expect("it is free");
    touchline_testkit::until("it is done", || {
        let again = server.api("forget_user", json!({"user": "ann"}));
        assert!(again["result"].is_object() || again["error"]["code"] == 4010, "{again}");
        again["result"]["done"] == true
    });
    assert_eq!(reported(&server).0, Value::Null);
}

#[test]
fn what_is_wrong_with_a_request_is_told_and_only_a_key_that_names_the_operation_may_send_it() {
    let server = TestServer::with(|settings| {
        devices(settings);
        for (name, operations) in [("reader", "@read"), ("keeper", "@inbox"), ("clerk", "forget_user")] {
            let options = ApiKeySettings {
                key: format!("key-of-{name}"),
                operations: vec![operations.to_owned()],
                channels: vec!["*".into()],
            };
            settings.http_api.keys.push(NamedApiKey { name: name.to_owned(), options });
        }
    });
    let many: Vec<Value> = (0..101).map(|n| json!({"scope": "devices", "name": n.to_string()})).collect();
    for (body, code, field) in [
        (json!({}), 107, json!("user")),
        (json!({"user": "a\u{0}"}), 107, json!("user")),
        (json!({"user": "x".repeat(1_025)}), 107, json!("user")),
        (json!({"user": "a", "cursor": "x"}), 107, json!("cursor")),
        (json!({"user": "a", "cursor": "stats_events:9223372036854775807"}), 107, json!("cursor")),
        (json!({"user": "a", "names": many}), 107, json!("names")),
        (json!({"user": "a", "names": [{"scope": "devices", "name": ""}]}), 107, json!("names")),
        (json!({"user": "a", "names": [{"scope": "none", "name": "x"}]}), 4003, Value::Null),
    ] {
        let answer = server.api("forget_user", body.clone());
        assert_eq!((&answer["error"]["code"], &answer["error"]["field"]), (&json!(code), &field), "{body}: {answer}");
    }
    let status = |key: &str| {
        let header = format!("X-API-Key: key-of-{key}\r\n");
        server.http("POST", "/api/forget_user", &header, r#"{"user":"a"}"#).0
    };
    assert_eq!(["reader", "keeper", "clerk"].map(status), [403, 403, 200]);
}
