//! Commands from a JetStream stream, as subscribers see them.

use serde_json::{Value, json};
use touchline_server::{ConsumerType, NamedConsumer, Settings};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::{until, until_eq};

use super::bans::Scratch;
use super::consumers::{add_durable_channels, kept};
use super::jetstream::JetStreamClient;
use super::support::TestServer;

/// A node that reads the stream `NEWS`.
fn node(nats: &NatsServer, change: impl FnOnce(&mut Settings)) -> TestServer {
    let mut consumer = NamedConsumer { name: "news".to_owned(), ..NamedConsumer::default() };
    (consumer.options.enabled, consumer.options.source) = (true, ConsumerType::NatsJetStream);
    let stream = &mut consumer.options.sources.nats_jetstream;
    stream.url = nats.url();
    (stream.stream_name, stream.durable_consumer_name) = ("NEWS".to_owned(), "touchline".to_owned());
    stream.deliver_policy = "all".to_owned();
    TestServer::with(|settings| {
        settings.consumers.push(consumer);
        change(settings);
    })
}

fn count(server: &TestServer, outcome: &str) -> u64 {
    server.metric(&format!("touchline_consumer_commands_total{{consumer=\"news\",outcome=\"{outcome}\"}}"))
}

#[test]
fn a_message_that_fails_holds_up_its_channel_alone_and_is_told() {
    let (nats, scratch) = (NatsServer::start(JETSTREAM), Scratch::new("stream-past"));
    let primary = PostgresServer::start(&scratch.0);
    let mut stream = JetStreamClient::connect(&nats);
    stream.make_stream();
    let server = node(&nats, |settings| add_durable_channels(settings, &primary.url()));
    stream.command("publish", json!({"channel": "durable:a", "data": 0}));
    until("the first is published", || kept(&server, "durable:a") == [0]);
    primary.kill();
    for n in 1..=25 {
        stream.command("publish", json!({"channel": "durable:a", "data": n}));
    }
    stream.command("history_remove", json!({"channel": "history:b"}));
    stream.command("broadcast", json!({"channels": ["history:b", "durable:a"], "data": 26}));
    stream.command("publish", json!({"channel": "history:b", "data": 27}));
    let stuck = "touchline_consumer_stuck{consumer=\"news\"}";
    let mut flowing = 0;
    until("it is stuck, while others flow", || {
        flowing += 1;
        stream.command("publish", json!({"channel": "history:c", "data": flowing}));
        server.metric(stuck) == 1 && kept(&server, "history:c").len() > 20
    });
    until("touchline_consumer_retrying >= 1", || server.metric("touchline_consumer_retrying{consumer=\"news\"}") >= 1);
    let (_, readiness) = server.http("GET", "/readyz", "", "");
    assert!(readiness.contains("durable") || readiness.contains("news"), "{readiness}");
    assert_eq!(kept(&server, "history:b"), Vec::<Value>::new(), "a broadcast waits in all of its channels");
    primary.again();
    let expected: Vec<Value> = (0..=26).map(Value::from).collect();
    until("all are published", || kept(&server, "history:b") == [26, 27]);
    assert_eq!(kept(&server, "durable:a"), expected, "in their order, each once");
    until("it gets on", || server.metric(stuck) == 0);
}

#[test]
fn a_command_that_is_delivered_again_behind_later_ones_does_not_undo_them() {
    let nats = NatsServer::start(JETSTREAM);
    let mut stream = JetStreamClient::connect(&nats);
    stream.make_stream();
    let config = json!({"durable_name": "touchline", "ack_policy": "explicit", "deliver_policy": "all"});
    stream.api("CONSUMER.DURABLE.CREATE.NEWS.touchline", &json!({"stream_name": "NEWS", "config": config}));
    // Another node takes the first messages, and gives them back later.
    let taken = ["history:a", "history:b"].map(|channel| {
        stream.command("history_remove", json!({"channel": channel}));
        stream.take("touchline")
    });
    let server = node(&nats, |settings| {
        settings.consumers[0].options.sources.nats_jetstream.use_existing_consumer = true;
    });
    server.publish("history:b", json!(0));
    stream.command("publish", json!({"channel": "history:a", "data": 1}));
    until("the publication is there", || kept(&server, "history:a") == [1]);
    taken.iter().for_each(|message| stream.tell(message, "-NAK"));
    until("both have come again", || count(&server, "processed") + count(&server, "passed_over") == 3);
    assert_eq!(kept(&server, "history:a"), [1], "what came behind it stays");
    assert_eq!(kept(&server, "history:b"), Vec::<Value>::new(), "nothing of the stream came behind the other");
    until_eq(1, || count(&server, "passed_over"));
}

#[test]
fn messages_that_can_never_be_carried_out_delay_nobody() {
    let nats = NatsServer::start(JETSTREAM);
    let mut stream = JetStreamClient::connect(&nats);
    stream.make_stream();
    for message in ["", "junk", "[]", "{}", r#"{"method":"publish"}"#, r#"{"method":"publish","payload":7}"#] {
        stream.ask("news.a", message);
    }
    stream.command("publish", json!({"channel": "none:a", "data": 1}));
    stream.command("publish", json!({"channel": "history:a\0", "data": "x".repeat(900_000)}));
    stream.command("no_method", json!({}));
    stream.command("publish", json!({"channel": "history:a", "data": 1}));
    let server = node(&nats, |_| {});
    until("the good one is published", || kept(&server, "history:a") == [1]);
    until("all are counted", || count(&server, "failed") + count(&server, "passed_over") >= 9);
    until_eq((8, 1, 0), || (count(&server, "failed"), count(&server, "passed_over"), count(&server, "retried")));
    until("nothing waits", || server.metric("touchline_consumer_waiting{consumer=\"news\"}") == 0);
}
