//! After the options of channels have changed: whether what a session has is still permitted.

use touchline_protocol::Unsubscribe;
use touchline_protocol::command::SubscribeCommand;

use super::context::Context;
use super::permission::Opening;
use super::state::Session;

/// A subscription whose channel has no namespace any more, for the log.
const NAMESPACE_GONE: &str = "the namespace of the channel is no longer in channel.namespaces";
/// One that the options permitted and no longer do, for the log.
const NOT_PERMITTED: &str = "the options of the namespace no longer permit the subscription";
/// One that has a position in a channel without a history, for the log.
const NO_POSITIONS: &str = "channels of the namespace have no positions any more";

impl Session {
    /// Asks anew for each subscription whether it is permitted. One that only the options of its namespace had
    /// permitted ends when they no longer do (2000), or when a backend decides now (2500: the client subscribes again).
    /// Every one ends whose namespace is gone, and one with a position where there are none any more (2500). What a
    /// token, a backend or the server API has permitted stays.
    ///
    /// Returns whether the home of some subscription has not replied yet: that one was not asked for.
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

    /// Why a subscription ends now, with the cause for the log; `None` = it goes on, as one does whose home has not
    /// replied yet.
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
