//! Rates of a client's actions: each command is charged before it is executed and before a backend is asked.
//!
//! A command is charged once, when it is its turn. A command that waits for its token is the first one that is executed
//! afterwards. `connect` never waits: it takes its token in advance, or is refused.

use touchline_protocol::command::{Command, CommandKind, Commands};
use touchline_protocol::{Disconnect, Error};

use super::context::Context;
use super::limit_state::{ConnectAttempt, LimitState};
use super::state::Session;
use crate::limit::{
    AddressKey, CommandCharge, LimitLayer, LimitOutcome, LimitVerdict, LimitedCommand, RateLimits, Sharer,
};

/// What the rates decide about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toll {
    /// The command was charged and is executed now.
    Paid,
    /// The command was refused.
    Refused,
    /// The command was charged and is executed later.
    Later,
}

/// The cause of a refusal for each layer of rates.
const ABOVE: [&str; LimitLayer::ALL.len()] = [
    "client.rate_limit.client_command: the connection sends this command too often",
    "client.rate_limit.user_command: the user sends this command too often",
    "client.rate_limit.address_command: the address sends this command too often",
];
const USER_REFUSED: &str = "client.rate_limit.escalation: the user is refused for a while";
const ADDRESS_REFUSED: &str = "client.rate_limit: the address is refused for a while, by escalation or failed_connect";
const TOO_MANY_ATTEMPTS: &str =
    "client.rate_limit.failed_connect: too many connects of the address wait for the backend";
const TOO_MANY_REFUSALS: &str = "client.rate_limit.escalation: too many commands were refused by their rates";
const TOO_MANY_ERRORS: &str = "client.rate_limit.client_error: the client has caused too many errors";

impl Session {
    /// Sets the address of the client, if some rate uses it.
    pub fn set_address(&mut self, address: AddressKey) {
        self.limit_state().address = Some(address);
    }

    fn limit_state(&mut self) -> &mut LimitState {
        self.rare.get_or_insert_default().limits.get_or_insert_default()
    }

    /// The address of the client; `None` = no rate uses it.
    pub fn address(&self) -> Option<AddressKey> {
        self.rare.as_ref()?.limits.as_ref()?.address
    }

    /// Charges a command of a connected client to its connection, its user and its address, or to none of them. The
    /// first one without a token decides. `read_us`: when the command was read, as of [`Context::now_us`].
    pub(super) fn charge_command(
        &mut self,
        limits: &RateLimits,
        Command { id, operation }: &Command<'_>,
        read_us: u64,
        context: &mut Context<'_>,
    ) -> Toll {
        let Some(operation) = operation.as_ref().filter(|_| *id != 0 && self.is_connected()) else { return Toll::Paid };
        let Some((command, detail)) = limited(operation, context) else { return Toll::Paid };
        let waited_ns = context.now_us.saturating_sub(read_us).saturating_mul(1_000);
        let patience_ns = limits.patience_ns.saturating_sub(waited_ns);
        let charge = CommandCharge { command, detail, now_ns: context.now_ns(), patience_ns, is_over: false };
        // Unsubscribing from a channel that the client is not in costs others nothing, so it is never refused.
        let is_idle = matches!(operation, CommandKind::Unsubscribe(request) if !self.is_in(&request.channel, context));
        let layers = if is_idle { &LimitLayer::ALL[..1] } else { &LimitLayer::ALL[..] };
        let waits_ns = match self.charge_layers(limits, layers, charge) {
            Ok(waits_ns) => waits_ns,
            Err(layer) => {
                self.refuse_above(limits, layer, *id, context);
                return Toll::Refused;
            }
        };
        for (layer, _) in LimitLayer::ALL.into_iter().zip(waits_ns).filter(|(_, wait_ns)| *wait_ns > 0) {
            limits.shared.count_command(layer, command, LimitOutcome::Slowed);
        }
        match waits_ns.into_iter().max() {
            Some(wait_ns @ 1..) => {
                context.effects.hold_until_us = Some(context.now_us.saturating_add(wait_ns.div_ceil(1_000)));
                Toll::Later
            }
            _ => Toll::Paid,
        }
    }

    fn is_in(&self, channel: &str, context: &Context<'_>) -> bool {
        self.find(channel, context.hub).is_some()
    }

    /// Charges a command to all layers or to none of them. Returns for each layer how long the command waits for its
    /// tokens, nanoseconds.
    ///
    /// # Errors
    /// The first layer that refuses the command.
    fn charge_layers(
        &mut self,
        limits: &RateLimits,
        layers: &[LimitLayer],
        mut charge: CommandCharge<'_>,
    ) -> Result<[u64; LimitLayer::ALL.len()], LimitLayer> {
        let mut waits_ns = [0; LimitLayer::ALL.len()];
        for (index, layer) in layers.iter().copied().enumerate() {
            match self.charge_layer(limits, layer, &charge) {
                LimitVerdict::Allowed(wait_ns) => waits_ns[layer as usize] = wait_ns,
                LimitVerdict::Over => {
                    limits.shared.count_command(layer, charge.command, LimitOutcome::Allowed);
                    // A layer in trial mode gets the same commands as if this layer refused the command.
                    let is_first = !std::mem::replace(&mut charge.is_over, true);
                    if is_first && charge.command != LimitedCommand::Unsubscribe {
                        self.give_back(limits, &layers[..index], &charge);
                    }
                }
                LimitVerdict::Refused => {
                    limits.shared.count_command(layer, charge.command, LimitOutcome::Refused);
                    if !charge.is_over {
                        self.give_back(limits, &layers[..index], &charge);
                    }
                    return Err(layer);
                }
            }
        }
        Ok(waits_ns)
    }

    /// The user or address that shares the buckets of a layer; `None` = the layer has no rates, or they do not apply to
    /// this client.
    fn sharer(&self, limits: &RateLimits, layer: LimitLayer) -> Option<Sharer<'_>> {
        match layer {
            LimitLayer::User if limits.has_users && !self.user.is_empty() => Some(Sharer::User(&self.user)),
            LimitLayer::Address if limits.has_addresses => self.address().map(Sharer::Address),
            _ => None,
        }
    }

    /// Charges a command to one layer, if the layer has rates and they apply to this client.
    fn charge_layer(&mut self, limits: &RateLimits, layer: LimitLayer, charge: &CommandCharge<'_>) -> LimitVerdict {
        match (layer, &limits.client) {
            (LimitLayer::Client, Some(rules)) => rules.charge(&mut self.limit_state().commands, charge),
            _ => match self.sharer(limits, layer) {
                Some(sharer) => limits.shared.charge(sharer, charge),
                None => LimitVerdict::Allowed(0),
            },
        }
    }

    /// Returns tokens that a command has taken and does not use.
    fn give_back(&mut self, limits: &RateLimits, layers: &[LimitLayer], charge: &CommandCharge<'_>) {
        for layer in layers.iter().copied() {
            match (layer, &limits.client) {
                (LimitLayer::Client, Some(rules)) => rules.give_back(&mut self.limit_state().commands, charge),
                _ => {
                    if let Some(sharer) = self.sharer(limits, layer) {
                        limits.shared.give_back(sharer, charge);
                    }
                }
            }
        }
    }

    /// Returns the tokens of the command that still waits for them, because the session ends.
    pub(super) fn give_back_unused(&mut self, context: &Context<'_>) {
        let node = context.node;
        let Some(limits) = &node.limits else { return };
        let Some(deferred) = self.rare.as_mut().and_then(|rare| rare.deferred.take()).filter(|all| all.is_paid) else {
            return;
        };
        let mut waiting = Commands::read(context.effects.messages.encoding(), &deferred.bytes[deferred.at..]);
        if let Some(Ok(Command { operation: Some(operation), .. })) = waiting.next()
            && let Some((command, detail)) = limited(&operation, context)
        {
            let charge = CommandCharge { command, detail, now_ns: context.now_ns(), patience_ns: 0, is_over: false };
            self.give_back(limits, &LimitLayer::ALL[1..], &charge);
        }
    }

    /// Refuses a command that is above a rate, and counts the refusal for the connection, user or address of that rate.
    /// If it continues nevertheless, it is refused for a while. A connection ends because of its own rates or those of
    /// its user, not because of what others with its address do.
    fn refuse_above(&mut self, limits: &RateLimits, layer: LimitLayer, command: u32, context: &mut Context<'_>) {
        context.because(ABOVE[layer as usize], "");
        context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
        let Some(rules) = &limits.escalation else { return };
        let now_ns = context.now_ns();
        let is_one_too_many = match (layer, self.address()) {
            (LimitLayer::Address, Some(address)) => {
                limits.shared.note_refusal(Sharer::Address(address), now_ns);
                false
            }
            _ if !self.user.is_empty() => limits.shared.note_refusal(Sharer::User(&self.user), now_ns),
            _ => {
                let is_one_too_many = rules.note_refusal(&mut self.limit_state().refusals, now_ns);
                if is_one_too_many {
                    limits.shared.count_escalation();
                }
                is_one_too_many
            }
        };
        if is_one_too_many {
            context.because(TOO_MANY_REFUSALS, "");
            context.disconnect(Disconnect::TOO_MANY_REQUESTS);
        }
    }

    /// Charges a connect to the client's address. Returns false, and refuses the connect, if it is above a rate or if
    /// the address is currently refused.
    pub(super) fn may_try_connect(&mut self, command: u32, context: &mut Context<'_>) -> bool {
        let node = context.node;
        let Some((limits, address)) = node.limits.as_ref().zip(self.address()) else { return true };
        if limits.shared.is_refused(Sharer::Address(address), context.now_ns()) {
            return self.refuse_attempt(command, ADDRESS_REFUSED, context);
        }
        self.charge_connect(limits, LimitLayer::Address, command, context)
    }

    /// Whether a backend may be asked about a connect. It counts as failed until the backend has answered.
    pub(super) fn may_ask_connect(&mut self, command: u32, context: &mut Context<'_>) -> bool {
        let node = context.node;
        let limits = node.limits.as_ref().filter(|limits| limits.has_failed_connects);
        let Some((limits, address)) = limits.zip(self.address()) else { return true };
        let attempt = ConnectAttempt::begin(&limits.shared, address, context.now_ns());
        let may_try = attempt.is_some();
        self.limit_state().attempt = attempt;
        may_try || self.refuse_attempt(command, TOO_MANY_ATTEMPTS, context)
    }

    /// Handles that the backend has answered a connect. Returns false, and refuses it, if the address was refused
    /// meanwhile.
    pub(super) fn end_attempt(&mut self, command: u32, context: &mut Context<'_>) -> bool {
        let state = self.rare.as_mut().and_then(|rare| rare.limits.as_mut());
        let Some(limits) = context.node.limits.as_ref().filter(|_| state.is_some_and(|s| s.attempt.take().is_some()))
        else {
            return true;
        };
        let is_refused = |address| limits.shared.is_refused(Sharer::Address(address), context.now_ns());
        !self.address().is_some_and(is_refused) || self.refuse_attempt(command, ADDRESS_REFUSED, context)
    }

    /// The same as [`Session::may_try_connect`], for the user of an authenticated client.
    pub(super) fn may_connect_as_user(&mut self, command: u32, context: &mut Context<'_>) -> bool {
        let node = context.node;
        let Some(limits) = node.limits.as_ref().filter(|_| !self.user.is_empty()) else { return true };
        if limits.shared.is_refused(Sharer::User(&self.user), context.now_ns()) {
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
        let charge = charge_at_once(limits, LimitedCommand::Connect, "", context);
        self.charge_layers(limits, &[layer], charge).is_ok()
            || self.refuse_attempt(command, ABOVE[layer as usize], context)
    }

    /// Charges a subscription that a client of a one-way transport asks for when it connects. Returns whether the
    /// subscription is allowed.
    pub(super) fn may_wish(&mut self, channel: &str, context: &mut Context<'_>) -> bool {
        let node = context.node;
        let Some(limits) = &node.limits else { return true };
        let charge = charge_at_once(limits, LimitedCommand::Subscribe, node.namespaces.namespace_of(channel), context);
        let Err(layer) = self.charge_layers(limits, &LimitLayer::ALL, charge) else { return true };
        context.because(ABOVE[layer as usize], channel);
        context.effects.number_cause(Error::TOO_MANY_REQUESTS.code);
        false
    }

    /// Refuses a connect. Always returns false.
    fn refuse_attempt(&mut self, command: u32, cause: &'static str, context: &mut Context<'_>) -> bool {
        context.because(cause, "");
        self.refuse_connect(command, Error::TOO_MANY_REQUESTS, context);
        false
    }

    /// Notes that the client failed to authenticate.
    pub(super) fn note_failed_connect(&self, context: &Context<'_>) {
        if let Some((limits, address)) = context.node.limits.as_ref().zip(self.address()) {
            limits.shared.note_failed_connect(address, context.now_ns());
        }
    }

    /// Charges the errors that the client has just caused to its connection. Too many of them end it. The shard calls
    /// this function after each decision.
    #[inline]
    pub fn charge_errors(&mut self, context: &mut Context<'_>) {
        let count = std::mem::take(&mut context.effects.client_errors);
        if count > 0 {
            self.charge_new_errors(count, context);
        }
    }

    fn charge_new_errors(&mut self, count: u32, context: &mut Context<'_>) {
        let rules = context.node.limits.as_ref().and_then(|limits| Some((limits, limits.errors.as_ref()?)));
        let Some((limits, rules)) = rules.filter(|_| self.is_listening() && context.effects.disconnect.is_none())
        else {
            return;
        };
        for _ in 0..count {
            match rules.charge(&mut self.limit_state().errors, context.now_ns()) {
                LimitVerdict::Allowed(_) => {}
                LimitVerdict::Over => limits.shared.count_error(LimitOutcome::Allowed),
                LimitVerdict::Refused => {
                    limits.shared.count_error(LimitOutcome::Refused);
                    context.because(TOO_MANY_ERRORS, "");
                    return context.disconnect(Disconnect::TOO_MANY_ERRORS);
                }
            }
        }
    }
}

/// A charge for something that cannot wait: if it had to wait for its tokens, it takes them in advance.
fn charge_at_once<'a>(
    limits: &RateLimits,
    command: LimitedCommand,
    detail: &'a str,
    context: &Context<'_>,
) -> CommandCharge<'a> {
    CommandCharge { command, detail, now_ns: context.now_ns(), patience_ns: limits.patience_ns, is_over: false }
}

/// A command that has rates, with the namespace of its channel or its method; `None` = the command is not rated here.
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
        // A session connects once, and reactions have rates of their own.
        CommandKind::Connect(_) | CommandKind::Send(_) => return None,
    };
    Some((command, context.node.namespaces.namespace_of(channel)))
}
