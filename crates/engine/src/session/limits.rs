//! Rates of what a client does: each command is charged before it is carried out, and before a backend is asked.
//!
//! A command is charged when it is read, once; one that waits for its token is the first that is carried out
//! afterwards. `connect` never waits: it is refused.

use touchline_protocol::command::{Command, CommandKind};
use touchline_protocol::{Disconnect, Error};

use super::context::Context;
use super::limit_state::LimitState;
use super::state::Session;
use crate::limit::{AddressKey, CommandCharge, LimitLayer, LimitOutcome, LimitVerdict, LimitedCommand, RateLimits};

/// What becomes of a command by its rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toll {
    /// It is carried out.
    Paid,
    /// It has been refused.
    Refused,
    /// It is carried out later, and has been charged.
    Later,
}

/// The cause of a refusal, for each layer.
const ABOVE: [&str; LimitLayer::ALL.len()] = [
    "client.rate_limit.client_command: no more of this command at present",
    "client.rate_limit.user_command: no more of this command of this user at present",
    "client.rate_limit.address_command: no more of this command of this address at present",
];
const USER_REFUSED: &str = "client.rate_limit.escalation: the user is refused for a while";
const ADDRESS_REFUSED: &str = "client.rate_limit: the address is refused for a while, by escalation or failed_connect";
const TOO_MANY_REFUSALS: &str = "client.rate_limit.escalation: too many commands were refused by their rates";
const TOO_MANY_ERRORS: &str = "client.rate_limit.client_error: the client has caused too many errors";

impl Session {
    /// Sets the address of the client, which some rate goes by.
    pub fn set_address(&mut self, address: AddressKey) {
        self.limit_state().address = Some(address);
    }

    fn limit_state(&mut self) -> &mut LimitState {
        self.rare.get_or_insert_default().limits.get_or_insert_default()
    }

    /// The address of the client; `None` = no rate goes by it.
    pub fn address(&self) -> Option<AddressKey> {
        self.rare.as_ref()?.limits.as_ref()?.address
    }

    /// Charges a command of a connected client: to the connection, to its user, to its address. The first of them that
    /// has no token decides.
    pub(super) fn charge_command(
        &mut self,
        limits: &RateLimits,
        Command { id, operation }: &Command<'_>,
        context: &mut Context<'_>,
    ) -> Toll {
        let Some(operation) = operation.as_ref().filter(|_| *id != 0 && self.is_connected()) else { return Toll::Paid };
        let Some((command, detail)) = limited(operation, context) else { return Toll::Paid };
        let charge = CommandCharge { command, detail, now_ns: context.now_ns(), patience_ns: limits.patience_ns };
        let mut wait_ns = 0;
        for layer in LimitLayer::ALL {
            match self.charge_layer(limits, layer, &charge) {
                LimitVerdict::Allowed(layer_ns) => {
                    if layer_ns > 0 {
                        limits.shared.count_command(layer, command, LimitOutcome::Slowed);
                    }
                    wait_ns = wait_ns.max(layer_ns);
                }
                LimitVerdict::Over => limits.shared.count_command(layer, command, LimitOutcome::Allowed),
                LimitVerdict::Refused => {
                    limits.shared.count_command(layer, command, LimitOutcome::Refused);
                    self.refuse_above(limits, layer, *id, context);
                    return Toll::Refused;
                }
            }
        }
        if wait_ns == 0 {
            return Toll::Paid;
        }
        context.effects.hold_until_us = Some(context.now_us.saturating_add(wait_ns.div_ceil(1_000)));
        Toll::Later
    }

    /// Charges a command to one layer, if that has rates and they are of this client.
    fn charge_layer(&mut self, limits: &RateLimits, layer: LimitLayer, charge: &CommandCharge<'_>) -> LimitVerdict {
        match layer {
            LimitLayer::Client => match &limits.client {
                Some(rules) => rules.charge(&mut self.limit_state().commands, charge),
                None => LimitVerdict::Allowed(0),
            },
            LimitLayer::User if limits.has_users && !self.user.is_empty() => {
                limits.shared.charge_user(&self.user, charge)
            }
            LimitLayer::Address if limits.has_addresses => match self.address() {
                Some(address) => limits.shared.charge_address(address, charge),
                None => LimitVerdict::Allowed(0),
            },
            LimitLayer::User | LimitLayer::Address => LimitVerdict::Allowed(0),
        }
    }

    /// Refuses a command that is above a rate. A connection whose commands are refused again and again is ended.
    fn refuse_above(&mut self, limits: &RateLimits, layer: LimitLayer, command: u32, context: &mut Context<'_>) {
        note_cause(ABOVE[layer as usize], context);
        context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
        let now_ns = context.now_ns();
        if let Some(rules) = &limits.escalation
            && rules.note_refusal(&mut self.limit_state().refusals, now_ns)
        {
            let until_ns = now_ns.saturating_add(rules.refused_for_ns);
            match self.address() {
                _ if !self.user.is_empty() => limits.shared.refuse_user(&self.user, until_ns, now_ns),
                Some(address) => limits.shared.refuse_address(address, until_ns, now_ns),
                None => {}
            }
            limits.shared.count_escalation();
            context.because(TOO_MANY_REFUSALS, "");
            return context.disconnect(Disconnect::TOO_MANY_REQUESTS);
        }
        self.charge_error(limits, context);
    }

    /// Charges a connect to the client's address. Returns false, and refuses it, if it is above a rate or the address
    /// is refused.
    pub(super) fn may_try_connect(&mut self, command: u32, context: &mut Context<'_>) -> bool {
        let node = context.node;
        let Some((limits, address)) = node.limits.as_ref().zip(self.address()) else { return true };
        if limits.shared.is_address_refused(address, context.now_ns()) {
            return self.refuse_attempt(command, ADDRESS_REFUSED, context);
        }
        self.charge_connect(limits, LimitLayer::Address, command, context)
    }

    /// The same for the user of a client that has proved who it is.
    pub(super) fn may_connect_as_user(&mut self, command: u32, context: &mut Context<'_>) -> bool {
        let node = context.node;
        let Some(limits) = node.limits.as_ref().filter(|_| !self.user.is_empty()) else { return true };
        if limits.shared.is_user_refused(&self.user, context.now_ns()) {
            return self.refuse_attempt(command, USER_REFUSED, context);
        }
        self.charge_connect(limits, LimitLayer::User, command, context)
    }

    fn charge_connect(
        &mut self,
        limits: &RateLimits,
        layer: LimitLayer,
        command: u32,
        context: &mut Context<'_>,
    ) -> bool {
        let connect = LimitedCommand::Connect;
        let charge = CommandCharge { command: connect, detail: "", now_ns: context.now_ns(), patience_ns: 0 };
        let outcome = match self.charge_layer(limits, layer, &charge) {
            LimitVerdict::Allowed(_) => return true,
            LimitVerdict::Over => LimitOutcome::Allowed,
            LimitVerdict::Refused => LimitOutcome::Refused,
        };
        limits.shared.count_command(layer, connect, outcome);
        outcome == LimitOutcome::Allowed || self.refuse_attempt(command, ABOVE[layer as usize], context)
    }

    /// Refuses a connect. Always false.
    fn refuse_attempt(&mut self, command: u32, cause: &'static str, context: &mut Context<'_>) -> bool {
        note_cause(cause, context);
        self.refuse_connect(command, Error::TOO_MANY_REQUESTS, context);
        false
    }

    /// Notes that the client has not proved who it is.
    pub(super) fn note_failed_connect(&self, context: &Context<'_>) {
        if let Some((limits, address)) = context.node.limits.as_ref().zip(self.address()) {
            limits.shared.note_failed_connect(address, context.now_ns());
        }
    }

    /// Charges the errors that the client has just got to its connection; too many of them end it. The shard calls it
    /// after each decision.
    #[inline]
    pub fn charge_errors(&mut self, context: &mut Context<'_>) {
        if !context.effects.errors.is_empty() {
            self.charge_new_errors(context);
        }
    }

    fn charge_new_errors(&mut self, context: &mut Context<'_>) {
        let node = context.node;
        let Some(limits) = &node.limits else { return };
        for index in 0..context.effects.errors.len() {
            if is_of_client(context.effects.errors[index]) {
                self.charge_error(limits, context);
            }
        }
    }

    fn charge_error(&mut self, limits: &RateLimits, context: &mut Context<'_>) {
        let Some(rules) = limits.errors.as_ref().filter(|_| self.is_listening()) else { return };
        let outcome = match rules.charge(&mut self.limit_state().errors, context.now_ns()) {
            LimitVerdict::Allowed(_) => return,
            LimitVerdict::Over => LimitOutcome::Allowed,
            LimitVerdict::Refused => LimitOutcome::Refused,
        };
        limits.shared.count_error(outcome);
        if outcome == LimitOutcome::Refused && context.effects.disconnect.is_none() {
            context.because(TOO_MANY_ERRORS, "");
            context.disconnect(Disconnect::TOO_MANY_ERRORS);
        }
    }
}

/// Notes the cause of a refusal if the client is told it; a line of the log for each would help nobody.
fn note_cause(cause: &'static str, context: &mut Context<'_>) {
    if context.node.client.tell_refusal_cause {
        context.because(cause, "");
    }
}

/// Whether an error is the client's doing: not a fault of the server, nor of what it needs. Refusals by a rate are
/// charged where they are made: the same number stands for a node that has too much to do.
fn is_of_client(code: u32) -> bool {
    let others = [
        Error::INTERNAL,
        Error::TOO_MANY_REQUESTS,
        Error::CALL_TIMEOUT,
        Error::CALLEE_GONE,
        Error::CLUSTER_UNREACHABLE,
        Error::STORE_UNAVAILABLE,
    ];
    others.iter().all(|error| error.code != code)
}

/// A command that has rates, with the namespace of its channel or its method; `None` = the command has none here.
fn limited<'c>(operation: &'c CommandKind<'_>, context: &Context<'_>) -> Option<(LimitedCommand, &'c str)> {
    let (command, channel) = match operation {
        CommandKind::Subscribe(request) => (LimitedCommand::Subscribe, &*request.channel),
        CommandKind::Unsubscribe(request) => (LimitedCommand::Unsubscribe, &*request.channel),
        CommandKind::Publish(request) => (LimitedCommand::Publish, &*request.channel),
        CommandKind::History(request) => (LimitedCommand::History, &*request.channel),
        CommandKind::Presence(request) => (LimitedCommand::Presence, &*request.channel),
        CommandKind::PresenceStats(request) => (LimitedCommand::PresenceStats, &*request.channel),
        CommandKind::SubRefresh(request) => (LimitedCommand::SubRefresh, &*request.channel),
        CommandKind::Rpc(request) => return Some((LimitedCommand::Rpc, &*request.method)),
        CommandKind::Refresh(_) => return Some((LimitedCommand::Refresh, "")),
        // A session connects once, and `send` ends it.
        CommandKind::Connect(_) | CommandKind::Send => return None,
    };
    Some((command, context.node.namespaces.namespace_of(channel)))
}
