//! Where two books differ.

/// What a node knew about a contributor when it noticed that another node knows something else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    pub(super) digest: u64,
    /// The number of comparisons that are still skipped before the node asks again.
    pub(super) left_out: u32,
    /// The number of comparisons that were skipped the last time.
    pub(super) patience: u32,
}
