//! The probes: whether the node can serve, and whether it lives.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::StatusCode;
use touchline_engine::bans::BanRefusal;

use crate::node::Node;
use crate::runtime::mailbox::Inspection;
use crate::transport::http::respond::{self, HttpResponse, JSON};

/// How long a shard may take to answer a liveness probe.
const TURN_TIME: Duration = Duration::from_secs(5);

/// Whether every shard's event loop responds in time.
pub(crate) async fn turns(node: &Node) -> bool {
    let turned = tokio::time::timeout(TURN_TIME, node.inspect(|reply| Inspection::Turn { reply })).await;
    turned.is_ok_and(|turned| turned.len() == node.shards.len())
}

/// The answer to the readiness probe: whether the node can serve, else why not.
pub(super) fn health(node: &Node) -> HttpResponse {
    if *node.draining.borrow() {
        return respond::draining();
    }
    match unready(node) {
        Some(why) => respond::text(StatusCode::SERVICE_UNAVAILABLE, why),
        None => respond::body(StatusCode::OK, JSON, serde_json::Value::Object(information(node)).to_string()),
    }
}

/// Whether the node can serve.
pub(super) fn is_ready(node: &Node) -> bool {
    !*node.draining.borrow() && unready(node).is_none()
}

/// Why a node that does not drain cannot serve; None = it can.
fn unready(node: &Node) -> Option<String> {
    if let Some(why) = node.version_conflict() {
        return Some(format!("no part of the cluster: {why}\n"));
    }
    if node.cluster.is_some() && !node.is_linked.load(Relaxed) {
        return Some(match node.stream_fault() {
            fault if fault.is_empty() && node.generation().session.bans.holds_back().is_some() => {
                "cut off from NATS: nobody is let in, because the bans are not known\n".to_owned()
            }
            fault if fault.is_empty() => {
                "cut off from NATS: clients are served, other nodes can't be reached\n".to_owned()
            }
            fault => format!("JetStream can't be used: {fault}\n"),
        });
    }
    if node.is_unsettled() {
        return Some("the registry's entries of other nodes are on their way\n".to_owned());
    }
    if let Some(refusal) = node.generation().session.bans.holds_back() {
        let text = match refusal {
            BanRefusal::CutOff => "cut off from the bans: nobody is let in (security.when_cut_off)\n",
            _ => "the bans have not been loaded yet: nobody is let in\n",
        };
        return Some(text.to_owned());
    }
    let fails = node.store().is_some_and(|store| !store.metrics().is_healthy());
    fails.then(|| "the primary database fails: durable channels can't be published to\n".to_owned())
}

/// What is wrong with a node that can serve all the same.
fn information(node: &Node) -> serde_json::Map<String, serde_json::Value> {
    let mut information = serde_json::Map::new();
    let generation = node.generation();
    let open = generation.hooks.as_ref().map_or(Vec::new(), |hooks| hooks.metrics.open_backends());
    if !open.is_empty() {
        // Another node would not reach it either.
        information.insert("backends_not_asked".to_owned(), open.into());
    }
    let off = node.events.get().map_or(Vec::new(), |events| events.metrics.off());
    if !off.is_empty() {
        // Each of them has answered 410.
        information.insert("events_not_sent".to_owned(), off.into());
    }
    let differing = node.events.get().map_or(Vec::new(), |events| events.metrics.differing());
    if !differing.is_empty() {
        // Nodes differ while their configuration is changed on one after the other.
        information.insert("events_differing".to_owned(), differing.into());
    }
    let silent = node.events.get().map_or(Vec::new(), |events| events.metrics.silent());
    if !silent.is_empty() {
        // What their clients do is not told.
        information.insert("nodes_without_durable_events".to_owned(), silent.into());
    }
    let stuck = generation.consumers.iter().filter(|one| one.is_stuck());
    let stuck: Vec<&str> = stuck.map(|one| one.name()).collect();
    if !stuck.is_empty() {
        // Clients are served all the same, and another node would not fare better.
        information.insert("consumers_stuck".to_owned(), stuck.into());
    }
    let others = node.nodes_with_other_facts.lock().unwrap_or_else(PoisonError::into_inner);
    if !others.is_empty() {
        // Nodes are so while the place is changed on one after the other: each of them can serve.
        let nodes: Vec<&str> = others.iter().map(|node| &**node).collect();
        information.insert("nodes_with_other_bans".to_owned(), nodes.into());
    }
    let others = node.others_with_other_configuration();
    if !others.is_empty() {
        // Nodes are so while they are reloaded one after the other.
        let nodes: Vec<&str> = others.iter().map(|node| &**node).collect();
        information.insert("nodes_with_other_configuration".to_owned(), nodes.into());
    }
    information
}
