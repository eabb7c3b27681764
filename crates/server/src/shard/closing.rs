//! The end of a connection: the client gets the reason, the session ends, and the socket is closed.

use bytes::Bytes;
use touchline_protocol::Disconnect;
use touchline_protocol::message::{Messages, Push};
use touchline_protocol::websocket::encode_close;
use touchline_store::stats::Row;

use super::client_facts::{BROKEN_OFF, EndCause};
use super::connections::ConnectionStage;
use super::state::{Shard, WHEEL_TICKS};
use crate::net::transport::Transport;
use crate::runtime::clock::tenths;

/// How long a client has to close its side, in tenths of a second.
pub(super) const CLOSE_TENTHS: u32 = 50;

// The wheel reaches the deadline of a close, so that the close is booked once.
const _: () = assert!(CLOSE_TENTHS as usize <= WHEEL_TICKS);

impl Shard {
    /// Ends a connection with a reason. The client gets the reason, and has [`CLOSE_TENTHS`] to close.
    pub(super) fn disconnect(&mut self, slot: u32, why: Disconnect) {
        let until = tenths(self.now_us) + CLOSE_TENTHS;
        let Some(connection) = self.connections.get_mut(slot).filter(|c| c.stage == ConnectionStage::Open) else {
            return;
        };
        connection.stage = ConnectionStage::Closing(until);
        if why == Disconnect::SLOW {
            // A client that has not read in time loses its queue, so it has to recover.
            self.outbox.discard(&mut connection.due);
            if let Some(queue) = &mut connection.queue {
                let before = queue.bytes();
                queue.clear_unbegun();
                self.metrics.requeue(before, queue.bytes());
            }
        }
        if std::mem::take(&mut connection.is_throttled) || connection.is_held {
            // The waiting input may end with the client's close frame.
            self.unread.push(slot);
        }
        connection.close_code = why.code;
        self.metrics.count_disconnect(why.code);
        let wire = connection.wire;
        let mut frame = Vec::new();
        if wire.is_websocket() {
            encode_close(why.code, &why.reason, &mut frame);
        } else {
            let mut farewell = Messages::default();
            farewell.encode_as(wire.encoding);
            farewell.push("", &Push::Disconnect(&why));
            wire.frame(farewell.bytes(), &mut frame);
        }
        self.note_own(slot, frame.into());
        let cause = if why == Disconnect::SHUTDOWN { EndCause::Restart } else { EndCause::Server };
        self.leave(slot, &why.reason, cause);
        if wire.is_websocket() { self.book(slot) } else { self.end(slot) }
    }

    /// Closes the socket once its output is written.
    pub(super) fn end(&mut self, slot: u32) {
        let until = tenths(self.now_us) + CLOSE_TENTHS;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.stage = ConnectionStage::Ending(until);
        // The outbox visits the connection even without output, and then the socket is closed.
        self.note_own(slot, Bytes::new());
        self.book(slot);
    }

    /// Closes the socket of a connection whose output is all written. A client of lines that the server has ended may
    /// still be sending: it has [`CLOSE_TENTHS`] to read the reason and to close its side.
    pub(super) fn close_written(&mut self, slot: u32) {
        let until = tenths(self.now_us) + CLOSE_TENTHS;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let is_client_of_lines = connection.transport == Transport::Tcp && connection.close_code != 0;
        if !is_client_of_lines || connection.socket.close_output().is_err() {
            return self.remove(slot);
        }
        connection.stage = ConnectionStage::Lingering(until);
        self.book(slot);
    }

    /// Whether the server has closed its side of a connection and waits for the peer.
    pub(super) fn is_lingering(&self, slot: u32) -> bool {
        self.connections.get(slot).is_some_and(|c| matches!(c.stage, ConnectionStage::Lingering(_)))
    }

    /// Ends the session and its subscriptions. `reason`: the text that the client gets; empty = none.
    pub(super) fn leave(&mut self, slot: u32, reason: &str, cause: EndCause) {
        if self.node.events.get().is_some() {
            self.tell_disconnected(slot, reason, cause);
        }
        if self.users.remove(slot, &mut self.connections) {
            self.note_leaving(slot);
        }
        let Some((connection, mut context)) = self.context(slot) else { return };
        let subscriptions = connection.session.subscription_count();
        context.effects.messages.encode_as(connection.wire.encoding);
        connection.session.close(&mut context);
        if let Some((minute_stats, audience)) = self.minute_stats() {
            minute_stats.note_leavers(audience.hub, audience.connections);
        }
        self.metrics.subscriptions.subtract(subscriptions as u64);
        if !self.effects.subscription_changes.is_empty() {
            self.tell_subscriptions(slot);
        }
        self.send_requests(slot);
        self.send_hook_calls(slot);
    }

    /// Removes a connection, because the peer is gone or all output is written.
    pub(super) fn remove(&mut self, slot: u32) {
        if self.connections.get(slot).is_none() {
            return;
        }
        self.leave(slot, "", EndCause::Client);
        self.settle_session(slot);
        if !self.address_slots.is_empty() {
            self.address_slots.remove(&slot);
        }
        if !self.told_addresses.is_empty() {
            self.told_addresses.remove(&slot);
        }
        if !self.forwarded.is_empty() {
            self.forwarded.remove(&slot);
        }
        if !self.connecting.is_empty() {
            self.connecting.remove(&slot);
        }
        if let Some(mut connection) = self.connections.remove(slot) {
            if let Some(stats) = self.node.stats() {
                let (closed_ms, opened_ms) = (self.now_ms, self.node.clock.at(connection.opened));
                let code = if connection.close_code == 0 { BROKEN_OFF } else { connection.close_code };
                stats.record(Row::Connection {
                    opened_ms,
                    closed_ms,
                    transport: connection.transport.as_str(),
                    agent: connection.agent.as_str(),
                    code,
                });
            }
            self.outbox.discard(&mut connection.due);
            self.metrics.requeue(connection.queue.map_or(0, |queue| queue.bytes()), 0);
            self.metrics.buffered_bytes.subtract(u64::from(connection.buffered));
            self.metrics.connections.subtract(1);
            self.metrics.programs.leave(connection.program);
            self.metrics.transports[connection.transport as usize].open.subtract(1);
        }
    }
}
