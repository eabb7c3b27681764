//! Checks whether a session's subscriptions are still permitted after the options of channels have changed.

use touchline_protocol::Unsubscribe;
use touchline_protocol::command::SubscribeCommand;

use super::context::Context;
use super::permission::Opening;
use super::state::Session;

/// The log's cause for a subscription whose channel no longer has a namespace.
const NAMESPACE_GONE: &str = "the namespace of the channel is no longer in channel.namespaces";
/// The log's cause for a subscription that the options no longer permit.
const NOT_PERMITTED: &str = "the options of the namespace no longer permit the subscription";
/// The log's cause for a subscription with a position in a channel that no longer has a history.
const NO_POSITIONS: &str = "channels of the namespace no longer have positions";

impl Session {
    /// Checks again for each subscription whether it is permitted. If only the options of its namespace permitted a
    /// subscription, it ends when they no longer do (2000), or when a backend decides now (2500: the client subscribes
    /// again). A subscription also ends if its namespace no longer exists, or if it has a position and positions no
    /// longer exist (2500). Subscriptions that a token, a backend or the server API permitted stay.
    ///
    /// Returns whether some subscription was not checked because its home has not replied yet.
    pub fn review(&mut self, context: &mut Context<'_>) -> bool {
        for index in (0..self.subscriptions.len()).rev() {
            if let Some((why, cause)) = self.lost_permission(index, context) {
                let channel = context.hub.name(self.subscriptions[index].channel).clone();
                context.because(cause, &channel);
                self.end(index, why, context);
            }
        }
        self.subscriptions.iter().any(|subscription| subscription.membership.is_none())
    }

    /// Why a subscription ends now, with the cause for the log. `None` = it continues; so does a subscription whose
    /// home has not replied yet.
    fn lost_permission(&mut self, index: usize, context: &Context<'_>) -> Option<(Unsubscribe, &'static str)> {
        let subscription = &self.subscriptions[index];
        subscription.membership?;
        let channel = context.hub.name(subscription.channel).clone();
        let Ok(options) = context.node.namespaces.resolve(&channel) else {
            return Some((Unsubscribe::SERVER, NAMESPACE_GONE));
        };
        if subscription.is_positioned && !options.has_positions() {
            return Some((Unsubscribe::INSUFFICIENT_STATE, NO_POSITIONS));
        }
        if !subscription.is_by_options {
            return None;
        }
        let request = SubscribeCommand { channel: (&*channel).into(), ..SubscribeCommand::default() };
        match self.opening(&request, options, context, &mut ()) {
            Opening::Open { by_grant } => {
                let subscription = &mut self.subscriptions[index];
                subscription.by_grant = subscription.by_grant.with(by_grant);
                None
            }
            Opening::ByHook => Some((Unsubscribe::INSUFFICIENT_STATE, NOT_PERMITTED)),
            Opening::ByToken | Opening::Closed(_) => Some((Unsubscribe::SERVER, NOT_PERMITTED)),
        }
    }
}
