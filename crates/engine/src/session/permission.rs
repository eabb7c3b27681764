//! What a client may do in a channel: because of its tokens, the options of the namespace, and its capabilities.

use touchline_protocol::command::SubscribeCommand;
use touchline_protocol::{Error, Unsubscribe};

use super::context::Context;
use super::refusal::{NO_HISTORY, NO_PRESENCE, NO_WATCH};
use super::rules::{ChannelAction, DecisionRule, RuleLog, RuleSays};
use super::state::Session;
use super::subscription::Subscription;
use crate::caps::Capability;
use crate::namespace::{ChannelOptions, WATCH_CHANNEL_PREFIX};

/// How a subscribe is decided, or the decision itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// The subscription token alone decides.
    ByToken,
    /// The backend alone decides.
    ByHook,
    /// The subscribe is permitted. `by_grant`: the parts that only a capability of the connection permits.
    Open { by_grant: Capability },
    /// The subscribe is refused with 103, for this cause.
    Closed(&'static str),
}

impl Opening {
    const FREE: Opening = Opening::Open { by_grant: Capability::NONE };
}

/// What permits an action in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// Nothing permits it.
    Nothing,
    /// The configuration permits it, as long as the node runs.
    Settings,
    /// A capability of the connection or `allow` of the subscription permits it. The token or backend that granted it
    /// can withdraw it.
    Grant,
}

const PRIVATE: &str = "the channel is private (channel.private_prefix): it needs a subscription token";
const ONLY_REGISTRY: &str = "only the registry publishes into the channel of a scope";
const OTHER_USERS: &str = "the channel is for other users (channel.user_boundary)";
const NO_LIMITED: &str =
    "the channel is limited to users (channel.user_boundary), and its namespace lacks allow_user_limited_channels";
const ANONYMOUS: &str = "the namespace lacks allow_subscribe_for_anonymous, and the client is anonymous";
const NO_SUBSCRIBE: &str = "the namespace lacks allow_subscribe_for_client, and no subscription token was sent";

impl ChannelAction {
    /// The permissions for clients, for subscribers, and for anonymous clients in addition.
    fn permissions(self, o: &ChannelOptions) -> (bool, bool, bool) {
        match self {
            ChannelAction::Publish => {
                (o.allow_publish_for_client, o.allow_publish_for_subscriber, o.allow_publish_for_anonymous)
            }
            ChannelAction::History => {
                (o.allow_history_for_client, o.allow_history_for_subscriber, o.allow_history_for_anonymous)
            }
            ChannelAction::Presence => {
                (o.allow_presence_for_client, o.allow_presence_for_subscriber, o.allow_presence_for_anonymous)
            }
        }
    }
}

impl ChannelAction {
    /// The capability that grants the action.
    pub(super) fn capability(self) -> Capability {
        match self {
            ChannelAction::Publish => Capability::PUBLISH,
            ChannelAction::History => Capability::HISTORY,
            ChannelAction::Presence => Capability::PRESENCE,
        }
    }

    /// The options that permit the action: to clients, to subscribers, and to anonymous clients in addition.
    pub(super) fn option_names(self) -> [&'static str; 3] {
        match self {
            ChannelAction::Publish => {
                ["allow_publish_for_client", "allow_publish_for_subscriber", "allow_publish_for_anonymous"]
            }
            ChannelAction::History => {
                ["allow_history_for_client", "allow_history_for_subscriber", "allow_history_for_anonymous"]
            }
            ChannelAction::Presence => {
                ["allow_presence_for_client", "allow_presence_for_subscriber", "allow_presence_for_anonymous"]
            }
        }
    }

    /// Which options this client lacks, as the cause of a refusal.
    pub(super) fn missing(self, is_anonymous: bool, options: &ChannelOptions) -> &'static str {
        let (_, _, for_anonymous) = self.permissions(options);
        match (self, is_anonymous && !for_anonymous) {
            (ChannelAction::Publish, true) => {
                "the namespace lacks allow_publish_for_anonymous, and the client is anonymous"
            }
            (ChannelAction::History, true) => {
                "the namespace lacks allow_history_for_anonymous, and the client is anonymous"
            }
            (ChannelAction::Presence, true) => {
                "the namespace lacks allow_presence_for_anonymous, and the client is anonymous"
            }
            (ChannelAction::Publish, false) => {
                "the namespace lacks allow_publish_for_client, or allow_publish_for_subscriber for a client \
                 that subscribes"
            }
            (ChannelAction::History, false) => {
                "the namespace lacks allow_history_for_client, or allow_history_for_subscriber for a client \
                 that subscribes"
            }
            (ChannelAction::Presence, false) => {
                "the namespace lacks allow_presence_for_client, or allow_presence_for_subscriber for a client \
                 that subscribes"
            }
        }
    }
}

impl Session {
    /// Decides how a subscribe is decided. The rules are listed in the order in which they are checked. The first rule
    /// that gives a result counts.
    pub(super) fn opening(
        &self,
        request: &SubscribeCommand<'_>,
        options: &ChannelOptions,
        context: &Context<'_>,
        log: &mut impl RuleLog,
    ) -> Opening {
        let (channel, namespaces) = (&*request.channel, &context.node.namespaces);
        if !request.token.is_empty() {
            return Opening::ByToken;
        }
        if let Some(scope) = channel.strip_prefix(WATCH_CHANNEL_PREFIX) {
            let may = self.may_watch(scope, context);
            log.note(DecisionRule::WatchedScope, if may { RuleSays::Allows } else { RuleSays::Refuses });
            return if may { Opening::FREE } else { Opening::Closed(NO_WATCH) };
        }
        let is_insecure = self.is_insecure(context);
        if log.refuses(DecisionRule::PrivateChannel, namespaces.is_private(channel) && !is_insecure) {
            return Opening::Closed(PRIVATE);
        }
        let of_list = match namespaces.is_user_allowed(channel, &self.user) {
            Some(true) if options.allow_user_limited_channels => RuleSays::Allows,
            Some(_) if !is_insecure => RuleSays::Refuses,
            _ => RuleSays::Nothing,
        };
        log.note(DecisionRule::UserLimitedChannel, of_list);
        match of_list {
            RuleSays::Allows => return Opening::FREE,
            RuleSays::Refuses if options.allow_user_limited_channels => return Opening::Closed(OTHER_USERS),
            RuleSays::Refuses => return Opening::Closed(NO_LIMITED),
            RuleSays::Nothing | RuleSays::Asks => {}
        }
        if log.asks(DecisionRule::SubscribeHook, options.subscribe_proxy_enabled) {
            return Opening::ByHook;
        }
        let is_known = !self.user.is_empty() || options.allow_subscribe_for_anonymous;
        if log.allows(DecisionRule::SubscribeForClient, options.allow_subscribe_for_client && is_known)
            || log.allows(DecisionRule::Insecure, is_insecure)
        {
            return Opening::FREE;
        }
        if log.allows(DecisionRule::ConnectionCaps, self.has_capability(channel, Capability::SUBSCRIBE)) {
            return Opening::Open { by_grant: Capability::SUBSCRIBE };
        }
        Opening::Closed(match options.allow_subscribe_for_client {
            true if self.user.is_empty() => ANONYMOUS,
            _ => NO_SUBSCRIBE,
        })
    }

    /// Whether the client may watch a scope of the registry.
    fn may_watch(&self, scope: &str, context: &Context<'_>) -> bool {
        let options = context.node.scopes.find(scope).and_then(|scope| context.node.scopes.options(scope));
        options.is_some_and(|o| o.allow_watch_for_client && (!self.user.is_empty() || o.allow_for_anonymous))
    }

    /// What permits an action to a client that is about to subscribe and is granted `allow` with the subscription.
    pub(super) fn permit(
        &self,
        options: &ChannelOptions,
        channel: &str,
        action: ChannelAction,
        allow: Capability,
        context: &Context<'_>,
    ) -> Permit {
        let (for_client, for_subscriber, for_anonymous) = action.permissions(options);
        let is_known = !self.user.is_empty() || for_anonymous;
        let wanted = action.capability();
        if is_known && (for_client || for_subscriber) || self.is_insecure(context) {
            Permit::Settings
        } else if allow.has(wanted) || self.has_capability(channel, wanted) {
            Permit::Grant
        } else {
            Permit::Nothing
        }
    }

    /// Whether this client may do an action. The rules are listed in the order in which they are checked. The first
    /// rule that permits the action counts.
    pub(super) fn permits(
        &self,
        options: &ChannelOptions,
        channel: &str,
        action: ChannelAction,
        context: &Context<'_>,
        log: &mut impl RuleLog,
    ) -> bool {
        let (for_client, for_subscriber, for_anonymous) = action.permissions(options);
        let is_known = !self.user.is_empty() || for_anonymous;
        let of_subscriber = || is_known && for_subscriber && self.find(channel, context.hub).is_some();
        let wanted = action.capability();
        log.allows(DecisionRule::ForClient(action), is_known && for_client)
            || log.allows(DecisionRule::ForSubscriber(action), of_subscriber())
            || log.allows(DecisionRule::ConnectionCaps, self.has_capability(channel, wanted))
            || log.allows(DecisionRule::SubscriptionAllow, self.is_allowed_in(channel, wanted, context))
            || log.allows(DecisionRule::Insecure, self.is_insecure(context))
    }

    /// Why a subscription ends: what granted it, or a part of it, no longer does. `None` = it continues.
    pub(super) fn lost_grant(&self, subscription: &Subscription, context: &Context<'_>) -> Option<Unsubscribe> {
        let used = subscription.by_grant;
        if used == Capability::NONE {
            return None;
        }
        let channel = context.hub.name(subscription.channel);
        let allow = subscription.extra.as_ref().map_or(Capability::NONE, |extra| extra.allow);
        let has_lost = |one: Capability| used.has(one) && !self.has_capability(channel, one);
        if has_lost(Capability::SUBSCRIBE) {
            return Some(Unsubscribe::SERVER);
        }
        // The client subscribes again, and gets what it is still permitted.
        [Capability::HISTORY, Capability::PRESENCE]
            .into_iter()
            .any(|one| has_lost(one) && !allow.has(one))
            .then_some(Unsubscribe::INSUFFICIENT_STATE)
    }

    /// Whether the capabilities of the connection grant `wanted`.
    fn has_capability(&self, channel: &str, wanted: Capability) -> bool {
        let caps = self.hooks().and_then(|state| state.caps.as_ref());
        caps.is_some_and(|caps| caps.allow(channel, wanted))
    }

    /// Whether the client's subscription to the channel grants `wanted`.
    fn is_allowed_in(&self, channel: &str, wanted: Capability, context: &Context<'_>) -> bool {
        let subscription = self.find(channel, context.hub).map(|index| &self.subscriptions[index]);
        subscription.and_then(|s| s.extra.as_ref()).is_some_and(|extra| extra.allow.has(wanted))
    }

    /// Decides about an action in a channel. Returns whether the backend has to decide instead.
    ///
    /// # Errors
    /// 108 if the namespace has no history or presence, 103 if no rule permits the action; each with its cause.
    pub(super) fn decide_action(
        &self,
        options: &ChannelOptions,
        channel: &str,
        action: ChannelAction,
        context: &Context<'_>,
        log: &mut impl RuleLog,
    ) -> Result<bool, (Error, &'static str)> {
        let is_watched = action == ChannelAction::Publish && channel.starts_with(WATCH_CHANNEL_PREFIX);
        if is_watched {
            log.note(DecisionRule::WatchedScope, RuleSays::Refuses);
            return Err((Error::PERMISSION_DENIED, ONLY_REGISTRY));
        }
        let missing = match action {
            ChannelAction::Publish if log.asks(DecisionRule::PublishHook, options.publish_proxy_enabled) => {
                return Ok(true);
            }
            ChannelAction::Publish => None,
            ChannelAction::History => {
                log.refuses(DecisionRule::HistoryKept, !options.has_history()).then_some(NO_HISTORY)
            }
            ChannelAction::Presence => {
                log.refuses(DecisionRule::PresenceKept, !options.presence).then_some(NO_PRESENCE)
            }
        };
        if let Some(cause) = missing {
            return Err((Error::NOT_AVAILABLE, cause));
        }
        if self.permits(options, channel, action, context, log) {
            return Ok(false);
        }
        Err((Error::PERMISSION_DENIED, action.missing(self.user.is_empty(), options)))
    }

    /// The same as `decide_action`, and notes the cause of a refusal.
    pub(super) fn check(
        &self,
        options: &ChannelOptions,
        channel: &str,
        action: ChannelAction,
        context: &mut Context<'_>,
    ) -> Result<bool, Error> {
        self.decide_action(options, channel, action, context, &mut ()).map_err(|(error, cause)| {
            context.because(cause, channel);
            error
        })
    }

    pub(super) fn is_insecure(&self, context: &Context<'_>) -> bool {
        let settings = &context.node.client;
        settings.insecure && (self.is_loopback || !settings.anonymous_on_loopback_only)
    }
}
