//! Makes a generation: from settings and what stays of a node to what its shards work with.

use std::sync::Arc;

use touchline_config::Settings;
use touchline_engine::bans::Bans;
use touchline_engine::directory::Scopes;
use touchline_engine::events::{EventKind, EventKinds};
use touchline_engine::limit::RateLimits;
use touchline_engine::session::UserCounter;
use touchline_engine::{ClientSettings, Namespaces, session};

use crate::api::user_of;
use crate::auth::AccessControl;
use crate::hooks::{Endpoints, WorkerStart};
use crate::net::forwarded::KeptFields;
use crate::net::origin::Origins;
use crate::preparation::{proxies_of, user_field};
use crate::runtime::generation::Generation;
use crate::runtime::hook_mailbox::HookMailbox;
use crate::runtime::limit_tables::LimitTables;
use crate::runtime::signer::HmacSigner;
use crate::runtime::user_counts::UserCounts;
use crate::runtime::{process, random};
use crate::start_error::StartError;
use crate::trial::track_limits;

/// What stays of a node from one generation to the next.
pub(crate) struct NodeFacts<'n> {
    pub(crate) id: &'n str,
    pub(crate) signer: &'n Arc<HmacSigner>,
    pub(crate) bans: Arc<Bans>,
    /// The kinds of events that somebody is told of.
    pub(crate) kinds: EventKinds,
    /// The scopes with the options of the new generation.
    pub(crate) scopes: Scopes,
}

/// What is taken over from the generation before because it has not changed.
#[derive(Default)]
pub(crate) struct TakenOver {
    /// The rates, with what was counted.
    pub(crate) limits: Option<Option<Arc<LimitTables>>>,
    /// The connections of each user.
    pub(crate) users: Option<Option<Arc<dyn UserCounter + Send + Sync>>>,
    /// The thread that asks backends.
    pub(crate) hooks: Option<Option<Arc<HookMailbox>>>,
}

/// A generation, and what the thread begins with that asks backends in it; None = no hook is switched on, or the thread
/// was taken over.
pub(crate) struct MadeGeneration {
    pub(crate) generation: Generation,
    pub(crate) worker: Option<WorkerStart>,
}

/// Makes a generation of settings that were checked.
///
/// # Errors
/// When some part of the settings cannot be used after all, or the system has no random numbers.
pub(crate) fn make_generation(
    number: u64,
    settings: Settings,
    access: AccessControl,
    facts: NodeFacts<'_>,
    endpoints: Endpoints,
    taken_over: TakenOver,
) -> Result<MadeGeneration, StartError> {
    let NodeFacts { id, signer, bans, kinds, scopes } = facts;
    let limits = taken_over.limits.map_or_else(|| limits_of(&settings.client), Ok)?;
    let session = session::SessionSettings {
        client: settings.client.clone(),
        namespaces: Arc::new(Namespaces::new(settings.channel.clone())),
        verifier: Box::new(access.verifier.clone()),
        bans,
        scopes,
        version: process::VERSION,
        id: id.to_owned(),
        signer: Arc::clone(signer) as _,
        users: taken_over.users.unwrap_or_else(|| users_of(&settings.client)),
        limits: limits.as_ref().map(|tables| RateLimits::new(&settings.client.rate_limit, Arc::clone(tables) as _)),
        line_idle: settings.tcp.idle_timeout,
        deferred_max: deferred_max(&settings),
        hooks: hook_needs(&settings, &endpoints, kinds),
        notes_subscriptions: kinds.has_subscriptions(),
        track: track_limits(&settings.store.stats),
    };
    let kept_fields = KeptFields { forwarded: endpoints.forwarded_names(), user: user_field(&settings)? };
    let (hooks, worker) = match taken_over.hooks {
        Some(hooks) => (hooks, None),
        None => hooks_of(&settings, endpoints).unzip(),
    };
    let (proxies, origins) = (proxies_of(&settings)?, Origins::parse(&settings.client.allowed_origins)?);
    let generation = Generation { number, settings, session, proxies, origins, limits, kept_fields, access, hooks };
    Ok(MadeGeneration { generation, worker })
}

/// What the hooks, and who is told of these kinds, need of sessions.
fn hook_needs(settings: &Settings, endpoints: &Endpoints, kinds: EventKinds) -> session::HookNeeds {
    session::HookNeeds {
        rpc: settings.rpc.clone(),
        emulated_header_names: endpoints.emulated_names(),
        keeps_meta: endpoints.includes_meta() || kinds.has(EventKind::Connected),
        caps: Arc::clone(&endpoints.caps),
    }
}

/// The mailbox of the thread that asks backends, and what the thread begins with; None = no hook is switched on.
fn hooks_of(settings: &Settings, endpoints: Endpoints) -> Option<(Arc<HookMailbox>, WorkerStart)> {
    if endpoints.is_empty() {
        return None;
    }
    let (mailbox, messages) = HookMailbox::new(&settings.hooks, endpoints.names());
    let mailbox = Arc::new(mailbox);
    let start = WorkerStart {
        endpoints,
        settings: settings.hooks.clone(),
        conflict_wait: settings.registry.proxy.conflict.timeout / 2,
        mailbox: Arc::clone(&mailbox),
        find_user: user_of,
        messages,
    };
    Some((mailbox, start))
}

/// Counts the connections of each user; None = they have no limit.
fn users_of(client: &ClientSettings) -> Option<Arc<dyn UserCounter + Send + Sync>> {
    let limit = client.user_connection_limit;
    if limit == 0 { None } else { Some(Arc::new(UserCounts::new(limit))) }
}

/// The rates of users and addresses; None = no rate is switched on.
fn limits_of(client: &ClientSettings) -> Result<Option<Arc<LimitTables>>, StartError> {
    if !RateLimits::are_on(&client.rate_limit) {
        return Ok(None);
    }
    let seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    Ok(Some(Arc::new(LimitTables::new(&client.rate_limit, seed))))
}

/// Bytes of commands that may wait in a session: twice the largest message that any transport takes.
fn deferred_max(settings: &Settings) -> usize {
    let streams = [&settings.http_stream, &settings.sse, &settings.uni_http_stream, &settings.uni_sse];
    let bodies = streams
        .into_iter()
        .map(|stream| stream.max_request_body_size())
        .chain([settings.emulation.max_request_body_size()]);
    let largest = bodies.chain([settings.websocket.message_size_limit, settings.tcp.message_size_limit]).max();
    largest.unwrap_or_default().saturating_mul(2)
}
