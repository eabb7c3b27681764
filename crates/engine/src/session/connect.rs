//! Connect: the client's user, and its server-side subscriptions from the start.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::command::{ConnectCommand, SubscribeCommand};
use touchline_protocol::message::{ConnectResult, Reply};
use touchline_protocol::{Disconnect, Error, data};

use super::context::Context;
use super::counted::CountedUser;
use super::counts::{CommandMethod, SessionCount, SubscribeOutcome};
use super::effects::ClientProgram;
use super::heartbeat::Heartbeat;
use super::refusal::{BAD_CONNECT, BAD_ENTRIES, BINARY_CHANNEL, NO_COMMAND, NO_NAMESPACE, TOKEN_EXPIRED};
use super::registry;
use super::rules::{DecisionRule, RuleLog};
use super::server::ServerSubscription;
use super::state::{Connecting, Phase, Session};
use super::ticket::Ticket;
use super::transport::TransportMode;
use crate::caps::{Capabilities, CapsFault};
use crate::claims::{ConnectionClaims, SubscribeOptions, TokenError, connection_claims, expiry, labels_of};
use crate::duration::millis;
use crate::hook::ConnectAnswer;
use crate::request::{ClientPosition, Response};

/// The time that a refused client has to close the connection, milliseconds.
const REFUSED_CLOSE_MS: u64 = 5_000;

impl Session {
    pub(super) fn connect(&mut self, command: u32, request: ConnectCommand<'_>, context: &mut Context<'_>) {
        if !matches!(self.phase, Phase::AwaitingConnect) || command == 0 {
            return context.refuse_input(BAD_CONNECT);
        }
        if context.node.limits.is_some() && !self.may_try_connect(command, context) {
            return;
        }
        if asks_connect_hook(&request.token, context, &mut ()) {
            if context.node.limits.is_none() || self.may_ask_connect(command, context) {
                self.ask_connect(command, request, context);
            }
            return;
        }
        match self.authenticate(&request.token, context) {
            Ok(claims) => {
                context.effects.program = ClientProgram::of(&request);
                let admission = match request.token.is_empty() {
                    true => ClientAdmission::without_token(claims),
                    false => ClientAdmission::of_token(claims),
                };
                self.admit(command, request.subs, admission, context);
            }
            Err(ConnectRefusal::Error(error)) => self.refuse_connect(command, error, context),
            Err(ConnectRefusal::Disconnect(why)) => {
                self.note_failed_connect(context);
                context.disconnect(why);
            }
        }
    }

    /// Connects a client whose user is known: sets up its subscriptions, names and groups. `wishes`: the channels that
    /// the client itself named in its connect command.
    pub(super) fn admit(
        &mut self,
        command: u32,
        wishes: BTreeMap<Cow<'_, str>, SubscribeCommand<'_>>,
        admission: ClientAdmission,
        context: &mut Context<'_>,
    ) {
        let ClientAdmission { claims, data, is_of_hook, is_by_token, .. } = &admission;
        let is_of_hook = *is_of_hook;
        self.user = claims.sub.as_str().into();
        // The version is read first, so that a later ban is noticed before the reply.
        let bans_version = context.node.bans.version();
        if !self.passes_bans(command, is_by_token.then(|| claims.shown()), context) {
            return;
        }
        if context.node.limits.is_some() && !self.may_connect_as_user(command, context) {
            return;
        }
        let info = claims.info.as_deref().or(claims.b64info.as_ref().map(|packed| &*packed.0));
        self.conn_info = match info.map(data::checked_payload).transpose() {
            Ok(info) => info.map(Box::new),
            Err(_) => {
                context.because("info of the token cannot be used", "");
                return context.disconnect(Disconnect::INVALID_TOKEN);
            }
        };
        if let Some(at) = expiry(claims.exp, claims.expire_at) {
            if at <= context.now_s() {
                let cause = match is_of_hook {
                    false => "expire_at of the token has passed",
                    true => "expire_at of the backend's answer has passed",
                };
                context.because(cause, "");
                return self.refuse_connect(command, Error::EXPIRED, context);
            }
            self.expire_at_s = u32::try_from(at).unwrap_or(u32::MAX);
        }
        if !self.count(context) {
            context.because("the user has reached client.user_connection_limit on this node", "");
            return context.disconnect(Disconnect::CONNECTION_LIMIT);
        }
        let data = data.clone();
        let connecting = Connecting { command, data, is_of_hook, bans_version, ..Connecting::default() };
        self.phase = Phase::Connecting(Box::new(connecting));
        let Some(claims) = self.keep_facts(command, admission, context) else { return };
        let granted = claims.register.into_iter().flat_map(|(scope, patterns)| {
            patterns.into_iter().map(move |pattern| (Box::from(scope.as_str()), pattern.into_boxed_str()))
        });
        let granted = granted.collect::<Box<[_]>>();
        if !granted.is_empty() {
            self.rare.get_or_insert_default().granted = granted;
        }
        let entries = match registry::registrations(claims.names, claims.groups, &context.node.scopes) {
            Ok(entries) => entries,
            Err(scope) => return self.refuse_entries(&scope, context),
        };
        let mark = context.effects.requests.len();
        let subs = self.first_subscriptions(claims.channels, claims.subs, context);
        if is_of_hook && let Err(refusal) = check_channels(&subs, context) {
            return self.refuse_channel(refusal, context);
        }
        if let Err(refusal) = self.subscribe_at_connect(subs, &wishes, context) {
            return self.refuse_channel(refusal, context);
        }
        if self.transport == TransportMode::OneWay && !is_of_hook {
            self.subscribe_as_requested(wishes, context);
        }
        self.register_entries(entries, mark, context);
        self.finish_connect(context);
    }

    /// Stores what the token or the backend says about the connection. Returns the claims; `None` = they cannot be
    /// used, and the connect is refused.
    fn keep_facts(
        &mut self,
        command: u32,
        admission: ClientAdmission,
        context: &mut Context<'_>,
    ) -> Option<ConnectionClaims> {
        let ClientAdmission { mut claims, mut meta, mut caps, mut labels, is_of_hook, .. } = admission;
        if !is_of_hook {
            let of_token = context.node.hooks.caps.read(std::mem::take(&mut claims.caps));
            let with_labels = |caps| Ok((caps, labels_of(&claims.labels).map_err(CapsFault::Invalid)?));
            match of_token.and_then(with_labels) {
                Ok(of_token) => (caps, labels) = of_token,
                Err(CapsFault::Full) => {
                    context.because(CapsFault::Full.cause(), "");
                    self.refuse_connect(command, Error::INTERNAL, context);
                    return None;
                }
                Err(CapsFault::Invalid(cause)) => {
                    context.because(cause, "");
                    context.disconnect(Disconnect::INVALID_TOKEN);
                    return None;
                }
            }
        }
        if let Some(json) = claims.meta.take() {
            match data::checked_payload(&json) {
                Ok(json) if json.first() == Some(&b'{') => meta = Some(json),
                _ => {
                    context.because("meta of the token is not a JSON object", "");
                    context.disconnect(Disconnect::INVALID_TOKEN);
                    return None;
                }
            }
        }
        let meta = meta.filter(|_| context.node.hooks.keeps_meta);
        if meta.is_some() || caps.is_some() || labels.is_some() {
            let state = self.hooks_mut();
            (state.meta, state.caps, state.labels) = (meta, caps, labels);
        }
        Some(claims)
    }

    /// Refuses a connect because of a name or a group of the client. `scope`: the scope that it names.
    fn refuse_entries(&mut self, scope: &str, context: &mut Context<'_>) {
        context.because_of_rpc(BAD_ENTRIES, "connect", Some(scope));
        self.refuse_claims(Error::NO_SUCH_SCOPE, Disconnect::BAD_REQUEST, context);
    }

    /// Refuses a connect because of claims that cannot be used. The client cannot correct a mistake in its token.
    fn refuse_claims(&mut self, error: Error, why: Disconnect, context: &mut Context<'_>) {
        match &self.phase {
            // The same token may be valid for a client of the other protocol.
            Phase::Connecting(connecting) if connecting.is_of_hook || error == Error::BINARY_CHANNEL => {
                let command = connecting.command;
                self.refuse_connect(command, error, context);
            }
            _ => context.disconnect(why),
        }
    }

    /// Counts the connection for its user. Returns false if the user has reached the limit of connections.
    fn count(&mut self, context: &Context<'_>) -> bool {
        let Some(users) = context.node.users.as_ref().filter(|_| !self.user.is_empty()) else { return true };
        let counted = CountedUser::take(users, &self.user);
        let may_stay = counted.is_some();
        if may_stay {
            self.rare.get_or_insert_default().counted = counted;
        }
        may_stay
    }

    pub(super) fn authenticate(
        &self,
        token: &str,
        context: &mut Context<'_>,
    ) -> Result<ConnectionClaims, ConnectRefusal> {
        if !token.is_empty() {
            let claims = match connection_claims(&*context.node.verifier, token, context.now_s()) {
                Ok(claims) => claims,
                Err(TokenError::Expired) => {
                    context.because(TOKEN_EXPIRED, "");
                    return Err(ConnectRefusal::Error(Error::TOKEN_EXPIRED));
                }
                Err(TokenError::Invalid(cause)) => {
                    context.because(cause, "");
                    return Err(ConnectRefusal::Disconnect(Disconnect::INVALID_TOKEN));
                }
                Err(TokenError::Unavailable(cause)) => {
                    context.because(cause, "");
                    return Err(ConnectRefusal::Error(Error::INTERNAL));
                }
            };
            return match refused_anonymous(&claims, context) {
                Some(refusal) => Err(ConnectRefusal::Disconnect(refusal)),
                None => Ok(claims),
            };
        }
        self.authenticate_without_token(context, &mut ()).map_err(|(why, cause)| {
            context.because(cause, "");
            ConnectRefusal::Disconnect(why)
        })
    }

    /// The claims of a client that has sent no token: its certificate names the user, or it may be anonymous. Otherwise
    /// the refusal and its cause.
    pub(super) fn authenticate_without_token(
        &self,
        context: &Context<'_>,
        log: &mut impl RuleLog,
    ) -> Result<ConnectionClaims, (Disconnect, &'static str)> {
        let settings = &context.node.client;
        if log.allows(DecisionRule::NamedUser, !self.user.is_empty()) {
            return Ok(ConnectionClaims { sub: self.user.to_string(), ..ConnectionClaims::default() });
        }
        let is_near_enough = self.is_loopback || !settings.anonymous_on_loopback_only;
        let is_open = settings.allow_anonymous_connect_without_token && is_near_enough;
        if log.allows(DecisionRule::AnonymousConnect, is_open)
            || log.allows(DecisionRule::Insecure, settings.insecure && is_near_enough)
        {
            return Ok(ConnectionClaims::default());
        }
        let cause = if is_near_enough {
            "no token was sent, and client.allow_anonymous_connect_without_token is off"
        } else {
            "no token was sent, and only clients of this machine need none (client.anonymous_on_loopback_only)"
        };
        Err((if settings.token.has_keys() { Disconnect::PERMISSION_DENIED } else { Disconnect::BAD_REQUEST }, cause))
    }

    /// Connects a client of a one-way transport. Its input is a connect request that is not wrapped in a command.
    pub(super) fn connect_one_way(&mut self, input: &[u8], context: &mut Context<'_>) {
        context.effects.method = CommandMethod::Connect;
        context.effects.counts.push(SessionCount::Command(CommandMethod::Connect));
        match serde_json::from_slice(input) {
            Ok(request) => self.connect(1, request, context),
            Err(_) => context.refuse_input(NO_COMMAND),
        }
    }

    /// Refuses a connect with an error reply and ends the session. The client closes the connection, or the server does
    /// it after a while.
    pub(super) fn refuse_connect(&mut self, command: u32, error: Error, context: &mut Context<'_>) {
        if self.transport == TransportMode::OneWay {
            return context.disconnect(match error {
                Error::TOKEN_EXPIRED | Error::EXPIRED => Disconnect::EXPIRED,
                Error::TOO_MANY_REQUESTS => Disconnect::TOO_MANY_REQUESTS,
                Error::PERMISSION_DENIED => Disconnect::PERMISSION_DENIED,
                _ => Disconnect::SERVER_ERROR,
            });
        }
        context.effects.refuse(command, error);
        self.end_refused(context);
    }

    /// Ends the session of a client that was refused.
    pub(super) fn end_refused(&mut self, context: &mut Context<'_>) {
        self.drop_deferred(context);
        self.cancel_hooks(context);
        self.rare = None;
        self.phase = Phase::Refused;
        self.heartbeat = Heartbeat::due(context.now_ms + REFUSED_CLOSE_MS);
    }

    /// The server-side subscriptions that a client gets when it connects.
    fn first_subscriptions(
        &self,
        channels: Vec<String>,
        mut subs: BTreeMap<String, SubscribeOptions>,
        context: &Context<'_>,
    ) -> BTreeMap<String, SubscribeOptions> {
        for channel in channels {
            subs.entry(channel).or_default();
        }
        let personal = &context.node.client.subscribe_to_user_personal_channel;
        if personal.enabled && !self.user.is_empty() {
            let names = context.node.namespaces.settings();
            let namespace = &personal.personal_channel_namespace;
            let boundary = if namespace.is_empty() { "" } else { &names.namespace_boundary };
            subs.entry(format!("{namespace}{boundary}{}{}", names.user_boundary, self.user)).or_default();
        }
        subs
    }

    fn subscribe_at_connect(
        &mut self,
        subs: BTreeMap<String, SubscribeOptions>,
        positions: &BTreeMap<Cow<'_, str>, SubscribeCommand<'_>>,
        context: &mut Context<'_>,
    ) -> Result<(), ChannelRefusal> {
        for (channel, options) in subs {
            let position = positions.get(channel.as_str());
            let recover = position
                .filter(|p| p.recover)
                .map(|p| ClientPosition { offset: p.offset, epoch: Box::from(&*p.epoch) });
            let subscription = match ServerSubscription::from_claims(options, recover) {
                Ok(subscription) => subscription,
                Err(_) => return Err(ChannelRefusal::Payload(channel)),
            };
            let make_ticket = |serial| Ticket::Connect { serial };
            if let Err(error) = self.subscribe_server_side(&channel, subscription, make_ticket, context) {
                context.name_subscribe(&channel);
                context.effects.count_refused_subscribe(error.temporary);
                return Err(ChannelRefusal::Channel(channel, error));
            }
            if let Phase::Connecting(connecting) = &mut self.phase {
                connecting.awaited += 1;
            }
        }
        Ok(())
    }

    /// Refuses a connect because of a channel that the token or the backend names. The client cannot correct a token
    /// with an invalid channel; its issuer made the mistake.
    fn refuse_channel(&mut self, refusal: ChannelRefusal, context: &mut Context<'_>) {
        match refusal {
            ChannelRefusal::Payload(channel) => {
                context.because("info or data of the token's subs cannot be used", &channel);
                context.disconnect(Disconnect::INVALID_TOKEN);
            }
            ChannelRefusal::Channel(channel, error) => {
                let why =
                    if error == Error::LIMIT_EXCEEDED { Disconnect::CHANNEL_LIMIT } else { Disconnect::BAD_REQUEST };
                let is_of_hook = matches!(&self.phase, Phase::Connecting(connecting) if connecting.is_of_hook);
                let cause = match (error, is_of_hook) {
                    (Error::UNKNOWN_CHANNEL, false) => NO_NAMESPACE,
                    (Error::UNKNOWN_CHANNEL, true) => {
                        "the connect hook names a channel whose namespace is not in channel.namespaces"
                    }
                    (Error::LIMIT_EXCEEDED, false) => "the token names more channels than client.channel_limit",
                    (Error::LIMIT_EXCEEDED, true) => "the backend names more channels than client.channel_limit",
                    (Error::BINARY_CHANNEL, _) => BINARY_CHANNEL,
                    (_, false) => "the token names a channel that cannot be subscribed to",
                    (_, true) => "the backend names a channel that cannot be subscribed to",
                };
                context.because(cause, &channel);
                self.refuse_claims(error, why, context);
            }
        }
    }

    /// Subscribes a client of a one-way transport to the channels that it names when it connects. Channels that the
    /// client has no permission for are skipped.
    fn subscribe_as_requested(
        &mut self,
        subs: BTreeMap<Cow<'_, str>, SubscribeCommand<'_>>,
        context: &mut Context<'_>,
    ) {
        for (channel, mut request) in subs {
            if context.effects.disconnect.is_some() || self.find(&channel, context.hub).is_some() {
                continue;
            }
            if context.node.limits.is_some() && !self.may_wish(&channel, context) {
                continue;
            }
            context.name_subscribe(&channel);
            request.channel = channel;
            let wished = match self.decide_subscribe(&request, context) {
                // Each wish may become a subscription, so the backend is not asked about more wishes than subscriptions
                // are allowed.
                Ok(None) if !self.may_wish_more(context) => Err(Error::LIMIT_EXCEEDED),
                Ok(None) => self.ask_subscribe(None, request, context),
                Ok(Some(grant)) => self.subscribe_one_way(&request, grant, context),
                Err(why) => Err(why.one_way()),
            };
            if let Err(error) = &wished {
                context.effects.count_refused_subscribe(error.temporary);
            }
            match wished {
                Ok(()) => {
                    if let Phase::Connecting(connecting) = &mut self.phase {
                        connecting.awaited += 1;
                    }
                }
                Err(Error::UNKNOWN_CHANNEL) => context.disconnect(Disconnect::BAD_REQUEST),
                // It cannot be decided yet whether the client may subscribe, so the client has to connect again.
                Err(Error::INTERNAL) => context.disconnect(Disconnect::SERVER_ERROR),
                Err(error) => context.effects.number_cause(error.code),
            }
        }
    }

    pub(super) fn subscribed_at_connect(&mut self, serial: u32, response: Response, context: &mut Context<'_>) {
        let Phase::Connecting(connecting) = &self.phase else { return };
        // If the publications do not fit into the reply, the subscription counts as not recovered.
        let left = context.node.client.answer_max_size.saturating_sub(connecting.subs_bytes);
        let response =
            if context.room.is_scarce { response.recovering_at_most(0) } else { response.recovering_at_most(left) };
        let mut result = Vec::new();
        let name = match self.activate(serial, &response, context) {
            Some(index) => {
                context.effects.count_subscribe(SubscribeOutcome::Accepted);
                let subscription = &self.subscriptions[index];
                if let Response::Subscribed(subscribed) = response {
                    let subscribed = subscription.filtered(subscribed);
                    result = context.effects.messages.result(&subscription.result(&subscribed, context.now_s()));
                }
                context.hub.name(subscription.channel).to_string()
            }
            None => {
                context.effects.count_subscribe(SubscribeOutcome::Failed);
                return context.disconnect(Disconnect::SERVER_ERROR);
            }
        };
        if let Phase::Connecting(connecting) = &mut self.phase {
            connecting.awaited -= 1;
            connecting.subs_bytes += name.len() + result.len();
            connecting.subs.push((name, result));
        }
        self.finish_connect(context);
    }

    /// Replies to the connect once every server-side subscription has its reply.
    pub(super) fn finish_connect(&mut self, context: &mut Context<'_>) {
        if context.effects.disconnect.is_some() || !matches!(&self.phase, Phase::Connecting(c) if c.awaited == 0) {
            return;
        }
        let Phase::Connecting(connecting) = std::mem::replace(&mut self.phase, Phase::Connected) else { return };
        if connecting.is_overrun {
            return context.disconnect(Disconnect::SLOW);
        }
        // A ban that arrived meanwhile did not find this client among the connected clients.
        if connecting.bans_version != context.node.bans.version() && self.end_if_banned(context) {
            return;
        }
        let settings = &context.node.client;
        let interval_ms = millis(context.ping_interval);
        let first_ms = interval_ms / 2 + context.random % (interval_ms / 2).max(1);
        self.heartbeat = Heartbeat::due(context.now_ms.saturating_add(first_ms));
        let client = self.client_id();
        // Clients of these transports send commands or reactions by separate requests.
        let is_apart = matches!(self.transport, TransportMode::Emulated | TransportMode::OneWay);
        let signature = if is_apart { context.node.signer.sign(self.owner()) } else { String::new() };
        let result = ConnectResult {
            client: &client,
            version: context.node.version,
            ttl_s: self.connection_ttl_s(context),
            data: connecting.data.as_deref(),
            subs: &connecting.subs,
            ping_s: context.ping_interval.as_secs().max(1),
            pong: self.transport.answers_pings(),
            session: &signature,
            node: if is_apart { &context.node.id } else { "" },
            time_ms: if settings.connect_include_server_time { context.now_ms } else { 0 },
        };
        context.effects.messages.reply(connecting.command, &Reply::Connect(result));
        if !connecting.held.is_empty() {
            // The reply goes first, then the pushes that were held back. They must not share a message with later
            // replies.
            context.effects.released = connecting.held;
        }
    }

    /// The number of seconds until the client must send a new token; `None` = never.
    pub(super) fn connection_ttl_s(&self, context: &Context<'_>) -> Option<u64> {
        let is_of_client = self.expire_at_s > 0 && !context.node.client.proxy.refresh.enabled;
        is_of_client.then(|| u64::from(self.expire_at_s).saturating_sub(context.now_s()).max(1))
    }
}

/// Whether the backend has to authenticate the client, because it has sent no token.
pub(super) fn asks_connect_hook(token: &str, context: &Context<'_>, log: &mut impl RuleLog) -> bool {
    log.asks(DecisionRule::ConnectHook, token.is_empty() && context.node.client.proxy.connect.enabled)
}

/// The identity of a client, and what it gets when it connects.
pub(super) struct ClientAdmission {
    claims: ConnectionClaims,
    data: Option<Bytes>,
    meta: Option<Bytes>,
    labels: Option<Bytes>,
    caps: Option<Arc<Capabilities>>,
    /// The backend provided it, so the client is not to blame for a mistake in it.
    is_of_hook: bool,
    /// A token provided it.
    is_by_token: bool,
}

impl ClientAdmission {
    /// The admission of a client that needs no token.
    pub(super) fn without_token(claims: ConnectionClaims) -> Self {
        let (is_of_hook, is_by_token) = (false, false);
        ClientAdmission { claims, data: None, meta: None, labels: None, caps: None, is_of_hook, is_by_token }
    }

    /// The admission by the claims of a token.
    fn of_token(claims: ConnectionClaims) -> Self {
        ClientAdmission { is_by_token: true, ..ClientAdmission::without_token(claims) }
    }

    /// The admission by the answer of the backend.
    pub(super) fn of_hook(answer: ConnectAnswer) -> Self {
        let ConnectAnswer { claims, data, meta, caps, labels } = answer;
        ClientAdmission { claims, data, meta, labels, caps, is_of_hook: true, is_by_token: false }
    }
}

/// Why a client cannot be subscribed to a channel that its token or the backend names.
enum ChannelRefusal {
    /// The info or data of the channel cannot be used.
    Payload(String),
    /// The client cannot be subscribed to this channel because of this error.
    Channel(String, Error),
}

/// Checks the channels that the backend names before the first subscription begins. A refused client gets none of them.
fn check_channels(subs: &BTreeMap<String, SubscribeOptions>, context: &Context<'_>) -> Result<(), ChannelRefusal> {
    for (count, channel) in subs.keys().enumerate() {
        let error = match context.node.namespaces.resolve(channel) {
            Err(error) => error,
            Ok(_) if count >= context.node.client.channel_limit => Error::LIMIT_EXCEEDED,
            Ok(_) => continue,
        };
        return Err(ChannelRefusal::Channel(channel.clone(), error));
    }
    Ok(())
}

/// Why a client cannot be authenticated.
pub(super) enum ConnectRefusal {
    Error(Error),
    Disconnect(Disconnect),
}

impl ServerSubscription {
    fn from_claims(options: SubscribeOptions, recover: Option<ClientPosition>) -> Result<Self, Error> {
        let take = |json: Option<Box<serde_json::value::RawValue>>| -> Result<Option<Bytes>, Error> {
            json.map(|json| data::checked_payload(&json)).transpose()
        };
        Ok(ServerSubscription {
            info: take(options.info.or(options.b64info.map(|b| b.0)))?,
            data: take(options.data.or(options.b64data.map(|b| b.0)))?,
            overrides: options.overrides,
            recover,
            expire_at_s: 0,
        })
    }
}

/// How a connection token without a user is refused, at connect and at refresh; `None` = it is not refused.
pub(super) fn refused_anonymous(claims: &ConnectionClaims, context: &mut Context<'_>) -> Option<Disconnect> {
    if !claims.sub.is_empty() || !context.node.client.disallow_anonymous_connection_tokens {
        return None;
    }
    context.because("the token has no sub, and client.disallow_anonymous_connection_tokens is on", "");
    Some(Disconnect::PERMISSION_DENIED)
}
