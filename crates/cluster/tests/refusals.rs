//! A refusal of JetStream reaches the node and its log with the cause and the remedy, once, and without secrets.

mod nats;

use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use async_nats::jetstream::{self, stream::DiscardPolicy};
use touchline_cluster::{Cluster, ClusterEvent, StreamError, try_connection};
use touchline_config::ClusterSettings;
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::{PATIENCE, until};

use nats::{options, start};

/// Everything that was logged in this process.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(part: &str) -> Vec<String> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&log).lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// A NATS server with a log.
fn nats(configuration: &str) -> NatsServer {
    static IS_LOGGING: OnceLock<()> = OnceLock::new();
    IS_LOGGING.get_or_init(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| LogWriter).init());
    NatsServer::start(configuration)
}

fn fault(events: &Receiver<ClusterEvent>) -> StreamError {
    loop {
        if let ClusterEvent::StreamsUnavailable(error) = events.recv_timeout(PATIENCE).expect("an event comes") {
            return error;
        }
    }
}

fn append(cluster: &Cluster) -> Result<u64, StreamError> {
    let (sender, result) = channel();
    let done = move |appended: Result<touchline_protocol::stream::StreamPosition, StreamError>| {
        let _ = sender.send(appended.map(|at| at.offset.0));
    };
    cluster.append("news".into(), "".into(), b"{}".to_vec(), Box::default(), Box::new(done));
    result.recv_timeout(PATIENCE).expect("the request gets a reply")
}

#[test]
fn a_server_without_jetstream_is_named_with_its_remedy() {
    let server = nats("");
    let (cluster, events) = start(options(&server, "without"));
    let text = fault(&events).to_string();
    assert!(text.contains("opening the stream touchline_") && text.contains("switch JetStream on"), "{text}");
    assert!(matches!(append(&cluster), Err(StreamError::NotJoined | StreamError::NotOpen)));
    cluster.leave();
}

#[test]
fn a_trial_finds_that_one_server_cannot_replicate_streams() {
    let server = nats(JETSTREAM);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut options = options(&server, "trial");
    runtime.block_on(try_connection(&options)).expect("one replica is possible");
    options.cluster.stream_replicas = 3;
    let refused = runtime.block_on(try_connection(&options)).expect_err("three are not");
    assert!(refused.contains("3 replicas: set cluster.stream_replicas to 1"), "{refused}");
    options.streams.clear();
    runtime.block_on(try_connection(&options)).expect("without streams, the number is not used");
}

#[test]
fn a_stream_that_does_not_fit_is_named_with_its_remedy() {
    let server = nats("jetstream { store_dir: \"$STORE\", max_file_store: 1MB }");
    let mut options = options(&server, "room");
    options.cluster.stream_max_bytes = 1 << 30;
    let (cluster, events) = start(options);
    let text = fault(&events).to_string();
    assert!(text.contains("creating the stream touchline_") && text.contains("give JetStream more room"), "{text}");
    assert_eq!(fault(&events).to_string(), text, "it is tried again");
    let stream = text.split(": ").next().unwrap_or_default();
    assert_eq!(logged(stream).len(), 1, "one line for all attempts");
    cluster.leave();
}

#[test]
fn a_full_stream_refuses_with_its_cause_and_one_line_in_the_log() {
    let server = nats(JETSTREAM);
    let (cluster, events) = start(options(&server, "full"));
    while !matches!(events.recv_timeout(PATIENCE).expect("an event comes"), ClusterEvent::Linked(true)) {}
    append(&cluster).expect("it is stored");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let name = runtime.block_on(async {
        let client = async_nats::connect(format!("127.0.0.1:{}", server.port)).await.expect("NATS is there");
        let context = jetstream::new(client);
        let stream = futures_util::StreamExt::next(&mut context.stream_names()).await;
        let name = stream.expect("there is a stream").expect("it has a name");
        let mut config = context.get_stream(&name).await.expect("it is there").cached_info().config.clone();
        (config.discard, config.max_messages) = (DiscardPolicy::New, 1);
        context.update_stream(config).await.expect("it is changed");
        name
    });
    for _ in 0..50 {
        let refused = append(&cluster).expect_err("the stream is full");
        assert!(matches!(refused, StreamError::Append { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&name) && text.contains("maximum messages exceeded"), "{text}");
    }
    let lines = logged("maximum messages exceeded");
    assert_eq!(lines.len(), 1, "one line in an outage: {lines:?}");
    assert!(lines[0].contains("publications to channels with history fail"), "{lines:?}");
    cluster.leave();
}

#[test]
fn no_password_reaches_the_log() {
    let server = nats("authorization { user: node, password: \"right\" }");
    let url = format!("nats://node:tops3cret@127.0.0.1:{}", server.port);
    let mut options = options(&server, "secret");
    options.cluster.nats_url = vec![url];
    let (cluster, _events) = start(options);
    let port = format!("127.0.0.1:{}", server.port);
    until("the refusal is logged", || !logged(&port).is_empty());
    assert!(logged("tops3cret").is_empty(), "{:?}", logged("tops3cret"));
    assert!(logged(&port)[0].contains("authorization"), "{:?}", logged(&port));
    cluster.leave();
}

#[test]
fn each_kind_of_credentials_lets_a_node_join() {
    type Change = fn(&mut ClusterSettings, &str);
    let of_user = "authorization { user: \"no@de\", password: \"ri:ght\" }";
    let of_token = "authorization { token: \"ri:ght\" }";
    let cases: [(&str, Change); 4] = [
        (of_user, |cluster, _| {
            (cluster.nats_user, cluster.nats_password) = ("no@de".to_owned(), "ri:ght".to_owned());
        }),
        (of_user, |cluster, host| cluster.nats_url = vec![format!("nats://no%40de:ri%3Aght@{host}")]),
        (of_token, |cluster, _| cluster.nats_token = "ri:ght".to_owned()),
        (of_token, |cluster, host| cluster.nats_url = vec![format!("nats://ri%3Aght@{host}")]),
    ];
    for (configuration, change) in cases {
        let server = nats(configuration);
        let mut options = options(&server, "right");
        options.streams.clear();
        change(&mut options.cluster, &format!("127.0.0.1:{}", server.port));
        let (cluster, events) = start(options);
        while !matches!(events.recv_timeout(PATIENCE).expect("an event comes"), ClusterEvent::Linked(true)) {}
        cluster.leave();
    }
}

#[test]
fn refused_credentials_are_logged_with_their_keys() {
    type Change = fn(&mut ClusterSettings);
    let cases: [(Change, &str); 3] = [
        (
            |cluster| (cluster.nats_user, cluster.nats_password) = ("node".into(), "tops3cret".into()),
            "correct cluster.nats_user and cluster.nats_password",
        ),
        (|cluster| cluster.nats_token = "tops3cret".into(), "correct cluster.nats_token"),
        (|_| {}, "none are set: cluster.nats_user and cluster.nats_password, cluster.nats_token, or"),
    ];
    for (change, expected) in cases {
        let server = nats("authorization { user: node, password: \"right\" }");
        let mut options = options(&server, "keys");
        change(&mut options.cluster);
        let (cluster, _events) = start(options);
        let port = format!("127.0.0.1:{}", server.port);
        until(expected, || logged(&port).iter().any(|line| line.contains(expected)));
        assert!(logged("tops3cret").is_empty(), "{:?}", logged("tops3cret"));
        cluster.leave();
    }
}
