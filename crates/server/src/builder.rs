//! Makes a node that is ready to start from settings: checks everything, binds every port, and puts the parts together.

use std::sync::Arc;

use aws_lc_rs::rand;
use touchline_clock::Clock;
use touchline_config::{Settings, WhenCutOff, WrittenKey};
use touchline_engine::ShardId;
use touchline_engine::bans::Bans;
use touchline_engine::directory::Directory;
use touchline_engine::events::EventKinds;
use touchline_store::PrimaryOptions;
use touchline_store::stats::{Stats, StatsOptions};

use crate::api::{is_own_path, operations_named, services::ApiServices};
use crate::auth::{AccessControl, KeyFetcher};
use crate::backend::{facts, nats, seen, store};
use crate::consumers;
use crate::events::{self, EventsStart};
use crate::hooks::{Endpoints, HookHandler};
use crate::listening::listen_on_each;
use crate::making::{
    MadeParts, MadeTeller, NodeFacts, TakenOver, make_generation, make_teller, random_number, timing_of, told_changes,
};
use crate::net::port::{Port, PortRole};
use crate::node::{Node, NodeHandles};
use crate::preparation::{Ports, prepare};
use crate::reactions::ReactionsStart;
use crate::runtime::clock::NodeClock;
use crate::runtime::generation::NewestGeneration;
use crate::runtime::reaction_mailbox::ReactionMailbox;
use crate::runtime::reload::SettingsSource;
use crate::runtime::reply_to::ReplyTo;
use crate::runtime::shard_handle::ShardHandle;
use crate::runtime::signer::HmacSigner;
use crate::runtime::{process, random};
use crate::server::{Addresses, Server, ShardParts};
use crate::shard::acceptor::BoundListener;
use crate::start_error::StartError;
use crate::tls::{PortsTls, Tls};
use crate::web::{Assets, RouteHandler, Routes, Site, Web};

/// A server that is being put together: its settings, and what the program around it adds.
pub struct ServerBuilder {
    settings: Settings,
    program: Program,
}

/// What the program around a server adds to the server.
#[derive(Default)]
struct Program {
    /// Answers the hooks that are switched on and have no endpoint.
    handler: Option<Arc<dyn HookHandler>>,
    /// Where a reload reads settings from, and the keys that were written for the start.
    source: Option<(Box<dyn SettingsSource>, Vec<WrittenKey>)>,
    sites: Vec<Site>,
    routes: Routes,
    clock: Clock,
    /// A path that the program gave twice; None = it gave no path twice.
    doubled: Option<String>,
}

impl ServerBuilder {
    /// Sets the handler that answers the hooks that are switched on in the settings and have no `endpoint`.
    pub fn hooks(mut self, handler: impl HookHandler) -> Self {
        self.program.handler = Some(Arc::new(handler));
        self
    }

    /// Adds a handler that answers the requests of an exact path on the port for clients, whatever their method. The
    /// path begins with `/`. It must not be one that the server answers itself.
    pub fn route(mut self, path: &str, handler: impl RouteHandler) -> Self {
        if !self.program.routes.add(path, Arc::new(handler)) {
            self.program.doubled = Some(path.to_owned());
        }
        self
    }

    /// Sets the source from which a reload reads the settings ([`reload`](crate::ServerHandle::reload),
    /// `POST /api/reload`).
    /// `written`: the keys from which the settings of this start were made.
    pub fn settings_from(mut self, source: impl SettingsSource, written: Vec<WrittenKey>) -> Self {
        self.program.source = Some((Box::new(source), written));
        self
    }

    /// Sets the clock of the node. Without this call it is the system's. A program that tests its own handlers can stop
    /// the clock and move it. The databases and NATS keep their own time.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.program.clock = clock;
        self
    }

    /// Serves the pages of a site and their assets on the port for clients.
    pub fn site(mut self, site: Site) -> Self {
        self.program.sites.push(site);
        self
    }

    /// Checks the settings and binds every address. The server serves nothing until it is started.
    ///
    /// # Errors
    /// [`StartError`] says what keeps the node from starting.
    pub fn build(self) -> Result<Server, StartError> {
        Server::bind_with(self.settings, self.program)
    }
}

impl Server {
    /// Begins to build a server to which this program adds its own handlers, paths or pages.
    pub fn builder(settings: Settings) -> ServerBuilder {
        ServerBuilder { settings, program: Program::default() }
    }

    /// Checks the settings and binds every address. The server serves nothing until it is started.
    ///
    /// # Errors
    /// [`StartError`] says what keeps the node from starting.
    pub fn bind(settings: Settings) -> Result<Server, StartError> {
        Server::bind_with(settings, Program::default())
    }

    fn bind_with(mut settings: Settings, program: Program) -> Result<Server, StartError> {
        let ports = prepare(&settings).map_err(|mut faults| faults.swap_remove(0))?;
        let access = access_of(&settings, &program.clock)?;
        let ((tls, renewal), fetcher) = (PortsTls::open(&settings)?, fetcher_of(&access)?);
        let (listeners, addresses) = listen_everywhere(&settings, &ports, &tls)?;
        name_node(&mut settings, &addresses);
        let id = format!("{:016x}{:016x}", random_number()?, random_number()?);
        let clock = NodeClock::start(program.clock);
        let told = events::endpoints(&settings)?;
        let wants = events::wants(&told, settings.store.primary.is_shared());
        let events = (!told.is_empty()).then(|| make_teller(&settings, &wants, told)).transpose()?;
        let directory = directory_of(&settings, (&id, &clock), wants.kinds)?;
        let endpoints = Endpoints::new(&settings, program.handler.as_ref()).map_err(StartError::hook)?;
        let (registry, registry_messages) = std::sync::mpsc::channel();
        let signer = new_signer()?;
        let (bans, scopes) = (Arc::new(bans_of(&settings)?), directory.scopes());
        let facts = NodeFacts { id: &id, clock: clock.time(), signer: &signer, bans, scopes };
        let digest = program.source.as_ref().map_or(0, |(_, written)| touchline_config::digest(written));
        let written = program.source.as_ref().map_or(Vec::new(), |(_, written)| written.clone());
        let parts = MadeParts { access: Arc::new(access), endpoints, wants, digest, written };
        let made = make_generation(1, settings, parts, facts, TakenOver::default())?;
        let newest = Arc::new(NewestGeneration::new(Arc::new(made.generation)));
        let generation = newest.get();
        let settings = &generation.settings;
        let (consumers, seen) = (consumers::prepare(settings)?, seen::begin(settings));
        let primary = store::opening(settings, &newest, &id)?;
        let (shard_handles, shards) = shard_parts(listeners)?;
        let (cluster, joining) = nats::join(&generation, (&id, clock.now_ms()), &directory)?.unzip();
        let (reactions, reactions_start) = reactions_of()?;
        let (events, teller) =
            events.map(|MadeTeller { mailbox, start, endpoints }| (mailbox, (start, endpoints))).unzip();
        let handles = NodeHandles {
            shards: shard_handles,
            registry,
            cluster,
            signer,
            events,
            reactions,
            seen,
            web: Web { assets: Assets::of(&program.sites), routes: program.routes },
        };
        let node = begin(Node::new(newest, clock, id, handles), program.doubled)?;
        let _ = node.tls.set(tls.all());
        open_databases(&node, primary.as_ref(), store::stats_opening(&generation.settings)?.as_ref())?;
        Ok(Server {
            node,
            shards,
            directory,
            registry_messages,
            joining,
            renewal,
            worker: made.worker,
            handler: program.handler,
            source: program.source,
            teller: teller.map(|(start, endpoints)| (EventsStart { primary, ..start }, endpoints)),
            tls,
            reactions: reactions_start,
            consumers,
            services: &ApiServices,
            fetcher,
            addresses,
        })
    }
}

/// Makes the mailbox of the thread that keeps the totals of reactions, and what the thread begins with.
fn reactions_of() -> Result<(ReactionMailbox, ReactionsStart), StartError> {
    let (mailbox, messages) = ReactionMailbox::new();
    let seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    Ok((mailbox, ReactionsStart { messages, incarnation: random_number()?, seed }))
}

/// Opens the databases of a node that are configured.
fn open_databases(
    node: &Arc<Node>,
    primary: Option<&PrimaryOptions>,
    statistics: Option<&StatsOptions>,
) -> Result<(), StartError> {
    let failed = |database| move |source| StartError::Database { database, source };
    if let Some(primary) = primary {
        store::open(node, primary).map_err(failed("primary"))?;
    }
    if let Some(statistics) = statistics {
        node.set_stats(Stats::open(statistics).map_err(failed("stats"))?);
    }
    Ok(())
}

/// Reads the keys of tokens and of the server API.
fn access_of(settings: &Settings, clock: &Clock) -> Result<AccessControl, StartError> {
    AccessControl::new(&settings.client, (&settings.http_api, &settings.grpc_api), operations_named, (None, clock))
}

/// Fetches the keys of all issuers before a port is bound. Clients that connect at once find the keys, and no client
/// waits at a port that does not answer yet.
fn fetcher_of(access: &AccessControl) -> Result<Option<KeyFetcher>, StartError> {
    KeyFetcher::start(&access.key_sets).map_err(|source| StartError::System { what: "a thread", source })
}

/// Makes the signer of client ids, with a key that no other node has.
fn new_signer() -> Result<Arc<HmacSigner>, StartError> {
    let mut key = [0; 32];
    rand::fill(&mut key).map_err(|_| StartError::no_random_numbers())?;
    Ok(Arc::new(HmacSigner::new(key)))
}

/// Makes the directory of names and groups of a node.
fn directory_of(
    settings: &Settings,
    (id, clock): (&str, &NodeClock),
    kinds: EventKinds,
) -> Result<Directory<ReplyTo>, StartError> {
    let directory = Directory::new(
        id,
        &settings.registry.scopes,
        &timing_of(settings),
        random_number()?,
        random::hash_seed().ok_or_else(StartError::no_random_numbers)?,
        settings.cluster.is_on(),
        clock.now_ms(),
    );
    Ok(directory.telling(told_changes(kinds)))
}

/// Makes the set of bans, which are loaded later.
fn bans_of(settings: &Settings) -> Result<Bans, StartError> {
    let seed = random::hash_seed().ok_or_else(StartError::no_random_numbers)?;
    Ok(Bans::new(seed, settings.security.when_cut_off == WhenCutOff::RefuseNew))
}

/// Makes the handle of each shard, and what the shard's thread begins with.
fn shard_parts(listeners: Vec<Vec<BoundListener>>) -> Result<(Vec<ShardHandle>, Vec<ShardParts>), StartError> {
    let parts = |listeners| {
        let (handle, mailbox) = ShardHandle::new();
        Ok((handle, ShardParts { mailbox, listeners, seed: random_number()? }))
    };
    let parts: Vec<_> = listeners.into_iter().map(parts).collect::<Result<_, StartError>>()?;
    Ok(parts.into_iter().unzip())
}

/// Names a node that has no name after its host and port.
fn name_node(settings: &mut Settings, addresses: &Addresses) {
    if settings.node.name.is_empty() {
        settings.node.name = format!("{}_{}", process::host_name(), addresses.http.port());
    }
}

/// Binds every port for each shard.
fn listen_everywhere(
    settings: &Settings,
    ports: &Ports,
    tls: &PortsTls,
) -> Result<(Vec<Vec<BoundListener>>, Addresses), StartError> {
    let mut shards: Vec<_> = std::iter::repeat_with(Vec::new).take(shards_of(settings)).collect();
    let side = if ports.inner.is_some() { PortRole::Outer } else { PortRole::Whole };
    let port = |side, is_for_lines, tls: &Option<Arc<Tls>>, is_introduced| Port {
        side,
        is_for_lines,
        tls: tls.clone(),
        is_introduced,
    };
    let http = port(side, false, &tls.http, settings.http_server.proxy_protocol);
    let lines = port(side, true, &tls.lines, settings.tcp.proxy_protocol);
    // The proxies in front of clients do not forward requests of backends and probes.
    let inner = port(PortRole::Inner, false, &tls.inner, false);
    let grpc = port(PortRole::Grpc, false, &tls.grpc, false);
    let mut listen = |prepared, port| listen_on_each(&mut shards, prepared, port, settings.http_server.backlog);
    let addresses = Addresses {
        http: listen(ports.http, &http)?,
        lines: ports.lines.map(|prepared| listen(prepared, &lines)).transpose()?,
        inner: ports.inner.map(|prepared| listen(prepared, &inner)).transpose()?,
        grpc: ports.grpc.map(|prepared| listen(prepared, &grpc)).transpose()?,
    };
    Ok((shards, addresses))
}

/// The number of shards, which are the event loops of the node.
fn shards_of(settings: &Settings) -> usize {
    match settings.node.shards {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        shards => shards.min(usize::from(ShardId::MAX)),
    }
}

/// Checks the paths of the program around the server, and starts to keep the shared facts of the node.
fn begin(node: Node, doubled: Option<String>) -> Result<Arc<Node>, StartError> {
    check_paths(&node, doubled)?;
    let node = Arc::new(node);
    facts::begin(&node);
    Ok(node)
}

/// Checks the paths of the program around the server. `doubled`: a path that the program gave twice.
fn check_paths(node: &Node, doubled: Option<String>) -> Result<(), StartError> {
    let refused = |path: &str, reason| Err(StartError::Path { path: path.to_owned(), reason });
    if let Some(path) = doubled {
        return refused(&path, "has two handlers");
    }
    if let Some((path, why)) = node.web.assets.fault() {
        return refused(path, why);
    }
    for path in node.web.paths() {
        match path {
            _ if !path.starts_with('/') => return refused(path, "does not begin with /"),
            _ if is_own_path(node, path) => return refused(path, "is one that the server answers itself"),
            _ if node.web.is_doubled(path) => return refused(path, "has a page and a handler"),
            _ => {}
        }
    }
    Ok(())
}
