//! Passes questions of sessions to the thread that asks backends, and answers back to the sessions.

use touchline_engine::ConnectionId;
use touchline_engine::hook::HookOutcome;
use touchline_protocol::message::Encoding;

use super::connections::ConnectionStage;
use super::queue::OutputKind;
use super::state::Shard;
use crate::net::transport::Transport;
use crate::runtime::hook_mailbox::{Asker, HookJob, HookMessage};

impl Shard {
    /// Sends the questions of a session to the thread that asks backends, and cancels the questions that the session
    /// has dropped.
    pub(super) fn send_hook_calls(&mut self, slot: u32) {
        if self.effects.hook_calls.is_empty() && self.effects.cancelled_hooks.is_empty() {
            return;
        }
        let (calls, cancelled) =
            (std::mem::take(&mut self.effects.hook_calls), std::mem::take(&mut self.effects.cancelled_hooks));
        let generation = self.connections.generation(slot);
        let connection = ConnectionId { shard: self.id, slot, generation };
        let (Some(of), Some(hooks)) = (self.connections.get(slot), &self.generation.hooks) else { return };
        let (client, transport) = (of.session.owner(), of.transport.as_str());
        let protocol = if of.wire.encoding == Encoding::Protobuf { "protobuf" } else { "json" };
        let forwarded = self.forwarded.get(&slot);
        for call in calls {
            let serial = call.serial;
            let asker = Asker::Session(connection);
            let forwarded = forwarded.cloned();
            let job = HookJob { asker, client, transport, protocol, call, forwarded, counted: 0 };
            if !hooks.call(job) {
                // The answer goes through the mailbox, because the session has just decided something else.
                self.node.enqueue_hook_answer(connection, serial, HookOutcome::Busy);
                self.node.wake();
            }
        }
        for serial in cancelled {
            hooks.send(HookMessage::Cancel { connection, serial });
        }
    }

    /// Whether a client that closes its side leaves at once. This is so while a backend authenticates it, or while a
    /// command of it waits for its rate, because its input is not read to the end. A client that sends lines may close
    /// its side and still wait for the answers.
    pub(super) fn has_left_waiting(&self, slot: u32) -> bool {
        self.connections.get(slot).is_some_and(|connection| {
            connection.transport != Transport::Tcp
                && connection.stage == ConnectionStage::Open
                && (connection.session.is_authenticating() || connection.session.waits_for_rate())
        })
    }

    /// Passes the answer of a backend to the session that asked.
    pub(super) fn give_hook_answer(&mut self, slot: u32, serial: u32, outcome: HookOutcome) {
        self.decide(slot, OutputKind::Answer, |session, context| session.handle_hook(serial, outcome, context));
        let Some(connection) = self.connections.get_mut(slot) else { return };
        // There may be room for its next command, or commands that have waited may continue.
        connection.is_held |= connection.session.is_deferring();
        if connection.is_held {
            self.unread.push(slot);
        }
        self.recharge(slot);
    }
}
