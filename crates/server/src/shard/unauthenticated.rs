//! Unauthenticated connections, whose client has not connected yet, oldest first. They are pending connections, tasks
//! that read a header, negotiate TLS or read requests, and sessions before their connect command. If there are too
//! many, or no file descriptors are left, the shard closes the oldest.

use std::collections::VecDeque;

use mio::Token;
use tokio::sync::oneshot;

/// One unauthenticated connection.
pub(super) enum UnauthenticatedEntry {
    Pending(Token),
    /// A task, which ends when it gets a message from this sender. It closes the receiver when it is no longer
    /// unauthenticated.
    Task(oneshot::Sender<()>),
    Session {
        slot: u32,
        generation: u32,
    },
}

/// The unauthenticated connections of a shard, by age. Stale entries stay until the shard meets them.
#[derive(Default)]
pub(super) struct Unauthenticated {
    pub(super) entries: VecDeque<UnauthenticatedEntry>,
    /// How many of the entries are sessions.
    pub(super) sessions: usize,
}

/// The result of closing the oldest unauthenticated connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The connection is closed, and its descriptor is free.
    Now,
    /// The connection's task was notified. The task frees the descriptor when it runs.
    Soon,
    /// Another shard was asked. It sends a message when it has closed some connections.
    Elsewhere,
    /// There was no connection to close.
    Nothing,
}
