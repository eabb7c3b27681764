//! A NATS server that stops answering under load: the node notices it, refuses what it cannot queue, and answers for
//! everything that it accepted.

mod nats;

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use touchline_cluster::{Cluster, ClusterEvent, StreamError};
use touchline_testkit::nats::{JETSTREAM, NatsServer};
use touchline_testkit::{PATIENCE, until};

use nats::{options, start};

/// The limit of what waits for NATS, bytes.
const OUTGOING: usize = 4 << 20;
const PAYLOAD: usize = 1_024;

fn linked(events: &Receiver<ClusterEvent>, is_linked: bool) {
    let is_that = |event| matches!(event, ClusterEvent::Linked(now) if now == is_linked);
    while !is_that(events.recv_timeout(PATIENCE).expect("the link changes")) {}
}

fn joined(server: &NatsServer, name: &str) -> (Cluster, Receiver<ClusterEvent>) {
    let mut options = options(server, name);
    // Short, so that the loss of NATS is noticed soon.
    options.cluster.node_timeout = Duration::from_secs(2);
    options.outgoing_max_size = OUTGOING;
    let (cluster, events) = start(options);
    linked(&events, true);
    (cluster, events)
}

/// Publishes numbered publications that are not stored while there is room, until `is_over`. Returns how many.
fn publish_until(cluster: &Cluster, mut is_over: impl FnMut(u32) -> bool) -> u32 {
    let mut number = 0;
    while !is_over(number) {
        if cluster.has_room() {
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(PAYLOAD, 0);
            cluster.publish_ephemeral("a".into(), payload);
            number += 1;
        } else {
            std::thread::yield_now();
        }
        let queued = cluster.traffic().queued_bytes as usize;
        assert!(queued <= OUTGOING + 2 * PAYLOAD, "{queued} bytes wait");
    }
    number
}

/// The number of a publication.
fn number(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().expect("it has a number"))
}

#[test]
fn a_frozen_server_under_load_is_noticed_and_what_was_accepted_is_delivered_here() {
    let server = NatsServer::start(JETSTREAM);
    let (cluster, events) = joined(&server, "frozen");
    server.stand_still(true);
    let mut received = Vec::new();
    let mut is_lost = false;
    let accepted = publish_until(&cluster, |_| {
        while let Ok(event) = events.try_recv() {
            match event {
                ClusterEvent::Linked(false) => is_lost = true,
                ClusterEvent::Ephemeral { payload, .. } => received.push(number(&payload)),
                _ => {}
            }
        }
        is_lost
    });
    assert!(accepted > (OUTGOING / 2 / PAYLOAD) as u32, "there was load: {accepted}");
    until("nothing waits any more", || cluster.traffic().queued_bytes == 0);
    while let Ok(ClusterEvent::Ephemeral { payload, .. }) = events.recv_timeout(Duration::from_secs(1)) {
        received.push(number(&payload));
    }
    assert!(received.is_sorted(), "in the order in which they were published");
    assert_eq!(received.last(), Some(&(accepted - 1)), "the newest is there");
    // Those that the client of NATS had taken are on their way to the frozen server.
    let missing = accepted as usize - received.len();
    assert!(missing * PAYLOAD <= 8 << 20, "{missing} of {accepted} are not delivered");
    server.stand_still(false);
    linked(&events, true);
    cluster.leave();
}

#[test]
fn a_publication_with_history_is_answered_while_the_server_is_frozen_under_load() {
    let server = NatsServer::start(JETSTREAM);
    let (cluster, events) = joined(&server, "stored");
    server.stand_still(true);
    let (sender, results) = channel();
    let mut sent = 0;
    let append = || {
        let sender = sender.clone();
        let done = Box::new(move |result| drop(sender.send(result)));
        cluster.append("a".into(), "".into(), vec![b'1'; PAYLOAD], "".into(), done);
    };
    // The room is full.
    while cluster.traffic().refused == 0 {
        append();
        sent += 1;
    }
    let refused = (0..sent).filter(|_| {
        let result = results.recv_timeout(PATIENCE).expect("each is answered");
        let error = result.expect_err("the server stores nothing");
        matches!(error, StreamError::NoRoom)
    });
    assert!(refused.count() >= 1, "one did not fit");
    assert!(matches!(results.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)), "and each once");
    server.stand_still(false);
    linked(&events, true);
    until("it is stored again", || {
        append();
        matches!(results.recv_timeout(PATIENCE), Ok(Ok(_)) | Err(RecvTimeoutError::Disconnected))
    });
    cluster.leave();
}
