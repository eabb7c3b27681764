//! Carries out a reload: reads the settings again, makes the next generation, and has the shards switch to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use touchline_cluster::StreamSettings;
use touchline_config::{Settings, WrittenKey, changed_keys, lies_in, takes_restart};
use touchline_engine::ShardId;
use touchline_lock::{Lock, LockGuard};

use crate::api::operations_named;
use crate::auth::{AccessControl, KeyFetcher};
use crate::backend::activity::note_activity;
use crate::backend::nats;
use crate::consumers::{self, RunningConsumers};
use crate::events::{self, EventEndpoint, EventsStart};
use crate::hooks::{self, Endpoints, HookHandler};
use crate::making::{
    MadeGeneration, MadeParts, MadeTeller, NodeFacts, TakenOver, make_generation, make_teller, told_changes,
};
use crate::node::Node;
use crate::preparation::prepare;
use crate::runtime::event_mailbox::EventMessage;
use crate::runtime::generation::Generation;
use crate::runtime::hook_mailbox::{HookMailbox, HookMessage};
use crate::runtime::mailbox::Message;
use crate::runtime::registry_mailbox::RegistryMessage;
use crate::runtime::reload::{ReadSettings, ReloadRefusal, Reloaded, SettingsSource};
use crate::start_error::StartError;
use crate::tls::PortsTls;

/// Sections whose keys concern the thread that asks backends.
const OF_HOOKS: [&str; 6] = ["client.proxy", "channel.proxy", "rpc", "proxies", "hooks", "registry.proxy"];
/// How long the consumers of the generation before have to finish the commands under way. Commands that are not done by
/// then are carried out again.
const CONSUMERS_PATIENCE: Duration = Duration::from_secs(10);
/// How long a reload waits for the streams of new namespaces.
const STREAMS_PATIENCE: Duration = Duration::from_secs(5);
/// How often a waiting reload checks whether the node stops.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The threads that a reload replaces.
#[derive(Default)]
pub(crate) struct ReplacedThreads {
    /// The thread that asks backends; `None` = no hook is switched on.
    pub(crate) worker: Option<JoinHandle<()>>,
    /// The thread that fetches keys; it ends when this is dropped. `None` = there are no keys to fetch.
    pub(crate) fetcher: Option<KeyFetcher>,
    /// The thread that sends events; `None` = no endpoint wants events.
    pub(crate) teller: Option<RunningTeller>,
    /// The consumers, which read tables and streams; `None` = no consumer is switched on.
    pub(crate) consumers: Option<RunningConsumers>,
}

/// The thread that sends events, and the channel that sends it new endpoints.
pub(crate) struct RunningTeller {
    pub(crate) thread: JoinHandle<()>,
    /// Takes one message for each reload, with at most `EVENT_ENDPOINTS_MAX` endpoints.
    endpoints: UnboundedSender<Vec<EventEndpoint>>,
}

impl RunningTeller {
    /// Starts the thread. `endpoints`: the sender that was made together with `start`.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        node: &Arc<Node>,
        start: EventsStart,
        endpoints: UnboundedSender<Vec<EventEndpoint>>,
    ) -> Result<Self, StartError> {
        let thread = events::start(Arc::clone(node), start).map_err(of_system)?;
        Ok(RunningTeller { thread, endpoints })
    }
}

/// Carries out the reloads of a node, one after the other.
pub(crate) struct Reloader {
    pub(crate) node: Weak<Node>,
    pub(crate) source: Box<dyn SettingsSource>,
    pub(crate) handler: Option<Arc<dyn HookHandler>>,
    pub(crate) threads: Arc<Lock<ReplacedThreads>>,
    /// The configuration keys of the generation that the node works with.
    pub(crate) written: Lock<Vec<WrittenKey>>,
    pub(crate) tls: PortsTls,
}

impl Reloader {
    /// Reads the settings again and applies them to the node. Returns when the last shard works with them. Blocks.
    ///
    /// # Errors
    /// [`ReloadRefusal`] says why nothing was changed.
    pub(crate) fn reload(&self) -> Result<Reloaded, ReloadRefusal> {
        let outcome = self.run();
        if let Some(node) = self.node.upgrade() {
            let counts = &node.newest.reloads;
            let count = match &outcome {
                Ok(_) => Some((&counts.succeeded, false)),
                Err(ReloadRefusal::UnderWay | ReloadRefusal::Stopping) => None,
                Err(_) => Some((&counts.failed, true)),
            };
            if let Some((count, has_failed)) = count {
                count.fetch_add(1, Relaxed);
                counts.has_failed.store(has_failed, Relaxed);
                note_activity(&node, "reload", "", if has_failed { "refused" } else { "ok" });
            }
        }
        outcome
    }

    fn run(&self) -> Result<Reloaded, ReloadRefusal> {
        let mut written = self.written.try_lock().ok_or(ReloadRefusal::UnderWay)?;
        let node = self.node.upgrade().ok_or(ReloadRefusal::Stopping)?;
        // Reading changes nothing, so a panic of the source refuses the reload and does not end the process.
        let read = catch_unwind(AssertUnwindSafe(|| self.source.read()));
        let read = read.unwrap_or_else(|_| Err(vec!["the configuration: the code that reads it has panicked".into()]));
        let read = read.map_err(ReloadRefusal::Faulty)?;
        let changed = changed_keys(&written, &read.written);
        let before = node.newest.get();
        if changed.is_empty() {
            return Ok(Reloaded { generation: before.number, changed });
        }
        let fixed: Vec<String> = changed.iter().filter(|key| takes_restart(key, &before.settings)).cloned().collect();
        if !fixed.is_empty() {
            return Err(ReloadRefusal::TakesRestart(fixed));
        }
        let ReadSettings { settings, written: now_written } = read;
        let exchange = Exchange { reloader: self, node: &node, before: &before, changed: &changed };
        exchange.run(settings, now_written.clone())?;
        *written = now_written;
        self.source.adopted();
        let generation = before.number + 1;
        tracing::info!(generation, changed = changed.join(", "), "the node works with the configuration that was read");
        Ok(Reloaded { generation, changed })
    }
}

/// The threads of the next generation, until it has taken over. If it never does, they end.
struct StartedThreads<'n> {
    node: &'n Node,
    /// The hooks that the thread asks for.
    hooks: Option<Arc<HookMailbox>>,
    worker: Option<JoinHandle<()>>,
    teller: Option<RunningTeller>,
}

impl Drop for StartedThreads<'_> {
    fn drop(&mut self) {
        if let (Some(hooks), Some(_)) = (&self.hooks, &self.worker) {
            hooks.send(HookMessage::Finish);
        }
        if let (Some(events), Some(_)) = (self.node.events.get(), &self.teller) {
            events.command(EventMessage::Stop);
        }
    }
}

/// The access control of clients and of the server API, and the thread that fetches its keys; `None` = there are no
/// keys to fetch.
type NewAccess = (Arc<AccessControl>, Option<KeyFetcher>);

/// The switch from one generation to the next.
struct Exchange<'r> {
    reloader: &'r Reloader,
    node: &'r Arc<Node>,
    before: &'r Arc<Generation>,
    /// The configuration keys that differ.
    changed: &'r [String],
}

impl Exchange<'_> {
    /// Whether configuration keys of these sections differ.
    fn has_changed(&self, sections: &[&str]) -> bool {
        self.changed.iter().any(|key| sections.iter().any(|section| lies_in(key, section)))
    }

    /// Makes the next generation and has every shard switch to it. Every step that can fail comes before the first
    /// change.
    fn run(&self, mut settings: Settings, written: Vec<WrittenKey>) -> Result<(), ReloadRefusal> {
        let Exchange { reloader, node, before, .. } = self;
        // A node that stops waits for this lock. A reload that comes later sees that the node stops.
        let mut threads = reloader.threads.lock();
        if node.drain.has_begun() {
            return Err(ReloadRefusal::Stopping);
        }
        settings.node.name.clone_from(&before.settings.node.name);
        prepare(&settings).map_err(|faults| faulty(&faults))?;
        let tls = reloader.tls.prepare(&settings).map_err(|fault| faulty(&[fault.into()]))?;
        let consumers = self.has_changed(&["consumers"]).then(|| consumers::prepare(&settings)).transpose();
        let consumers = consumers.map_err(|fault| faulty(&[fault]))?;
        let (told, teller) = self.told(&settings).map_err(|fault| faulty(&[fault]))?;
        let access = self.access(&settings).map_err(|fault| faulty(&[fault]))?;
        let keys = access.as_ref().map_or_else(|| Arc::clone(&before.access), |(access, _)| Arc::clone(access));
        let made = self.make(settings, (keys, written), &told).map_err(|fault| faulty(&[fault]))?;
        let MadeGeneration { generation, worker } = made;
        let keeps_hooks = match (&before.hooks, &generation.hooks) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        self.grow_streams(&generation.settings)?;
        if node.drain.has_begun() {
            return Err(ReloadRefusal::Stopping);
        }
        // Threads start last. Only the system can refuse them; then those that have started end.
        let mut started = StartedThreads { node, hooks: generation.hooks.clone(), worker: None, teller: None };
        let worker = worker.map(|worker| hooks::start(Arc::clone(node), worker)).transpose();
        started.worker = worker.map_err(|source| faulty(&[of_system(source)]))?;
        let teller = teller.map(|MadeTeller { mailbox, start, endpoints }| {
            // The mailbox is made only if the node has none.
            let _ = node.events.set(mailbox);
            RunningTeller::start(node, start, endpoints)
        });
        started.teller = teller.transpose().map_err(|fault| faulty(&[fault]))?;
        let generation = Arc::new(generation);
        self.hand_over(&generation)?;
        self.shrink_streams(&generation.settings);
        tls.adopt();
        if let Some((_, fetcher)) = access {
            threads.fetcher = fetcher;
        }
        if !keeps_hooks {
            // The thread answers the calls that its backends are working on, and then ends by itself.
            if let Some(hooks) = &before.hooks {
                hooks.send(HookMessage::Finish);
            }
            threads.worker = started.worker.take();
        }
        if let Some(teller) = started.teller.take() {
            threads.teller = Some(teller);
        } else if let (Some(teller), true) = (&threads.teller, self.has_changed(&["events"])) {
            let _ = teller.endpoints.send(told);
        }
        self.exchange_consumers(threads, consumers);
        Ok(())
    }

    /// Makes the endpoints of events, and the thread that sends events if it does not run yet. The running thread's
    /// mailbox receives the events that the next generation wants.
    fn told(&self, settings: &Settings) -> Result<(Vec<EventEndpoint>, Option<MadeTeller>), StartError> {
        let told = events::endpoints(settings)?;
        let wants = events::wants(&told, settings.store.primary.is_shared());
        if self.node.events.get().is_some() {
            return Ok((told, None));
        }
        let teller = (!told.is_empty()).then(|| make_teller(settings, &wants, events::endpoints(settings)?));
        Ok((told, teller.transpose()?))
    }

    /// The keys of tokens and of the server API, and the thread that fetches keys of issuers. `None` = none of these
    /// settings differs.
    fn access(&self, settings: &Settings) -> Result<Option<NewAccess>, StartError> {
        if !self.has_changed(&["client", "http_api", "grpc_api"]) {
            return Ok(None);
        }
        let of_api = (&settings.http_api, &settings.grpc_api);
        let before = Some(&*self.before.access);
        let access = AccessControl::new(&settings.client, of_api, operations_named, (before, self.node.clock.time()))?;
        let fetcher = KeyFetcher::start(&access.key_sets).map_err(of_system)?;
        let is_new = |set: &Arc<_>| !self.before.access.key_sets.iter().any(|before| Arc::ptr_eq(before, set));
        // Without its keys, a new issuer could admit no client.
        let away = access.key_sets.iter().find(|set| is_new(set) && !set.was_fetched());
        match away.map(|set| set.section.clone()) {
            Some(section) => Err(StartError::KeysAway { section }),
            None => Ok(Some((Arc::new(access), fetcher))),
        }
    }

    /// Makes the next generation.
    fn make(
        &self,
        settings: Settings,
        (access, written): (Arc<AccessControl>, Vec<WrittenKey>),
        told: &[EventEndpoint],
    ) -> Result<MadeGeneration, StartError> {
        let Exchange { reloader, node, before, .. } = self;
        let parts = MadeParts {
            access,
            endpoints: Endpoints::new(&settings, reloader.handler.as_ref()).map_err(StartError::hook)?,
            wants: before.wants.with(&events::wants(told, settings.store.primary.is_shared())),
            digest: touchline_config::digest(&written),
            written,
        };
        let facts = NodeFacts {
            id: &node.id,
            clock: node.clock.time(),
            signer: &node.signer,
            bans: Arc::clone(&before.session.bans),
            scopes: before.session.scopes.with_options(&settings.registry.scopes),
        };
        let taken_over = TakenOver {
            limits: (!self.has_changed(&["client.rate_limit"])).then(|| before.limits.clone()),
            limit_metrics: before.limits.as_ref().map(|limits| Arc::clone(&limits.metrics)),
            hook_counts: before.hooks.as_ref().map(|hooks| Arc::clone(&hooks.metrics.counts)),
            users: Some(before.session.users.clone()),
            hooks: (!self.has_changed(&OF_HOOKS)).then(|| before.hooks.clone()),
            consumers: &before.consumers,
        };
        make_generation(before.number + 1, settings, parts, facts, taken_over)
    }

    /// Has NATS create the streams of the next generation, and extend the streams that become longer. This loses no
    /// data, so it can be undone.
    fn grow_streams(&self, settings: &Settings) -> Result<(), ReloadRefusal> {
        let (Some(cluster), true) = (&self.node.cluster, self.has_changed(&["channel"])) else { return Ok(()) };
        let (before, mut streams) = (nats::streams_of(&self.before.settings), nats::streams_of(settings));
        if streams == before {
            return Ok(());
        }
        keep_at_least(&mut streams, &before);
        let (done, are_open) = std::sync::mpsc::channel();
        cluster.set_streams(streams, Box::new(move || done.send(()).unwrap_or_default()));
        // real time: a limit of NATS.
        let until = Instant::now() + STREAMS_PATIENCE;
        // real time: as above.
        let is_over = || Instant::now() >= until || self.node.drain.has_begun();
        while are_open.recv_timeout(LOOK_INTERVAL).is_err() {
            if !is_over() {
                continue;
            }
            cluster.set_streams(before, Box::new(|| {}));
            let fault = self.node.stream_fault();
            let fault = if fault.is_empty() { "NATS does not answer".to_owned() } else { fault };
            return Err(ReloadRefusal::Faulty(vec![format!(
                "channel: the streams of histories cannot be made: {fault}"
            )]));
        }
        Ok(())
    }

    /// Has NATS shorten the streams that become shorter, now that the node works with the new settings. Streams of
    /// removed namespaces stay as they are.
    fn shrink_streams(&self, settings: &Settings) {
        let (Some(cluster), true) = (&self.node.cluster, self.has_changed(&["channel"])) else { return };
        let (before, mut streams) = (nats::streams_of(&self.before.settings), nats::streams_of(settings));
        if streams != before {
            let is_kept = |old: &&StreamSettings| !streams.iter().any(|new| new.namespace == old.namespace);
            let gone: Vec<_> = before.iter().filter(is_kept).cloned().collect();
            streams.extend(gone);
            cluster.set_streams(streams, Box::new(|| {}));
        }
    }

    /// Sends every shard the new generation, and waits until the last one works with it.
    fn hand_over(&self, generation: &Arc<Generation>) -> Result<(), ReloadRefusal> {
        let node = self.node;
        node.newest.set(Arc::clone(generation));
        if let Some(events) = node.events.get() {
            events.widen(generation.wants.told);
        }
        node.send_to_registry(RegistryMessage::Tell(told_changes(generation.wants.kinds)));
        if let Some(cluster) = &node.cluster {
            cluster.set_configuration(generation.digest);
        }
        let mut taken = Vec::with_capacity(node.shards.len());
        for shard in 0..node.shards.len() {
            let (done, is_taken) = oneshot::channel();
            node.send(shard as ShardId, Message::Generation { generation: Arc::clone(generation), taken: done });
            taken.push(is_taken);
        }
        for is_taken in taken {
            is_taken.blocking_recv().map_err(|_| ReloadRefusal::Stopping)?;
        }
        Ok(())
    }

    /// Ends the consumers and starts those of the next generation, if they differ.
    fn exchange_consumers(
        &self,
        mut threads: LockGuard<'_, ReplacedThreads>,
        consumers: Option<Vec<consumers::PreparedConsumer>>,
    ) {
        let Some(consumers) = consumers else { return };
        if let Some(mut before) = threads.consumers.take() {
            before.stop(CONSUMERS_PATIENCE);
        }
        match RunningConsumers::start(self.node, consumers) {
            Ok(running) => threads.consumers = running,
            // The rest of the generation is already in use.
            Err(error) => tracing::error!(%error, "the consumers were not restarted: restart the node"),
        }
    }
}

/// Keeps streams as long as they were where they would become shorter, and adds streams that would be removed.
fn keep_at_least(streams: &mut Vec<StreamSettings>, before: &[StreamSettings]) {
    for old in before {
        match streams.iter_mut().find(|new| new.namespace == old.namespace) {
            Some(new) => (new.size, new.ttl) = (new.size.max(old.size), new.ttl.max(old.ttl)),
            None => streams.push(old.clone()),
        }
    }
}

fn faulty(faults: &[StartError]) -> ReloadRefusal {
    ReloadRefusal::Faulty(faults.iter().map(ToString::to_string).collect())
}

fn of_system(source: std::io::Error) -> StartError {
    StartError::System { what: "a thread", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_lose_nothing_before_the_node_works_with_what_is_new() {
        let stream = |namespace: &str, size, seconds| StreamSettings {
            namespace: namespace.into(),
            size,
            ttl: Duration::from_secs(seconds),
        };
        let before = [stream("shorter", 50, 60), stream("longer", 5, 60), stream("gone", 7, 70)];
        let mut streams = vec![stream("new", 1, 1), stream("shorter", 5, 90), stream("longer", 9, 10)];
        keep_at_least(&mut streams, &before);
        let expected = [stream("new", 1, 1), stream("shorter", 50, 90), stream("longer", 9, 60), stream("gone", 7, 70)];
        assert_eq!(streams, expected);
    }
}
