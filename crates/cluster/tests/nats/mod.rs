//! Nodes that join a NATS server of a test.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use touchline_cluster::{Cluster, ClusterEvent, JoinOptions, StreamSettings, join};
use touchline_config::ClusterSettings;
use touchline_testkit::nats::NatsServer;

/// The options of a node that joins the cluster `name` on a server.
pub(crate) fn options(server: &NatsServer, name: &str) -> JoinOptions {
    JoinOptions {
        cluster: ClusterSettings {
            nats_url: vec![server.url()],
            name: name.to_owned(),
            // Short, so that nodes see each other at once.
            heartbeat_interval: Duration::from_millis(100),
            node_timeout: Duration::from_secs(5),
            // Short, because no test loses a node.
            suspect_grace: Duration::from_secs(1),
            ..ClusterSettings::default()
        },
        node: format!("node-{name}"),
        streams: vec![StreamSettings { namespace: String::new(), size: 100, ttl: Duration::from_secs(600) }],
        // Short, so that a deleted bucket is noticed soon.
        check_delay: Duration::from_secs(1),
        ..JoinOptions::default()
    }
}

/// Joins the cluster, and returns the receiver of its events.
pub(crate) fn start(options: JoinOptions) -> (Cluster, Receiver<ClusterEvent>) {
    let (cluster, joining) = join(options).expect("the settings are good");
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let sink = move |event| {
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(event);
    };
    joining.start(sink).expect("the thread starts");
    (cluster, events)
}
