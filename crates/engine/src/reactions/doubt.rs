//! Where two books differ.

/// What a node knew of a contributor when it noticed that another node knows it otherwise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubt {
    pub(super) digest: u64,
    /// Comparisons that are left out before it asks again.
    pub(super) left_out: u32,
    /// How many were left out the last time.
    pub(super) patience: u32,
}
