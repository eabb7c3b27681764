//! A node that stood still finds out which connections live: sockets that closed meanwhile are seen by then, all others
//! are sent a ping.

use std::sync::Arc;

use super::Shard;
use crate::registry_actor::Probe;

/// A look at all connections that is under way.
pub(super) struct ProbeProgress {
    /// Connections that may not have answered yet.
    slots: Vec<u32>,
    /// Whoever waits for it is told when the last shard drops this.
    _done: Arc<Probe>,
}

impl Shard {
    /// Sends every connection a ping. It ends when each has answered or is closed, which takes `client.pong_timeout` at
    /// most.
    pub(super) fn probe(&mut self, done: Arc<Probe>) {
        let slots: Vec<u32> = self.connections.slots().collect();
        for slot in &slots {
            self.guarded(*slot, |shard, slot| shard.with_session(slot, |session, context| session.probe(context)));
        }
        self.look = Some(ProbeProgress { slots, _done: done });
    }

    /// Goes on with the look.
    pub(super) fn look_for_answers(&mut self) {
        let Some(look) = &mut self.look else { return };
        while let Some(slot) = look.slots.last()
            && !self.connections.get(*slot).is_some_and(|connection| connection.session.awaits_pong())
        {
            look.slots.pop();
        }
        if look.slots.is_empty() {
            self.look = None;
        }
    }
}
