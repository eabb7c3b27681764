//! Requests of many steps: a broadcast, a batch.

use std::time::Duration;

use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace, Settings};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::until;

use super::bans::Scratch;
use super::support::{TestServer, open};

/// Channels with a history.
fn rooms(settings: &mut Settings, durable: bool) {
    let options = ChannelOptions { durable, history_size: 10, history_ttl: Duration::from_secs(60), ..open() };
    settings.channel.namespaces.push(Namespace { name: "step".into(), options });
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("step:{number}")).collect()
}

/// The outcomes of a broadcast or of a batch of publishes, each with a result or an error.
fn outcomes(answer: &Value) -> Vec<Value> {
    let publish =
        |reply: &Value| if reply["publish"].is_object() { json!({"result": reply["publish"]}) } else { reply.clone() };
    let of_batch = answer["replies"].as_array().map(|replies| replies.iter().map(publish).collect());
    of_batch.unwrap_or_else(|| answer["result"]["responses"].as_array().expect("responses").clone())
}

#[test]
fn the_channels_of_a_broadcast_share_commits_and_so_do_the_commands_of_a_parallel_batch() {
    let scratch = Scratch::new("steps");
    let server = TestServer::with(|settings| {
        settings.store.primary.url = format!("sqlite:{}", scratch.0.join("primary.db").display());
        rooms(settings, true);
    });
    let commits = || server.metric("touchline_store_commit_seconds_count");
    let channels = names(256);
    let publishes: Vec<Value> =
        channels.iter().map(|channel| json!({"publish": {"channel": channel, "data": {"n": 2}}})).collect();
    let requests = [
        ("broadcast", json!({"channels": channels, "data": {"n": 1}})),
        ("batch", json!({"parallel": true, "commands": publishes})),
    ];
    for (offset, (operation, body)) in (1..).zip(requests) {
        // read once: a commit is counted before its publications are answered.
        let before = commits();
        let outcomes = outcomes(&server.api(operation, body));
        assert_eq!(outcomes.len(), 256);
        assert!(outcomes.iter().all(|outcome| outcome["result"]["offset"] == offset), "{outcomes:?}");
        // read once: as above.
        let made = commits() - before;
        assert!(made < 128, "{operation}: {made} commits of 256 publications");
    }
    // A batch that is not parallel runs its commands one after the other: the last one sees what the first one did.
    let commands = json!([
        {"publish": {"channel": "step:0", "data": 3}},
        {"history": {"channel": "step:0", "limit": 10}},
    ]);
    let answer = server.api("batch", json!({ "commands": commands }));
    assert_eq!(answer["replies"][1]["history"]["publications"].as_array().map(Vec::len), Some(3), "{answer}");
}

#[test]
fn a_broadcast_and_a_batch_answer_for_each_step_when_their_time_is_over() {
    let nats = NatsServer::start(JETSTREAM);
    let server = TestServer::timed(|settings| {
        settings.cluster.engine = "nats".into();
        settings.cluster.nats_url = vec![nats.url()];
        // Long, so that the node does not notice the loss of NATS before the time is over.
        settings.cluster.node_timeout = Duration::from_secs(600);
        rooms(settings, false);
    });
    until("the node is linked", || server.publish("step:0", json!(1))["result"]["offset"].is_number());
    let channels = names(300);
    let publishes: Vec<Value> =
        channels.iter().map(|channel| json!({"publish": {"channel": channel, "data": 2}})).collect();
    let requests = [
        ("broadcast", json!({"channels": channels, "data": 2})),
        ("batch", json!({"parallel": true, "commands": publishes})),
        ("batch", json!({"commands": publishes})),
    ];
    nats.stand_still(true);
    for (operation, body) in requests {
        until("nothing waits", || server.metric("touchline_cluster_queued_bytes") == 0);
        let answer = std::thread::scope(|scope| {
            let request = scope.spawn(|| server.api(operation, body));
            until("the request runs", || server.metric("touchline_cluster_queued_bytes") > 0);
            server.clock().advance(Duration::from_millis(29_500));
            request.join().expect("it is answered")
        });
        let codes: Vec<u64> =
            outcomes(&answer).iter().map(|outcome| outcome["error"]["code"].as_u64().expect("an error")).collect();
        assert_eq!(codes.len(), 300);
        assert!(codes.iter().all(|code| [100, 111, 4009].contains(code)), "{operation}: {codes:?}");
    }
    nats.stand_still(false);
}
