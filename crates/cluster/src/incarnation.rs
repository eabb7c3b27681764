//! The lives of a stream, by which marks and positions are told apart.

use touchline_protocol::stream::{Epoch, RunId};

/// One life of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamIncarnation {
    /// Its epoch, 40 bits: made with the stream, and never changed.
    pub(crate) epoch: u64,
    /// Its run, 40 bits: another one since the stream was last found to be set back to an earlier state; 0 = it never
    /// was.
    pub(crate) run: RunId,
}

impl StreamIncarnation {
    /// The epoch of the stream's channels.
    pub(crate) fn epoch(self) -> Epoch {
        let epoch = Epoch::from_bits(self.epoch);
        if self.run == RunId::default() { epoch } else { epoch.in_run(self.run) }
    }
}
