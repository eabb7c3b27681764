//! What a session remembers for rates.

use crate::limit::{AddressKey, BucketLevels};

/// What rates need of a session.
#[derive(Debug, Default)]
pub(super) struct LimitState {
    /// The address of the client; `None` = no rate of addresses is switched on.
    pub(super) address: Option<AddressKey>,
    /// The buckets of the connection's commands.
    pub(super) commands: BucketLevels,
    /// The buckets of the connection's errors.
    pub(super) errors: BucketLevels,
    /// The bucket of the connection's refused commands.
    pub(super) refusals: BucketLevels,
}
