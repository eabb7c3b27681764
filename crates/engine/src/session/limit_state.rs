//! What a session remembers for rates.

use std::sync::Arc;

use crate::limit::{AddressKey, BucketLevels, SharedLimits};

/// The state that rates need in a session.
#[derive(Debug, Default)]
pub(super) struct LimitState {
    /// The address of the client; `None` = no rate by address is switched on.
    pub(super) address: Option<AddressKey>,
    /// The buckets of the connection's commands.
    pub(super) commands: BucketLevels,
    /// The buckets of the connection's errors.
    pub(super) errors: BucketLevels,
    /// The buckets of the connection's refused commands. They are used for anonymous clients.
    pub(super) refusals: BucketLevels,
    /// The connect that the backend is deciding about; `None` = none is under way, or failed connects have no rate.
    pub(super) attempt: Option<ConnectAttempt>,
}

/// An attempt to connect that is under way until this value is dropped, so that its end is counted exactly once.
pub(super) struct ConnectAttempt {
    shared: Arc<dyn SharedLimits + Send + Sync>,
    address: AddressKey,
    began_ns: u64,
}

impl ConnectAttempt {
    /// Begins an attempt; `None` = the address may not attempt to connect now.
    pub(super) fn begin(
        shared: &Arc<dyn SharedLimits + Send + Sync>,
        address: AddressKey,
        now_ns: u64,
    ) -> Option<Self> {
        let may_try = shared.begin_attempt(address, now_ns);
        may_try.then(|| ConnectAttempt { shared: Arc::clone(shared), address, began_ns: now_ns })
    }
}

impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        self.shared.end_attempt(self.address, self.began_ns);
    }
}

impl std::fmt::Debug for ConnectAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectAttempt").field(&self.address).finish()
    }
}
