//! After the node stood still, the shard finds out which connections are alive. The poller reports sockets that were
//! closed in the meantime, and the shard pings all others.

use std::sync::Arc;

use super::state::{ProbeProgress, Shard};
use crate::runtime::registry_mailbox::Probe;

impl Shard {
    /// Pings every connection. The probe ends when each connection has sent a pong or is closed, after
    /// `client.pong_timeout` at most.
    pub(super) fn probe(&mut self, done: Arc<Probe>) {
        let slots: Vec<u32> = self.connections.slots().collect();
        for slot in &slots {
            self.guarded(*slot, |shard, slot| shard.with_session(slot, |session, context| session.probe(context)));
        }
        self.probe_progress = Some(ProbeProgress { slots, _done: done });
    }

    /// Continues the probe under way, if there is one.
    pub(super) fn continue_probe(&mut self) {
        let Some(progress) = &mut self.probe_progress else { return };
        while let Some(slot) = progress.slots.last()
            && !self.connections.get(*slot).is_some_and(|connection| connection.session.awaits_pong())
        {
            progress.slots.pop();
        }
        if progress.slots.is_empty() {
            self.probe_progress = None;
        }
    }
}
