//! The flow of a session's commands: how many are under way, and which commands wait.
//!
//! A command is executed only if there is room: for its reply in the connection's output, and for one more request
//! under way. After a command that may have a large reply, no other command is executed until that reply was sent. All
//! other commands wait in the order in which they came.

use touchline_protocol::Disconnect;
use touchline_protocol::message::Encoding;

use super::{Context, Phase, Session, Ticket};
use crate::settings::ClientSettings;

/// Control frames that a client may send before it has connected. Libraries send one or two.
const EARLY_FRAMES_MAX: u8 = 16;

/// The size that the reply to a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Short.
    Small,
    /// As large as `client.answer_max_size` allows.
    Large,
    /// It comes from another client. Such calls have a limit of their own.
    Waiting,
}

/// How much a connection may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of replies that may be written; a reply that begins below this number may end above it.
    pub bytes: usize,
    /// The node is short of memory: commands that may have a large reply are refused with error 111.
    pub is_scarce: bool,
}

impl Room {
    /// Room for anything.
    pub const ANY: Room = Room { bytes: usize::MAX, is_scarce: false };
}

/// See the module. The commands that wait are in [`super::RareState`].
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Requests without a reply, except calls.
    in_flight: u16,
    /// One of them may have a large reply.
    has_large: bool,
    /// Control frames before the connect.
    early_frames: u8,
}

/// Commands that wait for room, in order.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    bytes: Vec<u8>,
    /// Bytes of the commands that have been executed.
    at: usize,
}

impl Ticket {
    fn weight(self) -> Option<Weight> {
        match self {
            Ticket::Reply { weight, .. } | Ticket::Directory { weight, .. } | Ticket::Subscribe { weight, .. } => {
                Some(weight)
            }
            Ticket::Registrations | Ticket::Connect { .. } | Ticket::Server { .. } => None,
        }
    }

    /// Whether its reply may be large.
    pub(super) fn is_large(self) -> bool {
        self.weight() == Some(Weight::Large)
    }
}

impl Flow {
    /// A request was sent.
    pub(super) fn begin(&mut self, weight: Weight) {
        if weight != Weight::Waiting {
            self.in_flight += 1;
            self.has_large |= weight == Weight::Large;
        }
    }

    /// A request has its reply.
    pub(super) fn end(&mut self, ticket: Ticket) {
        if let Some(weight @ (Weight::Small | Weight::Large)) = ticket.weight() {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.has_large &= weight != Weight::Large;
        }
    }
}

impl Session {
    /// Whether the client's next command can be executed.
    pub fn has_room(&self, context: &Context<'_>) -> bool {
        context.effects.messages.bytes().len() < context.room.bytes && !self.is_busy(&context.node.client)
    }

    /// Whether the client's next command must wait for the reply to an earlier one.
    pub fn is_busy(&self, client: &ClientSettings) -> bool {
        let flow = &self.flow;
        usize::from(flow.in_flight) >= client.commands_in_flight_max
            || flow.has_large
            || matches!(self.phase, Phase::Connecting(_))
    }

    /// Whether a command of the client has no reply yet, except calls.
    pub fn is_awaiting(&self) -> bool {
        self.flow.in_flight > 0 || self.is_deferring()
    }

    /// Whether commands wait for room.
    pub fn is_deferring(&self) -> bool {
        self.deferred().is_some()
    }

    fn deferred(&self) -> Option<&Deferred> {
        self.rare.as_ref()?.deferred.as_ref()
    }

    /// Bytes that the session holds for its client: commands that wait, and the beginning of a connect reply.
    pub fn buffered_bytes(&self) -> usize {
        let deferred = self.deferred().map_or(0, |deferred| deferred.bytes.capacity());
        match &self.phase {
            Phase::Connecting(connecting) => deferred + connecting.subs_bytes + connecting.held_bytes,
            _ => deferred,
        }
    }

    /// Executes waiting commands while there is room. Returns how many.
    pub fn resume(&mut self, context: &mut Context<'_>) -> usize {
        if !self.is_listening() || !self.has_room(context) {
            return 0;
        }
        let Some(mut deferred) = self.rare.as_mut().and_then(|rare| rare.deferred.take()) else { return 0 };
        let (count, used) = self.execute_commands(&deferred.bytes[deferred.at..], context);
        deferred.at += used;
        if !is_blank(&deferred.bytes[deferred.at..], context) && self.is_listening() {
            self.rare.get_or_insert_default().deferred = Some(deferred);
        }
        count
    }

    /// Keeps commands until there is room for them.
    pub(super) fn defer(&mut self, input: &[u8], context: &mut Context<'_>) {
        if is_blank(input, context) || !self.is_listening() {
            return;
        }
        let deferred = self.rare.get_or_insert_default().deferred.get_or_insert_default();
        deferred.bytes.drain(..std::mem::take(&mut deferred.at));
        if deferred.bytes.len() + input.len() > context.node.deferred_max {
            return context.disconnect(Disconnect::TOO_MANY_REQUESTS);
        }
        deferred.bytes.extend_from_slice(input);
        if context.effects.messages.encoding() != Encoding::Protobuf {
            deferred.bytes.push(b'\n');
        }
    }

    /// Counts a control frame of the client. Returns false if the client sends too many of them before it connects.
    pub fn allows_control_frame(&mut self) -> bool {
        if self.is_connected() {
            return true;
        }
        self.flow.early_frames = self.flow.early_frames.saturating_add(1);
        self.flow.early_frames <= EARLY_FRAMES_MAX
    }
}

/// Whether an input has no command.
fn is_blank(input: &[u8], context: &Context<'_>) -> bool {
    if context.effects.messages.encoding() == Encoding::Protobuf {
        input.is_empty()
    } else {
        input.trim_ascii().is_empty()
    }
}
