//! From a socket to its session, and from the session's decisions back to the socket and to the channels' homes.

use std::cmp::Reverse;
use std::io::Read;

use bytes::Bytes;
use mio::Token;
use touchline_engine::limit::RateLimits;
use touchline_engine::session::Room;
use touchline_engine::tracker::Tracked;
use touchline_engine::{ClientProgram, ConnectionId, Context, Session};
use touchline_protocol::Disconnect;
use touchline_protocol::lines::{Lines, TooLong};
use touchline_protocol::websocket::{Assembly, FrameEvent, Opcode, Role, encode_close, encode_frame};
use touchline_protocol::wire::Framing;
use touchline_store::stats::Row;

use super::budget::ANSWERS_AHEAD;
use super::client_facts::EndCause;
use super::connections::{Connection, ConnectionStage, NONE};
use super::due::Due;
use super::input::Input;
use super::queue::OutputKind;
use super::state::{SCRATCH_SIZE, Shard, take_one};
use super::unauthenticated::UnauthenticatedEntry;
use crate::net::negotiated::Negotiated;
use crate::net::socket::{AcceptedSocket, Socket};
use crate::net::transport::Transport;
use crate::runtime::clock::tenths;
use crate::runtime::mailbox::{AdoptedConnection, Message};
use crate::runtime::programs::UNKNOWN;
use crate::runtime::rate_limiter::RateLimiter;
use crate::runtime::registry_mailbox::{RegistryMessage, client_id_suffix};
use crate::runtime::reply_to::ReplyTo;

/// Reads of one connection in one turn. The rest waits for the next turn, so that a busy client delays no other.
const READS_MAX: usize = 2;
/// How many bytes such a read takes, unless a larger message has begun to arrive.
pub(super) const READ_SIZE: usize = 8 * 1024;
/// The close code for "no code was given", which is never sent (RFC 6455 section 7.4.1).
const NO_CODE: u16 = 1_005;

// The scratch buffer holds one read of a turn.
const _: () = assert!(READ_SIZE <= SCRATCH_SIZE);

/// The close code of a message that is too large (RFC 6455 section 7.4.1).
const TOO_BIG: u16 = 1009;
const FRAME_TOO_LARGE: &str = "a message is larger than websocket.message_size_limit";
const LINE_TOO_LARGE: &str = "a line is longer than tcp.message_size_limit";

impl Shard {
    /// Takes over a connection whose handshake HTTP has finished.
    pub(super) fn adopt(&mut self, connection: AdoptedConnection) {
        self.isolated(|shard| shard.insert_adopted(connection));
    }

    fn insert_adopted(&mut self, connection: AdoptedConnection) {
        let AdoptedConnection { socket, negotiated, response_head, prefix, user } = connection;
        let is_websocket = negotiated.wire.is_websocket();
        let is_tls = matches!(socket, AcceptedSocket::Tls(..));
        if matches!(socket, AcceptedSocket::Pair(_)) {
            // It is one of many streams of an HTTP/2 connection: no room has been made for it yet.
            self.limit_unauthenticated();
        }
        let Some(slot) = self.insert_connection(socket.into(), false, negotiated) else { return };
        if let (Some(user), Some(connection)) = (user, self.connections.get_mut(slot)) {
            connection.session.certify(user);
        }
        if is_tls {
            // The poller does not report bytes that TLS has decrypted already.
            self.unread.push(slot);
        }
        if !response_head.is_empty() {
            self.note_own(slot, response_head);
        }
        if is_websocket {
            self.receive_prefix(slot, prefix.to_vec());
        } else if !prefix.is_empty() {
            self.guarded(slot, |shard, slot| shard.receive_commands(slot, &prefix));
        }
    }

    /// Adds a connection with a new session. Returns its slot; None = the system has no random numbers, or the poller
    /// does not take the socket. `is_registered`: the poller knows the socket by another token.
    pub(super) fn insert_connection(
        &mut self,
        mut socket: Socket,
        is_registered: bool,
        negotiated: Negotiated,
    ) -> Option<u32> {
        // Without random numbers a client cannot have a unique id.
        let random = self.secure.bytes::<10>()?;
        let (slot, generation) = self.connections.vacant();
        socket.register(&self.registry, Token(slot as usize), is_registered).ok()?;
        if !negotiated.transport.mode().answers_pings() {
            socket.end_when_silent(Some(self.generation.session.client.pong_timeout));
        }
        let mut client = [0; 16];
        client[..10].copy_from_slice(&random);
        client[10..].copy_from_slice(&client_id_suffix(self.id, slot));
        let mut session = Session::new(
            client,
            negotiated.transport.mode(),
            negotiated.admission.is_loopback,
            self.now_ms,
            &self.generation.session.client,
        );
        if self.generation.session.limits.as_ref().is_some_and(RateLimits::need_addresses) {
            session.set_address(negotiated.admission.address);
        }
        self.note_address(slot, &socket, negotiated.admission.client);
        if let Some(user) = negotiated.fields.user {
            session.certify(user);
        }
        self.connections.insert(Connection {
            socket,
            session,
            transport: negotiated.transport,
            wire: negotiated.wire,
            input: Input::of(negotiated.transport),
            due: Due::default(),
            queue: None,
            stage: ConnectionStage::Open,
            booked_ms: 0,
            next_of_user: NONE,
            previous_of_user: NONE,
            is_listed: false,
            is_unauthenticated: true,
            is_told: false,
            agent: negotiated.agent,
            program: UNKNOWN,
            close_code: 0,
            opened: tenths(self.now_us),
            drained: 0,
            rate_limiter: RateLimiter::default(),
            is_throttled: false,
            buffered: 0,
            is_held: false,
            has_spoken: false,
        });
        if let Some(address_slot) = negotiated.admission.address_slot {
            self.address_slots.insert(slot, address_slot);
        }
        if let Some(headers) = negotiated.fields.forwarded {
            self.forwarded.insert(slot, headers);
        }
        self.note_connecting(slot, |facts| facts.address = Some(negotiated.admission.client));
        self.unauthenticated.sessions += 1;
        self.note_unauthenticated(UnauthenticatedEntry::Session { slot, generation });
        self.count_opened(negotiated.transport);
        self.book(slot);
        Some(slot)
    }

    /// Reads what a socket has received. `until_end`: read on after a short read, because the peer has closed its side.
    pub(super) fn read(&mut self, slot: u32, until_end: bool) {
        self.guarded(slot, |shard, slot| shard.read_some(slot, until_end));
    }

    /// Continues with connections that had more input than one turn allows, and with those whose rate limit allows
    /// more again.
    pub(super) fn serve_unread(&mut self) {
        while self.throttled.peek().is_some_and(|Reverse((until_us, ..))| *until_us <= self.now_us) {
            let Some(Reverse((_, slot, generation))) = self.throttled.pop() else { break };
            if self.connections.generation(slot) == generation
                && let Some(connection) = self.connections.get_mut(slot)
            {
                connection.is_throttled = false;
                self.unread.push(slot);
            }
        }
        for slot in std::mem::take(&mut self.unread) {
            self.read(slot, true);
        }
    }

    fn read_some(&mut self, slot: u32, until_end: bool) {
        if self.is_lingering(slot) || !self.go_on(slot) {
            return;
        }
        for _ in 0..READS_MAX {
            // The input waits in the socket's buffer, and finally in that of the peer.
            if self.must_wait(slot) {
                return;
            }
            let Some(connection) = self.connections.get_mut(slot) else { return };
            let is_emptied = connection.socket.is_emptied_by_short_read();
            // A read takes a few commands; a large command is read whole.
            let most = if connection.input.begun() >= READ_SIZE / 2 { SCRATCH_SIZE } else { READ_SIZE };
            match connection.socket.read(&mut self.scratch[..most]) {
                Ok(0) => return self.handle_end_of_input(slot),
                Ok(length) => {
                    connection.has_spoken = true;
                    let mut scratch = std::mem::take(&mut self.scratch);
                    self.receive(slot, &mut scratch[..length]);
                    self.scratch = scratch;
                    // A short read has emptied the socket; new bytes cause a new event (epoll(7), edge-triggered).
                    if length < most && !until_end && is_emptied {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => return self.remove(slot),
            }
        }
        self.unread.push(slot);
    }

    /// Handles that the peer has closed its side. A client that sent lines may still wait for the replies.
    fn handle_end_of_input(&mut self, slot: u32) {
        if let Some(connection) = self.connections.get_mut(slot)
            && connection.transport == Transport::Tcp
            && connection.stage == ConnectionStage::Open
            && connection.session.is_awaiting()
        {
            // The reply causes another read, which finds this end of input again.
            connection.is_held = true;
            return;
        }
        match self
            .connections
            .get(slot)
            .filter(|connection| connection.transport == Transport::Tcp)
            .map(|connection| connection.stage)
        {
            Some(ConnectionStage::Open) => self.end(slot),
            // The output of the connection is still being written.
            Some(ConnectionStage::Ending(_)) => {}
            _ => self.remove(slot),
        }
    }

    /// Serves freshly read bytes.
    pub(super) fn receive(&mut self, slot: u32, input: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        match std::mem::replace(&mut connection.input, Input::Nothing) {
            Input::Frames(assembly) => self.receive_frames(slot, assembly, input),
            Input::Lines(lines) => self.receive_lines(slot, lines, input),
            held @ Input::Held(_) => connection.input = held,
            Input::Nothing => {}
        }
    }

    fn receive_frames(&mut self, slot: u32, mut assembly: Assembly, input: &mut [u8]) {
        let Some(connection) = self.connections.get(slot) else { return };
        let generation = self.connections.generation(slot);
        let is_deflated = matches!(connection.wire.framing, Framing::Deflated { .. });
        let role = if is_deflated { Role::DeflatedServer } else { Role::Server };
        let limit = self.generation.settings.websocket.message_size_limit;
        let mut at = 0;
        loop {
            let next = assembly.next(role, limit, input, &mut at);
            let is_last = matches!(next, Ok(None));
            match next {
                Ok(None) => {}
                Ok(Some(event)) => self.serve_event(slot, event),
                Err(violation) => {
                    if violation.code == TOO_BIG {
                        self.log_refusal(slot, TOO_BIG.into(), FRAME_TOO_LARGE);
                    }
                    let why = Disconnect { code: violation.code, reason: violation.reason.into() };
                    return self.disconnect(slot, why);
                }
            }
            if self.connections.generation(slot) != generation {
                return;
            }
            self.charge_control(slot, assembly.take_fragments() as usize, 0);
            if is_last || at < input.len() && self.must_wait(slot) {
                break;
            }
        }
        assembly.release();
        self.keep(slot, Input::Frames(assembly), &input[at..]);
    }

    fn receive_lines(&mut self, slot: u32, mut lines: Lines, input: &[u8]) {
        let generation = self.connections.generation(slot);
        let limit = self.generation.settings.tcp.message_size_limit;
        let mut at = 0;
        loop {
            match lines.next(input, &mut at, limit) {
                Ok(None) => break,
                Ok(Some(line)) if line.is_empty() => self.charge_control(slot, 1, 1),
                Ok(Some(line)) => self.receive_commands(slot, &line),
                Err(TooLong) => {
                    self.log_refusal(slot, Disconnect::BAD_REQUEST.code.into(), LINE_TOO_LARGE);
                    return self.disconnect(slot, Disconnect::BAD_REQUEST);
                }
            }
            if self.connections.generation(slot) != generation {
                return;
            }
            if at < input.len() && self.must_wait(slot) {
                break;
            }
        }
        self.keep(slot, Input::Lines(lines), &input[at..]);
    }

    fn serve_event(&mut self, slot: u32, event: FrameEvent<'_>) {
        let Some(connection) = self.connections.get(slot) else { return };
        if connection.stage != ConnectionStage::Open {
            // The server has sent a close frame: only the client's close frame matters now. Its other frames are still
            // charged.
            return if matches!(event, FrameEvent::Close { .. }) { self.end(slot) } else { self.charge(slot, 1, 0) };
        }
        match event {
            FrameEvent::Text(text) => self.receive_commands(slot, text.as_bytes()),
            FrameEvent::Binary(bytes) => self.receive_commands(slot, bytes),
            FrameEvent::Ping(payload) => {
                let mut frame = Vec::with_capacity(payload.len() + 2);
                encode_frame(Opcode::Pong, payload, &mut frame);
                self.note_pong(slot, frame.into());
                self.charge_control(slot, 1, payload.len());
            }
            FrameEvent::Pong(payload) => self.charge_control(slot, 1, payload.len()),
            FrameEvent::Close { code, .. } => {
                if let Some(connection) = self.connections.get_mut(slot).filter(|connection| connection.close_code == 0)
                {
                    connection.close_code = code.unwrap_or(NO_CODE);
                }
                let mut frame = Vec::new();
                match code {
                    Some(code) => encode_close(code, "", &mut frame),
                    None => encode_frame(Opcode::Close, &[], &mut frame),
                }
                self.note_own(slot, frame.into());
                self.leave(slot, "", EndCause::Client);
                self.end(slot);
            }
        }
    }

    /// Serves a message of a client: one or more commands.
    pub(super) fn receive_commands(&mut self, slot: u32, input: &[u8]) {
        let Some(connection) = self.connections.get(slot) else { return };
        let counts = &self.metrics.transports[connection.transport as usize];
        counts.messages_received.add(1);
        counts.received_bytes.add(input.len() as u64);
        self.trace_message(slot, input);
        if !connection.session.is_listening() {
            return;
        }
        let mut commands = 0;
        self.decide(slot, OutputKind::Answer, |session, context| commands = session.receive(input, context));
        self.charge(slot, commands, input.len());
        if let Some(connection) = self.connections.get_mut(slot).filter(|connection| connection.session.is_deferring())
        {
            connection.is_held = true;
            self.recharge(slot);
        }
    }

    /// Returns a connection, and the context with which its session decides.
    pub(super) fn context(&mut self, slot: u32) -> Option<(&mut Connection, Context<'_>)> {
        self.effects.begin();
        let random = self.random.u64(..);
        let is_scarce = self.is_scarce();
        let id = ConnectionId { shard: self.id, slot, generation: self.connections.generation(slot) };
        let connection = self.connections.get_mut(slot)?;
        // Commands of other requests can't wait in a socket, so they wait in the session.
        let ahead = if connection.is_throttled { 0 } else { ANSWERS_AHEAD };
        let bytes = ahead.saturating_sub(connection.answers());
        let context = Context {
            now_ms: self.now_ms,
            now_us: self.now_us,
            random,
            id,
            ping_interval: connection.transport.ping_interval(&self.generation.settings),
            node: &self.generation.session,
            hub: &mut self.hub,
            tracker: &mut self.tracker,
            reactions: &mut self.reactions,
            room: Room { bytes, is_scarce },
            effects: &mut self.effects,
        };
        Some((connection, context))
    }

    /// Has a session decide without a request of its client, then performs the effects.
    pub(super) fn with_session(&mut self, slot: u32, decide: impl FnOnce(&mut Session, &mut Context<'_>)) {
        self.decide(slot, OutputKind::Push, decide);
    }

    /// Has a session decide, then performs the effects. `kind`: the kind of its output.
    pub(super) fn decide(&mut self, slot: u32, kind: OutputKind, decide: impl FnOnce(&mut Session, &mut Context<'_>)) {
        if self.connections.get(slot).is_none_or(|connection| connection.stage != ConnectionStage::Open) {
            return;
        }
        let Some((connection, mut context)) = self.context(slot) else { return };
        context.effects.messages.encode_as(connection.wire.encoding);
        let (was_connected, was_known) = (connection.session.is_connected(), connection.session.is_known());
        let subscriptions_before = connection.session.subscription_count();
        decide(&mut connection.session, &mut context);
        connection.session.charge_errors(&mut context);
        let subscriptions = connection.session.subscription_count();
        let has_connected = !was_connected && connection.session.is_connected();
        let is_found = !was_known && connection.session.is_known();
        self.metrics.subscriptions.replace(subscriptions_before as u64, subscriptions as u64);
        if has_connected {
            self.settle_session(slot);
        }
        if let Some(ClientProgram { name, version }) = self.effects.program.take()
            && let Some(connection) = self.connections.get_mut(slot)
        {
            connection.program = self.metrics.programs.enter(&name, &version);
            self.note_connecting(slot, |facts| (facts.name, facts.version) = (name, version));
        }
        if has_connected && self.node.events.get().is_some() {
            self.tell_connected(slot);
        }
        if !self.effects.subscription_changes.is_empty() {
            self.tell_subscriptions(slot);
        }
        if is_found {
            // From now on the server API finds the connection by its user.
            self.users.insert(slot, &mut self.connections);
        }
        if let Some((minute_stats, audience)) = self.minute_stats() {
            minute_stats.note_leavers(audience.hub, audience.connections);
        }
        self.record_tracked();
        self.perform(slot, kind);
        self.book(slot);
    }

    /// Records the events that clients have reported (`stats.track`).
    fn record_tracked(&mut self) {
        for Tracked { name, user, props } in self.tracker.drain() {
            let row = Row::Event { time_ms: self.now_ms, name, user, props };
            self.node.stats().inspect(|stats| stats.record(row));
        }
    }

    /// Performs the effects of a session.
    fn perform(&mut self, slot: u32, kind: OutputKind) {
        for count in self.effects.counts.drain(..) {
            self.metrics.sessions.count(count, &self.namespaces);
        }
        if !self.effects.refusals.is_empty() {
            self.log_refusals(slot);
        }
        let wire = self.connections.get(slot).map(|connection| connection.wire).unwrap_or_default();
        if !self.effects.messages.is_empty() {
            let messages = self.effects.messages.bytes();
            let mut frame = Vec::with_capacity(messages.len() + 16);
            wire.frame(messages, &mut frame);
            self.effects.messages.clear();
            if kind == OutputKind::Answer {
                self.note_answer(slot, frame.into())
            } else {
                self.note_own(slot, frame.into())
            }
        }
        for frame in std::mem::take(&mut self.effects.released) {
            self.note_own(slot, frame);
        }
        if std::mem::take(&mut self.effects.ping) {
            if let Some(connection) = self.connections.get_mut(slot) {
                // Input from before the ping does not prove that the peer is alive now.
                connection.has_spoken = false;
            }
            self.note_ping(slot, Bytes::from_static(wire.ping()));
        }
        self.send_requests(slot);
        self.send_hook_calls(slot);
        if std::mem::take(&mut self.effects.may_drop) {
            self.limit_unsent(slot);
        }
        if let Some(until_us) = self.effects.hold_until_us.take() {
            self.throttle(slot, until_us);
        }
        if let Some(why) = self.effects.disconnect.take() {
            self.disconnect(slot, why);
        }
    }

    pub(super) fn send_requests(&mut self, slot: u32) {
        let generation = self.connections.generation(slot);
        for outbound in self.effects.requests.drain(..) {
            let connection = ConnectionId { shard: self.id, slot, generation };
            let reply_to = outbound.ticket.map_or(ReplyTo::Discard, |ticket| ReplyTo::Session(connection, ticket));
            let home = self.node.home(&outbound.channel);
            let message = Message::Request { channel: outbound.channel, request: outbound.request, reply_to };
            if take_one(&mut self.inline_runs_left) {
                self.node.run_inline(home, message)
            } else {
                self.node.send(home, message)
            }
        }
        for (ticket, requester, request) in self.effects.directory_requests.drain(..) {
            let connection = ConnectionId { shard: self.id, slot, generation };
            let reply_to = ticket.map_or(ReplyTo::Discard, |ticket| ReplyTo::Session(connection, ticket));
            self.node.send_to_registry(RegistryMessage::Request { requester, request, reply_to });
        }
    }
}
