//! Queues that several threads share.

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};

/// Takes the next request from a queue that several threads share. `None` = all its senders are dropped.
pub(crate) fn next<T>(queue: &Mutex<Receiver<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}
