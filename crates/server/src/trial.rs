//! Tries whether a node would accept a client with a token: it sends a session the commands that a client would send.
//! No other part of a node runs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use touchline_config::Settings;
use touchline_engine::directory::Directory;
use touchline_engine::session::{self, Room, SessionSigner, TransportMode};
use touchline_engine::tracker::{TrackLimits, Tracker};
use touchline_engine::{ConnectionId, Context, Effects, Hub, Namespaces, RefusalReport, Session};
use touchline_registry::{OwnerId, ReplicaTiming};

use crate::auth::TokenVerifier;
use crate::runtime::random;
use crate::runtime::reply_to::ReplyTo;
use crate::start_error::StartError;

/// The client that tries, whose commands come by itself.
struct NoSigner;

impl SessionSigner for NoSigner {
    fn sign(&self, _: OwnerId) -> String {
        String::new()
    }
}

/// Connects with a token at a time (Unix milliseconds) to a node with these settings; with a channel and the token's
/// user, subscribes with it. Returns why this is refused; None = it is not. Other connections are not known.
///
/// # Errors
/// When a configured public key can't be used.
pub fn try_token(
    settings: &Settings,
    token: &str,
    channel: Option<(&str, String)>,
    now_ms: u64,
) -> Result<Option<RefusalReport>, StartError> {
    let mut client = settings.client.clone();
    client.proxy.connect.enabled = false;
    if channel.is_some() {
        // The connection is not what is tried.
        client.subscribe_to_user_personal_channel.enabled = false;
        client.allow_anonymous_connect_without_token = true;
    }
    let hash_seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    let directory = Directory::<ReplyTo>::new(
        "",
        &settings.registry.scopes,
        &ReplicaTiming::default(),
        0,
        hash_seed,
        false,
        now_ms,
    );
    let node = session::SessionSettings {
        verifier: Box::new(TokenVerifier::new(&client)?),
        namespaces: Arc::new(Namespaces::new(settings.channel.clone())),
        hooks: session::HookNeeds::default(),
        scopes: directory.scopes(),
        version: crate::runtime::process::VERSION,
        id: String::new(),
        signer: Arc::new(NoSigner),
        users: None,
        limits: None,
        line_idle: Duration::ZERO,
        deferred_max: 0,
        track: TrackLimits { rate: 0, props_max: 0 },
        client,
    };
    let mut session = Session::new([0; 16], TransportMode::Duplex, true, now_ms, &node.client);
    let commands = match channel {
        None => vec![json!({"id": 1, "connect": {"token": token}})],
        Some((channel, user)) => {
            session.certify(user);
            vec![json!({"id": 1, "connect": {}}), json!({"id": 2, "subscribe": {"channel": channel, "token": token}})]
        }
    };
    let mut effects = Effects::default();
    let (mut hub, mut tracker) = (Hub::new(hash_seed), Tracker::default());
    let mut context = Context {
        now_ms,
        now_us: 0,
        random: 0,
        id: ConnectionId { shard: 0, slot: 0, generation: 0 },
        ping_interval: node.client.ping_interval,
        node: &node,
        hub: &mut hub,
        tracker: &mut tracker,
        room: Room::ANY,
        effects: &mut effects,
    };
    for command in commands {
        session.receive(command.to_string().as_bytes(), &mut context);
    }
    Ok(refusal_of(effects))
}

/// Why a session has refused something; None = it has not.
fn refusal_of(mut effects: Effects) -> Option<RefusalReport> {
    let code = effects.disconnect.map(|why| why.code.into()).or(effects.errors.first().copied())?;
    let unknown = || RefusalReport { code, cause: "the server would not say why", channel: "".into() };
    Some(effects.refusals.pop().map_or_else(unknown, |why| RefusalReport { code, ..why }))
}
