//! The runs of the primary database. Within a run the database only moves forward. A new run begins when the database
//! may have been set back to an earlier state, because a backup was restored or a standby took over. Each channel
//! records the first offset of each run. So a position in a lost state differs from the positions of the present
//! history.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use touchline_lock::Lock;
use touchline_protocol::stream::{Run, RunId};

/// The number of runs that are remembered. Positions of earlier runs cannot be recovered.
pub(crate) const KEPT: u64 = 1_000;
/// The number of bits in a run's id, which are shown as eight letters.
const ID_BITS: u32 = 40;

/// The runs that the database remembers, in ascending order of their numbers. The last one is the current run.
pub type KnownRuns = Arc<[Run]>;

/// The runs of the database that this process knows.
#[derive(Debug, Default)]
pub(crate) struct RunBook(Lock<KnownRuns>);

impl RunBook {
    pub(crate) fn known(&self) -> KnownRuns {
        Arc::clone(&self.0.lock())
    }

    /// Sets the known runs. Returns whether the current run has changed.
    pub(crate) fn set(&self, known: KnownRuns) -> bool {
        let mut current = self.0.lock();
        let is_another = !current.is_empty() && current.last() != known.last();
        *current = known;
        is_another
    }
}

/// Creates the id of a new run: 40 random bits.
pub(crate) fn new_id() -> RunId {
    RunId(RandomState::new().hash_one(0) >> (u64::BITS - ID_BITS))
}
