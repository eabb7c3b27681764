//! Texts that a database cannot store, and keys that are too long: the sender gets an error, and no other publication
//! fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use touchline_testkit::Folder;
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::websocket::WebSocket;

use crate::support::http::http;
use crate::support::server::{Server, configuration, merged, with_namespace};
use crate::support::watch::Watch;
use crate::support::websocket::{Attacker, Told};
use crate::support::{FLOOD, MIB, alone};

const SLACK: u64 = 24 * MIB;

/// A server with a durable namespace and an inbox, on a database.
fn durable(url: &Value) -> Server {
    let namespace =
        with_namespace(&json!({"name": "kept", "durable": true, "history_size": 1_000, "history_ttl": "1h"}));
    let mut scopes = configuration()["registry"]["scopes"].clone();
    scopes[0]["allow_store"] = json!(["*"]);
    scopes[0]["inbox_size"] = json!(100);
    Server::with(&merged(namespace, &json!({"store": {"primary": {"url": url}}, "registry": {"scopes": scopes}})))
}

/// Attacks durable publications with texts that contain NUL, while other clients publish.
fn poison(name: &'static str, server: &Server) {
    let mut watch = Watch::begin(name, server);
    let is_over = Arc::new(AtomicBool::new(false));
    let (refused, published) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let others: Vec<_> = (0..4)
        .map(|number| {
            let (is_over, refused, published, address) =
                (Arc::clone(&is_over), Arc::clone(&refused), Arc::clone(&published), server.address);
            std::thread::spawn(move || {
                let mut http = http(address);
                while !is_over.load(Relaxed) {
                    let reply = http.publish(&format!("kept:{number}"), &json!(1));
                    let counter = if reply["result"]["offset"].is_u64() { &published } else { &refused };
                    counter.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let mut attacker = WebSocket::connected(server.address);
    let mut backend = http(server.address);
    let (mut told, mut answers) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while began.elapsed() < FLOOD {
        for data in [
            json!({"scope": "devices", "name": "a\u{0}", "data": 1, "store_for": 60}),
            json!({"scope": "devices", "name": "line\nbreak", "data": 1, "store_for": 60}),
        ] {
            told.push(attacker.told(&json!({"id": 7, "rpc": {"method": "registry.send", "data": data}})));
        }
        for extra in [json!({"idempotency_key": "a\u{0}"}), json!({"version": 1, "version_epoch": "e\u{0}"})] {
            answers.push(
                backend.api("publish", &merged(json!({"channel": "kept:0", "data": 1}), &extra))["error"]["code"]
                    .to_string(),
            );
        }
        let stored = json!({"scope": "devices", "name": "b\u{0}", "data": 1, "store_for": 60});
        answers.push(backend.api("send", &stored)["error"]["code"].to_string());
        // Data may contain any text.
        let innocent = backend.publish("kept:0", &json!("data with \u{0}"));
        refused.fetch_add(usize::from(!innocent["error"].is_null()), Relaxed);
    }
    is_over.store(true, Relaxed);
    others.into_iter().for_each(|other| other.join().expect("it ends"));
    told.sort();
    told.dedup();
    answers.sort();
    answers.dedup();
    let (refused, published) = (refused.load(Relaxed), published.load(Relaxed));
    watch.told(format!(
        "{told:?} to a client, {answers:?} to a backend, {refused} of {} publications of others refused",
        refused + published
    ));
    watch.end(16 * MIB + SLACK);
    assert_eq!(refused, 0, "publications of other clients are not refused");
    assert_eq!(told, [Told::Error(107)]);
    assert_eq!(answers, ["107"]);
}

#[test]
fn a_nul_in_a_name_fails_nobody_elses_publication_on_sqlite() {
    let _alone = alone();
    poison("NUL in names and keys, SQLite", &durable(&json!("sqlite:primary.db")));
}

#[test]
fn a_nul_in_a_name_fails_nobody_elses_publication_on_postgresql() {
    let _alone = alone();
    let folder = Folder::new("attacks-postgres");
    let postgres = PostgresServer::start(folder.path());
    poison("NUL in names and keys, PostgreSQL", &durable(&json!(postgres.url())));
}

#[test]
fn idempotency_keys_have_a_length() {
    let _alone = alone();
    let server = Server::start();
    let mut backend = http(server.address);
    let mut watch = Watch::begin("50 idempotency keys of 1 MB", &server);
    let mut refused = 0;
    for number in 0..50 {
        let key = format!("{number}{}", "k".repeat(1_000_000));
        let reply = backend.api("publish", &json!({"channel": "big:a", "data": 1, "idempotency_key": key}));
        refused += usize::from(reply["error"]["code"] == json!(107));
    }
    watch.told(format!("{refused} of 50 refused with 107"));
    watch.end(8 * MIB + SLACK);
    assert_eq!(refused, 50);
}

#[test]
fn a_publication_that_never_expires_is_delivered() {
    let _alone = alone();
    let server = Server::start();
    let mut client = WebSocket::connected(server.address);
    client.must(json!({"id": 2, "subscribe": {"channel": "big:a"}}));
    let mut backend = http(server.address);
    let mut watch = Watch::begin("expires_in beyond all time", &server);
    watch.told("taken");
    for expires_in in [18_446_744_073_709_551_615u64, 18_446_744_073_709_551, 20_000_000_000_000] {
        let reply = backend.api("publish", &json!({"channel": "big:a", "data": expires_in, "expires_in": expires_in}));
        assert!(reply["result"]["offset"].is_u64(), "{expires_in} is taken: {reply}");
        let _ = client.socket.set_read_timeout(Some(Duration::from_secs(3)));
        let came = client.next_message().map(|push| push["push"]["pub"]["data"].clone());
        assert_eq!(came, Ok(json!(expires_in)), "what is taken is delivered");
    }
    watch.end(SLACK);
}

#[test]
fn line_breaks_in_names_of_the_registry_are_refused() {
    let _alone = alone();
    let server = Server::start();
    let mut attacker = WebSocket::connected(server.address);
    let mut watch = Watch::begin("control characters in names and groups", &server);
    let mut told = Vec::new();
    for text in ["a\u{0}", "a\nb", "\u{7f}", "\u{1b}[31m"] {
        told.push(attacker.told(
            &json!({"id": 2, "rpc": {"method": "registry.register", "data": {"scope": "devices", "name": text}}}),
        ));
        told.push(
            attacker.told(
                &json!({"id": 3, "rpc": {"method": "registry.join", "data": {"scope": "devices", "group": text}}}),
            ),
        );
    }
    watch.told(format!("{told:?}"));
    watch.end(SLACK);
    assert!(told.iter().all(|told| *told == Told::Error(107)), "{told:?}");
}
