//! What the server API does with a session: subscribe, unsubscribe, refresh.

use bytes::Bytes;
use touchline_protocol::message::{Push, SubscribeResult};
use touchline_protocol::stream::StreamPosition;
use touchline_protocol::{Disconnect, Error, Unsubscribe};

use super::context::Context;
use super::counts::SubscribeOutcome;
use super::refusal::ENDED_BY_SERVER;
use super::state::{Phase, Session};
use super::subscribe::Grant;
use super::ticket::Ticket;
use crate::claims::Overrides;
use crate::request::{ClientPosition, Response};

/// A server-side subscription to make.
#[derive(Debug, Default, Clone)]
pub struct ServerSubscription {
    /// The info that other clients see as `chan_info`; `None` = none.
    pub info: Option<Bytes>,
    /// The payload that the client gets with the subscription; `None` = none.
    pub data: Option<Bytes>,
    /// Options that differ from those of the namespace.
    pub overrides: Overrides,
    /// The position from which the client recovers; `None` = it does not recover.
    pub recover: Option<ClientPosition>,
    /// When the subscription expires, Unix seconds; 0 = never.
    pub expire_at_s: u32,
}

impl Session {
    /// Subscribes the client to a channel. The client gets a push once the channel's home has replied.
    ///
    /// # Errors
    /// 102 or 107 for a bad channel, 106 at the limit of channels. If the client is already subscribed, the call
    /// succeeds: from now on the server permits the subscription, and nothing else happens.
    pub fn server_subscribe(
        &mut self,
        channel: &str,
        subscription: ServerSubscription,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        if let Some(index) = self.find(channel, context.hub) {
            self.subscriptions[index].permit_anew();
            return Ok(());
        }
        if !self.is_connected() {
            return Ok(());
        }
        self.subscribe_server_side(channel, subscription, |serial| Ticket::Server { serial }, context)
    }

    pub(super) fn subscribe_server_side(
        &mut self,
        channel: &str,
        subscription: ServerSubscription,
        make_ticket: impl FnOnce(u32) -> Ticket,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        let grant = Grant {
            chan_info: subscription.info,
            data: subscription.data,
            overrides: subscription.overrides,
            expire_at_s: subscription.expire_at_s,
            recover: subscription.recover,
            is_server_side: true,
            ..Grant::default()
        };
        self.begin(channel, grant, make_ticket, context)
    }

    pub(super) fn subscribed_by_server(&mut self, serial: u32, response: Response, context: &mut Context<'_>) {
        let Some(index) = self.activate(serial, &response, context) else {
            if matches!(response, Response::Refused(_)) {
                context.effects.count_subscribe(SubscribeOutcome::Failed);
            }
            return;
        };
        let Response::Subscribed(subscribed) = response else { return };
        context.effects.count_subscribe(SubscribeOutcome::Accepted);
        let subscription = &self.subscriptions[index];
        let position = if subscription.is_positioned { subscribed.position } else { StreamPosition::default() };
        let result = SubscribeResult {
            recoverable: subscription.is_recoverable,
            positioned: subscription.is_positioned,
            epoch: position.epoch.as_str(),
            offset: position.offset.0,
            data: subscription.data(),
            ..Default::default()
        };
        let (name, messages) = (context.hub.name(subscription.channel), &mut context.effects.messages);
        messages.push(name, &Push::Subscribe(result));
        for missed in subscribed.recovered.iter().flatten().flatten() {
            messages.push(name, &Push::Publication(missed));
        }
    }

    /// Ends a subscription because its position is lost. The client subscribes again, and then it recovers, or learns
    /// that it cannot.
    pub fn lose(&mut self, channel: &str, context: &mut Context<'_>) {
        if let Some(index) = self.find(channel, context.hub) {
            self.end(index, Unsubscribe::INSUFFICIENT_STATE, context);
        }
    }

    /// Ends the client's subscription to a channel, with a push to the client; an empty name means all channels. A
    /// subscribe that waits for the backend is refused with 103.
    pub fn server_unsubscribe(&mut self, channel: &str, context: &mut Context<'_>) {
        if !self.is_connected() {
            return self.unsubscribe_connecting(channel, context);
        }
        if let Some(state) = self.hooks() {
            let waiting = if channel.is_empty() { state.subscribes() } else { vec![channel.into()] };
            for channel in waiting {
                self.cancel_subscribe(&channel, ENDED_BY_SERVER, context);
            }
        }
        self.end_by_server(channel, context);
        self.run_ready(context);
    }

    /// The same for a client that is still connecting. Channels that it named and the backend was not asked about are
    /// dropped.
    fn unsubscribe_connecting(&mut self, channel: &str, context: &mut Context<'_>) {
        let state = self.rare.as_mut().and_then(|rare| rare.hooks.as_mut());
        let (count, asked) = state.map_or_else(Default::default, |state| state.take_wishes(channel));
        if let Phase::Connecting(connecting) = &mut self.phase {
            connecting.awaited -= count;
        }
        context.effects.cancelled_hooks.extend(asked);
        self.ask_wishes(context);
        self.end_by_server(channel, context);
        self.finish_connect(context);
    }

    fn end_by_server(&mut self, channel: &str, context: &mut Context<'_>) {
        if channel.is_empty() {
            while let Some(last) = self.subscriptions.len().checked_sub(1) {
                self.end(last, Unsubscribe::SERVER, context);
            }
        } else if let Some(index) = self.find(channel, context.hub) {
            self.end(index, Unsubscribe::SERVER, context);
        }
    }

    /// Prolongs the connection to `expire_at_s` (Unix seconds; `None` = for ever), or ends it if that time has passed.
    /// The client gets a push. `info` replaces what other clients see of the client; `None` = it does not change.
    pub fn server_refresh(
        &mut self,
        is_expired: bool,
        expire_at_s: Option<u64>,
        info: Option<Bytes>,
        context: &mut Context<'_>,
    ) {
        let now_s = context.now_s();
        if is_expired || expire_at_s.is_some_and(|at| at <= now_s) {
            return context.disconnect(Disconnect::EXPIRED);
        }
        if let Some(info) = info {
            self.update_info(info, context);
        }
        self.expire_at_s = expire_at_s.map_or(0, |at| u32::try_from(at).unwrap_or(u32::MAX));
        if let Some(ttl_s) = self.connection_ttl_s(context).filter(|_| self.is_connected()) {
            context.effects.messages.push("", &Push::Refresh { ttl_s });
        }
    }
}
