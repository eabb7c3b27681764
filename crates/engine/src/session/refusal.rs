//! Why clients are refused: a fixed text for each cause, which the shard logs. Clients that are not refused cost
//! nothing.

use std::borrow::Cow;

use touchline_protocol::command::{Command, CommandKind};
use touchline_protocol::message::Reply;
use touchline_protocol::websocket::CLOSE_REASON_MAX;
use touchline_protocol::{Disconnect, Error};

use super::context::Context;
use super::counts::{CommandMethod, SessionCount};
use super::effects::{Effects, RefusalReport};
use crate::namespace::ChannelOptions;

/// The greatest length of a name of the client that the log shows, bytes.
const NAME_SHOWN_MAX: usize = 64;

pub(super) const NO_NAMESPACE: &str = "the namespace of the channel is not in channel.namespaces";
pub(super) const BAD_CHANNEL: &str = "the name of the channel is empty, longer than channel.max_length, has control \
                                      characters, or does not fit channel_regex";
pub(super) const NO_PRESENCE: &str = "presence is off in the namespace of the channel";
pub(super) const NO_HISTORY: &str = "history_size and history_ttl are not set in the namespace of the channel";
pub(super) const CHANNEL_TOO_LONG: &str = "the name of the channel is longer than channel.max_length";
pub(super) const BAD_ENTRIES: &str =
    "names or groups of the client cannot be used: their scope must be in registry.scopes";
pub(super) const NO_CHANNEL: &str = "the command names no channel";
pub(super) const BAD_DELTA: &str = "delta of the subscribe is not fossil";
pub(super) const NO_FILTERS: &str = "the subscribe has tf, and the namespace lacks allow_tags_filter";
pub(super) const FILTER_WITH_DELTA: &str = "the subscribe has tf and delta: remove one of them";
pub(super) const BAD_FILTER: &str = "tf of the subscribe is not a filter, or it is larger than \
                                     channel.tags_filter_max_nodes or channel.tags_filter_max_size";
pub(super) const BINARY_CHANNEL: &str = "publications of the namespace are binary, the client speaks JSON, and \
                                         binary_as_base64 is off";
pub(super) const TOKEN_EXPIRED: &str = "exp of the token has passed";
pub(super) const OTHER_USER: &str =
    "sub of the token is not the user of the connection, or client is not its client id";
pub(super) const OTHER_CHANNEL: &str = "the subscription token is for another channel";
pub(super) const TAKEN_BACK: &str = "the client unsubscribed before the backend answered";
pub(super) const ENDED_BY_SERVER: &str = "the server API ended the subscribe before the backend answered";
pub(super) const NO_CAPS_NOW: &str = "a refresh removed the caps before the channel's home answered";
pub(super) const NO_COMMAND: &str = "the input is not a command of the client protocol";
pub(super) const NO_METHOD: &str = "the command names no method";
pub(super) const NOT_CONNECTED: &str = "the first command is not connect";
pub(super) const BAD_CONNECT: &str = "connect has no id, or the client has connected before";
pub(super) const NO_WATCH: &str =
    "the scope lacks allow_watch_for_client (or allow_for_anonymous, and the client is anonymous)";

/// The errors that are outcomes of permitted requests, and that a retry does not change.
const OUTCOMES: [Error; 7] = [
    Error::ALREADY_SUBSCRIBED,
    Error::UNRECOVERABLE_POSITION,
    Error::NOT_REGISTERED,
    Error::NO_SUCH_SCOPE,
    Error::CHANGED,
    Error::NO_SUCH_CALL,
    Error::CHANNEL_NOT_DESCRIBED,
];

/// Whether an error is the outcome of a permitted request: the name is taken, the position is gone, the node is busy.
/// Such errors are normal, so the log has no line for them.
pub(super) fn is_outcome(error: &Error) -> bool {
    error.temporary || OUTCOMES.iter().any(|outcome| outcome.code == error.code)
}

/// A name of the client as the log shows it.
fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_SHOWN_MAX)]
}

impl Effects {
    /// Replies to a command with an error.
    pub(super) fn refuse(&mut self, command: u32, mut error: Error) {
        self.note_error(error.code, error.temporary);
        match self.cause_of(error.code) {
            Some(cause) => error.message = cause,
            None if is_outcome(&error) => {}
            None => self.note_unless_noted(error.code, error.message),
        }
        self.messages.reply(command, &Reply::Error(error));
    }

    /// Notes an error that the client gets. The client is not blamed for a temporary error, or for one that says that
    /// something has expired.
    pub(super) fn note_error(&mut self, code: u32, is_temporary: bool) {
        let is_over = code == Error::TOKEN_EXPIRED.code || code == Error::EXPIRED.code;
        self.client_errors += u32::from(!is_temporary && !is_over);
        self.counts.push(SessionCount::Error { method: self.method, code });
        if self.method == CommandMethod::Subscribe {
            self.count_refused_subscribe(is_temporary || is_over);
        }
    }

    /// Gives the noted cause the number of an error that the client does not get.
    pub(super) fn number_cause(&mut self, code: u32) {
        let _ = self.cause_of(code);
    }

    /// Notes a refusal that has no cause of its own, with the text of its number. So the log has a line for each
    /// refusal.
    fn note_unless_noted(&mut self, code: u32, text: &'static str) {
        if self.refusals.last().is_none_or(|refused| refused.code != code) {
            self.refusals.push(RefusalReport { code, cause: text, ..RefusalReport::default() });
        }
    }

    /// Gives the noted cause its number. Returns the cause if the client has to get it.
    fn cause_of(&mut self, code: u32) -> Option<&'static str> {
        let refused = self.refusals.last_mut().filter(|refused| refused.code == 0)?;
        refused.code = code;
        self.tells_cause.then_some(refused.cause)
    }
}

impl<'a> Context<'a> {
    /// The options of a channel's namespace.
    ///
    /// # Errors
    /// 102 if there is no such namespace, 107 if the channel's name is not valid; the cause is noted.
    pub(super) fn resolve(&mut self, channel: &str) -> Result<&'a ChannelOptions, Error> {
        let node = self.node;
        node.namespaces.resolve(channel).inspect_err(|error| {
            self.because(if *error == Error::UNKNOWN_CHANNEL { NO_NAMESPACE } else { BAD_CHANNEL }, channel)
        })
    }

    /// Attributes what is counted from now on to this command.
    pub(super) fn begin_command(&mut self, command: &Command<'_>) {
        self.effects.method = CommandMethod::of(command);
        if let Some(CommandKind::Subscribe(request)) = &command.operation {
            self.name_subscribe(&request.channel);
        }
    }

    /// Attributes what is counted from now on to a subscribe to this channel.
    pub(super) fn name_subscribe(&mut self, channel: &str) {
        self.effects.namespace = self.node.namespaces.index_of(channel);
    }

    /// Notes the cause of the refusal that follows.
    pub(super) fn because(&mut self, cause: &'static str, channel: &str) {
        self.effects.tells_cause = self.node.client.tell_refusal_cause;
        let channel = shown(channel).into();
        self.effects.refusals.push(RefusalReport { cause, channel, ..RefusalReport::default() });
    }

    /// Notes the cause of the refusal of an RPC that follows. `scope`: the scope of the registry that the RPC names.
    pub(super) fn because_of_rpc(&mut self, cause: &'static str, method: &str, scope: Option<&str>) {
        self.because(cause, "");
        if let Some(refused) = self.effects.refusals.last_mut() {
            let scope = scope.map_or(String::new(), |scope| format!(" in scope {}", shown(scope)));
            refused.method = format!("{}{scope}", shown(method)).into();
        }
    }

    /// Ends the connection because of its input, and notes the cause.
    pub(super) fn refuse_input(&mut self, cause: &'static str) {
        self.because(cause, "");
        self.disconnect(Disconnect::BAD_REQUEST);
    }

    /// Refuses with 107 and notes the cause.
    pub(super) fn bad<T>(&mut self, cause: &'static str, channel: &str) -> Result<T, Error> {
        self.because(cause, channel);
        Err(Error::BAD_REQUEST)
    }

    /// Refuses with 103 and notes the cause.
    pub(super) fn deny<T>(&mut self, cause: &'static str, channel: &str) -> Result<T, Error> {
        self.because(cause, channel);
        Err(Error::PERMISSION_DENIED)
    }

    /// Ends the connection, unless it already ends.
    pub(super) fn disconnect(&mut self, mut why: Disconnect) {
        if self.effects.disconnect.is_some() {
            return;
        }
        if let Some(cause) = self.effects.cause_of(why.code.into()) {
            let mut reason = format!("{}: {cause}", why.reason);
            reason.truncate(reason.floor_char_boundary(CLOSE_REASON_MAX));
            why.reason = Cow::Owned(reason);
        } else if !why.is_reconnect()
            && why != Disconnect::FORCE_NO_RECONNECT
            && let Cow::Borrowed(text) = why.reason
        {
            self.effects.note_unless_noted(why.code.into(), text);
        }
        self.effects.disconnect = Some(why);
    }
}
