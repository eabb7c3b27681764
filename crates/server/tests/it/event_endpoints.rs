//! Endpoints that fail: what happens to their events, how lost events are reported, and that other endpoints still
//! receive everything.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use touchline_server::{EventsSettings, NamedEvents};
use touchline_testkit::{until, until_eq};

use super::backend::{Answer, Backend};
use super::events::{accepting, connected, told, wait_for};
use super::support::TestServer;

fn figure(server: &TestServer, name: &str, labels: &str) -> u64 {
    server.metric(&format!("touchline_{name}{{endpoint=\"backend\"{labels}}}"))
}

/// The present time, in the format of events.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    touchline_engine::events::rfc3339(now.as_millis() as u64)
}

/// The first `state.reset` with this reason.
fn reset(backend: &Backend, why: &str) -> Option<Value> {
    let batches = backend.questions().into_iter().map(|question| question.body);
    let mut all = batches.flat_map(|batch| batch.as_array().cloned().unwrap_or_default());
    all.find(|event| event["data"]["why"] == *why)
}

#[test]
fn what_was_dropped_goes_back_to_the_first_that_is_missing() {
    let is_open = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&is_open);
    let backend = Backend::start(move |_| Answer::Status(if opens.load(SeqCst) { 200 } else { 503 }, String::new()));
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["connected"]);
        let options = &mut settings.events[0].options;
        (options.lanes, options.queue_max, options.batch_max) = (1, 10, 4);
    });
    let mut clients: Vec<_> = (0..10).map(|_| connected(&server)).collect();
    let early = now();
    until("a millisecond has passed", || now() > early);
    clients.extend((0..40).map(|_| connected(&server)));
    until("some are dropped", || figure(&server, "events_dropped_total", ",reason=\"queue_full\"") > 0);
    is_open.store(true, SeqCst);
    until("the loss is reported", || reset(&backend, "dropped").is_some());
    let reset = reset(&backend, "dropped").expect("it is there");
    assert!(reset["data"]["since"].as_str().expect("a time") <= early.as_str(), "{reset} {early}");
}

#[test]
fn what_was_given_up_goes_back_to_it_and_nothing_is_said_of_when_a_start_knew() {
    let backend = Backend::start(|question| {
        let is_reset = question.text.contains("given_up");
        Answer::Status(if is_reset || !question.text.contains("client.connected") { 200 } else { 413 }, String::new())
    });
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["connected"]);
        settings.events[0].options.lanes = 1;
    });
    until("the start is reported", || reset(&backend, "start").is_some());
    assert!(reset(&backend, "start").expect("it is there")["data"]["since"].is_null(), "since ever");
    let _client = connected(&server);
    until("the loss is reported", || reset(&backend, "given_up").is_some());
    let lost = wait_for(&backend, "client.connected", 1).remove(0);
    assert_eq!(reset(&backend, "given_up").expect("it is there")["data"]["since"], lost["time"]);
    until_eq(1, || figure(&server, "events_dead_total", ",reason=\"too_large\""));
}

#[test]
fn an_endpoint_that_asks_for_patience_keeps_nothing_beyond_its_age() {
    // The number of seconds is larger than the integer type allows.
    let answer = b"HTTP/1.1 503 X\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n";
    let backend = Backend::start(|_| Answer::Raw(answer.to_vec()));
    let server = TestServer::with(|settings| {
        told(settings, &backend, &["connected"]);
        let options = &mut settings.events[0].options;
        // Short: the test waits until events are too old.
        (options.lanes, options.max_age) = (1, Duration::from_secs(3));
    });
    let _client = connected(&server);
    let has_age = || {
        let (_, text) = server.http("GET", "/metrics", "", "");
        let age =
            text.lines().find_map(|line| line.strip_prefix("touchline_events_oldest_seconds{endpoint=\"backend\"} "));
        age.and_then(|age| age.parse::<f64>().ok()).is_some_and(|age| age > 0.5)
    };
    until("what is under way has an age", has_age);
    until("it is given up", || figure(&server, "events_dead_total", ",reason=\"too_old\"") >= 2);
    until_eq(0, || figure(&server, "event_batches_retried_total", ""));
    let asked = backend.questions().len();
    // Later events wait too.
    let _another = connected(&server);
    until("it is given up", || figure(&server, "events_dead_total", ",reason=\"too_old\"") >= 3);
    assert_eq!(backend.questions().len(), asked);
}

#[test]
fn an_endpoint_that_never_ends_its_handshake_costs_its_own_events_only() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    // It accepts each connection, and sends nothing.
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).collect::<Vec<_>>());
    let good = accepting();
    let server = TestServer::with(|settings| {
        let options = EventsSettings {
            endpoint: format!("https://{address}/events"),
            types: vec!["connected".into()],
            // Short: the test waits for the timeout.
            timeout: Duration::from_millis(300),
            queue_max: 10,
            ..EventsSettings::default()
        };
        settings.events.push(NamedEvents { name: "silent".into(), options });
        told(settings, &good, &["connected"]);
    });
    let _clients: Vec<_> = (0..50).map(|_| connected(&server)).collect();
    wait_for(&good, "client.connected", 50);
    let of_silent = |name: &str| server.metric(&format!("touchline_{name}{{endpoint=\"silent\"}}"));
    until("it is tried again", || of_silent("event_batches_retried_total") > 1);
    until_eq(0, || of_silent("events_sent_total"));
}

#[test]
fn a_name_that_nobody_knows_costs_its_own_events_only() {
    let good = accepting();
    let server = TestServer::with(|settings| {
        let options = EventsSettings {
            endpoint: "http://nowhere.invalid/events".into(),
            types: vec!["connected".into()],
            // Short: the test waits for the timeout.
            timeout: Duration::from_millis(300),
            ..EventsSettings::default()
        };
        settings.events.push(NamedEvents { name: "nowhere".into(), options });
        told(settings, &good, &["connected"]);
    });
    let _clients: Vec<_> = (0..50).map(|_| connected(&server)).collect();
    wait_for(&good, "client.connected", 50);
    until("it is tried again", || server.metric("touchline_event_batches_retried_total{endpoint=\"nowhere\"}") > 1);
}
