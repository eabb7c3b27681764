//! Refusals by backends: what the client gets, and the cause for the log.

use touchline_protocol::message::Reply;
use touchline_protocol::{Disconnect, Error};

use super::context::Context;
use crate::hook::{HookError, HookKind, HookOutcome};

/// The cause of error 111 when too many hook calls wait.
pub(super) const BUSY: &str = "too many hook calls wait (hooks.queue_max_entries, queue_max_size, queue_timeout)";
/// The cause when the backend leaves the decision about a connect to the server, and the server does not permit it.
pub(super) const UNDECIDED: &str =
    "the connect hook answered `{}`: it named no user, and anonymous clients are not accepted";
/// The cause of error 100 when the backend has no usable answer.
pub(super) const NO_ANSWER: &str = "the backend of a hook has not answered, or its answer cannot be used";

/// The cause when the backend has refused.
const fn refused_by(hook: HookKind) -> &'static str {
    match hook {
        HookKind::Connect => "the backend of the connect hook has refused the client",
        HookKind::Refresh => "the backend of the refresh hook has not prolonged the connection",
        HookKind::Subscribe => "the backend of the subscribe hook has refused the subscribe",
        HookKind::Publish => "the backend of the publish hook has refused the publication",
        HookKind::SubRefresh => "the backend of the sub_refresh hook has not prolonged the subscription",
        HookKind::Rpc => "the backend of the rpc hook has answered with an error",
        HookKind::Conflict => "the backend of the conflict hook has given the name to another client",
    }
}

/// Refuses a command with the error that the backend returned.
pub(super) fn refuse_command(
    hook: HookKind,
    command: u32,
    outcome: HookOutcome,
    channel: &str,
    context: &mut Context<'_>,
) {
    match outcome {
        HookOutcome::Error(error) => context.refuse_as(hook, command, &error, channel),
        HookOutcome::Disconnect(why) => context.end_as(hook, why, channel),
        HookOutcome::Refused(outcome) => refuse_command(hook, command, *outcome, channel, context),
        HookOutcome::Busy => {
            context.because(BUSY, channel);
            context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
        }
        HookOutcome::Failed | HookOutcome::Empty | HookOutcome::Result(_) => {
            context.because(NO_ANSWER, channel);
            context.effects.refuse(command, Error::INTERNAL);
        }
    }
}

impl Context<'_> {
    /// Notes for the log that a backend has refused with this number. The client gets the backend's error and never
    /// this cause.
    pub(super) fn note_refusal_of(&mut self, hook: HookKind, code: u32, channel: &str) {
        self.because(refused_by(hook), channel);
        self.effects.number_cause(code);
    }

    /// Replies to a command with the error of the backend.
    pub(super) fn refuse_as(&mut self, hook: HookKind, command: u32, error: &HookError, channel: &str) {
        self.note_refusal_of(hook, error.code, channel);
        self.effects.note_error(error.code, error.temporary);
        let HookError { code, message, temporary } = error;
        self.effects.messages.reply(command, &Reply::Refusal { code: *code, message, temporary: *temporary });
    }

    /// Ends the connection with the disconnect that the backend returned.
    pub(super) fn end_as(&mut self, hook: HookKind, why: Disconnect, channel: &str) {
        self.note_refusal_of(hook, why.code.into(), channel);
        self.disconnect(why);
    }
}
