//! Connections and subscriptions that the backend refreshes when they expire, instead of the client.

use std::time::Duration;

use touchline_protocol::{Disconnect, Unsubscribe};

use super::bans::may_prolong_now;
use super::context::Context;
use super::hook_state::{RetryPlan, WaitingAction};
use super::state::Session;
use super::subscription::{Extra, Subscription};
use crate::duration::millis;
use crate::hook::{HookKind, HookOutcome, HookRequest, HookResult, RefreshAnswer, SubRefreshAnswer};
use crate::settings::ClientSettings;

/// The longest time over which refreshes are spread, so that clients that connected together do not all ask at once.
const SPREAD_MAX: Duration = Duration::from_secs(5);
/// How long a refresh waits if the limit of simultaneous questions about subscriptions is reached, milliseconds.
const BUSY_MS: u64 = 1_000;

impl Session {
    /// When to ask the backend about the connection, Unix milliseconds; `u64::MAX` = never.
    pub(super) fn refresh_due_ms(&self, client: &ClientSettings) -> u64 {
        let plan = self.hooks().map_or(RetryPlan::default(), |state| state.refresh);
        self.due_ms(self.expire_at_s, client.expired_close_delay, plan)
    }

    /// The same for a subscription.
    pub(super) fn sub_refresh_due_ms(&self, subscription: &Subscription, client: &ClientSettings) -> u64 {
        let plan = subscription.extra.as_ref().map_or(RetryPlan::default(), |extra| extra.refresh);
        self.due_ms(subscription.expire_at_s, client.expired_sub_close_delay, plan)
    }

    /// The time of the refresh: at the expiry, plus a random part of the delay that differs between sessions.
    fn due_ms(&self, expire_at_s: u32, delay: Duration, plan: RetryPlan) -> u64 {
        match (expire_at_s, plan.at_ms) {
            (0, _) => u64::MAX,
            (at_s, 0) => {
                let share = u64::from(u16::from_le_bytes([self.client[0], self.client[1]]));
                let spread_ms = millis(delay.min(SPREAD_MAX));
                u64::from(at_s) * 1_000 + spread_ms * share / (u64::from(u16::MAX) + 1)
            }
            (_, at_ms) => at_ms,
        }
    }

    /// Asks the backend whether the connection may continue.
    pub(super) fn ask_refresh(&mut self, context: &mut Context<'_>) {
        let state = self.hooks_mut();
        state.refresh = state.refresh.asked();
        self.ask("", WaitingAction::Refresh, HookRequest::Refresh, context);
    }

    /// Asks the backend whether a subscription may continue. If another question about its channel is under way, this
    /// one follows its answer, but comes before the client's next command: no client can keep a subscription by sending
    /// commands.
    pub(super) fn ask_sub_refresh(&mut self, index: usize, context: &mut Context<'_>) {
        let channel = context.hub.name(self.subscriptions[index].channel).clone();
        let state = self.hooks_mut();
        let has_enough = state.refreshes_enough(&context.node.client);
        let is_later = !has_enough && state.refresh_after(&channel);
        let proxy = context.node.namespaces.resolve(&channel).map(|options| options.sub_refresh_proxy_name.as_str());
        let Some(extra) = &mut self.subscriptions[index].extra else { return };
        if has_enough {
            extra.refresh = RetryPlan::at(context.now_ms.saturating_add(BUSY_MS));
            return;
        }
        extra.refresh = extra.refresh.asked();
        if let (false, Ok(proxy)) = (is_later, proxy) {
            let request = HookRequest::SubRefresh { proxy: proxy.into(), channel: Box::from(&*channel) };
            self.ask(&channel, WaitingAction::SubRefresh, request, context);
        }
    }

    /// Asks about a subscription that expired while another question about its channel was under way.
    pub(super) fn ask_delayed_sub_refresh(&mut self, channel: &str, context: &mut Context<'_>) {
        let Some(index) = self.find(channel, context.hub) else { return };
        let is_awaited = |extra: &Extra| extra.refresh.at_ms == u64::MAX;
        if self.subscriptions[index].extra.as_deref().is_some_and(is_awaited) {
            self.ask_sub_refresh(index, context);
        }
    }

    pub(super) fn refresh_answered(&mut self, outcome: HookOutcome, context: &mut Context<'_>) {
        let now_s = context.now_s();
        if self.end_if_banned(context) {
            return;
        }
        match outcome {
            HookOutcome::Result(HookResult::Refresh(answer)) if !answer.expired && answer.expire_at > now_s => {
                if may_prolong_now(context) {
                    self.prolong(answer, context);
                } else {
                    let state = self.hooks_mut();
                    state.refresh = state.refresh.failed(context.now_ms);
                }
            }
            HookOutcome::Failed | HookOutcome::Busy | HookOutcome::Refused(_) => {
                let state = self.hooks_mut();
                state.refresh = state.refresh.failed(context.now_ms);
            }
            HookOutcome::Result(_) | HookOutcome::Empty | HookOutcome::Error(_) | HookOutcome::Disconnect(_) => {
                context.end_as(HookKind::Refresh, Disconnect::EXPIRED, "");
            }
        }
    }

    fn prolong(&mut self, answer: RefreshAnswer, context: &mut Context<'_>) {
        self.expire_at_s = u32::try_from(answer.expire_at).unwrap_or(u32::MAX);
        let keeps_meta = context.node.hooks.keeps_meta;
        let state = self.hooks_mut();
        state.refresh = RetryPlan::default();
        if let Some(meta) = answer.meta.filter(|_| keeps_meta) {
            state.meta = Some(meta);
        }
        if let Some(caps) = answer.caps {
            state.caps = Some(caps);
            self.end_what_caps_lost(context);
        }
        if let Some(info) = answer.info {
            self.update_info(info, context);
        }
    }

    /// Ends the subscriptions that relied on a capability which is no longer granted.
    pub(super) fn end_what_caps_lost(&mut self, context: &mut Context<'_>) {
        for index in (0..self.subscriptions.len()).rev() {
            self.end_if_lost(index, context);
        }
    }

    /// The same for one subscription. A client that still waits for the reply to its subscribe gets an error reply.
    pub(super) fn end_if_lost(&mut self, index: usize, context: &mut Context<'_>) {
        let subscription = &self.subscriptions[index];
        if subscription.membership.is_none() && !subscription.is_server_side {
            return;
        }
        if let Some(why) = self.lost_grant(subscription, context) {
            self.end(index, why, context);
        }
    }

    pub(super) fn sub_refresh_answered(&mut self, channel: &str, outcome: HookOutcome, context: &mut Context<'_>) {
        let Some(index) = self.find(channel, context.hub) else { return };
        match outcome {
            HookOutcome::Result(HookResult::SubRefresh(answer))
                if !answer.expired && (answer.expire_at == 0 || answer.expire_at > context.now_s()) =>
            {
                self.prolong_subscription(index, answer, context);
            }
            HookOutcome::Failed | HookOutcome::Busy | HookOutcome::Refused(_) => {
                if let Some(extra) = &mut self.subscriptions[index].extra {
                    extra.refresh = extra.refresh.failed(context.now_ms);
                }
            }
            HookOutcome::Result(_) | HookOutcome::Empty | HookOutcome::Error(_) | HookOutcome::Disconnect(_) => {
                let code = match self.subscriptions[index].is_server_side {
                    true => Disconnect::SUBSCRIPTION_EXPIRED.code.into(),
                    false => Unsubscribe::EXPIRED.code,
                };
                context.note_refusal_of(HookKind::SubRefresh, code, channel);
                self.end_expired(index, context);
            }
        }
    }

    fn prolong_subscription(&mut self, index: usize, answer: SubRefreshAnswer, context: &mut Context<'_>) {
        let subscription = &mut self.subscriptions[index];
        subscription.expire_at_s = u32::try_from(answer.expire_at).unwrap_or(u32::MAX);
        let Some(extra) = &mut subscription.extra else { return };
        extra.refresh = RetryPlan::default();
        if let Some(info) = answer.info {
            extra.chan_info = Some(info.clone());
            self.enter_again(index, Some(info), context);
        }
    }

    /// Ends a subscription that has expired. If the client did not ask for the subscription, the connection ends.
    pub(super) fn end_expired(&mut self, index: usize, context: &mut Context<'_>) {
        if self.subscriptions[index].is_server_side {
            return context.disconnect(Disconnect::SUBSCRIPTION_EXPIRED);
        }
        self.end(index, Unsubscribe::EXPIRED, context);
    }
}
