//! Logs the refusals of sessions.

use touchline_engine::RefusalReport;

use super::state::Shard;
use crate::net::admission::address_of;
use crate::runtime::refusals::RefusalLine;

impl Shard {
    /// Logs why a connection is ended before its session has read what it sent.
    pub(super) fn log_refusal(&mut self, slot: u32, code: u32, cause: &'static str) {
        self.effects.refusals.push(RefusalReport { code, cause, ..RefusalReport::default() });
        self.log_refusals(slot);
    }

    /// Logs why a session has refused requests. The details of a line are looked up only for refusals that are logged.
    pub(super) fn log_refusals(&mut self, slot: u32) {
        let mut refusals = std::mem::take(&mut self.effects.refusals);
        for RefusalReport { code, cause, channel, method } in refusals.drain(..) {
            let Some(silent) = self.node.refusals.admits(cause, "", self.now_us / 1_000) else { continue };
            let connection = self.connections.get(slot);
            // Behind a proxy, the client's address is kept only if a limit needs it.
            let counted = self.address_slots.get(&slot).map(|slot| slot.address());
            let limited = || connection?.session.address().map(address_of);
            let refused = RefusalLine {
                code,
                cause,
                channel: &channel,
                method: &method,
                address: counted.or_else(limited).or_else(|| connection?.socket.peer_address()),
                client: connection.map(|connection| connection.session.owner()),
                ..RefusalLine::default()
            };
            self.node.refusals.log(&refused, silent);
        }
        self.effects.refusals = refusals;
    }
}
