//! The expiry of tokens: how a client prolongs its connection and subscriptions, and what happens if it does not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_protocol::command::SubRefreshCommand;
use touchline_protocol::message::Reply;
use touchline_protocol::{Disconnect, Error, data};

use super::connect::refused_anonymous;
use super::context::Context;
use super::refusal::{OTHER_CHANNEL, OTHER_USER, TOKEN_EXPIRED};
use super::state::Session;
use super::subscribe::{SubscribeRefusal, allow_of, subscription_expiry};
use super::subscription::Subscription;
use crate::caps::CapsFault;
use crate::claims::{TokenError, connection_claims, expiry};
use crate::directory::DirectoryRequest;
use crate::duration::millis;
use crate::settings::ClientSettings;

impl Session {
    pub(super) fn refresh(&mut self, command: u32, token: &str, context: &mut Context<'_>) {
        if token.is_empty() || context.node.client.proxy.refresh.enabled {
            if !token.is_empty() {
                context.because("client.proxy.refresh is on: the backend refreshes, and not the client", "");
            }
            return context.disconnect(Disconnect::BAD_REQUEST);
        }
        let claims = match connection_claims(&*context.node.verifier, token, context.now_s()) {
            Ok(claims) if claims.sub == *self.user => claims,
            refused => {
                let (cause, why) = match refused {
                    Err(TokenError::Expired) => (TOKEN_EXPIRED, Disconnect::EXPIRED),
                    Err(TokenError::Invalid(cause)) => (cause, Disconnect::INVALID_TOKEN),
                    Err(TokenError::Unavailable(cause)) => {
                        context.because(cause, "");
                        return context.effects.refuse(command, Error::INTERNAL);
                    }
                    Ok(_) => (OTHER_USER, Disconnect::INVALID_TOKEN),
                };
                context.because(cause, "");
                return context.disconnect(why);
            }
        };
        if let Some(refusal) = refused_anonymous(&claims, context) {
            return context.disconnect(refusal);
        }
        if !self.may_prolong(command, claims.shown(), context) {
            return;
        }
        let named = claims.channels.iter().chain(claims.subs.keys());
        let is_new = |channel: &String| self.find(channel, context.hub).is_none();
        if named.into_iter().any(is_new) {
            return context.disconnect(Disconnect::INSUFFICIENT_STATE);
        }
        let expire_at = expiry(claims.exp, claims.expire_at);
        if expire_at.is_some_and(|at| at <= context.now_s()) {
            return context.disconnect(Disconnect::EXPIRED);
        }
        let caps = match context.node.hooks.caps.read(claims.caps) {
            Ok(caps) => caps,
            Err(fault) => {
                context.because(fault.cause(), "");
                return match fault {
                    CapsFault::Invalid(_) => context.disconnect(Disconnect::INVALID_TOKEN),
                    CapsFault::Full => context.effects.refuse(command, Error::INTERNAL),
                };
            }
        };
        self.expire_at_s = expire_at.map_or(0, |at| u32::try_from(at).unwrap_or(u32::MAX));
        if caps.is_some() || self.hooks().is_some_and(|state| state.caps.is_some()) {
            self.hooks_mut().caps = caps;
            self.end_what_caps_lost(context);
        }
        if let Some(Ok(info)) =
            claims.info.or(claims.b64info.map(|info| info.0)).map(|info| data::checked_payload(&info))
        {
            self.update_info(info, context);
        }
        let ttl_s = self.connection_ttl_s(context);
        let (client, version) = (&*self.client_id(), context.node.version);
        context.effects.messages.reply(command, &Reply::Refresh { client, version, ttl_s });
    }

    /// Replaces the client's info. The client is entered again in the presence of its channels. This changes what
    /// presence shows, and sends no join or leave event.
    pub(super) fn update_info(&mut self, info: Bytes, context: &mut Context<'_>) {
        self.conn_info = Some(Box::new(info));
        for index in 0..self.subscriptions.len() {
            let chan_info = self.subscriptions[index].entry.as_ref().and_then(|entry| entry.info.chan_info.clone());
            self.enter_again(index, chan_info, context);
        }
    }

    /// Enters the client again in the presence of a channel, if it is there.
    pub(super) fn enter_again(&mut self, index: usize, chan_info: Option<Bytes>, context: &mut Context<'_>) {
        let Some(entry) = self.subscriptions[index].entry.as_deref().filter(|entry| entry.is_in) else { return };
        let info = self.info(chan_info);
        let request = DirectoryRequest::Enter {
            channel: context.hub.name(self.subscriptions[index].channel).clone(),
            info: Arc::clone(&info),
            is_shown: entry.is_shown,
            is_announced: entry.is_announced,
        };
        context.effects.directory_requests.push((None, self.who(), request));
        if let Some(entry) = &mut self.subscriptions[index].entry {
            entry.info = info;
        }
    }

    pub(super) fn sub_refresh(&mut self, command: u32, request: SubRefreshCommand<'_>, context: &mut Context<'_>) {
        if request.token.is_empty() {
            context.because("sub_refresh has no token", &request.channel);
            return context.effects.refuse(command, Error::BAD_REQUEST);
        }
        let claims = match self.verify_subscription(&request.channel, &request.token, context) {
            Ok(claims) => claims,
            Err(SubscribeRefusal::Error(Error::TOKEN_EXPIRED)) => {
                return context.disconnect(Disconnect::SUBSCRIPTION_EXPIRED);
            }
            Err(SubscribeRefusal::Error(error)) if error.temporary => return context.effects.refuse(command, error),
            // The client gives up the subscription and keeps its connection.
            Err(SubscribeRefusal::Banned) => return context.effects.refuse(command, Error::PERMISSION_DENIED),
            Err(SubscribeRefusal::Error(_)) => return context.disconnect(Disconnect::INVALID_TOKEN),
            Err(SubscribeRefusal::Disconnect(why)) => return context.disconnect(why),
        };
        // centrifuge-python omits the channel. In that case the token's channel is used.
        let channel = if request.channel.is_empty() { &*claims.channel } else { &*request.channel };
        let Some(index) = self.find(channel, context.hub) else {
            context.because("the client does not subscribe to this channel", channel);
            return context.effects.refuse(command, Error::PERMISSION_DENIED);
        };
        if claims.channel != channel {
            context.because(OTHER_CHANNEL, channel);
            return context.disconnect(Disconnect::INVALID_TOKEN);
        }
        let Ok(expire_at_s) = subscription_expiry(&claims, context.now_s()) else {
            return context.disconnect(Disconnect::SUBSCRIPTION_EXPIRED);
        };
        let Ok(allow) = allow_of(&claims, context) else { return context.disconnect(Disconnect::INVALID_TOKEN) };
        let subscription = &mut self.subscriptions[index];
        if subscription.is_refreshed_by_hook {
            context.because("sub_refresh_proxy_enabled is on: the backend refreshes, and not the client", channel);
            return context.disconnect(Disconnect::BAD_REQUEST);
        }
        subscription.expire_at_s = expire_at_s;
        subscription.set_allow(allow);
        subscription.permit_anew();
        let ttl_s = subscription.ttl_s(context.now_s());
        context.effects.messages.reply(command, &Reply::SubRefresh { ttl_s });
        self.end_if_lost(index, context);
    }

    /// The first time at which something of this session expires, Unix milliseconds; `u64::MAX` = never.
    pub(super) fn next_expiry_ms(&self, client: &ClientSettings) -> u64 {
        let subscriptions = self.subscriptions.iter().map(|s| self.subscription_expiry_ms(s, client));
        subscriptions.fold(self.connection_expiry_ms(client), u64::min)
    }

    /// When the connection ends or the backend is asked about it, Unix milliseconds; `u64::MAX` = never.
    fn connection_expiry_ms(&self, client: &ClientSettings) -> u64 {
        match client.proxy.refresh.enabled {
            true => self.refresh_due_ms(client),
            false => end_ms(self.expire_at_s, client.expired_close_delay),
        }
    }

    /// The same for a subscription.
    fn subscription_expiry_ms(&self, subscription: &Subscription, client: &ClientSettings) -> u64 {
        match subscription.is_refreshed_by_hook {
            true => self.sub_refresh_due_ms(subscription, client),
            false => end_ms(subscription.expire_at_s, client.expired_sub_close_delay),
        }
    }

    /// Ends everything that has expired more than the delay ago, or asks the backend about it.
    pub(super) fn expire(&mut self, context: &mut Context<'_>) {
        let (now_ms, settings) = (context.now_ms, &context.node.client);
        if self.connection_expiry_ms(settings) <= now_ms {
            if !settings.proxy.refresh.enabled {
                return context.disconnect(Disconnect::EXPIRED);
            }
            self.ask_refresh(context);
        }
        let is_over = |session: &Session, index: usize| {
            session.subscription_expiry_ms(&session.subscriptions[index], settings) <= now_ms
        };
        for index in (0..self.subscriptions.len()).rev() {
            if !is_over(self, index) {
                continue;
            }
            if self.subscriptions[index].is_refreshed_by_hook {
                self.ask_sub_refresh(index, context);
            } else {
                self.end_expired(index, context);
            }
            if context.effects.disconnect.is_some() {
                return;
            }
        }
    }
}

/// When something ends that expires at `at_s` (Unix seconds; 0 = never) and may continue for `delay` after that. Unix
/// milliseconds; `u64::MAX` = never.
fn end_ms(at_s: u32, delay: Duration) -> u64 {
    match at_s {
        0 => u64::MAX,
        at_s => (u64::from(at_s) * 1_000).saturating_add(millis(delay)),
    }
}
