//! What every answer of the server API has: a request id, a content type, and errors that name the cause.

use serde_json::{Value, json};

use super::support::{KEY, TestServer};

/// Sends a request. Returns the answer: its status, its head in lower case, and its body.
fn ask(server: &TestServer, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, Value) {
    let length = body.len();
    let answer = server.raw(
        format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    );
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
}

fn with_key(more: &str) -> String {
    format!("X-API-Key: {KEY}\r\n{more}")
}

#[test]
fn every_answer_carries_the_id_of_its_request() {
    let server = TestServer::start();
    for (headers, path, method, status) in [
        (with_key("X-Request-ID: order-4711\r\n"), "/api/info", "POST", 200),
        (with_key("X-Request-ID: order-4711\r\n"), "/api/publish", "POST", 200),
        (with_key("X-Request-ID: order-4711\r\n"), "/api/nothing", "POST", 404),
        (with_key("X-Request-ID: order-4711\r\n"), "/api/errors", "GET", 200),
        (with_key("X-Request-ID: order-4711\r\n"), "/api/info", "GET", 405),
        ("X-Request-ID: order-4711\r\n".to_owned(), "/api/info", "POST", 401),
        (with_key("X-Request-ID: order-4711\r\nAccept: text/html\r\n"), "/api/info", "POST", 406),
    ] {
        let (got, head, body) = ask(&server, method, path, &headers, "{}");
        assert_eq!(got, status, "{path} {body}");
        assert!(head.contains("x-request-id: order-4711"), "{path} {head}");
        assert!(head.contains("content-type: application/json"), "{path} {head}");
    }
    let long = format!("X-Request-ID: {}\r\n", "x".repeat(129));
    for headers in ["", "X-Request-ID: two words\r\n", &long, "X-Request-ID: \u{e9}\r\n"] {
        let (_, head, _) = ask(&server, "POST", "/api/info", &with_key(headers), "{}");
        let id = head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).expect("an id").to_owned();
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{headers} {id}");
    }
}

#[test]
fn a_bad_request_names_the_field_and_the_place() {
    let server = TestServer::with(super::registry::devices);
    let transport = "X-Centrifugo-Error-Mode: transport\r\n";
    for (path, body, status, field, text) in [
        ("/api/publish", r#"{"channel":7}"#, 400, Some("channel"), "bad request: invalid type: integer `7`"),
        ("/api/publish", r#"{"channel":"a","data":1"#, 400, None, "at line 1 column 23"),
        ("/api/publish", "[]", 400, None, "expected an object, found a list"),
        ("/api/publish", r#"{"channel":"a"}"#, 200, Some("data"), "bad request"),
        ("/api/publish", r#"{"channel":"a","b64data":"!"}"#, 200, Some("b64data"), "bad request"),
        ("/api/register", r#"{"scope":"devices","name":"a","client":"b"}"#, 200, Some("client"), "bad request"),
        ("/api/disconnect", r#"{"user":"a","disconnect":{"code":7}}"#, 200, Some("disconnect"), "bad request"),
        ("/api/register", r#"{"scope":"devices","name":7}"#, 200, Some("name"), "bad request"),
        ("/api/batch", r#"{"commands":[{"publish":{"tags":1}}]}"#, 400, Some("tags"), "invalid type"),
        ("/api", r#"{"method":"publish","params":{"version":-1}}"#, 400, Some("version"), "invalid value"),
        ("/api", "", 400, None, "expected a command, found none"),
    ] {
        let (got, _, answer) = ask(&server, "POST", path, &with_key(""), body);
        assert_eq!(got, status, "{path} {body}: {answer}");
        let check = |error: &Value| {
            assert_eq!((&error["code"], error["field"].as_str()), (&json!(107), field), "{path} {body}: {error}");
            assert!(error["message"].as_str().is_some_and(|message| message.contains(text)), "{path} {body}: {error}");
        };
        check(&answer["error"]);
        let (got, _, answer) = ask(&server, "POST", path, &with_key(transport), body);
        assert_eq!(got, 400, "{path} {body}: {answer}");
        check(&answer);
    }
    let (status, _, answer) = ask(&server, "POST", "/api/batch", &with_key(""), r#"{"commands":null}"#);
    assert_eq!((status, answer), (200, json!({"replies": []})), "null is absence there too");
}

#[test]
fn the_documents_are_for_those_who_have_a_key() {
    let server = TestServer::start();
    for path in ["/api/openapi.json", "/api/errors"] {
        let (status, _, refused) = ask(&server, "GET", path, "", "");
        assert_eq!((status, &refused["error"]["code"]), (401, &json!(101)), "{path}");
        assert_eq!(ask(&server, "GET", &format!("{path}?api_key={KEY}"), "", "").0, 200, "{path}");
        let (status, head, _) = ask(&server, "POST", path, &with_key(""), "{}");
        assert_eq!((status, head.contains("allow: get, head")), (405, true), "{path}");
        assert_eq!(ask(&server, "GET", path, &with_key("Accept: text/plain\r\n"), "").0, 406, "{path}");
    }
    let (_, _, errors) = ask(&server, "GET", "/api/errors", &with_key(""), "");
    let known = errors["errors"].as_array().expect("a list");
    let expected = json!({
        "code": 111, "name": "TOO_MANY_REQUESTS", "message": "too many requests", "http_status": 503,
        "grpc_status": 8, "temporary": true,
        "remedy": "Wait and send the request again, each time after a longer pause. If the error persists for durable \
            channels, check whether the primary database is full.",
    });
    assert!(known.contains(&expected), "{errors}");
    assert_eq!(errors["disconnects"][0], json!({"code": 3000, "reason": "connection closed", "reconnect": true}));
    assert_eq!(errors["unsubscribes"][0]["resubscribe"], false);
}

#[test]
fn a_body_that_is_too_large_is_an_error_too() {
    let server = TestServer::with(|settings| settings.http_api.body_size_limit = 100);
    let (status, _, answer) = ask(&server, "POST", "/api/publish", &with_key(""), &"x".repeat(101));
    assert_eq!((status, &answer["error"]["code"]), (413, &json!(107)), "{answer}");
}
