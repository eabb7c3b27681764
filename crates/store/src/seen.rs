//! Records of when users were last connected.

use std::sync::Arc;

use crate::refusal::StoreRefusal;

/// A user, and when it was last connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenUser {
    /// The user id: at most [`SeenUser::SIZE_MAX`] bytes, without a NUL character.
    pub user: Arc<str>,
    /// When the user was last connected, Unix seconds.
    pub seen_s: u64,
}

impl SeenUser {
    /// The maximum length of a user id that is recorded, bytes.
    pub const SIZE_MAX: usize = 255;

    /// Whether the databases can record a user. The anonymous user stands for many people, so it is not recorded.
    pub fn is_kept(user: &str) -> bool {
        (1..=Self::SIZE_MAX).contains(&user.len()) && !user.contains('\0')
    }
}

/// The result of deleting the record of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenForgotten {
    /// The time was recorded, and is now deleted.
    Deleted,
    /// No time was recorded.
    Unknown,
    /// Another node is writing the time now, so it was not deleted. The caller should try again.
    Busy,
}

/// A callback for the result of deleting the record of a user.
pub type OnSeenForgotten = Box<dyn FnOnce(Result<SeenForgotten, StoreRefusal>) + Send>;

/// A callback for when users were last connected, in any order, without users that are unknown.
pub type OnSeen = Box<dyn FnOnce(Result<Vec<SeenUser>, StoreRefusal>) + Send + Sync>;
