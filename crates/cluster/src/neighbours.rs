//! What this node last reported about the other nodes in sight. Only changes are reported.

use std::sync::Arc;

use crate::events::{ClusterEvent, ClusterEventSink};
use crate::members::Members;
use crate::types::ClusterRoom;

/// The last report about the other nodes.
#[derive(Debug, Default)]
pub(crate) struct ReportedNodes {
    /// The nodes that do not share the facts of this one.
    with_other_facts: Vec<Arc<str>>,
    /// The nodes that have another configuration than this one.
    with_other_configuration: Vec<Arc<str>>,
    room: ClusterRoom,
}

impl ReportedNodes {
    /// Reports what has changed since the last report.
    pub(crate) fn report(&mut self, members: &Members, events: &ClusterEventSink) {
        let others = members.with_other_facts();
        if others != self.with_other_facts {
            self.with_other_facts.clone_from(&others);
            events(ClusterEvent::NodesWithOtherFacts(others));
        }
        let others = members.with_other_configuration();
        if others != self.with_other_configuration {
            self.with_other_configuration.clone_from(&others);
            events(ClusterEvent::NodesWithOtherConfiguration(others));
        }
        let room = members.room();
        if room != self.room {
            self.room = room;
            events(ClusterEvent::Room(room));
        }
    }
}
