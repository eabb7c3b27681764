//! Tries whether a node would accept a client with a token. It gives a session the commands that a client would send.
//! No other part of a node runs.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use touchline_config::{Settings, StatsSettings};
use touchline_engine::bans::Bans;
use touchline_engine::directory::Directory;
use touchline_engine::reactions::ReactionBoard;
use touchline_engine::session::{self, Room, SessionSigner, TransportMode};
use touchline_engine::tracker::{TrackLimits, Tracker};
use touchline_engine::{ClientSettings, ConnectionId, Context, Effects, Hub, Namespaces, RefusalReport, Session};
use touchline_registry::{OwnerId, ReplicaTiming};

use crate::auth::{KeySets, TokenVerdict, TokenVerifier, fetch_once};
use crate::runtime::random;
use crate::runtime::reply_to::ReplyTo;
use crate::start_error::StartError;

/// The signer of a trial. The client in it sends its commands over its own connection, so it signs nothing.
struct NoSigner;

impl SessionSigner for NoSigner {
    fn sign(&self, _: OwnerId) -> String {
        String::new()
    }
}

/// Tries tokens against a configuration. Keys at an endpoint are fetched once.
pub struct TokenTrial {
    settings: Settings,
    verifier: TokenVerifier,
    faults: Vec<(String, String)>,
}

impl TokenTrial {
    /// Reads and fetches the keys of these settings.
    ///
    /// # Errors
    /// When a configured key can't be used, or the system refuses what a fetch needs.
    pub fn new(settings: Settings) -> Result<Self, StartError> {
        let mut key_sets = KeySets::default();
        let verifier = TokenVerifier::new(&settings.client, &mut key_sets)?;
        let faults = fetch_once(&key_sets).map_err(|source| StartError::System { what: "a thread", source })?;
        Ok(TokenTrial { settings, verifier, faults })
    }

    /// The sections of the configuration whose keys could not be fetched, each with its fault. Empty if all were
    /// fetched.
    pub fn faults(&self) -> &[(String, String)] {
        &self.faults
    }

    /// Returns which steps of a check the token passes at a time (`now_s`, Unix seconds). The token is checked as a
    /// connection token or as a subscription token. The texts contain no part of a key or of a signature.
    pub fn check(&self, token: &str, is_subscription: bool, now_s: u64) -> TokenVerdict {
        self.verifier.report(token, is_subscription, now_s)
    }

    /// Makes the settings that the sessions of a node with these settings share.
    pub(crate) fn node(&self, now_ms: u64) -> Result<session::SessionSettings, StartError> {
        trial_node(&self.settings, self.settings.client.clone(), &self.verifier, now_ms)
    }

    /// The settings of the trial.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Connects with a token at a time (Unix milliseconds) to a node with these settings. With a channel and the
    /// token's user, it also subscribes with the token. Returns why this is refused; None = it is accepted. Other
    /// connections are not known.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn connect(
        &self,
        token: &str,
        channel: Option<(&str, String)>,
        now_ms: u64,
    ) -> Result<Option<RefusalReport>, StartError> {
        let mut client = self.settings.client.clone();
        client.proxy.connect.enabled = false;
        if channel.is_some() {
            // The connection is not under trial, so it always succeeds.
            client.subscribe_to_user_personal_channel.enabled = false;
            client.allow_anonymous_connect_without_token = true;
        }
        try_token(&self.settings, client, &self.verifier, (token, channel), now_ms)
    }
}

fn try_token(
    settings: &Settings,
    client: ClientSettings,
    verifier: &TokenVerifier,
    (token, channel): (&str, Option<(&str, String)>),
    now_ms: u64,
) -> Result<Option<RefusalReport>, StartError> {
    let node = trial_node(settings, client, verifier, now_ms)?;
    let hash_seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
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
    let mut reactions = ReactionBoard::new(Arc::clone(&node.namespaces), 0, hash_seed);
    let mut context = Context {
        now_ms,
        now_us: 0,
        random: 0,
        id: ConnectionId { shard: 0, slot: 0, generation: 0 },
        ping_interval: node.client.ping_interval,
        node: &node,
        hub: &mut hub,
        tracker: &mut tracker,
        reactions: &mut reactions,
        room: Room::ANY,
        effects: &mut effects,
    };
    for command in commands {
        session.receive(command.to_string().as_bytes(), &mut context);
    }
    Ok(refusal_of(effects))
}

/// Makes the settings that sessions share, of a node with these settings and these client settings. Other connections
/// are not known.
fn trial_node(
    settings: &Settings,
    client: ClientSettings,
    verifier: &TokenVerifier,
    now_ms: u64,
) -> Result<session::SessionSettings, StartError> {
    let hash_seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    let (scopes, timing) = (&settings.registry.scopes, ReplicaTiming::default());
    let directory = Directory::<ReplyTo>::new("", scopes, &timing, 0, hash_seed, false, now_ms);
    Ok(session::SessionSettings {
        verifier: Box::new(verifier.clone()),
        bans: Arc::new(Bans::none(hash_seed)),
        namespaces: Arc::new(Namespaces::new(settings.channel.clone())),
        hooks: session::HookNeeds { rpc: settings.rpc.clone(), ..session::HookNeeds::default() },
        scopes: directory.scopes(),
        version: crate::runtime::process::VERSION,
        id: String::new(),
        signer: Arc::new(NoSigner),
        users: None,
        limits: None,
        notes_subscriptions: false,
        line_idle: Duration::ZERO,
        deferred_max: 0,
        track: track_limits(&settings.store.stats),
        client,
    })
}

/// The limits of what clients report; the rate is 0 where such reports are not stored.
pub(crate) fn track_limits(stats: &StatsSettings) -> TrackLimits {
    TrackLimits { rate: if stats.enabled { stats.track_rate } else { 0 }, props_max: stats.track_size }
}

/// Why a session has refused something; None = it has refused nothing.
fn refusal_of(mut effects: Effects) -> Option<RefusalReport> {
    let told = effects.errors().next();
    let code = effects.disconnect.map(|why| why.code.into()).or(told)?;
    let unknown = || RefusalReport { code, cause: "the server would not say why", ..RefusalReport::default() };
    Some(effects.refusals.pop().map_or_else(unknown, |why| RefusalReport { code, ..why }))
}
