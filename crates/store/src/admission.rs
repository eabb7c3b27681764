//! Decides which writes of a batch are made. Each write is charged to the budget first, and refused if there is no
//! room.

use std::sync::atomic::Ordering::Relaxed;

use crate::batch::WriteRequest;
use crate::charges;
use crate::events::{EventSink, StoreEvent};
use crate::growth::{GrowthBudget, GrowthClass};
use crate::metrics::StoreMetrics;
use crate::refusal::StoreRefusal;

/// The cost of the ordinary writes in a batch, bytes.
pub(crate) fn ordinary_bytes(batch: &[WriteRequest]) -> u64 {
    let charges = batch.iter().map(charges::of_write);
    charges.filter(|charge| charge.class == GrowthClass::Ordinary).map(|charge| charge.bytes).sum()
}

/// Removes the writes for which there is no room from a batch, and reports them as refused. The others are charged.
pub(crate) fn admit(
    batch: &mut Vec<WriteRequest>,
    budget: &mut GrowthBudget,
    events: &EventSink,
    metrics: &StoreMetrics,
) {
    let refused: Vec<WriteRequest> =
        batch.extract_if(.., |write| budget.charge(charges::of_write(write)).is_err()).collect();
    metrics.size.note(budget);
    if refused.is_empty() {
        return;
    }
    metrics.size.refused.fetch_add(refused.len() as u64, Relaxed);
    metrics.waiting.fetch_sub(WriteRequest::appends(&refused), Relaxed);
    refused.into_iter().for_each(|write| write.refuse(events, StoreRefusal::DatabaseFull));
    events(StoreEvent::BatchReported);
}
