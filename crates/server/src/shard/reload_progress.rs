//! How far a shard has come with a reload.

use tokio::sync::oneshot;

/// The reload of a shard that is under way.
#[derive(Default)]
pub(super) struct ReloadProgress {
    /// Told when the shard's own thread works with the newest generation.
    pub(super) taken: Vec<oneshot::Sender<()>>,
    /// The slot that is reviewed next; `None` = no review is under way.
    pub(super) next: Option<u32>,
    /// Homes have not replied yet to subscribes of sessions that were reviewed: these are reviewed again.
    pub(super) has_left_some: bool,
    /// When the last step of the review was, microseconds of the node's clock.
    pub(super) stepped_us: u64,
}
