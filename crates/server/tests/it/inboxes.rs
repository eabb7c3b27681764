//! What an operator sees of the inboxes of names, and what the operator can drop.

use serde_json::{Value, json};
use touchline_server::{ApiKeySettings, NamedApiKey};
use touchline_testkit::until;
use touchline_testkit::websocket::WebSocket;

use super::bans::Scratch;
use super::registry::devices;
use super::support::TestServer;

/// A node that stores inbox messages for names, in its own directory.
fn keeping(scratch: &Scratch) -> TestServer {
    let url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    TestServer::with(|settings| {
        devices(settings);
        settings.registry.scopes[0].inbox_size = 10_000;
        settings.store.primary.url = url;
        for (name, operations) in [("reader", "@read"), ("keeper", "@inbox")] {
            let options = ApiKeySettings {
                key: format!("key-of-{name}"),
                operations: vec![operations.to_owned()],
                channels: vec!["*".into()],
            };
            settings.http_api.keys.push(NamedApiKey { name: name.to_owned(), options });
        }
    })
}

/// Stores an inbox message for a name. Returns its id.
fn keep(server: &TestServer, name: &str, data: &Value) -> String {
    let answer = server.api("send", json!({"scope": "devices", "name": name, "data": data, "store_for": 600}));
    answer["result"]["id"].as_str().unwrap_or_else(|| panic!("it is kept: {answer}")).to_owned()
}

fn result(server: &TestServer, operation: &str, body: Value) -> Value {
    let answer = server.api(operation, body.clone());
    assert!(answer["result"].is_object(), "{operation} {body}: {answer}");
    answer["result"].clone()
}

/// The number of the error, and the field that is its cause.
fn refusal(server: &TestServer, operation: &str, body: Value) -> (u64, String) {
    let answer = server.api(operation, body);
    let field = answer["error"]["field"].as_str().unwrap_or_default().to_owned();
    (answer["error"]["code"].as_u64().unwrap_or_default(), field)
}

fn texts<'v>(list: &'v Value, field: &str) -> Vec<&'v str> {
    list.as_array().into_iter().flatten().filter_map(|item| item[field].as_str()).collect()
}

#[test]
fn names_and_their_messages_are_listed_page_by_page() {
    let scratch = Scratch::new("inbox-listed");
    let server = keeping(&scratch);
    assert_eq!(result(&server, "inbox_names", json!({})), json!({"names": []}));
    let ids: Vec<String> = (0..3).map(|number| keep(&server, "bike-2", &json!({"n": number}))).collect();
    for name in ["car", "bike-1", "bike-3"] {
        keep(&server, name, &json!(null));
    }
    let all = result(&server, "inbox_names", json!({"scope": "devices"}));
    assert_eq!(texts(&all["names"], "name"), ["bike-1", "bike-2", "bike-3", "car"]);
    let two = &all["names"][1];
    assert_eq!((&two["scope"], &two["waiting"], &two["more"]), (&json!("devices"), &json!(3), &Value::Null));
    assert!(two["bytes"].as_u64() > Some(100) && two["oldest_ms"].as_u64() > Some(1_700_000_000_000), "{two}");
    let mut request = json!({"scope": "devices", "prefix": "bike", "limit": 2});
    let first = result(&server, "inbox_names", request.clone());
    assert_eq!(texts(&first["names"], "name"), ["bike-1", "bike-2"]);
    request["cursor"] = first["cursor"].clone();
    let second = result(&server, "inbox_names", request);
    assert_eq!((texts(&second["names"], "name"), &second["cursor"]), (vec!["bike-3"], &Value::Null));

    let mut request = json!({"scope": "devices", "name": "bike-2", "limit": 2});
    let first = result(&server, "inbox_list", request.clone());
    assert_eq!(texts(&first["messages"], "id"), ids[..2]);
    let message = &first["messages"][1];
    assert_eq!((&message["data"], &message["from"]), (&json!({"n": 1}), &json!({})), "{message}");
    let kept_ms = message["expires_ms"].as_u64().zip(message["sent_ms"].as_u64()).map(|(end, sent)| end - sent);
    assert_eq!((kept_ms, message["size"].as_u64() > Some(30)), (Some(600_000), true), "{message}");
    request["cursor"] = first["cursor"].clone();
    let second = result(&server, "inbox_list", request);
    assert_eq!((texts(&second["messages"], "id"), &second["cursor"]), (vec![&*ids[2]], &Value::Null));
    assert_eq!(result(&server, "inbox_list", json!({"scope": "devices", "name": "x"})), json!({"messages": []}));
}

#[test]
fn a_message_of_a_client_is_listed_with_its_sender() {
    let scratch = Scratch::new("inbox-sender");
    let url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    let server = TestServer::with(|settings| {
        devices(settings);
        settings.registry.scopes[0].inbox_size = 10;
        settings.registry.scopes[0].allow_store = vec!["*".into()];
        settings.store.primary.url = url;
    });
    let mut client = server.connected();
    let sent = json!({"scope": "devices", "name": "bike", "data": "hi", "store_for": 60});
    let reply = client.ask(json!({"id": 2, "rpc": {"method": "registry.send", "data": sent}}));
    assert!(reply["rpc"]["data"]["id"].is_string(), "{reply}");
    let listed = result(&server, "inbox_list", json!({"scope": "devices", "name": "bike"}));
    assert_eq!(listed["messages"][0]["from"]["client"].as_str().map(str::len), Some(36), "{listed}");
    assert_eq!(listed["messages"][0]["data"], "hi");
}

#[test]
fn an_answer_is_bounded_in_bytes() {
    let scratch = Scratch::new("inbox-bytes");
    let server = keeping(&scratch);
    let large = json!("x".repeat(300_000));
    let ids: Vec<String> = (0..6).map(|_| keep(&server, "bike", &large)).collect();
    let first = result(&server, "inbox_list", json!({"scope": "devices", "name": "bike"}));
    assert_eq!(texts(&first["messages"], "id"), ids[..4]);
    let rest = json!({"scope": "devices", "name": "bike", "cursor": first["cursor"]});
    assert_eq!(texts(&result(&server, "inbox_list", rest)["messages"], "id"), ids[4..]);
}

#[test]
fn what_is_wrong_with_a_request_is_told() {
    let scratch = Scratch::new("inbox-refused");
    let server = keeping(&scratch);
    let name = || json!({"scope": "devices", "name": "bike"});
    let with = |field: &str, value: Value| {
        let mut body = name();
        body[field] = value;
        body
    };
    for operation in ["inbox_list", "inbox_drop"] {
        assert_eq!(refusal(&server, operation, with("scope", json!("nothing"))), (4003, String::new()));
        assert_eq!(refusal(&server, operation, json!({"scope": "devices"})), (107, "name".into()));
        assert_eq!(refusal(&server, operation, with("name", json!("a\u{0}"))), (107, "name".into()));
    }
    assert_eq!(refusal(&server, "inbox_names", json!({"scope": "nothing"})), (4003, String::new()));
    for cursor in ["x", "other\nx"] {
        let body = json!({"scope": "devices", "cursor": cursor});
        assert_eq!(refusal(&server, "inbox_names", body), (107, "cursor".into()));
    }
    assert_eq!(refusal(&server, "inbox_list", with("cursor", json!("x"))), (107, "cursor".into()));
    let many: Vec<String> = (0..1_001).map(|id| id.to_string()).collect();
    for ids in [json!([]), json!(["x"]), json!(["9223372036854775808"]), json!(many)] {
        assert_eq!(refusal(&server, "inbox_drop", with("ids", ids)), (107, "ids".into()));
    }
    // A key that only reads drops nothing. A key with the whole group may do everything.
    let status = |key: &str, operation: &str| {
        let header = format!("X-API-Key: {key}\r\n");
        server.http("POST", &format!("/api/{operation}"), &header, &name().to_string()).0
    };
    let of = |key: &str| ["inbox_names", "inbox_list", "inbox_drop"].map(|operation| status(key, operation));
    assert_eq!((of("key-of-reader"), of("key-of-keeper")), ([200, 200, 403], [200, 200, 200]));
    // Without a database there are no inboxes.
    let without = TestServer::with(devices);
    for operation in ["inbox_names", "inbox_list", "inbox_drop"] {
        assert_eq!(refusal(&without, operation, name()).0, 108, "{operation}");
    }
}

/// The numbers of the messages that a client receives next.
fn given(client: &mut WebSocket, count: usize) -> Vec<u64> {
    let number = |push: &Value| push["push"]["message"]["data"]["data"].as_u64();
    let mut numbers = Vec::new();
    while numbers.len() < count {
        numbers.extend(number(&client.message()));
    }
    numbers
}

#[test]
fn what_is_dropped_is_not_delivered_and_holds_up_nothing() {
    let scratch = Scratch::new("inbox-dropped");
    let server = keeping(&scratch);
    let ids: Vec<String> = (0..150).map(|number| keep(&server, "bike", &json!(number))).collect();
    let other = keep(&server, "car", &json!(0));
    let mut client = server.connected();
    let register = json!({"scope": "devices", "name": "bike"});
    let reply = client.ask(json!({"id": 2, "rpc": {"method": "registry.register", "data": register}}));
    assert!(reply["error"].is_null(), "{reply}");
    // The client has as many unacknowledged messages as it may have.
    let begin = given(&mut client, 100);
    assert_eq!(begin, (0..100).collect::<Vec<_>>());
    let of_bike = |ids: Value| json!({"scope": "devices", "name": "bike", "ids": ids});
    let some = of_bike(json!([ids[0], ids[100], ids[101], other, "999999"]));
    assert_eq!(result(&server, "inbox_drop", some.clone()), json!({"dropped": 3}));
    assert_eq!(result(&server, "inbox_drop", some), json!({"dropped": 0}));
    // Half of the window is free. The next messages arrive, without those that were dropped.
    let half = of_bike(json!(ids[1..60]));
    assert_eq!(result(&server, "inbox_drop", half), json!({"dropped": 59}));
    assert_eq!(given(&mut client, 48), (102..150).collect::<Vec<_>>());
    assert_eq!(result(&server, "inbox_drop", json!({"scope": "devices", "name": "bike"})), json!({"dropped": 88}));
    let acknowledge = json!({"id": 3, "rpc": {"method": "inbox.ack", "data": {"ids": ids}}});
    assert!(client.ask(acknowledge)["error"].is_null(), "to acknowledge what is gone does no harm");
    keep(&server, "bike", &json!(4_711));
    assert_eq!(given(&mut client, 1), [4_711], "what comes later is delivered");
    let names = result(&server, "inbox_names", json!({}));
    assert_eq!(texts(&names["names"], "name"), ["bike", "car"]);
    // A new owner gets the messages that are left.
    drop(client);
    let mut next = server.connected();
    until("the name is free", || {
        let reply = next.ask(json!({"id": 2, "rpc": {"method": "registry.register", "data": register}}));
        reply["error"].is_null()
    });
    assert_eq!(given(&mut next, 1), [4_711]);
}

/// Dropping all messages goes step by step. Messages that arrive meanwhile stay.
#[test]
fn a_large_inbox_is_dropped_step_by_step() {
    let scratch = Scratch::new("inbox-large");
    let server = keeping(&scratch);
    keep(&server, "bike", &json!(0));
    let database = rusqlite::Connection::open(scratch.0.join("primary.db")).expect("it opens");
    let many = "INSERT INTO inbox_message (scope, name, message, expires_ms, format) \
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4999) \
                SELECT 'devices', 'bike', '{\"data\":1,\"time\":1}', 9000000000000, 1 FROM n";
    database.execute_batch(many).expect("it is written");
    let names = result(&server, "inbox_names", json!({}));
    assert_eq!((&names["names"][0]["waiting"], &names["names"][0]["more"]), (&json!(1_000), &json!(true)));
    assert_eq!(result(&server, "inbox_drop", json!({"scope": "devices", "name": "bike"})), json!({"dropped": 5_000}));
    assert_eq!(result(&server, "inbox_names", json!({})), json!({"names": []}));
}
