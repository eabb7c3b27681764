//! The guard that a task holds while it serves a connection, so that its shard can count the task and end it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

use tokio::sync::oneshot;

/// Counts of the tasks of one shard that serve connections.
#[derive(Debug, Default)]
pub(crate) struct TaskCounts {
    /// Tasks that serve connections whose client is not known yet.
    unauthenticated: AtomicUsize,
    /// Tasks whose requests a draining node still waits for.
    awaited: AtomicUsize,
}

impl TaskCounts {
    /// The number of tasks that serve connections whose client is not known yet.
    pub(crate) fn unauthenticated(&self) -> usize {
        self.unauthenticated.load(Relaxed)
    }

    /// The number of tasks that a draining node waits for.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.load(Relaxed)
    }
}

/// A task holds a guard while it serves a connection. While the client is not known, the connection counts as
/// unauthenticated. While the task may owe responses, a draining node waits for it.
pub(crate) struct ConnectionGuard {
    tasks: Arc<TaskCounts>,
    told: RefCell<oneshot::Receiver<()>>,
    counts: Cell<bool>,
    is_awaited: Cell<bool>,
}

impl ConnectionGuard {
    /// Makes the guard of a task that begins, and the sender by which the shard ends the task.
    pub(crate) fn new(tasks: &Arc<TaskCounts>) -> (Self, oneshot::Sender<()>) {
        let (tell, told) = oneshot::channel();
        tasks.unauthenticated.fetch_add(1, Relaxed);
        tasks.awaited.fetch_add(1, Relaxed);
        let (counts, is_awaited) = (Cell::new(true), Cell::new(true));
        (ConnectionGuard { tasks: Arc::clone(tasks), told: RefCell::new(told), counts, is_awaited }, tell)
    }

    /// Returns when the connection must be closed.
    pub(crate) async fn revoked(&self) {
        poll_fn(|context| {
            // A task polls this with each request, so it must be cheap.
            if !self.counts.get() {
                return Poll::Pending;
            }
            let told = Pin::new(&mut *self.told.borrow_mut()).poll(context);
            if matches!(told, Poll::Ready(Err(_))) {
                // The shard has ended, so no message will arrive.
                self.settle();
                return Poll::Pending;
            }
            told.map(|_| ())
        })
        .await;
    }

    /// The connection does not count as unauthenticated any more. It has shown a key, or it carries sessions, which are
    /// counted separately.
    pub(crate) fn settle(&self) {
        if self.counts.replace(false) {
            self.told.borrow_mut().close();
            self.tasks.unauthenticated.fetch_sub(1, Relaxed);
        }
    }

    /// Whether [`ConnectionGuard::settle`] has been called.
    pub(crate) fn is_settled(&self) -> bool {
        !self.counts.get()
    }

    /// Notes that the last response was written and no more requests are read. A draining node need not wait for the
    /// end of the connection.
    pub(crate) fn part(&self) {
        if self.is_awaited.replace(false) {
            self.tasks.awaited.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.settle();
        self.part();
    }
}
