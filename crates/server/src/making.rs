//! Makes a generation: turns settings, and what stays of a node, into what its shards work with.

use std::sync::Arc;

use aws_lc_rs::rand;
use tokio::sync::mpsc::UnboundedSender;
use touchline_clock::Clock;
use touchline_config::{Settings, WrittenKey};
use touchline_engine::bans::Bans;
use touchline_engine::directory::{Scopes, ToldChanges};
use touchline_engine::events::{EventKind, EventKinds};
use touchline_engine::limit::RateLimits;
use touchline_engine::session::UserCounter;
use touchline_engine::{ClientSettings, Namespaces, session};
use touchline_registry::ReplicaTiming;

use crate::api::user_of;
use crate::auth::AccessControl;
use crate::events::{EventEndpoint, EventsStart};
use crate::hooks::{Endpoints, WorkerStart};
use crate::net::forwarded::KeptFields;
use crate::net::origin::Origins;
use crate::preparation::{proxies_of, user_field};
use crate::runtime::consumer_metrics::ConsumerMetrics;
use crate::runtime::event_mailbox::{EventMailbox, EventWants};
use crate::runtime::event_metrics::EventMetrics;
use crate::runtime::generation::Generation;
use crate::runtime::hook_mailbox::HookMailbox;
use crate::runtime::hook_metrics::HookCounts;
use crate::runtime::limit_metrics::LimitMetrics;
use crate::runtime::limit_tables::LimitTables;
use crate::runtime::signer::HmacSigner;
use crate::runtime::user_counts::UserCounts;
use crate::runtime::{process, random};
use crate::start_error::StartError;
use crate::trial::track_limits;

/// What stays the same for a node from one generation to the next.
pub(crate) struct NodeFacts<'n> {
    pub(crate) id: &'n str,
    pub(crate) clock: &'n Clock,
    pub(crate) signer: &'n Arc<HmacSigner>,
    pub(crate) bans: Arc<Bans>,
    /// The scopes with the options of the new generation.
    pub(crate) scopes: Scopes,
}

/// What a new generation takes over from the one before because its settings have not changed.
#[derive(Default)]
pub(crate) struct TakenOver<'b> {
    /// The rates, with their counts; outer None = they are made from the settings.
    pub(crate) limits: Option<Option<Arc<LimitTables>>>,
    /// The counter of the connections of each user; outer None = it is made from the settings.
    pub(crate) users: Option<Option<Arc<dyn UserCounter + Send + Sync>>>,
    /// The metrics of rates, which are kept where the rates have changed.
    pub(crate) limit_metrics: Option<Arc<LimitMetrics>>,
    /// The metrics of hooks, which are kept where the hooks have changed.
    pub(crate) hook_counts: Option<Arc<HookCounts>>,
    /// The mailbox of the thread that asks backends; outer None = it is made from the settings.
    pub(crate) hooks: Option<Option<Arc<HookMailbox>>>,
    /// The metrics of the consumers that ran before.
    pub(crate) consumers: &'b [Arc<ConsumerMetrics>],
}

/// The parts that are made from the settings before the generation: access control and the endpoints of events.
pub(crate) struct MadeParts {
    pub(crate) access: Arc<AccessControl>,
    pub(crate) endpoints: Endpoints,
    /// What the endpoints of events want to receive.
    pub(crate) wants: EventWants,
    /// A digest of the keys that were written ([`touchline_config::digest`]); 0 = it is not known.
    pub(crate) digest: u32,
    /// The configuration keys that were written.
    pub(crate) written: Vec<WrittenKey>,
}

/// A generation, and what the thread that asks backends begins with. None = no hook is switched on, or the thread was
/// taken over.
pub(crate) struct MadeGeneration {
    pub(crate) generation: Generation,
    pub(crate) worker: Option<WorkerStart>,
}

/// Makes a generation from settings that were checked.
///
/// # Errors
/// When some part of the settings cannot be used after all, or the system has no random numbers.
pub(crate) fn make_generation(
    number: u64,
    settings: Settings,
    MadeParts { access, endpoints, wants, digest, written }: MadeParts,
    facts: NodeFacts<'_>,
    taken_over: TakenOver<'_>,
) -> Result<MadeGeneration, StartError> {
    let NodeFacts { id, clock, signer, bans, scopes } = facts;
    let kinds = wants.kinds;
    let counted = taken_over.limit_metrics;
    let limits = taken_over.limits.map_or_else(|| limits_of(&settings.client, counted), Ok)?;
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
        None => hooks_of(&settings, endpoints, taken_over.hook_counts.unwrap_or_default()).unzip(),
    };
    let (proxies, origins) = (proxies_of(&settings)?, Origins::parse(&settings.client.allowed_origins)?);
    let consumers = ConsumerMetrics::of(&settings.consumers, taken_over.consumers, clock);
    let generation = Generation {
        number,
        digest,
        written,
        settings,
        session,
        proxies,
        origins,
        limits,
        kept_fields,
        access,
        hooks,
        wants,
        consumers,
    };
    Ok(MadeGeneration { generation, worker })
}

/// What sessions must do for the hooks and for the endpoints of events of these kinds.
fn hook_needs(settings: &Settings, endpoints: &Endpoints, kinds: EventKinds) -> session::HookNeeds {
    session::HookNeeds {
        rpc: settings.rpc.clone(),
        emulated_header_names: endpoints.emulated_names(),
        keeps_meta: endpoints.includes_meta() || kinds.has(EventKind::Connected),
        caps: Arc::clone(&endpoints.caps),
    }
}

/// The mailbox of the thread that asks backends, and what the thread begins with; None = no hook is switched on.
fn hooks_of(
    settings: &Settings,
    endpoints: Endpoints,
    counts: Arc<HookCounts>,
) -> Option<(Arc<HookMailbox>, WorkerStart)> {
    if endpoints.is_empty() {
        return None;
    }
    let (mailbox, messages) = HookMailbox::new(&settings.hooks, endpoints.names(), counts);
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

/// The counter of the connections of each user; None = users have no limit of connections.
fn users_of(client: &ClientSettings) -> Option<Arc<dyn UserCounter + Send + Sync>> {
    let limit = client.user_connection_limit;
    if limit == 0 { None } else { Some(Arc::new(UserCounts::new(limit))) }
}

/// The rates of users and addresses; None = no rate is switched on.
fn limits_of(
    client: &ClientSettings,
    counted: Option<Arc<LimitMetrics>>,
) -> Result<Option<Arc<LimitTables>>, StartError> {
    if !RateLimits::are_on(&client.rate_limit) {
        return Ok(None);
    }
    let seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    Ok(Some(Arc::new(LimitTables::new(&client.rate_limit, seed, counted.unwrap_or_default()))))
}

/// How many bytes of commands may wait in a session: twice the largest message that any transport takes.
fn deferred_max(settings: &Settings) -> usize {
    let streams = [&settings.http_stream, &settings.sse, &settings.uni_http_stream, &settings.uni_sse];
    let bodies = streams
        .into_iter()
        .map(|stream| stream.max_request_body_size())
        .chain([settings.emulation.max_request_body_size()]);
    let largest = bodies.chain([settings.websocket.message_size_limit, settings.tcp.message_size_limit]).max();
    largest.unwrap_or_default().saturating_mul(2)
}

/// The changes of names, groups and nodes that the registry reports for events of these kinds.
pub(crate) fn told_changes(kinds: EventKinds) -> ToldChanges {
    ToldChanges {
        names: [EventKind::NameRegistered, EventKind::NameUpdated, EventKind::NameLost]
            .iter()
            .any(|kind| kinds.has(*kind)),
        members: kinds.has(EventKind::MemberJoined) || kinds.has(EventKind::MemberLeft),
        clients: kinds.has(EventKind::Disconnected),
    }
}

/// The times by which the registry decides that another node is dead.
pub(crate) fn timing_of(settings: &Settings) -> ReplicaTiming {
    let cluster = &settings.cluster;
    ReplicaTiming {
        heartbeat_ms: cluster.heartbeat_interval.as_millis() as u64,
        timeout_ms: cluster.node_timeout.as_millis() as u64,
        drift_max_ms: cluster.clock_drift_max.as_millis() as u64,
        // A probe of all connections ends within the time that each connection has for its pong. The backend has its
        // own timeout; this one is for a thread that does not answer at all.
        hook_timeout_ms: settings.registry.proxy.conflict.timeout.as_millis() as u64 * 2 + 1_000,
        probe_timeout_ms: settings.client.pong_timeout.as_millis() as u64 + 2_000,
        ..ReplicaTiming::default()
    }
}

/// A thread that sends events and has not started yet.
pub(crate) struct MadeTeller {
    pub(crate) mailbox: EventMailbox,
    pub(crate) start: EventsStart,
    /// Sends the thread the endpoints of later generations.
    pub(crate) endpoints: UnboundedSender<Vec<EventEndpoint>>,
}

/// Makes the thread that sends events to backends.
///
/// # Errors
/// When the system has no random numbers.
pub(crate) fn make_teller(
    settings: &Settings,
    wants: &EventWants,
    endpoints: Vec<EventEndpoint>,
) -> Result<MadeTeller, StartError> {
    let metrics = Arc::new(EventMetrics::of(settings.events.iter().map(|events| events.name.clone())));
    let (mailbox, messages) = EventMailbox::new(wants, metrics);
    let seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    let (birth, timing) = (random_number()?, timing_of(settings));
    let (sender, later) = tokio::sync::mpsc::unbounded_channel();
    let start = EventsStart { endpoints, later, messages, timing, birth, seed, primary: None };
    Ok(MadeTeller { mailbox, start, endpoints: sender })
}

/// Returns a random number.
///
/// # Errors
/// When the system has no random numbers.
pub(crate) fn random_number() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_| StartError::no_random_numbers())?;
    Ok(u64::from_ne_bytes(bytes))
}
