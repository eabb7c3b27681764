//! Subscribe and unsubscribe: permissions, the home's reply, and the end of a subscription.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::command::{FLAG_REJECT_UNRECOVERED, SubscribeCommand};
use touchline_protocol::filter::Filter;
use touchline_protocol::message::{Push, Reply, SubscribeResult};
use touchline_protocol::{Disconnect, Error, Unsubscribe, data};

use super::context::Context;
use super::counts::{SessionCount, SubscribeOutcome};
use super::effects::{SubscriptionChange, SubscriptionEnd};
use super::permission::{Opening, Permit};
use super::refusal::{
    BAD_DELTA, BAD_FILTER, BINARY_CHANNEL, CHANNEL_TOO_LONG, FILTER_WITH_DELTA, NO_CAPS_NOW, NO_CHANNEL, NO_FILTERS,
    OTHER_CHANNEL, OTHER_USER, TAKEN_BACK, TOKEN_EXPIRED,
};
use super::rules::ChannelAction;
use super::state::{Phase, Session};
use super::subscription::{Extra, PresenceEntry, Subscription};
use super::ticket::Ticket;
use super::weight::Weight;
use crate::caps::Capability;
use crate::claims::{BoolValue, Overrides, SubscriptionClaims, TokenError, expiry, subscription_claims};
use crate::directory::DirectoryRequest;
use crate::hook::SubscribeAnswer;
use crate::hub::{DeliveryOptions, LocalChannel};
use crate::namespace::ChannelOptions;
use crate::request::{ChannelRequest, ClientPosition, Recover, Response, Subscribe};

/// The options with which a subscription is permitted.
#[derive(Debug, Default)]
pub(super) struct Grant {
    pub(super) chan_info: Option<Bytes>,
    pub(super) data: Option<Bytes>,
    pub(super) overrides: Overrides,
    pub(super) expire_at_s: u32,
    pub(super) positioned: bool,
    pub(super) recoverable: bool,
    pub(super) membership_events: bool,
    pub(super) recover: Option<ClientPosition>,
    pub(super) is_server_side: bool,
    pub(super) rejects_unrecovered: bool,
    pub(super) is_delta: bool,
    pub(super) filter: Option<Arc<Filter>>,
    /// What the client may do in the channel in addition to what its namespace allows.
    pub(super) allow: Capability,
    /// The parts that only `allow`, or a capability of the connection, grants.
    pub(super) by_grant: Capability,
    /// Whether the namespace's options, or a capability of the connection, permit the subscription.
    pub(super) is_by_options: bool,
}

/// Why a subscribe was refused.
pub(super) enum SubscribeRefusal {
    Error(Error),
    /// A ban on its token refuses it: an error, 103.
    Banned,
    Disconnect(Disconnect),
}

impl SubscribeRefusal {
    /// The error for a channel that the client of a one-way transport names.
    pub(super) fn one_way(self) -> Error {
        match self {
            SubscribeRefusal::Error(error) => error,
            SubscribeRefusal::Banned => Error::PERMISSION_DENIED,
            SubscribeRefusal::Disconnect(_) => Error::BAD_REQUEST,
        }
    }
}

impl From<Error> for SubscribeRefusal {
    fn from(error: Error) -> Self {
        SubscribeRefusal::Error(error)
    }
}

impl Session {
    pub(super) fn subscribe(&mut self, command: u32, request: SubscribeCommand<'_>, context: &mut Context<'_>) {
        if self.end_if_banned(context) {
            return;
        }
        match self.decide_subscribe(&request, context) {
            Ok(Some(grant)) => self.subscribe_with(command, &request, grant, context),
            Ok(None) => {
                if let Err(error) = self.ask_subscribe(Some(command), request, context) {
                    context.effects.refuse(command, error);
                }
            }
            Err(why) => refuse(command, why, context),
        }
    }

    /// Subscribes the client with the options that the backend has allowed.
    pub(super) fn subscribe_as(
        &mut self,
        command: u32,
        request: &SubscribeCommand<'_>,
        answer: SubscribeAnswer,
        context: &mut Context<'_>,
    ) {
        context.name_subscribe(&request.channel);
        match self.grant_of_hook(request, answer, context) {
            Ok(grant) => self.subscribe_with(command, request, grant, context),
            Err(why) => refuse(command, why, context),
        }
    }

    fn subscribe_with(
        &mut self,
        command: u32,
        request: &SubscribeCommand<'_>,
        grant: Grant,
        context: &mut Context<'_>,
    ) {
        let is_recovering = grant.recover.is_some();
        let weight = if is_recovering { Weight::Large } else { Weight::Small };
        if is_recovering && context.room.is_scarce {
            return context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
        }
        let namespace = context.effects.namespace;
        let make_ticket = |serial| Ticket::Subscribe { command, serial, namespace, weight };
        match self.begin(&request.channel, grant, make_ticket, context) {
            Ok(()) => self.flow.begin(weight),
            Err(error) => context.effects.refuse(command, error),
        }
    }

    /// Subscribes a client of a one-way transport to a channel that it named when it connected.
    pub(super) fn subscribe_one_way(
        &mut self,
        request: &SubscribeCommand<'_>,
        grant: Grant,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        let grant = Grant { is_server_side: true, ..grant };
        self.begin(&request.channel, grant, |serial| Ticket::Connect { serial }, context)
    }

    /// Checks a subscribe without deciding whether it is permitted. Returns the channel's options and the filter.
    pub(super) fn check_subscribe<'c>(
        &self,
        request: &SubscribeCommand<'_>,
        context: &mut Context<'c>,
    ) -> Result<(&'c ChannelOptions, Option<Arc<Filter>>), SubscribeRefusal> {
        let channel = &*request.channel;
        if channel.is_empty() || !matches!(&*request.delta, "" | "fossil") {
            context.because(if channel.is_empty() { NO_CHANNEL } else { BAD_DELTA }, channel);
            return Err(SubscribeRefusal::Disconnect(Disconnect::BAD_REQUEST));
        }
        if request.kind != 0 {
            return Err(SubscribeRefusal::Error(Error::NOT_AVAILABLE));
        }
        if channel.len() > context.node.namespaces.settings().max_length {
            return context.bad(CHANNEL_TOO_LONG, channel).map_err(SubscribeRefusal::from);
        }
        if self.find(channel, context.hub).is_some() {
            return Err(Error::ALREADY_SUBSCRIBED.into());
        }
        let options = context.resolve(channel)?;
        let filter = match &request.tf {
            Some(_) if !options.allow_tags_filter => context.bad(NO_FILTERS, channel)?,
            // A filtered subscriber does not have all publications, so it may lack the base of a delta.
            Some(_) if !request.delta.is_empty() => context.bad(FILTER_WITH_DELTA, channel)?,
            Some(node) => match Filter::check(node, context.node.namespaces.filter_limits()) {
                Some(filter) => Some(Arc::new(filter)),
                None => context.bad(BAD_FILTER, channel)?,
            },
            None => None,
        };
        Ok((options, filter))
    }

    /// Decides whether the client may subscribe. The order of the checks is that of the official server. `None` = the
    /// backend decides.
    pub(super) fn decide_subscribe(
        &self,
        request: &SubscribeCommand<'_>,
        context: &mut Context<'_>,
    ) -> Result<Option<Grant>, SubscribeRefusal> {
        let (options, filter) = self.check_subscribe(request, context)?;
        let channel = &*request.channel;
        let mut grant = match self.opening(request, options, context, &mut ()) {
            Opening::ByToken => self.check_token(channel, &request.token, context)?,
            Opening::ByHook => return Ok(None),
            Opening::Open { by_grant } => Grant { by_grant, is_by_options: true, ..Grant::default() },
            Opening::Closed(cause) => return context.deny(cause, channel).map_err(SubscribeRefusal::from),
        };
        let permit = |action| self.permit(options, channel, action, grant.allow, context);
        let (history, presence) = (permit(ChannelAction::History), permit(ChannelAction::Presence));
        grant.wish(request, options, history, presence);
        Ok(Some(grant.completed(request, options, filter)))
    }

    /// What the backend has allowed. It replaces what the client asked for.
    pub(super) fn grant_of_hook(
        &self,
        request: &SubscribeCommand<'_>,
        answer: SubscribeAnswer,
        context: &mut Context<'_>,
    ) -> Result<Grant, SubscribeRefusal> {
        let (options, filter) = self.check_subscribe(request, context)?;
        if answer.expire_at > 0 && answer.expire_at <= context.now_s() {
            context.because("expire_at of the backend's answer has passed", &request.channel);
            return Err(Error::EXPIRED.into());
        }
        Ok(Grant::of_hook(answer).completed(request, options, filter))
    }

    pub(super) fn check_token(
        &self,
        channel: &str,
        token: &str,
        context: &mut Context<'_>,
    ) -> Result<Grant, SubscribeRefusal> {
        let claims = self.verify_subscription(channel, token, context)?;
        if claims.channel != channel {
            context.because(OTHER_CHANNEL, channel);
            return Err(SubscribeRefusal::Disconnect(Disconnect::INVALID_TOKEN));
        }
        let expire_at_s = subscription_expiry(&claims, context.now_s())?;
        let allow = allow_of(&claims, context)?;
        let info = claims.info.or(claims.b64info.map(|b| b.0));
        let chan_info = info.map(|info| data::checked_payload(&info)).transpose()?;
        Ok(Grant { chan_info, overrides: claims.overrides, expire_at_s, allow, ..Grant::default() })
    }

    /// Verifies a subscription token of this client. `channel`: the channel of the command.
    pub(super) fn verify_subscription(
        &self,
        channel: &str,
        token: &str,
        context: &mut Context<'_>,
    ) -> Result<SubscriptionClaims, SubscribeRefusal> {
        let claims = match subscription_claims(&*context.node.verifier, token, context.now_s()) {
            Ok(claims) => claims,
            Err(TokenError::Expired) => {
                context.because(TOKEN_EXPIRED, channel);
                return Err(Error::TOKEN_EXPIRED.into());
            }
            Err(TokenError::Invalid(cause)) => return context.deny(cause, channel).map_err(SubscribeRefusal::from),
            Err(TokenError::Unavailable(cause)) => {
                context.because(cause, channel);
                return Err(Error::INTERNAL.into());
            }
        };
        let is_own = claims.sub == *self.user && (claims.client.is_empty() || claims.client == *self.client_id());
        if !is_own {
            context.because(OTHER_USER, &claims.channel);
            return Err(SubscribeRefusal::Disconnect(Disconnect::INVALID_TOKEN));
        }
        let bans = &context.node.bans;
        match bans.judge(&self.user, bans.mark(claims.shown(), context.now_s()), context.now_s()) {
            None => Ok(claims),
            Some(reason) => {
                context.because(reason.cause(), &claims.channel);
                Err(SubscribeRefusal::Banned)
            }
        }
    }

    /// Whether the client may have one more channel.
    pub(super) fn may_have_more(&self, context: &Context<'_>) -> bool {
        self.subscriptions.len() < context.node.client.channel_limit
    }

    /// Adds the subscription, and sends the subscribe to the channel's home.
    pub(super) fn begin(
        &mut self,
        channel: &str,
        mut grant: Grant,
        make_ticket: impl FnOnce(u32) -> Ticket,
        context: &mut Context<'_>,
    ) -> Result<(), Error> {
        let options = context.node.namespaces.resolve(channel)?;
        if !options.is_readable_by(context.effects.messages.encoding()) {
            context.because(BINARY_CHANNEL, channel);
            return Err(Error::BINARY_CHANNEL);
        }
        if !self.may_have_more(context) {
            return Err(Error::LIMIT_EXCEEDED);
        }
        let overrides = &grant.overrides;
        let option = |value: Option<BoolValue>, default: bool| value.map_or(default, |v| v.value);
        let has_positions = options.has_positions();
        let is_recoverable =
            has_positions && (option(overrides.force_recovery, options.force_recovery) || grant.recoverable);
        let is_positioned = has_positions
            && (is_recoverable || option(overrides.force_positioning, options.force_positioning) || grant.positioned);
        let announces = option(overrides.join_leave, options.join_leave);
        let presence = option(overrides.presence, options.presence);
        let wants_membership_events =
            option(overrides.force_push_join_leave, options.force_push_join_leave) || grant.membership_events;
        let recover = grant.recover.take().filter(|_| is_recoverable).map(|ClientPosition { offset, epoch }| Recover {
            offset,
            epoch,
            mode: options.force_recovery_mode,
            limit: context.node.client.recovery_max_publication_limit,
            size_max: context.node.client.answer_max_size,
        });
        let entry = (presence || announces).then(|| {
            Box::new(PresenceEntry {
                info: self.info(grant.chan_info.clone()),
                is_shown: presence,
                is_announced: announces,
                is_in: false,
            })
        });
        let request = Subscribe { connection: context.id, recover: recover.clone() };
        self.next_serial += 1;
        let is_refreshed_by_hook = options.sub_refresh_proxy_enabled && grant.expire_at_s > 0;
        let local = acquire(channel, options.drop_after_us(), context);
        self.subscriptions.push(Subscription {
            channel: local,
            membership: None,
            serial: self.next_serial,
            expire_at_s: grant.expire_at_s,
            is_server_side: grant.is_server_side,
            is_positioned,
            is_recoverable,
            wants_membership_events,
            is_delta: grant.is_delta,
            entry,
            rejects_unrecovered: grant.rejects_unrecovered,
            is_refreshed_by_hook,
            is_by_options: grant.is_by_options,
            by_grant: grant.by_grant,
            recover_offset: recover.map(|r| r.offset.0),
            extra: grant.extra(is_refreshed_by_hook),
        });
        let name = context.hub.name(local).clone();
        context.request(name, Some(make_ticket(self.next_serial)), ChannelRequest::Subscribe(Box::new(request)));
        Ok(())
    }

    /// Handles the home's response: from now on the client gets the channel's publications. Returns the subscription's
    /// index; `None` = it has ended meanwhile, or the home refused it.
    pub(super) fn activate(&mut self, serial: u32, response: &Response, context: &mut Context<'_>) -> Option<usize> {
        let index = self.subscriptions.find_serial(serial)?;
        let namespaces = &context.node.namespaces;
        context.effects.namespace = namespaces.index_of(context.hub.name(self.subscriptions[index].channel));
        let Response::Subscribed(subscribed) = response else {
            let subscription = self.subscriptions.swap_remove(index);
            context.hub.release(subscription.channel);
            return None;
        };
        if let Some(recovered) = &subscribed.recovered {
            let (namespace, publications) = (context.effects.namespace, recovered.as_ref().map(Vec::len));
            context.effects.counts.push(SessionCount::Recovery { namespace, publications });
        }
        let subscription = &mut self.subscriptions[index];
        debug_assert!(subscription.membership.is_none(), "a home replies once");
        // The client's last publication is the base of the next delta, unless a later one has expired.
        let last = subscribed.recovered.as_ref().and_then(Option::as_ref).and_then(|missed| missed.last());
        let has_last = last.is_some_and(|last| last.offset == subscribed.position.offset)
            // The reactions come after that publication and would be the client's last one.
            && subscribed.reactions.is_none();
        let options = DeliveryOptions {
            membership_events: subscription.wants_membership_events,
            delta: subscription.is_delta.then_some(has_last),
            filter: subscription.filter().cloned(),
        };
        let membership = context.hub.join(subscription.channel, context.id.slot, options);
        subscription.membership = Some(membership);
        if context.node.notes_subscriptions {
            subscription.extra.get_or_insert_default().began_ms = context.now_ms;
            let channel = context.hub.name(subscription.channel).clone();
            context.effects.subscription_changes.push(SubscriptionChange { channel, number: serial, end: None });
        }
        if let Some(entry) = &mut subscription.entry {
            entry.is_in = true;
            let channel = context.hub.name(subscription.channel).clone();
            let (info, is_shown, is_announced) = (entry.info.clone(), entry.is_shown, entry.is_announced);
            self.has_entries = true;
            context.effects.directory_requests.push((
                None,
                self.who(),
                DirectoryRequest::Enter { channel, info, is_shown, is_announced },
            ));
        }
        Some(index)
    }

    pub(super) fn subscribed(&mut self, command: u32, serial: u32, response: Response, context: &mut Context<'_>) {
        let index = self.activate(serial, &response, context);
        let is_too_much = context.room.is_scarce && response.has_recovered();
        let subscribed = match response {
            Response::Subscribed(subscribed) => subscribed,
            Response::Refused(error) => return context.effects.refuse(command, error),
            Response::Published(_) | Response::History { .. } | Response::Done | Response::Directory(_) => {
                return context.effects.refuse(command, Error::INTERNAL);
            }
        };
        // The client has unsubscribed meanwhile. It gets the reply nevertheless.
        let Some(index) = index else {
            context.effects.count_subscribe(SubscribeOutcome::Accepted);
            return context.effects.messages.reply(command, &Reply::Subscribe(SubscribeResult::default()));
        };
        if is_too_much {
            self.remove(index, context);
            return context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
        }
        if self.subscriptions[index].rejects_unrecovered && matches!(subscribed.recovered, Some(None)) {
            self.remove(index, context);
            return context.effects.refuse(command, Error::UNRECOVERABLE_POSITION);
        }
        // The permission may have been withdrawn while the home's response was under way.
        let lost = self.lost_grant(&self.subscriptions[index], context);
        if lost == Some(Unsubscribe::SERVER) {
            let channel = context.hub.name(self.subscriptions[index].channel).clone();
            context.because(NO_CAPS_NOW, &channel);
            self.remove(index, context);
            return context.effects.refuse(command, Error::PERMISSION_DENIED);
        }
        let now_s = context.now_s();
        let subscription = &mut self.subscriptions[index];
        let subscribed = subscription.filtered(subscribed);
        context.effects.count_subscribe(SubscribeOutcome::Accepted);
        context.effects.messages.reply(command, &Reply::Subscribe(subscription.result(&subscribed, now_s)));
        subscription.recover_offset = None;
        if let Some(why) = lost {
            self.end(index, why, context);
        }
    }

    pub(super) fn unsubscribe(&mut self, command: u32, channel: &str, context: &mut Context<'_>) {
        if channel.is_empty() {
            return context.refuse_input(NO_CHANNEL);
        }
        // The client's last command counts: it no longer wants the subscription that the backend is asked about.
        self.cancel_subscribe(channel, TAKEN_BACK, context);
        if let Some(index) = self.find(channel, context.hub) {
            context.effects.counts.push(SessionCount::Unsubscribe(0));
            self.remove(index, context);
        }
        context.effects.messages.reply(command, &Reply::Unsubscribe);
        self.run_ready(context);
    }

    /// Ends a subscription without a push to the client.
    pub(super) fn remove(&mut self, index: usize, context: &mut Context<'_>) {
        self.take_out(index, 0, context);
    }

    /// The same. `code`: the reason that is reported to others than the client.
    fn take_out(&mut self, index: usize, code: u32, context: &mut Context<'_>) {
        let subscription = self.subscriptions.swap_remove(index);
        if matches!(self.phase, Phase::Connecting(_)) && self.is_deferred(context.hub.name(subscription.channel)) {
            return context.hub.release(subscription.channel);
        }
        self.release(subscription, Some(code), context);
    }

    /// Ends a subscription, with a push to the client that contains the reason.
    pub(super) fn end(&mut self, index: usize, why: Unsubscribe, context: &mut Context<'_>) {
        let name = context.hub.name(self.subscriptions[index].channel).clone();
        self.take_out(index, why.code, context);
        context.effects.counts.push(SessionCount::Unsubscribe(why.code));
        context.effects.messages.push(&name, &Push::Unsubscribe(why));
    }

    /// Releases a subscription on this shard and at the channel's home. `code`: why it ends; `None` = because its
    /// connection ends.
    pub(super) fn release(&self, subscription: Subscription, code: Option<u32>, context: &mut Context<'_>) {
        let name = context.hub.name(subscription.channel).clone();
        let is_answered = subscription.membership.is_some();
        if let Some(membership) = subscription.membership {
            context.hub.leave(subscription.channel, membership);
            if context.node.notes_subscriptions {
                let began_ms = subscription.extra.as_ref().map_or(context.now_ms, |extra| extra.began_ms);
                let end = SubscriptionEnd { code, duration_ms: context.now_ms.saturating_sub(began_ms) };
                let (channel, number) = (name.clone(), subscription.serial);
                context.effects.subscription_changes.push(SubscriptionChange { channel, number, end: Some(end) });
            }
        }
        context.hub.release(subscription.channel);
        // A session that closes leaves all channels at once, with one [`DirectoryRequest::Close`].
        if subscription.entry.is_some_and(|entry| entry.is_in) && !matches!(self.phase, Phase::Closed) {
            context.effects.directory_requests.push((
                None,
                self.who(),
                DirectoryRequest::Exit { channel: name.clone() },
            ));
        }
        context.request(name, None, ChannelRequest::Unsubscribe { connection: context.id, is_answered });
    }
}

/// Looks the channel up on this shard, with its namespace's setting for slow subscribers.
fn acquire(channel: &str, drop_after_us: Option<u64>, context: &mut Context<'_>) -> LocalChannel {
    context.effects.may_drop |= drop_after_us.is_some();
    context.hub.acquire_dropping(channel, drop_after_us)
}

fn refuse(command: u32, why: SubscribeRefusal, context: &mut Context<'_>) {
    match why {
        SubscribeRefusal::Error(error) => context.effects.refuse(command, error),
        SubscribeRefusal::Banned => context.effects.refuse(command, Error::PERMISSION_DENIED),
        SubscribeRefusal::Disconnect(why) => {
            context.effects.count_subscribe(SubscribeOutcome::Refused);
            context.disconnect(why);
        }
    }
}

impl Grant {
    /// Adds the client's wishes, as far as they are permitted.
    fn wish(&mut self, request: &SubscribeCommand<'_>, options: &ChannelOptions, history: Permit, presence: Permit) {
        let has_history = history != Permit::Nothing;
        self.positioned = request.positioned && (options.allow_positioning || has_history);
        self.recoverable = request.recoverable && (options.allow_recovery || has_history);
        self.membership_events = request.join_leave && presence != Permit::Nothing;
        let needs_history = self.positioned && !options.allow_positioning && !options.force_positioning
            || self.recoverable && !options.allow_recovery && !options.force_recovery;
        if needs_history && history == Permit::Grant {
            self.by_grant = self.by_grant.with(Capability::HISTORY);
        }
        if self.membership_events && !options.force_push_join_leave && presence == Permit::Grant {
            self.by_grant = self.by_grant.with(Capability::PRESENCE);
        }
    }

    /// Adds what the client says about recovery, deltas and its filter.
    fn completed(
        mut self,
        request: &SubscribeCommand<'_>,
        options: &ChannelOptions,
        filter: Option<Arc<Filter>>,
    ) -> Self {
        self.recover =
            request.recover.then(|| ClientPosition { offset: request.offset, epoch: Box::from(&*request.epoch) });
        self.is_delta =
            !request.delta.is_empty() && options.allowed_delta_types.iter().any(|kind| *kind == request.delta);
        self.filter = filter;
        self.rejects_unrecovered = request.flag & FLAG_REJECT_UNRECOVERED != 0;
        self
    }

    /// The fields that few subscriptions have; `None` = this subscription has none of them.
    fn extra(self, is_refreshed_by_hook: bool) -> Option<Box<Extra>> {
        let Grant { chan_info, data, filter, allow, .. } = self;
        let has_any = chan_info.is_some() || data.is_some() || filter.is_some() || allow != Capability::default();
        (has_any || is_refreshed_by_hook)
            .then(|| Box::new(Extra { chan_info, data, filter, allow, ..Extra::default() }))
    }

    /// The options that the backend has allowed.
    ///
    /// # Errors
    /// 110 if the subscription has already expired.
    fn of_hook(answer: SubscribeAnswer) -> Self {
        Grant {
            chan_info: answer.info,
            data: answer.data,
            overrides: answer.overrides,
            expire_at_s: u32::try_from(answer.expire_at).unwrap_or(u32::MAX),
            allow: answer.allow,
            ..Grant::default()
        }
    }
}

/// When a subscription by token ends, Unix seconds; 0 = never.
///
/// # Errors
/// 110 if that time has passed.
pub(super) fn subscription_expiry(claims: &SubscriptionClaims, now_s: u64) -> Result<u32, Error> {
    match expiry(claims.exp, claims.expire_at) {
        None => Ok(0),
        Some(at) if at <= now_s => Err(Error::EXPIRED),
        Some(at) => Ok(u32::try_from(at).unwrap_or(u32::MAX)),
    }
}

/// What a subscription token allows the client to do in the channel in addition to what its namespace allows.
pub(super) fn allow_of(claims: &SubscriptionClaims, context: &mut Context<'_>) -> Result<Capability, SubscribeRefusal> {
    if claims.allow.is_empty() {
        return Ok(Capability::default());
    }
    match Capability::read(&claims.allow) {
        Some(allow) => Ok(allow),
        None => {
            context.because("allow of the token has a word other than sub, pub, prs, hst", &claims.channel);
            Err(Error::PERMISSION_DENIED.into())
        }
    }
}
