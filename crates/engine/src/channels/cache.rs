//! What a home knows about a log that a log backend keeps, in addition to the publications in its cache.

use std::collections::BTreeMap;

use touchline_protocol::stream::{Epoch, Offset, RunId};

use crate::request::Appended;

/// The greatest number of publications of a channel that wait for a load that fills a gap.
const BEHIND_GAP_MAX: usize = 10_000;

/// A query to a log backend for a client whose position is after the end of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AheadQuery {
    /// The log backend was not queried.
    #[default]
    None,
    /// The log backend was queried; the result has not arrived.
    Asked {
        /// The number of the load that brings the result. Any later load brings it too.
        load: u64,
        /// The highest offset that a request needs, as [`crate::history::HistoryRing::ahead`] returns it.
        /// [`Offset::END`] = a run is not known here.
        needed: Offset,
    },
    /// The log backend did not have the offset. It is not queried again before this time, Unix milliseconds. Requests
    /// that need a later offset wait meanwhile.
    Resting(u64),
    /// The load failed. The log backend is not queried again before this time, Unix milliseconds.
    Failed(u64),
}

/// A check of a log backend after something contradicted the cache: the backend may have been restored to an earlier
/// state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verification {
    /// The number of the load that serves as the check; any later load serves too. 0 = no check is under way.
    pub(super) load: u64,
    /// The last offset of the log backend when the check began. It still has this offset if it has lost nothing.
    pub(super) top: Offset,
    /// Another check is needed after this one, from this offset on; `None` = no further check.
    pub(super) next: Option<Offset>,
}

/// Publications and reports that arrive from other nodes while the log is loaded.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Publications by offset. They are applied after the load.
    pub(super) waiting: BTreeMap<Offset, Appended>,
    /// The highest known offset of the channel. If the load ends below it, the log is loaded again.
    pub(super) top: Offset,
}

impl Backlog {
    /// Keeps a publication until the load has finished. If there is no room for it, a later load brings it.
    pub(super) fn hold(&mut self, new: Appended) {
        if self.waiting.len() < BEHIND_GAP_MAX {
            self.waiting.insert(new.offset, new);
        } else {
            self.top = self.top.max(new.offset);
        }
    }
}

/// The state of a cache in addition to its publications. For a log in memory all fields are empty.
#[derive(Debug, Default)]
pub(super) struct CacheState {
    /// The query for a client whose position is after the end of the cache.
    pub(super) ahead: AheadQuery,
    /// The check after something contradicted the cache.
    pub(super) verification: Verification,
    /// What waits for the load to finish; empty unless the channel is loading.
    pub(super) backlog: Backlog,
    /// After a failure, the log backend is not asked again before this time, Unix milliseconds.
    pub(super) retry_ms: u64,
    /// The epoch in which the log backend has lost publications. The home does not trust loads with that epoch before
    /// this time, Unix milliseconds.
    pub(super) lost: (Epoch, u64),
    /// The run that has lost publications, and the first offset that no longer belongs to it. The log backend may learn
    /// this a moment later.
    pub(super) ended: Option<(RunId, Offset)>,
    /// The number of the last load that the cache contains; 0 = nothing has been loaded.
    pub(super) last_load: u64,
    /// The time up to which the cache missed nothing, Unix milliseconds: when that load was applied, or when the link
    /// was lost since then.
    pub(super) synced_ms: u64,
}
