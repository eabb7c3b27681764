//! When users were connected last.

use std::sync::Arc;

use crate::refusal::StoreRefusal;

/// A user, and when it was connected last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenUser {
    /// The user: at most [`SeenUser::SIZE_MAX`] bytes, without a NUL.
    pub user: Arc<str>,
    /// Unix seconds.
    pub seen_s: u64,
}

impl SeenUser {
    /// The most bytes of a user that is kept.
    pub const SIZE_MAX: usize = 255;

    /// Whether the databases can keep a user. The anonymous one is many people: it is not kept.
    pub fn is_kept(user: &str) -> bool {
        (1..=Self::SIZE_MAX).contains(&user.len()) && !user.contains('\0')
    }
}

/// Takes when users were connected last, in any order, without those that are unknown.
pub type OnSeen = Box<dyn FnOnce(Result<Vec<SeenUser>, StoreRefusal>) + Send + Sync>;
