//! What a reload replaces: the settings of a node and what is made of them. A shard switches to the next generation
//! between two turns. So it works with a single generation within a turn.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use touchline_config::{Settings, WrittenKey};
use touchline_engine::session::SessionSettings;
use touchline_lock::SharedLock;

use super::consumer_metrics::ConsumerMetrics;
use super::event_mailbox::EventWants;
use super::hook_mailbox::HookMailbox;
use crate::auth::AccessControl;
use crate::net::forwarded::KeptFields;
use crate::net::origin::Origins;
use crate::net::proxies::Proxies;
use crate::runtime::limit_tables::LimitTables;

/// The settings of a node at one time, and what is made of them.
pub(crate) struct Generation {
    /// The number of the generation in this process, counted from 1.
    pub(crate) number: u64,
    /// A digest of the written keys that should be the same on all nodes; 0 = it is not known.
    pub(crate) digest: u32,
    /// The written configuration keys, each with its place; empty = the embedding program made the settings.
    pub(crate) written: Vec<WrittenKey>,
    pub(crate) settings: Settings,
    /// The settings that the sessions share.
    pub(crate) session: SessionSettings,
    /// Proxies that are trusted to report the client's address.
    pub(crate) proxies: Proxies,
    /// The origins whose pages may open connections.
    pub(crate) origins: Origins,
    /// The rates of users and addresses; None = no rate is switched on.
    pub(crate) limits: Option<Arc<LimitTables>>,
    /// Header fields of clients' requests that are forwarded to backends.
    pub(crate) kept_fields: KeptFields,
    /// Decides which clients may connect and which callers may use the server API.
    pub(crate) access: Arc<AccessControl>,
    /// The mailbox of the thread that asks backends; None = no hook is switched on.
    pub(crate) hooks: Option<Arc<HookMailbox>>,
    /// The events that the endpoints want to receive.
    pub(crate) wants: EventWants,
    /// The metrics of the consumers that run, in the order of the settings.
    pub(crate) consumers: Vec<Arc<ConsumerMetrics>>,
}

/// A generation that is in use. A shard takes it for every request, so its references are counted without atomics.
#[derive(Clone)]
pub(crate) struct CurrentGeneration(Rc<SharedGeneration>);

/// The generation that a thread shares with the other threads.
struct SharedGeneration(Arc<Generation>);

impl CurrentGeneration {
    fn of(generation: Arc<Generation>) -> Self {
        CurrentGeneration(Rc::new(SharedGeneration(generation)))
    }
}

impl Deref for CurrentGeneration {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0.0
    }
}

thread_local! {
    /// The generation of the shard whose own thread this is.
    static HERE: RefCell<Option<CurrentGeneration>> = const { RefCell::new(None) };
}

/// The number of the generation with which the shard of this thread works; 0 on threads that are not a shard's own.
pub(crate) fn generation_here() -> u64 {
    HERE.with_borrow(|here| here.as_ref().map_or(0, |generation| generation.number))
}

/// Sets the generation with which the shard of this thread works from now on.
pub(crate) fn set_generation_here(generation: &Arc<Generation>) {
    HERE.set(Some(CurrentGeneration::of(Arc::clone(generation))));
}

/// The newest generation of a node, and the number of its reloads.
pub(crate) struct NewestGeneration {
    newest: SharedLock<Arc<Generation>>,
    /// The number of reloads so far.
    pub(crate) reloads: ReloadCounts,
}

/// How many reloads there were. Reloads that found another one under way are not counted.
#[derive(Debug, Default)]
pub(crate) struct ReloadCounts {
    /// Reloads that have changed the configuration.
    pub(crate) succeeded: AtomicU64,
    /// Reloads that have changed nothing, because the configuration has a fault or a change needs a restart.
    pub(crate) failed: AtomicU64,
    /// Whether the last reload was refused.
    pub(crate) has_failed: AtomicBool,
}

impl NewestGeneration {
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        NewestGeneration { newest: SharedLock::new(generation), reloads: ReloadCounts::default() }
    }

    /// Returns the newest generation. Shards may work with the one before it for some milliseconds more.
    pub(crate) fn get(&self) -> Arc<Generation> {
        Arc::clone(&self.newest.read())
    }

    /// The newest generation, to be changed before another thread has it; None = another thread has it.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self) -> Option<&mut Generation> {
        Arc::get_mut(self.newest.get_mut())
    }

    /// Replaces the newest generation.
    pub(crate) fn set(&self, generation: Arc<Generation>) {
        *self.newest.write() = generation;
    }

    /// The generation with which this thread works: that of its shard, or the newest on other threads.
    pub(crate) fn current(&self) -> CurrentGeneration {
        HERE.with_borrow(Clone::clone).unwrap_or_else(|| CurrentGeneration::of(self.get()))
    }
}
