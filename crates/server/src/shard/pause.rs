//! When the shard does not read a connection. The connection is above its rate, an earlier command has no reply yet, or
//! its socket has not taken earlier answers. Its input waits where it is until there is room.
//!
//! While a command waits for a rate of its own, the shard still reads some input, which waits in the session.

use std::cmp::Reverse;

use touchline_engine::Response;
use touchline_engine::session::Ticket;
use touchline_protocol::Disconnect;

use super::budget::ANSWERS_AHEAD;
use super::connections::{Connection, ConnectionStage};
use super::input::Input;
use super::queue::OutputKind;
use super::state::Shard;

impl Shard {
    /// Whether the client's input has to wait: for its rate, for an earlier command, or for the socket to take earlier
    /// answers.
    pub(super) fn must_wait(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        if connection.stage != ConnectionStage::Open {
            // After a close frame was sent, only the client's close frame matters.
            connection.is_held = false;
            return connection.is_throttled;
        }
        let session = &connection.session;
        let is_held = session.is_busy(&self.generation.session.client)
            || session.is_deferring()
            || connection.answers() >= ANSWERS_AHEAD;
        connection.is_held = is_held;
        (is_held || connection.is_throttled) && !session.reads_ahead(&self.generation.session)
    }

    /// Continues with input that had to wait. True = no input waits any more.
    pub(super) fn go_on(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.get(slot) else { return false };
        if !connection.is_held && !matches!(connection.input, Input::Held(_)) {
            return true;
        }
        while self.connections.get(slot).is_some_and(|c| c.stage == ConnectionStage::Open && c.session.is_deferring()) {
            let mut commands = 0;
            if !self.connections.get(slot).is_some_and(|connection| connection.is_throttled) {
                self.decide(slot, OutputKind::Answer, |session, context| commands = session.resume(context));
            }
            if commands == 0 {
                break;
            }
            self.charge(slot, commands, 0);
            self.recharge(slot);
        }
        if self.must_wait(slot) {
            return false;
        }
        let generation = self.connections.generation(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return false };
        match std::mem::replace(&mut connection.input, Input::Nothing) {
            Input::Held(held) => {
                let (input, mut rest) = *held;
                connection.input = input;
                self.receive(slot, &mut rest);
                self.recharge(slot);
            }
            input => connection.input = input,
        }
        self.connections.generation(slot) == generation
            && self.connections.get(slot).is_some_and(|connection| !matches!(connection.input, Input::Held(_)))
            && !self.must_wait(slot)
    }

    /// Keeps input until the connection has room for the answers to it.
    pub(super) fn keep(&mut self, slot: u32, input: Input, rest: &[u8]) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        connection.input = if rest.is_empty() { input } else { Input::Held(Box::new((input, rest.to_vec()))) };
        if connection.buffered > 0 || connection.input.begun() > 0 {
            self.recharge(slot);
        }
    }

    /// Passes the reply to a request to the session that made it.
    pub(super) fn give_reply(&mut self, slot: u32, ticket: Ticket, response: Response) {
        let work = response.work() as usize;
        let before = self.connections.get(slot).map_or(0, |connection| connection.buffered);
        let reactions = response.reactions();
        self.decide(slot, OutputKind::Answer, |session, context| session.handle_reply(ticket, response, context));
        if let Some(reactions) = reactions {
            self.note_reactions(slot, ticket, &reactions);
        }
        if work > 0 {
            self.charge(slot, work, 0);
        }
        if self.connections.get(slot).is_some_and(|connection| connection.session.is_holding()) {
            // A connect reply under construction is charged as it grows.
            self.recharge(slot);
            let now = self.connections.get(slot).map_or(0, |connection| connection.buffered);
            self.made += now.saturating_sub(before) as usize;
        }
        if self.connections.get(slot).is_some_and(|connection| connection.is_held) {
            // There may be room for the client's next command.
            self.unread.push(slot);
        }
    }

    /// Charges frames or lines that are not commands. A client that has not connected yet may send only a few of them.
    pub(super) fn charge_control(&mut self, slot: u32, count: usize, bytes: usize) {
        if count == 0 {
            return;
        }
        let is_allowed = |connection: &mut Connection| (0..count).all(|_| connection.session.allows_control_frame());
        if !self.connections.get_mut(slot).is_none_or(is_allowed) {
            return self.disconnect(slot, Disconnect::TOO_MANY_REQUESTS);
        }
        self.charge(slot, count, bytes);
    }

    /// Charges input to the connection's rates. The shard does not read a connection above its rates until they allow
    /// it.
    pub(super) fn charge(&mut self, slot: u32, commands: usize, bytes: usize) {
        let client = &self.generation.settings.client;
        let rates = [(commands, client.command_rate_limit), (bytes, client.byte_rate_limit)];
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if let Some(until_us) = connection.rate_limiter.charge(rates, self.now_us) {
            self.throttle(slot, until_us);
        }
    }

    /// Stops reading a connection until a time, in microseconds of the node's clock.
    pub(super) fn throttle(&mut self, slot: u32, until_us: u64) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if !std::mem::replace(&mut connection.is_throttled, true) {
            self.metrics.throttled.add_shared(1);
            let generation = self.connections.generation(slot);
            self.throttled.push(Reverse((until_us, slot, generation)));
        }
    }
}
