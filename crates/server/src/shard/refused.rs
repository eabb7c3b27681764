//! Refusals of sessions, for the log.

use super::Shard;
use crate::refusals::RefusalLine;

impl Shard {
    /// Says in the log why a session has refused something.
    pub(super) fn log_refusals(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let counted = self.places.get(&slot).map(|place| place.address());
        let address = counted.or_else(|| connection?.socket.peer_address());
        let client = connection.map(|connection| connection.session.owner());
        for touchline_engine::RefusalReport { code, cause, channel } in self.effects.refusals.drain(..) {
            self.node.log_refusal(&RefusalLine {
                code,
                cause,
                channel: &channel,
                address,
                client,
                ..RefusalLine::default()
            });
        }
    }
}
