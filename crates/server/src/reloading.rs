//! Carries a reload out: reads the settings anew, makes the next generation, and has the shards exchange theirs for it.

use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use touchline_config::{WrittenKey, changed_keys, takes_restart};
use touchline_engine::ShardId;

use crate::api::operations_named;
use crate::auth::{AccessControl, KeyFetcher};
use crate::hooks::{self, Endpoints, HookHandler};
use crate::making::{MadeGeneration, NodeFacts, TakenOver, make_generation};
use crate::node::Node;
use crate::preparation::prepare;
use crate::runtime::event_mailbox::EventMailbox;
use crate::runtime::generation::Generation;
use crate::runtime::hook_mailbox::HookMessage;
use crate::runtime::mailbox::Message;
use crate::runtime::reload::{ReadSettings, ReloadRefusal, Reloaded, SettingsSource};
use crate::start_error::StartError;

/// Sections whose keys concern the threads that ask backends.
const OF_HOOKS: [&str; 6] = ["client.proxy", "channel.proxy", "rpc", "proxies", "hooks", "registry.proxy"];

/// The threads that a reload replaces.
#[derive(Default)]
pub(crate) struct ReplacedThreads {
    /// The one that asks backends; None = no hook is switched on.
    pub(crate) worker: Option<JoinHandle<()>>,
    /// The one that fetches keys, which ends with this; None = there are none to fetch.
    pub(crate) fetcher: Option<KeyFetcher>,
}

/// Carries out the reloads of a node, one after the other.
pub(crate) struct Reloader {
    pub(crate) node: Weak<Node>,
    pub(crate) source: Box<dyn SettingsSource>,
    pub(crate) handler: Option<Arc<dyn HookHandler>>,
    pub(crate) threads: Arc<Mutex<ReplacedThreads>>,
    /// The keys of the generation that the node works with.
    pub(crate) written: Mutex<Vec<WrittenKey>>,
}

impl Reloader {
    /// Reads the settings again and has the node work with them. Returns when the last shard does. Blocks.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub(crate) fn reload(&self) -> Result<Reloaded, ReloadRefusal> {
        let mut written = match self.written.try_lock() {
            Ok(written) => written,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(ReloadRefusal::UnderWay),
        };
        let node = self.node.upgrade().ok_or(ReloadRefusal::Stopping)?;
        let read = self.source.read().map_err(ReloadRefusal::Faulty)?;
        let changed = changed_keys(&written, &read.written);
        let before = node.newest.get();
        if changed.is_empty() {
            return Ok(Reloaded { generation: before.number, changed });
        }
        let fixed: Vec<String> = changed.iter().filter(|key| takes_restart(key)).cloned().collect();
        if !fixed.is_empty() {
            return Err(ReloadRefusal::TakesRestart(fixed));
        }
        let ReadSettings { settings, written: now_written } = read;
        let number = before.number + 1;
        self.exchange(&node, &before, settings, &changed)?;
        *written = now_written;
        self.source.adopted();
        tracing::info!(generation = number, changed = changed.join(", "), "the configuration was read again");
        Ok(Reloaded { generation: number, changed })
    }

    /// Makes the next generation and has every shard take it.
    fn exchange(
        &self,
        node: &Arc<Node>,
        before: &Arc<Generation>,
        mut settings: touchline_config::Settings,
        changed: &[String],
    ) -> Result<(), ReloadRefusal> {
        settings.node.name.clone_from(&before.settings.node.name);
        prepare(&settings).map_err(|faults| faulty(&faults))?;
        let one = |fault: StartError| faulty(&[fault]);
        let access = AccessControl::new(&settings.client, (&settings.http_api, &settings.grpc_api), operations_named);
        let access = access.map_err(one)?;
        let fetcher = KeyFetcher::start(&access.key_sets);
        let fetcher = fetcher.map_err(|source| one(StartError::System { what: "a thread", source }))?;
        let endpoints =
            Endpoints::new(&settings, self.handler.as_ref()).map_err(|fault| one(StartError::hook(fault)))?;
        let facts = NodeFacts {
            id: &node.id,
            signer: &node.signer,
            bans: Arc::clone(&before.session.bans),
            kinds: EventMailbox::kinds_of(node.events.as_ref()),
            scopes: before.session.scopes.with_options(&settings.registry.scopes),
        };
        let has_changed = |sections: &[&str]| changed.iter().any(|key| sections.iter().any(|one| key.starts_with(one)));
        let taken_over = TakenOver {
            limits: (!has_changed(&["client.rate_limit"])).then(|| before.limits.clone()),
            users: Some(before.session.users.clone()),
            hooks: (!has_changed(&OF_HOOKS)).then(|| before.hooks.clone()),
        };
        let keeps_hooks = taken_over.hooks.is_some();
        let made = make_generation(before.number + 1, settings, access, facts, endpoints, taken_over);
        let MadeGeneration { generation, worker } = made.map_err(one)?;
        let worker = worker.map(|worker| hooks::start(Arc::clone(node), worker)).transpose();
        let worker = worker.map_err(|source| one(StartError::System { what: "a thread", source }))?;
        self.hand_over(node, &Arc::new(generation))?;
        let mut threads = self.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        threads.fetcher = fetcher;
        if !keeps_hooks {
            // Calls that its backends have are answered; then the thread ends by itself.
            if let Some(hooks) = &before.hooks {
                hooks.send(HookMessage::Finish);
            }
            threads.worker = worker;
        }
        Ok(())
    }

    /// Has every shard work with a generation, and waits for the last.
    fn hand_over(&self, node: &Arc<Node>, generation: &Arc<Generation>) -> Result<(), ReloadRefusal> {
        node.newest.set(Arc::clone(generation));
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
}

fn faulty(faults: &[StartError]) -> ReloadRefusal {
    ReloadRefusal::Faulty(faults.iter().map(ToString::to_string).collect())
}
