//! The way of a publication to the sockets: the shard notes it for every recipient, then writes each socket once.

use std::io::{ErrorKind, Write as _};

use bytes::Bytes;
use touchline_engine::Delivery;
use touchline_engine::hub::DeliveryForm;
use touchline_engine::request::ChannelEvent;
use touchline_protocol::publication::{Delta, EncodedPush, Exclusion};
use touchline_protocol::{Disconnect, Publication, Wire};
use touchline_registry::OwnerId;

use super::budget::ANSWERS_AHEAD;
use super::closing::CLOSE_TENTHS;
use super::connections::{Connection, ConnectionStage, Connections};
use super::excluded::ExcludedSlots;
use super::outbox::{NEVER, Outbox, Written};
use super::queue::{OutputKind, Queue};
use super::state::{Shard, TICK_MS};
use crate::runtime::clock::{NodeClock, TENTH_US, tenths};
use crate::runtime::registry_mailbox::RegistryMessage;

/// How many bytes of output the system may take before the link has taken them, for connections whose publications may
/// be dropped.
const UNSENT_MAX: u32 = 2_048;
/// How many bytes may be sent and not yet acknowledged on such a connection. The system takes twice as much, and counts
/// about 1,000 bytes for a small publication. So 16 small publications, or about 10 KB of large ones, are on their way
/// at once.
const UNACKNOWLEDGED_MAX: usize = 8 * 1024;

/// Notes an event for every recipient on this shard.
pub(super) fn note(shard: &mut Shard, delivery: &Delivery, accepted_us: u64) {
    let Shard { hub, connections, users, outbox, namespaces, minute_stats, node, generation, id, .. } = shard;
    // The last subscriber may have left while the event was on its way.
    let Some(channel) = hub.find(&delivery.channel) else { return };
    let mut expires_us = expiry_us(&delivery.event, &node.clock);
    let mut kind = OutputKind::Push;
    if let (Some(age_us), ChannelEvent::Publication { .. }) = (hub.drop_after_us(channel), &delivery.event) {
        kind = OutputKind::Droppable;
        expires_us = expires_us.min(accepted_us.saturating_add(age_us));
    }
    let held_max = generation.settings.client.queue_max_size;
    let excluded =
        exclusion(&delivery.event).map(|it| ExcludedSlots::of(it, (*id, node.shards.len()), users, connections));
    let mut notes = Notes {
        connections,
        outbox,
        held_max,
        accepted_us,
        expires_us,
        kind,
        made: None,
        others: Vec::new(),
        delivered: 0,
    };
    match &delivery.event {
        ChannelEvent::Publication { publication, previous } => {
            let tags = || publication.tags();
            let to = |slot, form| {
                notes.note(slot, form, |wire| publication.framed(wire, delta(form, previous.as_deref())));
            };
            match excluded {
                None => hub.for_each_recipient(channel, previous.is_some(), tags, to),
                Some(slots) => {
                    hub.for_each_recipient_but(channel, previous.is_some(), tags, |slot| slots.contains(slot), to)
                }
            }
        }
        ChannelEvent::Membership(push) => {
            hub.membership_subscribers(channel)
                .for_each(|slot| notes.note(slot, DeliveryForm::Plain, |wire| push.framed(wire)));
        }
        ChannelEvent::Broken => return break_off(shard, delivery),
    }
    let delivered = notes.delivered;
    outbox.drop_unread_frames();
    let size = match &delivery.event {
        ChannelEvent::Publication { publication, .. } => publication.json().len(),
        ChannelEvent::Membership(_) | ChannelEvent::Broken => 0,
    };
    let counts = namespaces.get(generation.session.namespaces.index_of(&delivery.channel));
    counts.inspect(|counts| counts.delivered(delivered, size));
    if let (Some(minute_stats), ChannelEvent::Publication { .. }) = (minute_stats, &delivery.event) {
        minute_stats.delivered(generation.session.namespaces.namespace_of(&delivery.channel), delivered);
    }
}

/// Notes a push for some clients of this shard, each with its slot. The registry is notified of each client that is
/// gone.
pub(super) fn push_many(shard: &mut Shard, clients: &[(OwnerId, u32)], push: &EncodedPush) {
    let Shard { connections, outbox, node, generation, .. } = shard;
    let held_max = generation.settings.client.queue_max_size;
    let (made, others, kind) = (None, Vec::new(), OutputKind::Push);
    let mut notes =
        Notes { connections, outbox, held_max, accepted_us: 0, expires_us: NEVER, kind, made, others, delivered: 0 };
    for (owner, slot) in clients {
        let is_there = notes
            .connections
            .get(*slot)
            .is_some_and(|c| c.stage == ConnectionStage::Open && c.session.owner() == *owner);
        if is_there {
            notes.note(*slot, DeliveryForm::Plain, |wire| push.framed(wire));
        } else {
            node.send_to_registry(RegistryMessage::OwnerGone(*owner));
        }
    }
    outbox.drop_unread_frames();
}

/// When an event expires, in microseconds of the node's clock; [`NEVER`] = it does not expire.
fn expiry_us(event: &ChannelEvent, clock: &NodeClock) -> u64 {
    match event {
        ChannelEvent::Publication { publication, .. } if publication.expires_ms > 0 => clock
            .elapsed_us()
            .saturating_add(publication.expires_ms.saturating_sub(clock.now_ms()).saturating_mul(1_000)),
        _ => NEVER,
    }
}

/// The clients that do not get an event; None = all subscribers get it.
fn exclusion(event: &ChannelEvent) -> Option<&Exclusion> {
    match event {
        ChannelEvent::Publication { publication, .. } => publication.exclusion.as_deref(),
        ChannelEvent::Membership(_) | ChannelEvent::Broken => None,
    }
}

/// Which delta a recipient gets of a publication, according to the delivery form of its subscription.
fn delta(form: DeliveryForm, previous: Option<&Publication>) -> Delta<'_> {
    match (form, previous) {
        (DeliveryForm::Plain, _) => Delta::None,
        (DeliveryForm::Delta, Some(previous)) => Delta::From(previous),
        (DeliveryForm::Whole | DeliveryForm::Delta, _) => Delta::Whole,
    }
}

/// Notes one event for connections. It encodes one frame for each pair of wire and delivery form.
struct Notes<'a> {
    connections: &'a mut Connections,
    outbox: &'a mut Outbox,
    /// How many bytes may be held for a client whose connect is under way.
    held_max: usize,
    accepted_us: u64,
    /// When the event expires, in microseconds of the node's clock. Deltas build on each other, so they don't expire.
    expires_us: u64,
    kind: OutputKind,
    /// The frame that was noted last, and all frames that have been encoded.
    made: Option<((Wire, DeliveryForm), u32)>,
    others: Vec<((Wire, DeliveryForm), u32)>,
    delivered: u64,
}

impl Notes<'_> {
    // The body of the loop over subscribers, which is used in two places: a call of it for each costs two instructions
    // in a hundred.
    #[inline(always)]
    fn note(&mut self, slot: u32, form: DeliveryForm, make: impl Fn(Wire) -> Bytes) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let wire = connection.wire;
        if connection.session.is_holding() {
            if self.kind == OutputKind::Droppable {
                // The subscription begins with the connect reply; a publication that waits for it would be outdated.
                return;
            }
            self.delivered += 1;
            connection.session.hold(make(wire), self.held_max);
            return;
        }
        self.delivered += 1;
        let key = (wire, form);
        let frame = match self.made {
            Some((last, frame)) if last == key => frame,
            _ => {
                let encoded = self.others.iter().find(|(other, _)| *other == key).map(|(_, frame)| *frame);
                let frame = encoded.unwrap_or_else(|| {
                    let expires_us = if form == DeliveryForm::Plain { self.expires_us } else { NEVER };
                    let frame = self.outbox.add(make(wire), self.kind, self.accepted_us, expires_us);
                    self.others.push((key, frame));
                    frame
                });
                self.made = Some((key, frame));
                frame
            }
        };
        self.outbox.note(slot, &mut connection.due, frame);
    }
}

/// Whether a connection's socket is blocked, and has taken bytes within the last `within_us` microseconds.
fn is_moving(connection: &Connection, clock: &NodeClock, within_us: u64) -> bool {
    connection.queue.as_ref().is_some_and(|queue| queue.stalled_us(clock.elapsed_us()) <= within_us)
}

/// Makes every subscriber of a channel on this shard recover, because the channel has lost its order.
fn break_off(shard: &mut Shard, delivery: &Delivery) {
    let Some(channel) = shard.hub.find(&delivery.channel) else { return };
    let slots: Vec<u32> = shard.hub.subscribers(channel).collect();
    for slot in slots {
        shard.guarded(slot, |shard, slot| {
            shard.with_session(slot, |session, context| session.lose(&delivery.channel, context))
        });
    }
}

impl Shard {
    /// Notes a frame that is not a reply for one connection.
    pub(super) fn note_own(&mut self, slot: u32, frame: Bytes) {
        self.note_kind(slot, frame, OutputKind::Push);
    }

    /// Notes a ping for one connection.
    pub(super) fn note_ping(&mut self, slot: u32, frame: Bytes) {
        self.note_kind(slot, frame, OutputKind::Ping);
    }

    /// Notes a pong for one connection.
    pub(super) fn note_pong(&mut self, slot: u32, frame: Bytes) {
        self.note_kind(slot, frame, OutputKind::Pong);
    }

    fn note_kind(&mut self, slot: u32, frame: Bytes, kind: OutputKind) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let number = self.outbox.add(frame, kind, 0, NEVER);
        self.outbox.note(slot, &mut connection.due, number);
    }

    /// Limits how much of a connection's output the system takes before it can send it. The shard could not drop that
    /// output any more.
    pub(super) fn limit_unsent(&self, slot: u32) {
        if let Some(connection) = self.connections.get(slot) {
            connection.socket.limit_unsent(UNSENT_MAX, UNACKNOWLEDGED_MAX);
        }
    }

    /// Notes the reply to a command for one connection.
    pub(super) fn note_answer(&mut self, slot: u32, frame: Bytes) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        self.made += frame.len();
        self.outbox.note_answer(slot, &mut connection.due, frame);
        self.recharge(slot);
    }

    /// Writes the output of the next connections in the queue, at most `most` of them.
    pub(super) fn write_due(&mut self, most: usize) {
        // One reading of the clock serves for about 150 µs of writes.
        let now_us = self.node.clock.elapsed_us();
        for _ in 0..most {
            let Some(slot) = self.outbox.next_waiting() else { break };
            self.write(slot, now_us);
        }
        for slot in std::mem::take(&mut self.sliced) {
            self.flush_blocked(slot);
        }
        self.metrics.publications_dropped.add(std::mem::take(&mut self.outbox.dropped));
        for age_us in self.outbox.finished_us.drain(..) {
            self.metrics.delivery_latency.observe_us(age_us);
        }
    }

    fn write(&mut self, slot: u32, now_us: u64) {
        self.trace_output(slot);
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let queued_before = connection.queue.as_ref().map_or(0, |queue| queue.bytes());
        let written = self.outbox.write(connection, now_us);
        self.after_write(slot, written, queued_before);
    }

    /// Serves a socket that takes bytes again. A connection that has used up its share of a turn waits for the next
    /// turn.
    pub(super) fn flush_writable(&mut self, slot: u32) {
        if !self
            .connections
            .get(slot)
            .and_then(|connection| connection.queue.as_ref())
            .is_some_and(|queue| queue.is_sliced)
        {
            self.flush_blocked(slot);
        }
    }

    /// Writes the output that waits for a blocked socket.
    fn flush_blocked(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        // A full socket is not an error; a read finds out that a socket is broken.
        let _ = connection.socket.flush();
        let Some(queued_before) = connection.queue.as_ref().map(|queue| queue.bytes()) else {
            let is_ending = matches!(connection.stage, ConnectionStage::Ending(_));
            return if is_ending {
                self.after_write(slot, Written::Nothing, 0)
            };
        };
        let written = self.outbox.flush(connection, self.now_us);
        self.after_write(slot, written, queued_before);
    }

    /// Counts a write. `bytes`: how many bytes the system has taken.
    fn count_written(&self, slot: u32, bytes: usize) {
        self.metrics.writes.add(1);
        if let Some(connection) = self.connections.get(slot) {
            self.metrics.transports[connection.transport as usize].written_bytes.add(bytes as u64);
        }
    }

    fn after_write(&mut self, slot: u32, written: Written, queued_before: usize) {
        if let (Written::All(bytes), 0, Some(connection)) = (&written, queued_before, self.connections.get(slot))
            && connection.stage == ConnectionStage::Open
            && !connection.is_held
            && connection.buffered == 0
        {
            // No output waited before and none waits now, as in nearly every delivery.
            self.metrics.writes.add(1);
            self.metrics.transports[connection.transport as usize].written_bytes.add(*bytes as u64);
            return;
        }
        self.guarded(slot, |shard, slot| shard.settle_write(slot, written, queued_before));
    }

    /// Does the rest of the work after a write: counts it, shortens the queue, ends a broken or finished connection.
    fn settle_write(&mut self, slot: u32, written: Written, queued_before: usize) {
        let mut is_reading = false;
        let partial = std::mem::take(&mut self.outbox.partial);
        if partial > 0 {
            self.count_written(slot, partial);
        }
        match written {
            Written::Nothing | Written::Blocked => {}
            Written::All(bytes) => {
                self.count_written(slot, bytes);
            }
            Written::Sliced { is_new } => {
                if is_new {
                    self.sliced.push(slot);
                }
                is_reading = true;
            }
            Written::Broken => {
                self.metrics.requeue(queued_before, 0);
                if let Some(connection) = self.connections.get_mut(slot) {
                    connection.queue = None;
                }
                return self.remove(slot);
            }
        };
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let client = &self.generation.settings.client;
        if let Some(queue) = connection.queue.as_deref_mut().filter(|_| !is_reading) {
            self.outbox.dropped += queue.drop_oldest(client.queue_max_size, client.queue_max_entries);
        }
        let queued = connection.queue.as_ref().map_or(0, |queue| queue.bytes());
        self.metrics.requeue(queued_before, queued);
        if queued > 0 && queued_before == 0 && !connection.transport.mode().answers_pings() {
            // From now on the queue shows whether the peer takes bytes.
            connection.socket.end_when_silent(None);
        }
        if connection.is_held && connection.answers() < ANSWERS_AHEAD {
            // There is room for more replies.
            self.unread.push(slot);
        }
        let is_charged = connection.buffered > 0 || connection.queue.is_some();
        if matches!(connection.stage, ConnectionStage::Ending(_)) && queued == 0 {
            let is_full = connection.socket.finish().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            return if !is_full {
                self.close_written(slot)
            };
        }
        let is_beyond = |queue: &Queue| queue.is_overrun(client.queue_max_size, client.queue_max_entries);
        if !is_reading
            && connection.stage == ConnectionStage::Open
            && connection.queue.as_deref().is_some_and(is_beyond)
        {
            self.disconnect(slot, Disconnect::SLOW);
        }
        if is_charged {
            self.recharge(slot);
        }
    }

    /// Disconnects the clients that are due while the node drains.
    pub(super) fn drain_some(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        let is_patient = self.now_us < drain.patient_until_us;
        let from = drain.clients.saturating_sub(self.node.drain.due(drain.clients)).min(drain.slots.len());
        for slot in drain.slots.split_off(from) {
            match self.connections.get_mut(slot) {
                // A backend may already have done what the client waits for, so the client is disconnected later.
                Some(connection)
                    if is_patient && connection.stage == ConnectionStage::Open && connection.session.owes_answers() =>
                {
                    connection.session.wind_down();
                }
                _ => self.guarded(slot, |shard, slot| shard.disconnect(slot, Disconnect::SHUTDOWN)),
            }
        }
    }

    /// Continues the drain at each tick, and reports its end.
    pub(super) fn check_drain(&mut self) {
        if self.drain.is_none() {
            return;
        }
        self.drain_some();
        let is_done = self.connections.len() == 0 && self.node.shards[usize::from(self.id)].tasks().awaited() == 0;
        if let Some(drain) = &mut self.drain {
            // Clients that connected after the drain began are disconnected too.
            if drain.slots.is_empty() {
                drain.clients = 0;
                let open = |slot: &u32| self.connections.get(*slot).is_some_and(|c| c.stage == ConnectionStage::Open);
                drain.slots = self.connections.slots().filter(open).collect();
            }
            if is_done && let Some(done) = drain.done.take() {
                let _ = done.send(());
            }
        }
    }

    /// Books the wheel for the session's next deadline, unless an earlier booking exists.
    pub(super) fn book(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let wanted_ms = match connection.stage {
            ConnectionStage::Closing(until) | ConnectionStage::Ending(until) | ConnectionStage::Lingering(until) => {
                self.node.clock.at(until)
            }
            ConnectionStage::Open => connection.session.deadline_ms(&self.generation.session.client),
        };
        if connection.booked_ms <= self.now_ms || wanted_ms.saturating_add(TICK_MS) < connection.booked_ms {
            connection.booked_ms = self.wheel.book(slot, wanted_ms);
        }
    }

    /// Extends the wait for a pong if the pong cannot have arrived yet. The client may have sent other input first, or
    /// the server may not read the connection at the moment. The ping may wait behind output that the client still
    /// takes or has just taken; the system holds it until then, and some of it longer. Or the node was too busy to
    /// write the ping or to read the input that is there.
    fn wait_for_pong(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let client = &self.generation.session.client;
        if !connection.transport.mode().answers_pings() {
            return self.check_silent_peer(slot);
        }
        let limit = if connection.answers() > 0 { client.answer_timeout } else { client.pong_timeout };
        let is_there = std::mem::take(&mut connection.has_spoken)
            || connection.is_throttled
            || connection.is_held && connection.session.is_busy(client)
            || is_moving(connection, &self.node.clock, limit.as_micros() as u64)
            || connection.drained != 0
                && u64::from(tenths(self.now_us) - connection.drained) * TENTH_US <= limit.as_micros() as u64
            || connection.session.awaits_pong()
                && (connection.socket.has_input() || self.outbox.holds(&connection.due, connection.wire.ping()));
        let interval = connection.transport.ping_interval(&self.generation.settings);
        if is_there && connection.session.wait_longer(self.now_ms, client.pong_timeout, interval) {
            let ping = Bytes::from_static(connection.wire.ping());
            self.note_ping(slot, ping);
        }
    }

    /// Checks a peer that sends no pongs. While its socket takes everything, the system reports when the peer is gone.
    /// The system's limit would also end a peer that reads slowly into a small window (tcp(7), TCP_USER_TIMEOUT). So a
    /// full socket has the timeout of answers instead (`client.answer_timeout`).
    fn check_silent_peer(&mut self, slot: u32) {
        let Some(connection) = self.connections.get(slot) else { return };
        let client = &self.generation.session.client;
        match &connection.queue {
            None => connection.socket.end_when_silent(Some(client.pong_timeout)),
            Some(queue) if queue.stalled_us(self.now_us) >= client.answer_timeout.as_micros() as u64 => {
                self.disconnect(slot, Disconnect::NO_PONG);
            }
            Some(_) => {}
        }
    }

    /// Does what the session has due when the wheel reports the connection.
    pub(super) fn tick_connection(&mut self, slot: u32, booked_ms: u64) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.booked_ms != booked_ms {
            return;
        }
        connection.booked_ms = 0;
        let clock = &self.node.clock;
        let is_over = |until| clock.at(until) <= self.now_ms;
        match connection.stage {
            ConnectionStage::Ending(until)
                if is_over(until) && is_moving(connection, clock, u64::from(CLOSE_TENTHS) * TENTH_US) =>
            {
                // The peer is still taking its last output.
                connection.stage = ConnectionStage::Ending(tenths(self.now_us) + CLOSE_TENTHS);
            }
            ConnectionStage::Closing(until) | ConnectionStage::Ending(until) | ConnectionStage::Lingering(until) => {
                if is_over(until) {
                    return self.remove(slot);
                }
            }
            ConnectionStage::Open => {
                if connection.session.deadline_ms(&self.generation.session.client) <= self.now_ms {
                    self.wait_for_pong(slot);
                    self.with_session(slot, |session, context| session.tick(context));
                }
            }
        }
        self.book(slot);
    }
}
