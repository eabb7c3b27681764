//! What a client may do in a channel, by the options of its namespace.

use touchline_protocol::Error;

use super::context::Context;
use super::state::Session;
use crate::caps::Capability;
use crate::namespace::ChannelOptions;

/// What a client may be permitted to do in a channel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    Publish,
    History,
    Presence,
}

impl Action {
    /// The permissions for clients, for subscribers, and for anonymous clients too.
    fn permissions(self, o: &ChannelOptions) -> (bool, bool, bool) {
        match self {
            Action::Publish => {
                (o.allow_publish_for_client, o.allow_publish_for_subscriber, o.allow_publish_for_anonymous)
            }
            Action::History => {
                (o.allow_history_for_client, o.allow_history_for_subscriber, o.allow_history_for_anonymous)
            }
            Action::Presence => {
                (o.allow_presence_for_client, o.allow_presence_for_subscriber, o.allow_presence_for_anonymous)
            }
        }
    }
}

impl Action {
    /// The capability that grants it.
    fn capability(self) -> Capability {
        match self {
            Action::Publish => Capability::PUBLISH,
            Action::History => Capability::HISTORY,
            Action::Presence => Capability::PRESENCE,
        }
    }

    /// The options that this client lacks.
    pub(super) fn missing(self, is_anonymous: bool, options: &ChannelOptions) -> &'static str {
        let (_, _, for_anonymous) = self.permissions(options);
        match (self, is_anonymous && !for_anonymous) {
            (Action::Publish, true) => "the namespace lacks allow_publish_for_anonymous, and the client is anonymous",
            (Action::History, true) => "the namespace lacks allow_history_for_anonymous, and the client is anonymous",
            (Action::Presence, true) => "the namespace lacks allow_presence_for_anonymous, and the client is anonymous",
            (Action::Publish, false) => {
                "the namespace lacks allow_publish_for_client (or _for_subscriber, and the client subscribes)"
            }
            (Action::History, false) => {
                "the namespace lacks allow_history_for_client (or _for_subscriber, and the client subscribes)"
            }
            (Action::Presence, false) => {
                "the namespace lacks allow_presence_for_client (or _for_subscriber, and the client subscribes)"
            }
        }
    }
}

impl Session {
    /// Whether the namespace permits an action to this client.
    pub(super) fn may(&self, options: &ChannelOptions, channel: &str, action: Action, context: &Context<'_>) -> bool {
        let (for_client, for_subscriber, for_anonymous) = action.permissions(options);
        let is_known = !self.user.is_empty() || for_anonymous;
        let is_allowed = for_client || for_subscriber && self.find(channel, context.hub).is_some();
        is_known && is_allowed || self.is_granted(channel, action.capability(), context) || self.is_insecure(context)
    }

    /// Whether the capabilities of the connection, or of its subscription to the channel, grant something.
    pub(super) fn is_granted(&self, channel: &str, wanted: Capability, context: &Context<'_>) -> bool {
        let caps = self.hooks().and_then(|state| state.caps.as_ref());
        if caps.is_some_and(|caps| caps.allow(channel, wanted)) {
            return true;
        }
        let subscription = self.find(channel, context.hub).map(|index| &self.subscriptions[index]);
        subscription.and_then(|s| s.extra.as_ref()).is_some_and(|extra| extra.allow.has(wanted))
    }

    /// The same, and notes the missing options.
    pub(super) fn check(
        &self,
        options: &ChannelOptions,
        channel: &str,
        action: Action,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        if self.may(options, channel, action, context) {
            return Ok(());
        }
        context.because(action.missing(self.user.is_empty(), options), channel);
        Err(Error::PERMISSION_DENIED)
    }

    pub(super) fn is_insecure(&self, context: &Context<'_>) -> bool {
        let settings = &context.node.client;
        settings.insecure && (self.is_loopback || !settings.anonymous_on_loopback_only)
    }
}
