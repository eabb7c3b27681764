//! A second version of one operation, only for tests. It shows how a version is added, from `Accept` to the answer.

use std::io::{Read, Write};
use std::net::TcpStream;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use touchline_config::Settings;
use touchline_protocol::Error;

use super::description::OperationScope;
use super::operation::{Operation, OperationError, RequestNode};
use super::operations::info::{InfoOperation, InfoRequest};
use super::version::{V1, V2};
use crate::Server;

/// The result that a later `info` could have: only the number of nodes.
#[derive(Serialize, JsonSchema)]
pub(super) struct LaterInfoReply {
    /// The number of nodes in the cluster.
    num_nodes: usize,
}

/// The operation `info` of version 2.
pub(super) struct LaterInfoOperation;

impl Operation for LaterInfoOperation {
    const NAME: &'static str = InfoOperation::NAME;
    const SUMMARY: &'static str = "Counts the nodes";
    const RESULT: &'static str = "`num_nodes`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{"num_nodes": 1}"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const SINCE: u16 = V2.number;

    type Request<'a> = InfoRequest;
    type Reply = LaterInfoReply;

    async fn run(_: RequestNode<'_>, _: InfoRequest) -> Result<LaterInfoReply, OperationError> {
        Ok(LaterInfoReply { num_nodes: 1 })
    }
}

/// Returns the content type and the body of an answer.
fn asked(address: std::net::SocketAddr, method: &str, path: &str, accept: &str, body: &str) -> (String, Value) {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nX-API-Key: a-key-of-the-test\r\n{accept}\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .expect("it is sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it is answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let form = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
    (form.to_owned(), serde_json::from_str(body).expect("JSON"))
}

#[test]
fn a_caller_gets_the_operations_of_the_version_that_it_names() {
    let mut settings = Settings::default();
    settings.http_server.address = "127.0.0.1".into();
    settings.http_server.port = 0;
    settings.http_api.key = "a-key-of-the-test".into();
    let running = Server::bind(settings).expect("good settings").start().expect("it starts");
    let ask = |path: &str, accept: &str, body: &str| asked(running.address(), "POST", path, accept, body);
    let later = format!("Accept: {}\r\n", V2.media_type);
    let (form, answer) = ask("/api/info", &later, "{}");
    assert_eq!((form.as_str(), answer), (V2.media_type, json!({"result": {"num_nodes": 1}})));
    for (accept, expected) in
        [(String::new(), "application/json"), (format!("Accept: {}\r\n", V1.media_type), V1.media_type)]
    {
        let (form, answer) = ask("/api/info", &accept, "{}");
        assert_eq!(form, expected);
        assert_eq!(answer["result"]["nodes"][0]["num_clients"], 0, "{answer}");
    }
    // An operation that version 2 does not change is that of version 1, alone and in a batch.
    let (_, answer) = ask("/api/channels", &later, "{}");
    assert_eq!(answer, json!({"result": {"channels": {}}}));
    let (_, answer) = ask("/api/batch", &later, r#"{"commands": [{"info": {}}, {"channels": {}}]}"#);
    assert_eq!(answer, json!({"replies": [{"info": {"num_nodes": 1}}, {"channels": {"channels": {}}}]}));
    let (_, answer) = ask("/api", &later, r#"{"method": "info"}"#);
    assert_eq!(answer, json!({"result": {"num_nodes": 1}}));
    let (_, document) = asked(running.address(), "GET", "/api/openapi.json", &later, "");
    assert_eq!(document["info"]["version"], "2");
    assert!(document["components"]["schemas"]["InfoReply"]["properties"]["num_nodes"].is_object());
    let (form, refused) = ask("/api/info", "Accept: application/vnd.touchline.v3+json\r\n", "{}");
    assert_eq!((form.as_str(), &refused["error"]["code"]), ("application/json", &json!(4014)));
    let message = refused["error"]["message"].as_str().expect("a text");
    assert!([V1, V2].iter().all(|version| message.contains(version.media_type)), "{message}");
    running.stop();
}
