//! Tries an action of a client: lists the rules that a session asks, and has a session decide. No other part of a node
//! runs, and no backend is asked.

use std::sync::Arc;

use serde_json::{Value, json};
use touchline_config::{ClientUser, Settings, TlsSettings};
use touchline_engine::hook::{DEFAULT_PROXY, HookCall};
use touchline_engine::reactions::ReactionBoard;
use touchline_engine::request::{Response, Subscribed};
use touchline_engine::session::{
    ChannelAction, ExplainedAction, ExplainedStep, Room, ServerSubscription, SessionSettings, StepVerdict, Ticket,
    TransportMode,
};
use touchline_engine::tracker::Tracker;
use touchline_engine::{ConnectionId, Context, Effects, Hub, Session};
use touchline_protocol::Error;

use crate::outbound::shown_address;
use crate::runtime::random;
use crate::start_error::StartError;
use crate::trial::TokenTrial;

/// A client whose action is tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct TriedClient<'a> {
    /// The user of a client that has connected, however it has proved it; empty = anonymous. A connect itself names the
    /// user by a certificate or a trusted proxy, if the settings have either. None = the client connects with its
    /// token, or with nothing.
    pub user: Option<&'a str>,
    /// The connection token; empty = the client has none.
    pub token: &'a str,
    /// The subscription token; empty = the client has none.
    pub subscription_token: &'a str,
    /// Whether the server API has already subscribed the client to the channel.
    pub is_subscribed: bool,
    /// Whether the client is on the machine of the server.
    pub is_local: bool,
}

/// The decision on a tried action, and how it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedAction {
    /// The rules that were asked, in their order, up to the one that decided.
    pub steps: Vec<ExplainedStep>,
    /// The decision of the session.
    pub verdict: StepVerdict,
    /// The place in the configuration of the backend that decides, and its address without password and query string.
    /// None = no backend decides.
    pub backend: Option<(String, String)>,
}

/// A session, and what it needs to carry out commands.
struct ActionTrial {
    node: SessionSettings,
    session: Session,
    hub: Hub,
    tracker: Tracker,
    reactions: ReactionBoard,
    now_ms: u64,
    /// Whether a certificate or a trusted proxy may name the user.
    names_users: bool,
}

/// Tries an action of a client at a time (Unix milliseconds) on a node with the settings of `trial`. Other connections,
/// rates, bans and backends are not known.
///
/// # Errors
/// When the system has no random numbers.
pub fn try_action(
    trial: &TokenTrial,
    client: &TriedClient<'_>,
    action: &ExplainedAction<'_>,
    now_ms: u64,
) -> Result<TriedAction, StartError> {
    let (node, settings) = (trial.node(now_ms)?, trial.settings());
    let hash_seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    let session = Session::new([0; 16], TransportMode::Duplex, client.is_local, now_ms, &node.client);
    let (hub, tracker, names_users) = (Hub::new(hash_seed), Tracker::default(), names_users(settings));
    let reactions = ReactionBoard::new(Arc::clone(&node.namespaces), 0, hash_seed);
    let mut trial = ActionTrial { node, session, hub, tracker, reactions, now_ms, names_users };
    let mut steps = Vec::new();
    let verdict = trial.decide(client, action, &mut steps);
    let backend = match &verdict {
        StepVerdict::Asked { hook, backend } => settings.backend(*hook, backend),
        _ => None,
    };
    let address = |endpoint: &str| endpoint.parse().map_or_else(|_| String::new(), |uri| shown_address(&uri));
    let backend = backend.map(|(section, proxy)| (section, address(&proxy.endpoint)));
    Ok(TriedAction { steps, verdict, backend })
}

/// Whether a certificate or a trusted proxy may name the user of a client.
fn names_users(settings: &Settings) -> bool {
    let of_certificate = |tls: &TlsSettings| tls.enabled && tls.client_user != ClientUser::None;
    !settings.client.user_id_http_header.is_empty()
        || [&settings.http_server.tls, &settings.tcp.tls].into_iter().any(of_certificate)
}

impl ActionTrial {
    fn decide(
        &mut self,
        client: &TriedClient<'_>,
        action: &ExplainedAction<'_>,
        steps: &mut Vec<ExplainedStep>,
    ) -> StepVerdict {
        if let ExplainedAction::Connect { .. } = action {
            if let Some(user) = client.user.filter(|_| self.names_users) {
                self.session.certify(user.to_owned());
            }
            return self.step(action, steps);
        }
        let connected = match client.user.filter(|_| client.token.is_empty()) {
            Some(user) => self.connect_as(user, steps),
            None => self.step(&ExplainedAction::Connect { token: client.token }, steps),
        };
        if connected != StepVerdict::Allowed {
            return connected;
        }
        let channel = match action {
            ExplainedAction::Subscribe { channel, .. } | ExplainedAction::InChannel { channel, .. } => *channel,
            ExplainedAction::Connect { .. } | ExplainedAction::Rpc { .. } => "",
        };
        if let ExplainedAction::InChannel { .. } = action
            && !client.subscription_token.is_empty()
        {
            let subscribe = ExplainedAction::Subscribe { channel, token: client.subscription_token };
            let subscribed = self.step(&subscribe, steps);
            if subscribed != StepVerdict::Allowed {
                return subscribed;
            }
        } else if client.is_subscribed {
            // If the subscription is refused, the commands below find that out.
            let _ =
                self.with(|session, context| session.server_subscribe(channel, ServerSubscription::default(), context));
        }
        self.step(action, steps)
    }

    /// Explains how an action is decided, and has the session decide.
    fn step(&mut self, action: &ExplainedAction<'_>, steps: &mut Vec<ExplainedStep>) -> StepVerdict {
        let (mut explained, _) = self.with(|session, context| session.explain(action, context));
        let verdict = self.say(&command_of(action));
        ExplainedStep::conclude(&mut explained, action, &verdict);
        steps.append(&mut explained);
        verdict
    }

    /// Connects the client as a user, however the user was proved.
    fn connect_as(&mut self, user: &str, steps: &mut Vec<ExplainedStep>) -> StepVerdict {
        let real = self.node.client.clone();
        self.node.client.proxy.connect.enabled = false;
        self.node.client.allow_anonymous_connect_without_token = true;
        self.node.client.anonymous_on_loopback_only = false;
        self.session.certify(user.to_owned());
        let action = ExplainedAction::Connect { token: "" };
        let verdict = self.say(&command_of(&action));
        self.node.client = real;
        let mut given = vec![ExplainedStep::given(user)];
        if verdict != StepVerdict::Allowed {
            given[0].says = StepVerdict::Allowed;
            ExplainedStep::conclude(&mut given, &action, &verdict);
        }
        steps.append(&mut given);
        verdict
    }

    /// Has the session carry out a command. Its requests to homes and to the directory are answered as if all went
    /// well.
    fn say(&mut self, command: &Value) -> StepVerdict {
        let text = command.to_string();
        let (_, effects) = self.with(|session, context| session.receive(text.as_bytes(), context));
        verdict_of(effects)
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Session, &mut Context<'_>) -> T) -> (T, Effects) {
        let mut effects = Effects::default();
        let mut context = Context {
            now_ms: self.now_ms,
            now_us: 0,
            random: 0,
            id: ConnectionId { shard: 0, slot: 0, generation: 0 },
            ping_interval: self.node.client.ping_interval,
            node: &self.node,
            hub: &mut self.hub,
            tracker: &mut self.tracker,
            reactions: &mut self.reactions,
            room: Room::ANY,
            effects: &mut effects,
        };
        let outcome = act(&mut self.session, &mut context);
        while let Some((ticket, response)) = next_reply(context.effects) {
            self.session.handle_reply(ticket, response, &mut context);
        }
        (outcome, effects)
    }
}

/// The reply to a request of a session, as if all went well. None = the session awaits no reply.
fn next_reply(effects: &mut Effects) -> Option<(Ticket, Response)> {
    if let Some(ticket) = effects.requests.iter_mut().find_map(|outbound| outbound.ticket.take()) {
        let response = match ticket {
            Ticket::Subscribe { .. } | Ticket::Connect { .. } | Ticket::Server { .. } => {
                Response::Subscribed(Subscribed::default())
            }
            Ticket::Reply { .. } => Response::Published(None),
            Ticket::Directory { .. } | Ticket::Registrations => Response::Done,
        };
        return Some((ticket, response));
    }
    let ticket = effects.directory_requests.iter_mut().find_map(|(ticket, ..)| ticket.take())?;
    Some((ticket, Response::Directory(b"{}".to_vec().into())))
}

/// The decision of a session, read from its effects.
fn verdict_of(mut effects: Effects) -> StepVerdict {
    if let Some(HookCall { request, .. }) = effects.hook_calls.first() {
        let backend = request.proxy().unwrap_or(DEFAULT_PROXY).into();
        return StepVerdict::Asked { hook: request.kind(), backend };
    }
    let cause = effects.refusals.pop().map(|refused| refused.cause);
    if let Some(why) = effects.disconnect {
        return StepVerdict::disconnect(why, cause);
    }
    let Some(code) = effects.errors().next() else { return StepVerdict::Allowed };
    // The registry permits the request but finds no such name, because no other client is here.
    if code == Error::NOT_REGISTERED.code && cause.is_none() {
        return StepVerdict::Allowed;
    }
    let error = Error::ALL.iter().copied().find(|error| error.code == code);
    StepVerdict::error(Error { code, ..error.unwrap_or(Error::INTERNAL) }, cause)
}

/// The command by which a client takes the action.
fn command_of(action: &ExplainedAction<'_>) -> Value {
    match action {
        ExplainedAction::Connect { token } => json!({"id": 1, "connect": {"token": token}}),
        ExplainedAction::Subscribe { channel, token } => {
            json!({"id": 2, "subscribe": {"channel": channel, "token": token}})
        }
        ExplainedAction::InChannel { action, channel } => match action {
            ChannelAction::Publish => json!({"id": 3, "publish": {"channel": channel, "data": {}}}),
            ChannelAction::History => json!({"id": 3, "history": {"channel": channel}}),
            ChannelAction::Presence => json!({"id": 3, "presence": {"channel": channel}}),
        },
        ExplainedAction::Rpc { method, data } => {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            json!({"id": 3, "rpc": {"method": method, "data": data}})
        }
    }
}
