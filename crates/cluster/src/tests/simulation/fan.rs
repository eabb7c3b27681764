//! A subscriber, and what it may receive.

use std::collections::BTreeMap;

use touchline_engine::ConnectionId;
use touchline_protocol::stream::{ChannelName, Epoch};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FanState {
    Away,
    Asked,
    Live,
}

/// A subscriber of one channel. It keeps its position while it is away, and may come back to another node.
pub(super) struct SimulatedFan {
    pub(super) channel: ChannelName,
    pub(super) connection: ConnectionId,
    pub(super) state: FanState,
    pub(super) visits: u64,
    /// The last offset that it has; `None` = it was never subscribed to a channel with history.
    pub(super) last: Option<u64>,
    pub(super) epoch: Epoch,
    /// The last publication that it has of each node, for a channel without history.
    pub(super) of_nodes: BTreeMap<u64, u64>,
}

/// A fan of a node, and the number of its visit.
pub(super) type Visit = (usize, u64);

impl SimulatedFan {
    pub(super) fn new(channel: ChannelName, slot: u32) -> Self {
        SimulatedFan {
            channel,
            connection: ConnectionId { shard: 0, slot, generation: 0 },
            state: FanState::Away,
            visits: 0,
            last: None,
            epoch: Epoch::default(),
            of_nodes: BTreeMap::new(),
        }
    }

    /// Takes a publication of a channel without history: number `number` of a node.
    pub(super) fn take(&mut self, node: u64, number: u64) {
        let before = self.of_nodes.insert(node, number);
        assert!(before < Some(number), "publication {number} of node {node} came after {before:?}");
    }
}
