//! What a home knows of a log that a log backend keeps, besides the publications of its cache.

use std::collections::BTreeMap;

use touchline_protocol::stream::{Epoch, Offset, RunId};

use crate::request::Appended;

/// The greatest number of publications of a channel that wait behind a gap.
const BEHIND_GAP_MAX: usize = 10_000;

/// A query to a log backend because of a client that is ahead of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AheadQuery {
    /// The log backend was not queried.
    #[default]
    None,
    /// The result is awaited.
    Asked {
        /// The number of the load that is the result; any later load is one as well.
        load: u64,
        /// The highest offset that a request needs, as of [`crate::history::HistoryRing::ahead`]; [`Offset::END`] = a
        /// run is not known here.
        needed: Offset,
    },
    /// The log backend did not have the offset. It is not queried again before this time, Unix milliseconds; requests
    /// that are ahead wait meanwhile.
    Resting(u64),
    /// The load failed. The log backend is not queried again before this time, Unix milliseconds.
    Failed(u64),
}

/// A check of a log backend because of something that contradicts the cache: the backend may have been restored to an
/// earlier state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verification {
    /// The number of the load that is the check; any later load is one as well; 0 = no check is under way.
    pub(super) load: u64,
    /// The offset that the log backend had when the check began, and still has if it has lost nothing.
    pub(super) top: Offset,
    /// After this check another one is needed, from this offset on; `None` = no other.
    pub(super) next: Option<Offset>,
}

/// What arrives from other nodes while the log is loaded.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Publications that are applied after the load, by offset.
    pub(super) waiting: BTreeMap<Offset, Appended>,
    /// The highest offset that the channel is known to have. If the load ends below it, the log is loaded again.
    pub(super) top: Offset,
}

impl Backlog {
    /// Keeps a publication until the load is there. If there is no room for it, a later load brings it.
    pub(super) fn hold(&mut self, new: Appended) {
        if self.waiting.len() < BEHIND_GAP_MAX {
            self.waiting.insert(new.offset, new);
        } else {
            self.top = self.top.max(new.offset);
        }
    }
}

/// The state of a cache besides its publications. All of it is void for a log in memory.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    /// The query because of a client that is ahead of the cache.
    pub(super) ahead: AheadQuery,
    /// The check because of something that contradicts the cache.
    pub(super) verification: Verification,
    /// What waits for the load; empty unless the channel is loading.
    pub(super) backlog: Backlog,
    /// Until when the log backend is not asked again after a failure, Unix milliseconds.
    pub(super) retry_ms: u64,
    /// The epoch in which the log backend has lost publications, and until when the home does not trust loads with that
    /// epoch, Unix milliseconds.
    pub(super) lost: (Epoch, u64),
    /// The run that has lost publications, and the first offset that is no longer part of it. The log backend may learn
    /// it a moment later.
    pub(super) ended: Option<(RunId, Offset)>,
    /// The number of the last load that the cache contains; 0 = nothing was loaded.
    pub(super) last_load: u64,
    /// When that load was applied, or when the link was lost since, Unix milliseconds: until then the cache missed
    /// nothing.
    pub(super) synced_ms: u64,
}
