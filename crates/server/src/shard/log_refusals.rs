//! Logs the refusals of sessions.

use super::state::Shard;
use crate::net::admission::address_of;
use crate::runtime::refusals::RefusalLine;

impl Shard {
    /// Logs why a session has refused requests.
    pub(super) fn log_refusals(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        // Behind a proxy only a limit that needs the client's address has kept it.
        let counted = self.address_slots.get(&slot).map(|slot| slot.address());
        let limited = || connection?.session.address().map(address_of);
        let address = counted.or_else(limited).or_else(|| connection?.socket.peer_address());
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
