//! The ring of publications: how publications enter and leave it, and where it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use touchline_protocol::Publication;
use touchline_protocol::stream::{Epoch, Offset, Runs, StreamPosition};

/// A ring of publications with rising offsets that ends at the channel's top. In a cluster many channels share a stream
/// and its offsets, so a channel's offsets have gaps. But no publication after `floor` is missing.
#[derive(Debug)]
pub(crate) struct HistoryRing {
    pub(super) epoch: Epoch,
    pub(super) top: Offset,
    /// Every publication of the channel after this offset is kept.
    pub(super) floor: Offset,
    pub(super) kept: VecDeque<RingSlot>,
    /// The runs that assigned the offsets; empty if the log backend is never restored to an earlier state.
    pub(super) runs: Runs,
}

/// A publication, and when it expires, Unix milliseconds.
#[derive(Debug)]
pub(super) struct RingSlot {
    pub(super) publication: Arc<Publication>,
    expires_ms: u64,
}

impl HistoryRing {
    /// An empty history at offset 0 of a new epoch.
    pub(crate) fn new(epoch: Epoch) -> Self {
        HistoryRing::resume(epoch, Offset::START, Offset::START)
    }

    /// An empty history that continues after `top`.
    pub(crate) fn resume(epoch: Epoch, top: Offset, floor: Offset) -> Self {
        HistoryRing { epoch, top, floor, kept: VecDeque::new(), runs: Runs::default() }
    }

    /// Raises the top of a channel whose last publication is no longer kept.
    pub(crate) fn raise(&mut self, top: Offset) {
        self.top = self.top.max(top);
    }

    pub(crate) fn position(&self) -> StreamPosition {
        StreamPosition { offset: self.top, epoch: self.epoch }
    }

    /// The number of publications in the ring.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The offset that the next publication gets.
    pub(crate) fn next_offset(&self) -> Offset {
        self.top.next()
    }

    /// Adds a publication with a higher offset than the top. At most `size` publications are kept.
    pub(crate) fn append(&mut self, publication: Arc<Publication>, size: usize, expires_ms: u64) {
        debug_assert!(publication.offset > self.top, "offsets rise");
        self.top = publication.offset;
        while self.kept.len() >= size.max(1) {
            self.drop_oldest();
        }
        self.kept.push_back(RingSlot { publication, expires_ms });
    }

    /// Drops the publications that have expired. The top does not change.
    pub(crate) fn trim(&mut self, now_ms: u64) {
        while self.kept.front().is_some_and(|kept| kept.expires_ms <= now_ms) {
            self.drop_oldest();
        }
        if self.kept.is_empty() {
            self.kept = VecDeque::new();
        }
    }

    /// Changes how long publications are kept after their arrival, and keeps at most `size` of them.
    pub(crate) fn refit(&mut self, size: usize, (ttl_before_ms, ttl_ms): (u64, u64), now_ms: u64) {
        for kept in &mut self.kept {
            kept.expires_ms = kept.expires_ms.saturating_sub(ttl_before_ms).saturating_add(ttl_ms);
        }
        self.trim(now_ms);
        while self.kept.len() > size.max(1) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.floor = oldest.publication.offset;
        }
    }

    /// Drops all publications. The top does not change.
    pub(crate) fn clear(&mut self) {
        self.kept = VecDeque::new();
        self.floor = self.top;
    }

    /// Notes that the history was removed up to `until`; the removal itself has the later `offset`. A client that has
    /// everything up to `until` has missed nothing.
    pub(crate) fn clear_at(&mut self, until: Offset, offset: Offset) {
        self.kept = VecDeque::new();
        self.floor = self.floor.max(until);
        self.top = self.top.max(offset);
    }

    /// Sets the runs that assigned the offsets.
    pub(crate) fn set_runs(&mut self, runs: Runs) {
        self.runs = runs;
    }

    /// Notes that the current run has assigned an offset.
    pub(crate) fn note_run(&mut self, offset: Offset) {
        self.runs.note(offset);
    }

    /// When the oldest publication expires, Unix milliseconds; `None` = the ring is empty.
    pub(crate) fn next_expiry_ms(&self) -> Option<u64> {
        self.kept.front().map(|kept| kept.expires_ms)
    }

    /// Whether a publication with an offset up to the top may have been kept here and dropped since.
    pub(crate) fn has_dropped(&self, offset: Offset) -> bool {
        offset <= self.floor
    }

    /// No publication after this offset is missing.
    pub(crate) fn floor(&self) -> Offset {
        self.floor
    }

    /// The offset of the newest publication in the ring.
    pub(crate) fn newest(&self) -> Option<Offset> {
        self.kept.back().map(|kept| kept.publication.offset)
    }

    /// The offset after which to read the log backend, to check whether it still has the newest publication of this
    /// ring. A log backend that was restored to an earlier state may have another one there.
    pub(crate) fn proof(&self) -> Offset {
        self.newest().map_or(self.floor, |newest| newest.previous())
    }

    /// The publication with an offset; `None` = it is not in the ring.
    pub(crate) fn get(&self, offset: Offset) -> Option<&Publication> {
        let index = self.kept.binary_search_by_key(&offset, |kept| kept.publication.offset).ok()?;
        self.kept.get(index).map(|kept| &*kept.publication)
    }
}
