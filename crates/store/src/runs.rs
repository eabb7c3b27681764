//! Runs of the primary database. Within a run the database only goes forward; when it may have been set back to an
//! earlier state (a backup was restored, a standby took over), a new run begins. Each channel notes the first offset
//! that a run gave, so a position of a lost state differs from the positions of the present history.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use touchline_protocol::stream::{Run, RunId};

/// Runs that are remembered. Positions of earlier ones can't be recovered.
pub(crate) const KEPT: u64 = 1_000;
/// Bits of a run's id: so many are shown, as eight letters.
const ID_BITS: u32 = 40;

/// The runs that the database remembers, by rising number. The last is the current one.
pub type KnownRuns = Arc<[Run]>;

/// The runs of the database as this process knows them.
#[derive(Debug, Default)]
pub(crate) struct RunBook(Mutex<KnownRuns>);

impl RunBook {
    pub(crate) fn known(&self) -> KnownRuns {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the known runs; returns whether another run was the current one before.
    pub(crate) fn set(&self, known: KnownRuns) -> bool {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another = !current.is_empty() && current.last() != known.last();
        *current = known;
        is_another
    }
}

/// A new run's id: 40 random bits.
pub(crate) fn new_id() -> RunId {
    RunId(RandomState::new().hash_one(0) >> (u64::BITS - ID_BITS))
}
