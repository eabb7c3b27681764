//! The lives of a stream, which distinguish marks and positions.

use touchline_protocol::stream::{Epoch, RunId};

/// One life of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamIncarnation {
    /// The epoch of the stream, 40 bits. It is created with the stream and never changes.
    pub(crate) epoch: u64,
    /// The run of the stream, 40 bits. It changes when the stream is found to be set back to an earlier state. 0 = this
    /// never happened.
    pub(crate) run: RunId,
}

impl StreamIncarnation {
    /// The epoch of the stream's channels, including the run.
    pub(crate) fn epoch(self) -> Epoch {
        let epoch = Epoch::from_bits(self.epoch);
        if self.run == RunId::default() { epoch } else { epoch.in_run(self.run) }
    }
}
