//! The metrics of sessions and operations, by namespace, method and code.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_config::Settings;
use touchline_engine::{ChannelOptions, Namespace};
use touchline_testkit::{until, until_eq};

use crate::support::TestServer;

fn namespaces(settings: &mut Settings) {
    let open = ChannelOptions {
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        ..ChannelOptions::default()
    };
    let kept =
        ChannelOptions { history_size: 2, history_ttl: Duration::from_secs(60), force_recovery: true, ..open.clone() };
    settings.channel.namespaces = vec![
        Namespace { name: "kept".into(), options: kept },
        Namespace { name: "closed".into(), options: ChannelOptions::default() },
    ];
}

/// The value of a metric with these labels in `/metrics`; 0 = it is not there.
pub(crate) fn value(server: &TestServer, metric: &str) -> f64 {
    let (_, text) = server.http("GET", "/metrics", "", "");
    let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().expect("a number"))
}

#[test]
fn subscribes_recoveries_and_unsubscribes_are_counted_by_what_became_of_them() {
    let server = TestServer::with(namespaces);
    let counted = |metric: &str| value(&server, metric);
    let position = server.publish("kept:a", json!(1))["result"].clone();
    server.publish("kept:a", json!(2));
    let mut client = server.connected();
    let recover = |offset: u64, epoch: &Value| {
        let request = json!({"channel": "kept:a", "recover": true, "offset": offset, "epoch": epoch});
        json!({"id": 2, "subscribe": request})
    };
    assert_eq!(client.ask(recover(1, &position["epoch"]))["subscribe"]["recovered"], true);
    assert!(client.ask(json!({"id": 3, "unsubscribe": {"channel": "kept:a"}}))["unsubscribe"].is_object());
    server.publish("kept:a", json!(3));
    server.publish("kept:a", json!(4));
    assert_eq!(client.ask(recover(1, &position["epoch"]))["subscribe"]["recovered"], json!(null));
    assert_eq!(client.ask(json!({"id": 4, "subscribe": {"channel": "closed:a"}}))["error"]["code"], 103);
    assert_eq!(client.ask(json!({"id": 5, "subscribe": {"channel": "nowhere:a"}}))["error"]["code"], 102);
    assert_eq!(client.ask(json!({"id": 6, "subscribe": {"channel": "kept:a"}}))["error"]["code"], 105);
    server.api("unsubscribe", json!({"user": "", "channel": "kept:a"}));
    until("all is counted", || counted("touchline_unsubscribes_total{code=\"2000\"}") == 1.0);
    for (metric, count) in [
        ("touchline_subscribes_total{namespace=\"kept\",outcome=\"accepted\"}", 2.0),
        ("touchline_subscribes_total{namespace=\"kept\",outcome=\"refused\"}", 1.0),
        ("touchline_subscribes_total{namespace=\"closed\",outcome=\"refused\"}", 1.0),
        ("touchline_subscribes_total{namespace=\"other\",outcome=\"refused\"}", 1.0),
        ("touchline_subscribes_total{namespace=\"kept\",outcome=\"failed\"}", 0.0),
        ("touchline_recoveries_total{namespace=\"kept\",outcome=\"recovered\"}", 1.0),
        ("touchline_recoveries_total{namespace=\"kept\",outcome=\"not_recovered\"}", 1.0),
        ("touchline_recovered_publications_count", 1.0),
        ("touchline_recovered_publications_sum", 1.0),
        ("touchline_unsubscribes_total{code=\"0\"}", 1.0),
        ("touchline_commands_total{method=\"subscribe\"}", 5.0),
        ("touchline_commands_total{method=\"unsubscribe\"}", 1.0),
        ("touchline_errors_total{method=\"subscribe\",code=\"103\"}", 1.0),
        ("touchline_errors_total{method=\"subscribe\",code=\"102\"}", 1.0),
        ("touchline_publications_total{namespace=\"kept\"}", 4.0),
        ("touchline_publication_bytes_total{namespace=\"kept\"}", 4.0),
        ("touchline_publications_total{namespace=\"registry\"}", 0.0),
    ] {
        until_eq(count, || counted(metric));
    }
}

#[test]
fn what_is_known_already_is_no_new_publication() {
    let server = TestServer::with(namespaces);
    for _ in 0..2 {
        server.api("publish", json!({"channel": "kept:a", "data": 1, "idempotency_key": "k"}));
        server.api("publish", json!({"channel": "plain", "data": 1, "idempotency_key": "k"}));
        server.api("publish", json!({"channel": "kept:b", "data": 1, "version": 7}));
    }
    until_eq(2.0, || value(&server, "touchline_publications_total{namespace=\"kept\"}"));
    until_eq(1.0, || value(&server, "touchline_publications_total{namespace=\"without\"}"));
}

#[test]
fn callers_and_malformed_requests_are_counted_by_operation() {
    let server = TestServer::start();
    let key = format!("X-API-Key: {}\r\n", crate::support::KEY);
    server.http("POST", "/api/publish", "X-API-Key: wrong\r\n", "{}");
    server.http("POST", "/api/publish", &key, "[]");
    server.http("POST", "/api/no_such_path", &key, "{}");
    server.api("batch", json!({"commands": [{"info": {}}, {"publish": {"channel": "nope:a", "data": 1}}]}));
    for (metric, count) in [
        ("touchline_api_errors_total{method=\"none\",code=\"101\"}", 1.0),
        ("touchline_api_errors_total{method=\"none\",code=\"104\"}", 1.0),
        ("touchline_api_errors_total{method=\"publish\",code=\"107\"}", 1.0),
        ("touchline_api_errors_total{method=\"publish\",code=\"102\"}", 1.0),
        ("touchline_api_seconds_count{method=\"info\"}", 1.0),
        ("touchline_api_seconds_count{method=\"publish\"}", 1.0),
        ("touchline_api_seconds_count{method=\"none\"}", 1.0),
    ] {
        until_eq(count, || value(&server, metric));
    }
    // read once: all requests are counted.
    let (_, text) = server.http("GET", "/metrics", "", "");
    assert!(!text.contains("no_such_path"), "a path is not a label");
}

#[test]
fn the_process_and_what_runs_are_told() {
    let server = TestServer::start();
    // read once: the version does not change.
    let (_, text) = server.http("GET", "/metrics", "", "");
    assert!(text.contains("touchline_build_info{version=\""), "{text}");
    until("the metrics show it", || value(&server, "process_resident_memory_bytes") > 1e6);
    until("the metrics show it", || value(&server, "process_open_fds") < value(&server, "process_max_fds"));
    until("the metrics show it", || value(&server, "touchline_buffer_max_bytes") > 1e6);
    until_eq((1.0, 0.0), || (value(&server, "touchline_ready"), value(&server, "touchline_draining")));
}
