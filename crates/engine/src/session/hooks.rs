//! Hooks: a session asks the backend, and continues when the answer arrives.
//!
//! Effects of one connection on one channel stay in order: while a question about a channel has no answer, later
//! commands about it wait. Other channels, pings and deliveries continue.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::command::{Command, CommandKind, Commands, ConnectCommand, SubscribeCommand};
use touchline_protocol::message::Reply;
use touchline_protocol::payload::RawPayload;
use touchline_protocol::{Disconnect, Error};

use super::connect::ClientAdmission;
use super::context::Context;
use super::counts::CommandMethod;
use super::effects::ClientProgram;
use super::hook_refusal::{BUSY, NO_ANSWER, UNDECIDED, refuse_command};
use super::hook_state::{HeldCommand, HookState, HookWait, HookWish, WaitingAction};
use super::registry;
use super::state::{Phase, Session};
use super::subscribe::SubscribeRefusal;
use super::ticket::{ReplyKind, Ticket};
use super::transport::TransportMode;
use super::weight::Weight;
use crate::hook::{
    HookCall, HookError, HookKind, HookOutcome, HookRequest, HookResult, PublishAnswer, SubscribeAnswer,
};
use crate::request::{ChannelRequest, Publish, Response};

/// The greatest total size of header fields that a client claims and hooks forward: names and values, bytes.
const EMULATED_SIZE_MAX: usize = 8 * 1_024;
/// The cause when a client of a one-way transport names more channels than it may have.
const TOO_MANY_WISHES: &str = "the client names more channels than client.channel_limit";

impl Session {
    /// The state of hooks; `None` = there is none.
    pub(super) fn hooks(&self) -> Option<&HookState> {
        self.rare.as_ref()?.hooks.as_deref()
    }

    pub(super) fn hooks_mut(&mut self) -> &mut HookState {
        self.rare.get_or_insert_default().hooks.get_or_insert_default()
    }

    /// Whether the backend is being asked about commands, or its permission is being carried out.
    pub fn owes_answers(&self) -> bool {
        self.hooks().is_some_and(|state| usize::from(self.flow.in_flight) > state.held_commands())
    }

    /// Stops executing commands: the connection is about to end, once the backend has answered.
    pub fn wind_down(&mut self) {
        self.hooks_mut().is_winding_down = true;
    }

    /// Whether the backend is being asked to authenticate the client.
    pub fn is_authenticating(&self) -> bool {
        matches!(self.phase, Phase::Authenticating)
    }

    /// Asks the backend. Later commands about `channel` wait until the answer arrives.
    pub(super) fn ask(
        &mut self,
        channel: &str,
        action: WaitingAction,
        request: HookRequest,
        context: &mut Context<'_>,
    ) {
        let user = self.user.clone();
        let state = self.hooks_mut();
        let serial = state.begin(channel, action);
        let emulated_headers = state.emulated_headers.clone();
        let (meta, labels) = (state.meta.clone(), state.labels.clone());
        context.effects.hook_calls.push(HookCall { serial, user, meta, labels, emulated_headers, request });
    }

    /// The same for a command of the client, which counts as under way.
    fn ask_for_command(
        &mut self,
        channel: &str,
        action: WaitingAction,
        request: HookRequest,
        context: &mut Context<'_>,
    ) {
        self.flow.hold();
        self.ask(channel, action, request, context);
    }

    /// Asks the backend to authenticate the client.
    pub(super) fn ask_connect(&mut self, command: u32, request: ConnectCommand<'_>, context: &mut Context<'_>) {
        let Ok(data) = request.data.map(RawPayload::checked).transpose() else {
            return self.refuse_connect(command, Error::BAD_REQUEST, context);
        };
        let program = ClientProgram::of(&request);
        let names = &context.node.hooks.emulated_header_names;
        let claimed = request.headers.into_iter().filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            names.contains(&name).then(|| (Box::from(name), Box::from(value)))
        });
        let claimed: Arc<[(Box<str>, Box<str>)]> = claimed.collect();
        if claimed.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > EMULATED_SIZE_MAX {
            context.because("the header fields of the connect command are too long", "");
            return self.refuse_connect(command, Error::BAD_REQUEST, context);
        }
        if !claimed.is_empty() {
            self.hooks_mut().emulated_headers = Some(claimed);
        }
        let question = HookRequest::Connect {
            data,
            name: (*request.name).into(),
            version: (*request.version).into(),
            channels: request.subs.keys().map(|channel| Box::from(&**channel)).collect(),
        };
        let subs = request.subs.into_iter().map(|(channel, wish)| (channel.into_owned().into(), wish.into_owned()));
        let subs: BTreeMap<Cow<'static, str>, _> = subs.collect();
        self.phase = Phase::Authenticating;
        self.ask("", WaitingAction::Connect { command, program, subs }, question, context);
    }

    /// Asks the backend whether the client may subscribe. `command`: `None` = the subscribe is part of the connect of a
    /// client of a one-way transport.
    pub(super) fn ask_subscribe(
        &mut self,
        command: Option<u32>,
        request: SubscribeCommand<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        let data = request.data.map(RawPayload::checked).transpose()?;
        let channel: Box<str> = (*request.channel).into();
        let proxy = context.resolve(&channel)?.subscribe_proxy_name.as_str().into();
        let question = HookRequest::Subscribe { proxy, channel: channel.clone(), data };
        let request = Box::new(request.into_owned());
        match command {
            Some(command) => {
                self.ask_for_command(&channel, WaitingAction::Subscribe { command, request }, question, context);
            }
            None => {
                self.hooks_mut().add_wish(HookWish { question, request });
                self.ask_wishes(context);
            }
        }
        Ok(())
    }

    /// Asks about channels that the client of a one-way transport has named, up to the limit of simultaneous questions.
    pub(super) fn ask_wishes(&mut self, context: &mut Context<'_>) {
        while self.has_wishes() && context.effects.disconnect.is_none() {
            let Some(HookWish { question, request }) = self.hooks_mut().next_wish(&context.node.client) else { return };
            let channel = request.channel.clone();
            self.ask(&channel, WaitingAction::SubscribeAtConnect { request }, question, context);
        }
    }

    /// Whether a backend is being asked, or will be asked, about channels that a client of a one-way transport has
    /// named.
    pub(super) fn has_wishes(&self) -> bool {
        self.hooks().is_some_and(|state| state.wish_count() > 0)
    }

    /// Whether the client of a one-way transport may name one more channel that a backend is asked about.
    pub(super) fn may_wish_more(&self, context: &mut Context<'_>) -> bool {
        let wishes = self.hooks().map_or(0, HookState::wish_count);
        let may = self.subscriptions.len() + wishes < context.node.client.channel_limit;
        if !may {
            context.because(TOO_MANY_WISHES, "");
        }
        may
    }

    /// Asks the backend whether the client may publish.
    pub(super) fn ask_publish(
        &mut self,
        command: u32,
        channel: &str,
        proxy: &str,
        data: Bytes,
        context: &mut Context<'_>,
    ) {
        let question = HookRequest::Publish { proxy: proxy.into(), channel: channel.into(), data: data.clone() };
        self.ask_for_command(channel, WaitingAction::Publish { command, data }, question, context);
    }

    /// Asks the backend for the answer to an RPC.
    pub(super) fn ask_rpc(
        &mut self,
        command: u32,
        method: &str,
        proxy: &str,
        data: Option<Bytes>,
        context: &mut Context<'_>,
    ) {
        let question = HookRequest::Rpc { proxy: proxy.into(), method: method.into(), data };
        self.ask_for_command("", WaitingAction::Rpc { command }, question, context);
    }

    /// Keeps a command if a question about its channel has no answer. Returns whether the command is kept. `input`: the
    /// bytes of the command.
    pub(super) fn waits_for_hook(&mut self, command: &Command<'_>, input: &[u8]) -> bool {
        let Some(state) = self.rare.as_mut().and_then(|rare| rare.hooks.as_mut()).filter(|state| !state.is_idle())
        else {
            return false;
        };
        let Some(channel) = command.operation.as_ref().and_then(channel_of) else { return false };
        // An unsubscribe never waits: SDKs close a connection if their unsubscribe gets no reply.
        let is_unsubscribe = matches!(command.operation, Some(CommandKind::Unsubscribe(_)));
        let is_subscribe = matches!(command.operation, Some(CommandKind::Subscribe(_)));
        let subscribe = || is_subscribe.then(|| (command.id, channel.into()));
        if is_unsubscribe || !state.keep_behind(channel, || HeldCommand { input: input.into(), subscribe: subscribe() })
        {
            return false;
        }
        self.flow.hold();
        true
    }

    /// Handles the answer of the backend to the question with this number.
    pub fn handle_hook(&mut self, serial: u32, outcome: HookOutcome, context: &mut Context<'_>) {
        let Some(state) = self.rare.as_mut().and_then(|rare| rare.hooks.as_mut()) else { return };
        let Some(HookWait { channel, action, behind, is_refresh_due, .. }) = state.take(serial) else { return };
        if action.is_command() {
            self.flow.release();
        }
        context.effects.method = action.method();
        match action {
            WaitingAction::Connect { command, program, subs } => {
                self.connect_answered(command, (program, subs), outcome, context)
            }
            WaitingAction::Refresh => self.refresh_answered(outcome, context),
            WaitingAction::Subscribe { command, request } => {
                self.subscribe_answered(command, &request, outcome, context);
            }
            WaitingAction::SubscribeAtConnect { request } => self.wish_answered(&request, outcome, context),
            WaitingAction::Publish { command, data } => {
                self.publish_answered(command, &channel, data, outcome, context);
            }
            WaitingAction::Rpc { command } => rpc_answered(command, outcome, context),
            WaitingAction::Abandoned => {}
            WaitingAction::SubRefresh => self.sub_refresh_answered(&channel, outcome, context),
        }
        if is_refresh_due && context.effects.disconnect.is_none() && self.is_listening() {
            self.ask_delayed_sub_refresh(&channel, context);
        }
        if !behind.is_empty() && self.is_listening() {
            self.hooks_mut().put_back(behind);
        }
        self.run_ready(context);
    }

    /// Executes commands that have finished waiting for hooks, while there is room. Returns how many.
    pub(super) fn run_ready(&mut self, context: &mut Context<'_>) -> usize {
        let mut count = 0;
        while context.effects.disconnect.is_none() && self.is_listening() && self.has_room_for_ready(context) {
            let state = self.rare.as_mut().and_then(|rare| rare.hooks.as_mut());
            let Some(held) = state.and_then(|state| state.next_ready()) else { break };
            self.flow.release();
            count += 1;
            if let Some(Ok(command)) = Commands::read(context.effects.messages.encoding(), &held.input).next() {
                self.command(command, &held.input, context);
            }
        }
        count
    }

    /// Whether a command that has finished waiting for a hook can be executed. Such commands count as under way
    /// themselves, so their number and size do not matter here.
    fn has_room_for_ready(&self, context: &Context<'_>) -> bool {
        context.effects.messages.bytes().len() < context.room.bytes
            && !self.flow.has_large
            && self.hooks().is_some_and(|hooks| !hooks.asks_enough(&context.node.client))
    }

    /// Ends the question whether the client may subscribe to a channel. The waiting command gets 103, because nothing
    /// has permitted it. The next [`Session::run_ready`] executes the commands that waited for this question.
    pub(super) fn cancel_subscribe(&mut self, channel: &str, cause: &'static str, context: &mut Context<'_>) {
        let Some(state) = self.rare.as_mut().and_then(|rare| rare.hooks.as_mut()) else { return };
        let mut refused = state.take_subscribes(channel);
        // The question counts until the backend has answered, so subscribing and unsubscribing does not ask faster.
        refused.extend(state.abandon_subscribe(channel));
        refused.sort_unstable();
        let method = context.effects.method;
        for command in refused {
            self.flow.release();
            context.effects.method = CommandMethod::Subscribe;
            context.name_subscribe(channel);
            context.because(cause, channel);
            context.effects.refuse(command, Error::PERMISSION_DENIED);
        }
        context.effects.method = method;
    }

    /// Abandons all questions, because the session ends.
    pub(super) fn cancel_hooks(&mut self, context: &mut Context<'_>) {
        if let Some(state) = self.hooks() {
            context.effects.cancelled_hooks.extend(state.serials());
        }
    }

    fn connect_answered(
        &mut self,
        command: u32,
        (program, subs): (Option<ClientProgram>, BTreeMap<Cow<'static, str>, SubscribeCommand<'static>>),
        outcome: HookOutcome,
        context: &mut Context<'_>,
    ) {
        self.phase = Phase::AwaitingConnect;
        if !self.end_attempt(command, context) {
            return;
        }
        match outcome {
            HookOutcome::Result(HookResult::Connect(answer)) => {
                context.effects.program = program;
                self.admit(command, subs, ClientAdmission::of_hook(*answer), context);
            }
            HookOutcome::Empty => match self.authenticate_without_token(context, &mut ()) {
                Ok(claims) => {
                    context.effects.program = program;
                    self.admit(command, subs, ClientAdmission::without_token(claims), context);
                }
                Err((why, _)) => {
                    self.note_failed_connect(context);
                    context.because(UNDECIDED, "");
                    context.disconnect(why);
                }
            },
            HookOutcome::Error(error) => {
                if !error.temporary {
                    self.note_failed_connect(context);
                }
                self.refuse_connect_as(command, &error, context);
            }
            HookOutcome::Disconnect(why) => {
                if !why.is_reconnect() {
                    self.note_failed_connect(context);
                }
                context.end_as(HookKind::Connect, why, "");
            }
            HookOutcome::Refused(outcome) => self.connect_answered(command, (program, subs), *outcome, context),
            HookOutcome::Busy => {
                context.because(BUSY, "");
                self.refuse_connect(command, Error::TOO_MANY_REQUESTS, context);
            }
            HookOutcome::Failed | HookOutcome::Result(_) => {
                context.because(NO_ANSWER, "");
                self.refuse_connect(command, Error::INTERNAL, context);
            }
        }
    }

    fn subscribe_answered(
        &mut self,
        command: u32,
        request: &SubscribeCommand<'_>,
        outcome: HookOutcome,
        context: &mut Context<'_>,
    ) {
        if let Some(answer) = self.allowed_subscribe(outcome, Some(command), &request.channel, context) {
            self.subscribe_as(command, request, answer, context);
        }
    }

    /// The same for a channel that a client of a one-way transport named when it connected.
    fn wish_answered(&mut self, request: &SubscribeCommand<'_>, outcome: HookOutcome, context: &mut Context<'_>) {
        self.ask_wishes(context);
        if let Some(answer) = self.allowed_subscribe(outcome, None, &request.channel, context) {
            let mark = context.effects.requests.len();
            let grant = self.grant_of_hook(request, answer, context).map_err(SubscribeRefusal::one_way);
            match grant.and_then(|grant| self.subscribe_one_way(request, grant, context)) {
                Ok(()) => return self.defer_until_registered(mark, context),
                Err(error) => {
                    context.effects.count_refused_subscribe(error.temporary);
                    context.effects.number_cause(error.code);
                }
            }
        }
        if let Phase::Connecting(connecting) = &mut self.phase {
            connecting.awaited -= 1;
        }
        self.finish_connect(context);
    }

    /// The answer to a subscribe if it allows the subscribe; otherwise the client gets the refusal.
    fn allowed_subscribe(
        &mut self,
        outcome: HookOutcome,
        command: Option<u32>,
        channel: &str,
        context: &mut Context<'_>,
    ) -> Option<SubscribeAnswer> {
        context.name_subscribe(channel);
        let error = match outcome {
            HookOutcome::Result(HookResult::Subscribe(answer)) => return Some(answer),
            HookOutcome::Empty => return Some(SubscribeAnswer::default()),
            HookOutcome::Error(error) => {
                match command {
                    Some(command) => context.refuse_as(HookKind::Subscribe, command, &error, channel),
                    None => {
                        context.effects.count_refused_subscribe(error.temporary);
                        context.note_refusal_of(HookKind::Subscribe, error.code, channel);
                    }
                }
                return None;
            }
            HookOutcome::Disconnect(why) => {
                context.effects.count_refused_subscribe(false);
                context.end_as(HookKind::Subscribe, why, channel);
                return None;
            }
            HookOutcome::Refused(outcome) => return self.allowed_subscribe(*outcome, command, channel, context),
            HookOutcome::Busy => Error::TOO_MANY_REQUESTS,
            HookOutcome::Failed | HookOutcome::Result(_) => Error::INTERNAL,
        };
        context.because(if error == Error::INTERNAL { NO_ANSWER } else { BUSY }, channel);
        match command {
            Some(command) => context.effects.refuse(command, error),
            None => {
                context.effects.count_refused_subscribe(error.temporary);
                context.effects.number_cause(error.code);
            }
        }
        None
    }

    fn publish_answered(
        &mut self,
        command: u32,
        channel: &str,
        data: Bytes,
        outcome: HookOutcome,
        context: &mut Context<'_>,
    ) {
        match outcome {
            HookOutcome::Result(HookResult::Publish(answer)) => {
                self.publish_as(command, channel, data, *answer, context);
            }
            HookOutcome::Empty => self.publish_as(command, channel, data, PublishAnswer::default(), context),
            outcome => refuse_command(HookKind::Publish, command, outcome, channel, context),
        }
    }

    /// Publishes the publication that the backend has allowed.
    fn publish_as(
        &mut self,
        command: u32,
        channel: &str,
        data: Bytes,
        answer: PublishAnswer,
        context: &mut Context<'_>,
    ) {
        let longest = context.node.namespaces.settings().idempotency_key_max_length;
        if answer.idempotency_key.len() > longest || answer.version_epoch.len() > longest {
            context.because("the backend's idempotency_key or version_epoch is too long", channel);
            return context.effects.refuse(command, Error::INTERNAL);
        }
        if answer.skip_publish {
            return context.effects.messages.reply(command, &Reply::Publish);
        }
        // A payload from the client has already been checked against the format.
        let data = match (answer.data, context.node.namespaces.resolve(channel)) {
            (Some(data), Ok(options)) => options.publication_data_format.check(data),
            _ => Ok(data),
        };
        let Ok(data) = data else {
            context.because("the backend's data is not in the publication_data_format of the namespace", channel);
            return context.effects.refuse(command, Error::INTERNAL);
        };
        let mut content = self.content_of(channel, data, context);
        content.tags = answer.tags;
        let publish = Publish {
            exclusion: None,
            content,
            skip_history: answer.skip_history,
            idempotency_key: answer.idempotency_key,
            version: answer.version,
            version_epoch: answer.version_epoch,
        };
        let ticket = Ticket::Reply { command, method: CommandMethod::Publish, weight: Weight::Small };
        self.request(channel.into(), ticket, ChannelRequest::Publish(Box::new(publish)), context);
    }

    /// Ends the session with an error of the backend. The client closes the connection, or the server does it after a
    /// while.
    fn refuse_connect_as(&mut self, command: u32, error: &HookError, context: &mut Context<'_>) {
        if self.transport == TransportMode::OneWay {
            context.note_refusal_of(HookKind::Connect, error.code, "");
            let why = if error.temporary { Disconnect::SERVER_ERROR } else { Disconnect::PERMISSION_DENIED };
            return context.disconnect(why);
        }
        context.refuse_as(HookKind::Connect, command, error, "");
        self.end_refused(context);
    }
}

/// The channel of a command; `None` = the command concerns no channel.
fn channel_of<'c>(operation: &'c CommandKind<'_>) -> Option<&'c str> {
    match operation {
        CommandKind::Subscribe(request) => Some(&request.channel),
        CommandKind::Publish(request) => Some(&request.channel),
        CommandKind::History(request) => Some(&request.channel),
        CommandKind::SubRefresh(request) => Some(&request.channel),
        CommandKind::Unsubscribe(request) | CommandKind::Presence(request) | CommandKind::PresenceStats(request) => {
            Some(&request.channel)
        }
        CommandKind::Connect(_) | CommandKind::Send(_) | CommandKind::Rpc(_) | CommandKind::Refresh(_) => None,
    }
}

fn rpc_answered(command: u32, outcome: HookOutcome, context: &mut Context<'_>) {
    match outcome {
        HookOutcome::Result(HookResult::Rpc(data)) => {
            let json = data.unwrap_or_default().to_vec();
            registry::reply(command, ReplyKind::Rpc, Response::Directory(json.into()), context);
        }
        HookOutcome::Empty => context.effects.messages.reply(command, &Reply::Rpc(b"")),
        outcome => refuse_command(HookKind::Rpc, command, outcome, "", context),
    }
}
