//! The commands of a client: which ones are executed, which ones wait, and what the replies to them are.
//!
//! A command is executed only if there is room: for its reply in the connection's output, and for one more request
//! under way. After a command that may have a large reply, no other command is executed until that reply was sent. All
//! other commands wait in the order in which they arrived.

use touchline_protocol::Disconnect;
use touchline_protocol::command::{Command, CommandKind, Commands};
use touchline_protocol::message::Encoding;
use touchline_protocol::stream::ChannelName;

use super::context::{Context, SessionSettings};
use super::counts::SessionCount;
use super::flow::Deferred;
use super::hook_state::HookState;
use super::limits::Toll;
use super::refusal::{NO_COMMAND, NO_METHOD, NOT_CONNECTED};
use super::state::{Phase, Session};
use super::ticket::{ReplyKind, Ticket};
use super::transport::TransportMode;
use super::{channel_commands, registry};
use crate::request::{ChannelRequest, Response};
use crate::settings::ClientSettings;

/// The greatest number of control frames that a client may send before it has connected. Libraries send one or two.
const EARLY_FRAMES_MAX: u8 = 16;

/// The number of bytes that are read after a command that waits for its rate. Further input waits in the socket.
const READ_AHEAD_MAX: usize = 16 * 1024;

/// How much of an input has been executed.
struct Executed {
    /// The number of commands that were executed, refused by their rates, or not valid.
    count: usize,
    /// The length of these commands, bytes.
    used: usize,
    /// Whether the command after them has been charged to its rates.
    is_paid: bool,
}

impl Executed {
    /// All commands of an input.
    fn all(count: usize, input: &[u8]) -> Self {
        Executed { count, used: input.len(), is_paid: false }
    }
}

impl Session {
    /// Handles a message of the client: one or more commands. Returns how many were executed or not valid.
    pub fn receive(&mut self, input: &[u8], context: &mut Context<'_>) -> usize {
        self.last_input_s = context.now_s() as u32;
        if self.is_deferring() || self.is_holding() || self.is_authenticating() {
            self.defer(input, context);
            return 0;
        }
        if self.transport == TransportMode::OneWay {
            self.connect_one_way(input, context);
            return 1;
        }
        let now_us = context.now_us;
        let Executed { count, used, is_paid } = self.execute_commands(input, false, |_| now_us, context);
        self.defer(&input[used..], context);
        if is_paid && let Some(deferred) = self.rare.as_mut().and_then(|rare| rare.deferred.as_mut()) {
            deferred.is_paid = true;
        }
        if count == 0 && used == input.len() && self.transport != TransportMode::Lines {
            context.refuse_input(NO_COMMAND);
        }
        count
    }

    /// Executes commands while there is room and their rates allow it. `is_paid`: the first one has been charged to its
    /// rates. `read_us`: when the byte at an index of the input was read, as of [`Context::now_us`].
    fn execute_commands(
        &mut self,
        input: &[u8],
        mut is_paid: bool,
        read_us: impl Fn(usize) -> u64,
        context: &mut Context<'_>,
    ) -> Executed {
        let mut commands = Commands::read(context.effects.messages.encoding(), input);
        let (node, mut count) = (context.node, 0);
        while self.has_room(context) {
            let before = commands.rest();
            let Some(command) = commands.next() else { return Executed::all(count, input) };
            let Ok(command) = command else {
                self.note_mistake(input, context);
                return Executed::all(count + 1, input);
            };
            context.begin_command(&command);
            let toll = match &node.limits {
                Some(limits) if !std::mem::take(&mut is_paid) => {
                    let last_byte = (input.len() - commands.rest().len()).saturating_sub(1);
                    self.charge_command(limits, &command, read_us(last_byte), context)
                }
                _ => Toll::Paid,
            };
            if toll == Toll::Later {
                return Executed { count, used: input.len() - before.len(), is_paid: true };
            }
            count += 1;
            context.effects.counts.push(SessionCount::Command(context.effects.method));
            self.note_command();
            if toll == Toll::Paid {
                self.command(command, &before[..before.len() - commands.rest().len()], context);
            }
            if context.effects.disconnect.is_some() || !self.is_listening() {
                return Executed::all(count, input);
            }
        }
        Executed { count, used: input.len() - commands.rest().len(), is_paid }
    }

    /// Executes a command. `input`: the bytes of the command.
    pub(super) fn command(&mut self, command: Command<'_>, input: &[u8], context: &mut Context<'_>) {
        if self.rare.is_some() && self.waits_for_hook(&command, input) {
            return;
        }
        context.begin_command(&command);
        let Command { id, operation } = command;
        match operation {
            Some(CommandKind::Connect(request)) => self.connect(id, request, context),
            _ if !self.is_connected() => context.refuse_input(NOT_CONNECTED),
            Some(CommandKind::Send(request)) => self.sent(&request, context),
            _ if id == 0 => self.pong(context),
            Some(CommandKind::Subscribe(request)) => self.subscribe(id, request, context),
            Some(CommandKind::Unsubscribe(request)) => self.unsubscribe(id, &request.channel, context),
            Some(CommandKind::Publish(request)) => self.publish(id, request, context),
            Some(CommandKind::Presence(request)) => self.presence(id, &request.channel, ReplyKind::Presence, context),
            Some(CommandKind::PresenceStats(request)) => {
                self.presence(id, &request.channel, ReplyKind::PresenceStats, context)
            }
            Some(CommandKind::History(request)) => self.history(id, request, context),
            Some(CommandKind::Rpc(request)) => self.rpc(id, &request, context),
            Some(CommandKind::Refresh(request)) => self.refresh(id, &request.token, context),
            Some(CommandKind::SubRefresh(request)) => self.sub_refresh(id, request, context),
            None => context.refuse_input(NO_METHOD),
        }
    }

    /// Handles the response of a home or of the directory.
    pub fn handle_reply(&mut self, ticket: Ticket, response: Response, context: &mut Context<'_>) {
        self.flow.end(ticket);
        context.effects.method = ticket.method();
        if let Ticket::Subscribe { namespace, .. } = ticket {
            context.effects.namespace = namespace;
        }
        let response = if ticket.is_large() && context.room.is_scarce { response.without_contents() } else { response };
        match ticket {
            Ticket::Reply { command, .. } => channel_commands::reply(command, response, context),
            Ticket::Directory { command, kind, .. } => registry::reply(command, kind, response, context),
            Ticket::Registrations => self.handle_registered(response, context),
            Ticket::Subscribe { command, serial, .. } => self.subscribed(command, serial, response, context),
            Ticket::Connect { serial } => self.subscribed_at_connect(serial, response, context),
            Ticket::Server { serial } => self.subscribed_by_server(serial, response, context),
        }
    }

    /// Sends a command's request to a channel's home.
    pub(super) fn request(
        &mut self,
        channel: ChannelName,
        ticket: Ticket,
        request: ChannelRequest,
        context: &mut Context<'_>,
    ) {
        if let Ticket::Reply { weight, .. } = ticket {
            self.flow.begin(weight);
        }
        context.request(channel, Some(ticket), request);
    }

    /// Whether the client's next command can be executed.
    pub fn has_room(&self, context: &Context<'_>) -> bool {
        context.effects.messages.bytes().len() < context.room.bytes && !self.is_busy(&context.node.client)
    }

    /// Whether the client's next command must wait for the reply to an earlier one.
    pub fn is_busy(&self, client: &ClientSettings) -> bool {
        let flow = &self.flow;
        usize::from(flow.in_flight) >= client.commands_in_flight_max
            || flow.has_large
            || matches!(self.phase, Phase::Connecting(_) | Phase::Authenticating)
            || self.hooks().is_some_and(|hooks| hooks.is_full(client))
    }

    /// Whether a command of the client has no reply yet. Calls do not count.
    pub fn is_awaiting(&self) -> bool {
        self.flow.in_flight > 0 || self.is_deferring()
    }

    /// Whether commands wait for room.
    pub fn is_deferring(&self) -> bool {
        let Some(rare) = &self.rare else { return false };
        rare.deferred.is_some() || rare.hooks.as_ref().is_some_and(|hooks| hooks.has_ready())
    }

    /// Whether to read input although a command waits for its rate. Then the waiting time of later commands begins when
    /// they are read, and the node notices when a client leaves.
    pub fn reads_ahead(&self, node: &SessionSettings) -> bool {
        let most = READ_AHEAD_MAX.min(node.deferred_max / 2);
        self.deferred().is_some_and(|deferred| deferred.is_paid && deferred.bytes.len() - deferred.at < most)
    }

    /// Whether a command waits for its rate.
    pub fn waits_for_rate(&self) -> bool {
        self.deferred().is_some_and(|deferred| deferred.is_paid)
    }

    fn deferred(&self) -> Option<&Deferred> {
        self.rare.as_ref()?.deferred.as_ref()
    }

    /// The bytes that the session keeps for its client: waiting commands, and the beginning of a connect reply.
    pub fn buffered_bytes(&self) -> usize {
        let deferred = self.deferred().map_or(0, Deferred::size) + self.hooks().map_or(0, HookState::size);
        match &self.phase {
            Phase::Connecting(connecting) => deferred + connecting.subs_bytes + connecting.held_bytes,
            _ => deferred,
        }
    }

    /// Executes waiting commands while there is room. Returns how many commands were executed.
    ///
    /// Commands that have waited for hooks come first. They count against the limits by which the next commands wait,
    /// so they must not wait for these limits themselves.
    pub fn resume(&mut self, context: &mut Context<'_>) -> usize {
        let ready = self.run_ready(context);
        let is_ended = context.effects.disconnect.is_some() || !self.is_listening();
        if is_ended || self.hooks().is_some_and(|hooks| hooks.has_ready()) || !self.has_room(context) {
            return ready;
        }
        let Some(mut deferred) = self.rare.as_mut().and_then(|rare| rare.deferred.take()) else { return ready };
        let (at, now_us) = (deferred.at, context.now_us);
        let read_us = |place| deferred.arrival_us(at + place).unwrap_or(now_us);
        let Executed { count, used, is_paid } =
            self.execute_commands(&deferred.bytes[at..], deferred.is_paid, read_us, context);
        (deferred.at, deferred.is_paid) = (deferred.at + used, is_paid);
        if !is_blank(&deferred.bytes[deferred.at..], context) && self.is_listening() {
            self.rare.get_or_insert_default().deferred = Some(deferred);
        }
        ready + count
    }

    /// Keeps commands until there is room for them.
    pub(super) fn defer(&mut self, input: &[u8], context: &mut Context<'_>) {
        if is_blank(input, context) || !self.is_listening() {
            return;
        }
        let deferred = self.rare.get_or_insert_default().deferred.get_or_insert_default();
        deferred.trim();
        if deferred.bytes.len() + input.len() > context.node.deferred_max {
            return context.disconnect(Disconnect::TOO_MANY_REQUESTS);
        }
        deferred.bytes.extend_from_slice(input);
        if context.effects.messages.encoding() != Encoding::Protobuf {
            deferred.bytes.push(b'\n');
        }
        if context.node.limits.as_ref().is_some_and(|limits| limits.patience_ns > 0) {
            deferred.note_arrival(context.now_us);
        }
    }

    /// Counts a control frame of the client. Returns false if the client has sent too many of them before it connects.
    pub fn allows_control_frame(&mut self) -> bool {
        if self.is_connected() {
            return true;
        }
        self.flow.early_frames = self.flow.early_frames.saturating_add(1);
        self.flow.early_frames <= EARLY_FRAMES_MAX
    }
}

/// Whether an input contains no command.
fn is_blank(input: &[u8], context: &Context<'_>) -> bool {
    if context.effects.messages.encoding() == Encoding::Protobuf {
        input.is_empty()
    } else {
        input.trim_ascii().is_empty()
    }
}
