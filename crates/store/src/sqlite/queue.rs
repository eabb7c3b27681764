//! Queues that several threads share.

use std::sync::mpsc::Receiver;

use touchline_lock::Lock;

/// Takes the next request from a queue that several threads share. `None` = all its senders are dropped.
pub(crate) fn next<T>(queue: &Lock<Receiver<T>>) -> Option<T> {
    queue.lock().recv().ok()
}
