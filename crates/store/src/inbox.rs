//! Messages in the inboxes of registered names.

use std::sync::Arc;

use bytes::Bytes;

use crate::refusal::StoreRefusal;

/// Takes the id of an inbox message that is on disk.
pub type OnQueued = Box<dyn FnOnce(Result<u64, StoreRefusal>) + Send>;

/// A message that nobody has acknowledged in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredMessage {
    /// Its id.
    pub id: u64,
    /// The name's scope.
    pub scope: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// When it was deleted at the earliest, Unix milliseconds.
    pub expires_ms: u64,
}

/// A message to a registered name, kept until the owner of the name acknowledges it.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// The name's scope.
    pub scope: Arc<str>,
    /// The name.
    pub name: Box<str>,
    /// The message, a JSON object.
    pub message: Bytes,
    /// When the message is deleted, Unix milliseconds.
    pub expires_ms: u64,
    /// Number of messages that the inbox of the name may hold.
    pub limit: usize,
}
