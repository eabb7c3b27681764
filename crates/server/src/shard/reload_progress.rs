//! How far a shard has got with a reload.

use tokio::sync::oneshot;

/// The reload that is under way on a shard.
#[derive(Default)]
pub(super) struct ReloadProgress {
    /// Notified when the shard's own thread works with the newest generation.
    pub(super) taken: Vec<oneshot::Sender<()>>,
    /// The slot that is reviewed next; `None` = no review is under way.
    pub(super) next: Option<u32>,
    /// Whether reviewed sessions still wait for homes to reply to their subscribes. These sessions are reviewed again.
    pub(super) has_left_some: bool,
    /// When the last step of the review was, in microseconds of the node's clock.
    pub(super) stepped_us: u64,
}
