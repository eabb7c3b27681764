//! The measurements of a node for drains of other nodes, and its own drain while it runs.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use touchline_cluster::ClusterRoom;
use touchline_config::ShutdownSettings;

use crate::drain::{DrainForecast, DrainPlan, DrainTerms, LoadReading};
use crate::node::Node;
use crate::runtime::process::{machine_idle_s, process_processor_s};

/// Reads the cost of clients since the last reading, and reports the node's rate to the other nodes. It does so once a
/// second while clients connect. Otherwise it does so rarely, because a reading costs more than all other work of an
/// idle node. `now_us`: the time of the node's clock.
pub(crate) fn note_connects(node: &Node, now_us: u64) {
    if !node.drain.is_look_due(now_us) {
        return;
    }
    let connects = node.shards.iter().map(|shard| shard.metrics.sessions.connects()).sum();
    let at_s = now_us as f64 / 1e6;
    if !node.drain.cost().is_reading_due(at_s, connects) {
        return;
    }
    let reading = LoadReading { at_s, used_s: process_processor_s(), machine_idle_s: machine_idle_s(), connects };
    node.drain.cost().note(reading);
    let rate = connect_rate(node);
    if let Some(cluster) = node.cluster.as_ref().filter(|_| node.drain.note_rate(rate)) {
        cluster.set_room(rate, node.drain.has_begun());
    }
}

/// Returns the clients a second that this node can take from another node that drains.
pub(crate) fn connect_rate(node: &Node) -> u32 {
    let settings = &node.generation().settings;
    let at_most = |rate: u32, limit: usize| if limit == 0 { rate } else { rate.min(limit as u32) };
    let rate = match settings.shutdown.connect_rate {
        0 => node.drain.cost().rate(),
        rate => rate as u32,
    };
    // The other half is for clients that connect for other reasons.
    at_most(rate, settings.client.connection_rate_limit.div_ceil(2))
}

/// Returns the clients a second that the other nodes can take from this node.
///
/// Without other nodes, clients wait for the next process of this node. A slow drain would make them wait longer, so
/// only `shutdown.spread` counts. Nodes that have gone without a goodbye may only be out of sight, so their last report
/// counts.
fn room_of_others(node: &Node) -> u32 {
    let (room, last) = node.drain.room();
    let is_lost = || !node.console.lost().present(node.peers.load(Relaxed), node.clock.now_ms()).is_empty();
    let room = if room.is_none() && is_lost() { last } else { room };
    if room.is_none() {
        return u32::MAX;
    }
    // An older program does not report its rate. It counts as having the rate of this node.
    let all = room.connect_rate.saturating_add(connect_rate(node).saturating_mul(room.silent));
    all / (room.draining + 1)
}

fn terms(node: &Node) -> DrainTerms {
    let ShutdownSettings { timeout, spread, .. } = node.generation().settings.shutdown;
    DrainTerms { clients: node.connections(), rate: room_of_others(node), spread, timeout }
}

/// Returns the forecast of the drain under way, or of a drain that begins now.
pub(crate) fn forecast(node: &Node) -> DrainForecast {
    node.drain.forecast().unwrap_or_else(|| terms(node).forecast())
}

/// The drain of a node while it runs. It decides how far the shards must be.
pub(crate) struct RunningDrain {
    plan: DrainPlan,
    began: Instant,
    /// The room of the other nodes when the pace was last set.
    room: ClusterRoom,
}

impl RunningDrain {
    /// Begins a drain: notifies the other nodes, and logs how long the drain takes.
    pub(crate) fn begin(node: &Node) -> Self {
        let plan = DrainPlan::new(terms(node));
        let forecast = plan.forecast();
        node.drain.set_progress(0.0, forecast);
        node.drain.begin();
        if let Some(cluster) = &node.cluster {
            cluster.set_room(connect_rate(node), true);
        }
        let clients_per_second = forecast.clients_per_second.round() as u64;
        let seconds = rounded(forecast.seconds);
        tracing::info!(clients = forecast.clients, seconds, clients_per_second, "draining: clients are told to go");
        if forecast.is_hurried() {
            tracing::warn!(
                seconds = forecast.needed_s.ceil() as u64,
                "the other nodes need more time to take these clients than shutdown.timeout allows: set \
                 shutdown.timeout to {} s or more",
                forecast.timeout_s()
            );
        }
        RunningDrain { plan, began: node.clock.time().now(), room: node.drain.room().0 }
    }

    /// Sets how far the shards must be by now. The caller calls it often.
    pub(crate) fn advance(&mut self, node: &Node) {
        let elapsed_s = node.clock.time().since(self.began).as_secs_f64();
        // The pace is kept as long as the same nodes are there, because operators have seen its forecast. It is also
        // kept when no node is left to take clients: the remaining clients are served in the meantime.
        let (room, _) = node.drain.room();
        if !room.is_none() && !room.has_nodes_of(&self.room) {
            self.room = room;
            self.plan.set_rate(room_of_others(node), elapsed_s);
            let (takers, draining) = (room.takers + room.silent, room.draining);
            let seconds = rounded(self.plan.forecast().seconds);
            tracing::info!(takers, draining, seconds, "draining: other nodes have come or gone");
        }
        node.drain.set_progress(self.plan.part(elapsed_s), self.plan.forecast());
    }
}

/// Rounds to a tenth of a second.
fn rounded(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}
