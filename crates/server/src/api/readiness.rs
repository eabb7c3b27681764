//! The probes: whether the node can serve, and whether its event loops run.

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
    let turned = node.clock.time().timeout(TURN_TIME, node.inspect(|reply| Inspection::Turn { reply })).await;
    turned.is_ok_and(|turned| turned.len() == node.shards.len())
}

/// Answers the readiness probe: whether the node can serve, and if not, why.
pub(super) fn health(node: &Node) -> HttpResponse {
    if node.drain.has_begun() {
        return respond::draining();
    }
    match unready(node) {
        Some(why) => respond::text(StatusCode::SERVICE_UNAVAILABLE, why),
        None => respond::body(StatusCode::OK, JSON, serde_json::Value::Object(information(node)).to_string()),
    }
}

/// Whether the node can serve.
pub(super) fn is_ready(node: &Node) -> bool {
    !node.drain.has_begun() && unready(node).is_none()
}

/// Returns why a node that does not drain cannot serve; None = it can.
fn unready(node: &Node) -> Option<String> {
    if let Some(why) = node.version_conflict() {
        return Some(format!("no part of the cluster: {why}\n"));
    }
    if node.cluster.is_some() && !node.is_linked.load(Relaxed) {
        return Some(match node.stream_fault() {
            fault if fault.is_empty() && node.generation().session.bans.holds_back().is_some() => {
                "cut off from NATS: the node accepts no client, because the bans are unknown\n".to_owned()
            }
            fault if fault.is_empty() => {
                "cut off from NATS: clients are served, but other nodes cannot be reached\n".to_owned()
            }
            fault => format!("JetStream cannot be used: {fault}\n"),
        });
    }
    if node.is_unsettled() {
        return Some("the registry's entries of other nodes have not arrived yet\n".to_owned());
    }
    if let Some(refusal) = node.generation().session.bans.holds_back() {
        let text = match refusal {
            BanRefusal::CutOff => "cut off from the bans: the node accepts no client (security.when_cut_off)\n",
            _ => "the bans have not been loaded yet: the node accepts no client\n",
        };
        return Some(text.to_owned());
    }
    let fails = node.store().is_some_and(|store| !store.metrics().is_healthy());
    fails.then(|| "the primary database fails: publications into durable channels are refused\n".to_owned())
}

/// Returns faults of a node that can serve in spite of them.
fn information(node: &Node) -> serde_json::Map<String, serde_json::Value> {
    let mut information = serde_json::Map::new();
    let generation = node.generation();
    let open = generation.hooks.as_ref().map_or(Vec::new(), |hooks| hooks.metrics.open_backends());
    if !open.is_empty() {
        // Another node would not reach the backend either.
        information.insert("backends_not_asked".to_owned(), open.into());
    }
    let off = node.events.get().map_or(Vec::new(), |events| events.metrics.off());
    if !off.is_empty() {
        // Each of these endpoints has answered 410.
        information.insert("events_not_sent".to_owned(), off.into());
    }
    let differing = node.events.get().map_or(Vec::new(), |events| events.metrics.differing());
    if !differing.is_empty() {
        // Nodes differ while their configuration is changed one after the other.
        information.insert("events_differing".to_owned(), differing.into());
    }
    let silent = node.events.get().map_or(Vec::new(), |events| events.metrics.silent());
    if !silent.is_empty() {
        // No events report what the clients of these nodes do.
        information.insert("nodes_without_durable_events".to_owned(), silent.into());
    }
    let stuck = generation.consumers.iter().filter(|one| one.is_stuck());
    let stuck: Vec<&str> = stuck.map(|one| one.name()).collect();
    if !stuck.is_empty() {
        // Clients are served in spite of this, and another node would not do better.
        information.insert("consumers_stuck".to_owned(), stuck.into());
    }
    let others = node.nodes_with_other_facts.lock();
    if !others.is_empty() {
        // Nodes differ while the place of the bans is changed one after the other. Each of them can serve.
        let nodes: Vec<&str> = others.iter().map(|node| &**node).collect();
        information.insert("nodes_with_other_bans".to_owned(), nodes.into());
    }
    let others = node.others_with_other_configuration();
    if !others.is_empty() {
        // Nodes differ while they are reloaded one after the other.
        let nodes: Vec<&str> = others.iter().map(|node| &**node).collect();
        information.insert("nodes_with_other_configuration".to_owned(), nodes.into());
    }
    information
}
