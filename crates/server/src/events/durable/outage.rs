//! The log lines about an outage of the primary database.

use std::cell::Cell;

use touchline_store::ledger::LedgerError;

/// Logs the beginning and the end of an outage for one kind of work.
pub(super) struct OutageNote {
    /// What does not happen during the outage.
    effect: &'static str,
    is_failing: Cell<bool>,
}

impl OutageNote {
    pub(super) fn new(effect: &'static str) -> Self {
        OutageNote { effect, is_failing: Cell::new(false) }
    }

    /// Notes that a request has failed.
    pub(super) fn fails(&self, error: &LedgerError) {
        if self.is_failing.replace(true) {
            tracing::debug!(%error, "the ledger of events still fails");
        } else {
            tracing::error!(%error, "the ledger of events cannot be used: {} until it can", self.effect);
        }
    }

    /// Notes that a request has succeeded.
    pub(super) fn works(&self) {
        if self.is_failing.replace(false) {
            tracing::info!("the ledger of events can be used again");
        }
    }
}
