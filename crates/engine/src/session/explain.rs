//! Explains how a session decides: which rules it checks, in which order, and what the result of each rule is.
//!
//! This module decides nothing itself: the steps come from the functions by which the session decides.

use std::borrow::Cow;

use touchline_protocol::command::SubscribeCommand;
use touchline_protocol::{Disconnect, Error};

use super::connect::{ConnectRefusal, asks_connect_hook};
use super::context::Context;
use super::explain_facts::{StepFact, StepSubject};
use super::permission::Opening;
use super::refusal::NO_CHANNEL;
use super::registry::{self, MethodOwner};
use super::rules::{ChannelAction, DecisionRule, RuleLog, RuleSays};
use super::state::Session;
use super::subscribe::SubscribeRefusal;
use crate::caps::Capability;
use crate::hook::{DEFAULT_PROXY, HookKind};
use crate::namespace::ChannelOptions;

/// What a client wants to do.
#[derive(Debug, Clone, Copy)]
pub enum ExplainedAction<'a> {
    /// The client wants to connect.
    Connect {
        /// The connection token; empty = the client sends none.
        token: &'a str,
    },
    /// The client wants to subscribe to a channel.
    Subscribe {
        /// The channel to subscribe to.
        channel: &'a str,
        /// The subscription token; empty = the client sends none.
        token: &'a str,
    },
    /// The client wants to do something else in a channel.
    InChannel {
        /// The kind of action.
        action: ChannelAction,
        /// The channel of the action.
        channel: &'a str,
    },
    /// The client wants to call a method.
    Rpc {
        /// The name of the method.
        method: &'a str,
        /// The data of the call, JSON.
        data: &'a str,
    },
}

/// The result of one step, or of all steps together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepVerdict {
    /// The rule does not decide: the next rule is checked.
    Nothing,
    /// The action is permitted.
    Allowed,
    /// The action is refused.
    Refused {
        /// The number of the error or of the disconnect that the client gets.
        code: u32,
        /// Whether the connection ends: then the number is that of a disconnect.
        is_disconnect: bool,
        /// The cause that the server logs.
        cause: Cow<'static, str>,
    },
    /// The backend has to decide.
    Asked {
        /// The hook that is called.
        hook: HookKind,
        /// The name of the backend: `default`, or one of `proxies`.
        backend: Box<str>,
    },
}

/// One rule and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedStep {
    /// The rule that is checked.
    pub rule: DecisionRule,
    /// The result of the rule.
    pub says: StepVerdict,
    /// The settings and claims that the rule depends on, with their values.
    pub facts: Vec<StepFact>,
}

impl StepVerdict {
    /// A refusal by an error reply. `cause`: `None` = the text of the number.
    pub fn error(error: Error, cause: Option<&'static str>) -> Self {
        let cause = cause.unwrap_or(error.message).into();
        StepVerdict::Refused { code: error.code, is_disconnect: false, cause }
    }

    /// A refusal that ends the connection. `cause`: `None` = the text of the number.
    pub fn disconnect(why: Disconnect, cause: Option<&'static str>) -> Self {
        let cause = cause.map_or(why.reason, Cow::Borrowed);
        StepVerdict::Refused { code: why.code.into(), is_disconnect: true, cause }
    }
}

impl ExplainedStep {
    /// The step for a client that is connected already as this user, no matter how it was authenticated.
    pub fn given(user: &str) -> Self {
        let fact = StepFact { name: "user".into(), value: user.into() };
        ExplainedStep { rule: DecisionRule::Given, says: StepVerdict::Nothing, facts: vec![fact] }
    }

    /// The result of all steps: that of the last step that decides something. `Nothing` = there is no such step.
    pub fn verdict(steps: &[ExplainedStep]) -> &StepVerdict {
        let mut said = steps.iter().rev().map(|step| &step.says);
        said.find(|says| **says != StepVerdict::Nothing).unwrap_or(&StepVerdict::Nothing)
    }

    /// Adds a step if the session refuses, for another reason, what the permission rules allow.
    pub fn conclude(steps: &mut Vec<ExplainedStep>, action: &ExplainedAction<'_>, verdict: &StepVerdict) {
        let is_permitted = *ExplainedStep::verdict(steps) == StepVerdict::Allowed;
        if is_permitted && matches!(verdict, StepVerdict::Refused { .. }) {
            let rule = match action {
                ExplainedAction::Connect { .. } => DecisionRule::ConnectionClaims,
                _ => DecisionRule::Command,
            };
            steps.push(ExplainedStep { rule, says: verdict.clone(), facts: Vec::new() });
        }
    }
}

type Noted = Vec<(DecisionRule, RuleSays)>;

impl Session {
    /// The rules that the session checks for an action, in order, up to the one that decides. Nothing changes.
    pub fn explain(&self, action: &ExplainedAction<'_>, context: &mut Context<'_>) -> Vec<ExplainedStep> {
        match action {
            ExplainedAction::Connect { token } => self.explain_connect(token, context),
            ExplainedAction::Subscribe { channel, token } => self.explain_subscribe(channel, token, context),
            ExplainedAction::InChannel { action, channel } => self.explain_in_channel(*action, channel, context),
            ExplainedAction::Rpc { method, data } => self.explain_rpc(method, data, context),
        }
    }

    fn explain_connect(&self, token: &str, context: &mut Context<'_>) -> Vec<ExplainedStep> {
        let mut noted = Noted::new();
        let subject = StepSubject { token, ..StepSubject::of(self) };
        if !token.is_empty() {
            let says = match self.authenticate(token, context) {
                Ok(_) => StepVerdict::Allowed,
                Err(ConnectRefusal::Error(error)) => StepVerdict::error(error, cause_noted(context)),
                Err(ConnectRefusal::Disconnect(why)) => StepVerdict::disconnect(why, cause_noted(context)),
            };
            return vec![subject.step(DecisionRule::ConnectionToken, says, context)];
        }
        noted.note(DecisionRule::ConnectionToken, RuleSays::Nothing);
        if asks_connect_hook(token, context, &mut noted) {
            let asked = StepVerdict::Asked { hook: HookKind::Connect, backend: DEFAULT_PROXY.into() };
            return subject.steps(noted, asked, context);
        }
        let verdict = match self.authenticate_without_token(context, &mut noted) {
            Ok(_) => StepVerdict::Allowed,
            Err((why, cause)) => StepVerdict::disconnect(why, Some(cause)),
        };
        subject.steps(noted, verdict, context)
    }

    fn explain_subscribe(&self, channel: &str, token: &str, context: &mut Context<'_>) -> Vec<ExplainedStep> {
        let request = SubscribeCommand { channel: channel.into(), token: token.into(), ..SubscribeCommand::default() };
        let wanted = Capability::SUBSCRIBE;
        let mut subject = StepSubject { channel, token, wanted, ..StepSubject::of(self) };
        let options = match self.check_subscribe(&request, context) {
            Ok((options, _)) => options,
            Err(refusal) => {
                let rule = match &refusal {
                    SubscribeRefusal::Error(Error::UNKNOWN_CHANNEL) => DecisionRule::ChannelNamespace,
                    SubscribeRefusal::Error(Error::ALREADY_SUBSCRIBED) => DecisionRule::Subscribed,
                    _ => DecisionRule::ChannelName,
                };
                let says = of_refusal(refusal, context);
                return vec![subject.step(rule, says, context)];
            }
        };
        subject.options = Some(options);
        let mut noted = Noted::new();
        noted.note(DecisionRule::ChannelNamespace, RuleSays::Nothing);
        if token.is_empty() {
            noted.note(DecisionRule::SubscriptionToken, RuleSays::Nothing);
        }
        let opening = self.opening(&request, options, context, &mut noted);
        let mut steps = match opening {
            Opening::ByToken => {
                let says = match self.check_token(channel, token, context) {
                    Ok(_) => StepVerdict::Allowed,
                    Err(refusal) => of_refusal(refusal, context),
                };
                let mut steps = subject.steps(noted, StepVerdict::Nothing, context);
                steps.push(subject.step(DecisionRule::SubscriptionToken, says, context));
                steps
            }
            Opening::ByHook => {
                let backend = options.subscribe_proxy_name.as_str().into();
                subject.steps(noted, StepVerdict::Asked { hook: HookKind::Subscribe, backend }, context)
            }
            Opening::Open { .. } => subject.steps(noted, StepVerdict::Allowed, context),
            Opening::Closed(cause) => {
                subject.steps(noted, StepVerdict::error(Error::PERMISSION_DENIED, Some(cause)), context)
            }
        };
        let is_allowed = *ExplainedStep::verdict(&steps) == StepVerdict::Allowed;
        if is_allowed && !self.may_have_more(context) {
            let says = StepVerdict::error(Error::LIMIT_EXCEEDED, None);
            steps.push(subject.step(DecisionRule::ChannelLimit, says, context));
        }
        steps
    }

    fn explain_in_channel(
        &self,
        action: ChannelAction,
        channel: &str,
        context: &mut Context<'_>,
    ) -> Vec<ExplainedStep> {
        let mut subject = StepSubject { channel, wanted: action.capability(), ..StepSubject::of(self) };
        if channel.is_empty() {
            let says = StepVerdict::disconnect(Disconnect::BAD_REQUEST, Some(NO_CHANNEL));
            return vec![subject.step(DecisionRule::ChannelName, says, context)];
        }
        let options: &ChannelOptions = match context.resolve(channel) {
            Ok(options) => options,
            Err(error) => {
                let rule = match error {
                    Error::UNKNOWN_CHANNEL => DecisionRule::ChannelNamespace,
                    _ => DecisionRule::ChannelName,
                };
                let says = StepVerdict::error(error, cause_noted(context));
                return vec![subject.step(rule, says, context)];
            }
        };
        subject.options = Some(options);
        let mut noted = Noted::new();
        noted.note(DecisionRule::ChannelNamespace, RuleSays::Nothing);
        let verdict = match self.decide_action(options, channel, action, context, &mut noted) {
            Ok(false) => StepVerdict::Allowed,
            Ok(true) => {
                let backend = options.publish_proxy_name.as_str().into();
                StepVerdict::Asked { hook: HookKind::Publish, backend }
            }
            Err((error, cause)) => StepVerdict::error(error, Some(cause)),
        };
        subject.steps(noted, verdict, context)
    }

    fn explain_rpc(&self, method: &str, data: &str, context: &mut Context<'_>) -> Vec<ExplainedStep> {
        let subject = StepSubject { method, data, ..StepSubject::of(self) };
        let mut noted = Noted::new();
        let verdict = match MethodOwner::of(method) {
            MethodOwner::Tracker | MethodOwner::Reactions => {
                noted.note(DecisionRule::OwnMethod, RuleSays::Allows);
                StepVerdict::Allowed
            }
            MethodOwner::Registry(own) => match self.read_own(own, data, context, &mut noted) {
                Ok(_) => StepVerdict::Allowed,
                Err(refusal) => {
                    if noted.is_empty() {
                        noted.note(DecisionRule::OwnMethod, RuleSays::Refuses);
                    }
                    StepVerdict::error(refusal.error, refusal.cause)
                }
            },
            MethodOwner::Backend => {
                noted.note(DecisionRule::OwnMethod, RuleSays::Nothing);
                match registry::find_rpc_backend(method, context, &mut noted) {
                    Ok(backend) => StepVerdict::Asked { hook: HookKind::Rpc, backend: backend.into() },
                    Err((error, cause)) => StepVerdict::error(error, Some(cause)),
                }
            }
        };
        subject.steps(noted, verdict, context)
    }
}

impl StepSubject<'_> {
    /// The steps for the rules that were noted. `verdict`: the result of all steps. If it is a refusal and no rule is
    /// noted for it, the action was refused because no rule permits it.
    fn steps(&self, noted: Noted, verdict: StepVerdict, context: &Context<'_>) -> Vec<ExplainedStep> {
        let is_refused = matches!(verdict, StepVerdict::Refused { .. });
        let has_refusal = noted.iter().any(|(_, says)| *says == RuleSays::Refuses);
        let mut steps = Vec::new();
        for (rule, says) in noted {
            let says = match says {
                RuleSays::Nothing => StepVerdict::Nothing,
                RuleSays::Allows | RuleSays::Refuses | RuleSays::Asks => verdict.clone(),
            };
            steps.push(self.step(rule, says, context));
        }
        if is_refused && !has_refusal {
            steps.push(self.step(DecisionRule::Default, verdict, context));
        }
        steps
    }

    fn step(&self, rule: DecisionRule, says: StepVerdict, context: &Context<'_>) -> ExplainedStep {
        ExplainedStep { rule, facts: self.facts(rule, context), says }
    }
}

/// Removes and returns the cause that was noted last.
fn cause_noted(context: &mut Context<'_>) -> Option<&'static str> {
    context.effects.refusals.pop().map(|refused| refused.cause)
}

fn of_refusal(refusal: SubscribeRefusal, context: &mut Context<'_>) -> StepVerdict {
    match refusal {
        SubscribeRefusal::Error(error) => StepVerdict::error(error, cause_noted(context)),
        SubscribeRefusal::Banned => StepVerdict::error(Error::PERMISSION_DENIED, cause_noted(context)),
        SubscribeRefusal::Disconnect(why) => StepVerdict::disconnect(why, cause_noted(context)),
    }
}
