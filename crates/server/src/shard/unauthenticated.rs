//! Unauthenticated connections, whose client has not connected yet, oldest first: pending connections, tasks that read
//! a header, negotiate TLS or read requests, and sessions before their connect command. When there are too many, or no
//! file descriptors are left, the shard closes the oldest.

use std::collections::VecDeque;

use mio::Token;
use tokio::sync::oneshot;

/// One unauthenticated connection.
pub(super) enum UnauthenticatedEntry {
    Pending(Token),
    /// A task that ends when this sender tells it to. It closes the receiver when it is not unauthenticated any more.
    Task(oneshot::Sender<()>),
    Session {
        slot: u32,
        generation: u32,
    },
}

/// The unauthenticated connections of a shard, by age. Entries of connections that are not any more stay until the
/// shard meets them.
#[derive(Default)]
pub(super) struct Unauthenticated {
    pub(super) entries: VecDeque<UnauthenticatedEntry>,
    /// The number of sessions among them.
    pub(super) sessions: usize,
}

/// The result of closing the oldest unauthenticated connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// It is closed, and its descriptor is free.
    Now,
    /// Its task has been told, and frees the descriptor when it runs.
    Soon,
    /// Another shard has been asked; a message comes when it has closed some.
    Elsewhere,
    /// There was none to close.
    Nothing,
}
