//! A primary database that has reached its limit: durable channels are refused in time, and everything else continues.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace, Settings};
use touchline_testkit::{until, until_eq};

use super::bans::Scratch;
use super::support::{TestServer, open};

const LIMIT: u64 = 8 * 1_024 * 1_024;

fn channels(settings: &mut Settings, url: &str) {
    settings.store.primary.url = url.to_owned();
    settings.store.primary.max_size = LIMIT;
    settings.security.use_primary = true;
    let history =
        |durable| ChannelOptions { durable, history_size: 100_000, history_ttl: Duration::from_secs(600), ..open() };
    for (name, durable) in [("kept", true), ("light", false)] {
        settings.channel.namespaces.push(Namespace { name: name.into(), options: history(durable) });
    }
}

fn code(answer: &Value) -> u64 {
    answer["error"]["code"].as_u64().unwrap_or_default()
}

#[test]
fn beyond_its_size_durable_channels_are_refused_and_others_go_on() {
    let scratch = Scratch::new("database-size");
    let url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    let server = TestServer::with(|settings| channels(settings, &url));
    let text = "x".repeat(50_000);
    let mut stored: u64 = 0;
    let refused = loop {
        let answer = server.publish("kept:a", json!(text));
        if code(&answer) != 0 {
            break answer;
        }
        stored += 1;
        assert!(stored * 50_000 < LIMIT, "the limit does not hold");
    };
    assert_eq!((code(&refused), stored > 50), (111, true), "{refused} after {stored}");
    assert_eq!(code(&server.publish("light:a", json!(text))), 0, "a channel in memory needs no disk");
    for (operation, body) in [
        ("block_user", json!({"user": "ann"})),
        ("unblock_user", json!({"user": "ann"})),
        ("history", json!({"channel": "kept:a", "limit": 1})),
    ] {
        let answer = server.api(operation, body);
        assert_eq!(code(&answer), 0, "{operation}: {answer}");
    }
    until("touchline_store_full_refused_total > 0", || server.metric("touchline_store_full_refused_total") > 0);
    until_eq(1, || server.metric("touchline_store_full"));
    until_eq(LIMIT, || server.metric("touchline_store_size_limit_bytes"));
    until("touchline_store_size_bytes <= LIMIT", || server.metric("touchline_store_size_bytes") <= LIMIT);
    until_eq(1, || server.metric("touchline_store_healthy"));
    until("the overview names it", || server.api("overview", json!({})).to_string().contains("database_full"));

    assert_eq!(code(&server.api("history_remove", json!({"channel": "kept:a"}))), 0);
    until("there is room again", || code(&server.publish("kept:a", json!(text))) == 0);
    until("the refusals end", || server.metric("touchline_store_full") == 0);
}
