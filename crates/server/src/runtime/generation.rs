//! What a reload replaces: the settings of a node and what is made of them. One generation follows another; a shard
//! changes to the next one between two of its turns, so all that it does within a turn is of one generation.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};

use touchline_config::{Settings, WrittenKey};
use touchline_engine::session::SessionSettings;

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
    /// Counts the generations of the process, from 1.
    pub(crate) number: u64,
    /// Of the keys that were written and should be the same on all nodes; 0 = it is not known.
    pub(crate) digest: u32,
    /// The keys that were written, each with its place; empty = the program that embeds the server has made the
    /// settings.
    pub(crate) written: Vec<WrittenKey>,
    pub(crate) settings: Settings,
    /// What sessions share.
    pub(crate) session: SessionSettings,
    /// Proxies that are trusted to tell the client's address.
    pub(crate) proxies: Proxies,
    /// Origins of the pages that may open connections.
    pub(crate) origins: Origins,
    /// The rates of users and addresses; None = no rate is switched on.
    pub(crate) limits: Option<Arc<LimitTables>>,
    /// Header fields of clients' requests that backends are sent.
    pub(crate) kept_fields: KeptFields,
    /// Who may connect and call the server API.
    pub(crate) access: Arc<AccessControl>,
    /// The mailbox of the thread that asks backends; None = no hook is switched on.
    pub(crate) hooks: Option<Arc<HookMailbox>>,
    /// What the endpoints of events ask for.
    pub(crate) wants: EventWants,
    /// The consumers that run, in the order of the settings.
    pub(crate) consumers: Vec<Arc<ConsumerMetrics>>,
}

/// A generation that is in use. A shard takes it for every request, so it is counted without atomics.
#[derive(Clone)]
pub(crate) struct CurrentGeneration(Rc<SharedGeneration>);

/// What a thread shares with the others.
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

/// The number of the generation that the shard works with whose own thread this is; 0 on other threads.
pub(crate) fn generation_here() -> u64 {
    HERE.with_borrow(|here| here.as_ref().map_or(0, |generation| generation.number))
}

/// From now on the shard whose own thread this is works with a generation.
pub(crate) fn set_generation_here(generation: &Arc<Generation>) {
    HERE.set(Some(CurrentGeneration::of(Arc::clone(generation))));
}

/// The newest generation of a node.
pub(crate) struct NewestGeneration {
    newest: RwLock<Arc<Generation>>,
    /// The reloads so far.
    pub(crate) reloads: ReloadCounts,
}

/// How many reloads there were; those that found another one under way are not counted.
#[derive(Debug, Default)]
pub(crate) struct ReloadCounts {
    /// Those that have changed the configuration.
    pub(crate) succeeded: AtomicU64,
    /// Those that have changed nothing, because the configuration has a fault or a change takes a restart.
    pub(crate) failed: AtomicU64,
    /// The last one was refused.
    pub(crate) has_failed: AtomicBool,
}

impl NewestGeneration {
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        NewestGeneration { newest: RwLock::new(generation), reloads: ReloadCounts::default() }
    }

    /// The newest one. Shards may work with the one before it for some milliseconds more.
    pub(crate) fn get(&self) -> Arc<Generation> {
        Arc::clone(&self.newest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The newest one, to change it before somebody else has it.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self) -> Option<&mut Generation> {
        Arc::get_mut(self.newest.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces it.
    pub(crate) fn set(&self, generation: Arc<Generation>) {
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = generation;
    }

    /// The generation that this thread works with: that of the shard whose own thread this is, else the newest.
    pub(crate) fn current(&self) -> CurrentGeneration {
        HERE.with_borrow(Clone::clone).unwrap_or_else(|| CurrentGeneration::of(self.get()))
    }
}
