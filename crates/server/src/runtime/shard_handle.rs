//! The handle of a shard: its mailbox, and the shard itself behind a lock, so that one thread at a time runs it.
//!
//! A shard has a thread of its own. Waking that thread costs more than serving most messages, so a thread of another
//! shard that sends a small message runs the shard inline, if no other thread runs it. No thread blocks: if the shard
//! is locked, the message stays queued, and the lock holder checks the mailbox again after it has released the lock. No
//! message is left behind: the sender increments the counter of messages before it tries the lock, the lock holder
//! reads the counter after it has released the lock, and each side has a fence between the two, so at least one of the
//! two sees the other (Dekker's algorithm). The shard's own thread asks for the lock in the same way (`is_wanted`).

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connection_guard::TaskCounts;
use super::mailbox::Message;
use super::metrics::ShardMetrics;

/// How many times an inline runner rechecks the mailbox: a publication that the home has appended comes back as a
/// delivery.
const INLINE_RECHECKS_MAX: usize = 4;
/// Attempts to lock the shard before its own thread goes to sleep: some 20 µs.
const SPINS_MAX: usize = 500;

/// What the lock of a handle protects: a shard, of which this floor knows only how to run it.
pub(crate) trait Runnable: Send {
    /// One turn, on the shard's own thread. Returns whether more work is due at once. `events`: what the poller has
    /// reported.
    fn turn(&mut self, events: &mio::Events, is_tick_due: bool) -> bool;

    /// A short turn on a thread of another shard, which has sent a message. Returns whether more work is due at once.
    fn run_inline(&mut self) -> bool;

    /// The end: the shard has run its last turn.
    fn finish(self: Box<Self>);
}

/// The mailbox of a shard, its counters, and the lock on the shard. See the module.
pub(crate) struct ShardHandle {
    pub(crate) metrics: Arc<ShardMetrics>,
    /// Publications in the mailbox.
    backlog: AtomicUsize,
    /// See [`ShardHandle::http_buffered`].
    http_buffered: Arc<AtomicUsize>,
    mailbox: UnboundedSender<Message>,
    /// See [`ShardHandle::tasks`].
    tasks: Arc<TaskCounts>,
    /// Messages in the mailbox, or about to be put there.
    waiting: AtomicUsize,
    /// Wakes the shard's own thread.
    waker: Notify,
    /// The shard's own thread has found the lock taken.
    is_wanted: AtomicBool,
    /// None before the shard's thread has started and after it has ended.
    shard: Mutex<Option<Box<dyn Runnable>>>,
}

impl ShardHandle {
    /// The handle of a shard that is not installed yet, and the receiving end of its mailbox.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Message>) {
        let (mailbox, messages) = unbounded_channel();
        let handle = ShardHandle {
            metrics: Arc::default(),
            backlog: AtomicUsize::new(0),
            http_buffered: Arc::default(),
            mailbox,
            tasks: Arc::default(),
            waiting: AtomicUsize::new(0),
            waker: Notify::new(),
            is_wanted: AtomicBool::new(false),
            shard: Mutex::new(None),
        };
        (handle, messages)
    }

    /// Puts a message into the mailbox and wakes the shard's own thread. A shard that has ended drops the message; the
    /// node has ended then too.
    pub(crate) fn send(&self, message: Message) {
        self.enqueue(message);
        self.wake();
    }

    /// Puts a message into the mailbox without waking a thread; [`ShardHandle::wake`] must follow the last message. One
    /// wake per message costs both sides more than the messages do.
    pub(crate) fn enqueue(&self, message: Message) {
        if matches!(message, Message::Delivery { .. }) {
            self.backlog.fetch_add(1, Relaxed);
        }
        self.waiting.fetch_add(1, Relaxed);
        let _ = self.mailbox.send(message);
    }

    /// Wakes the shard's own thread if messages wait and no thread runs the shard.
    pub(crate) fn wake(&self) {
        if self.has_messages() && self.try_lock().is_some() {
            self.waker.notify_one();
        }
    }

    /// Puts a message into the mailbox, and serves it on the calling thread unless the shard is locked. Only for
    /// threads of shards, and for messages that take some microseconds to serve.
    pub(crate) fn run_inline(&self, message: Message) {
        self.enqueue(message);
        fence(SeqCst);
        for _ in 0..INLINE_RECHECKS_MAX {
            let Some(mut guard) = self.try_lock() else { return };
            let Some(shard) = guard.as_mut() else { return };
            let has_work = shard.run_inline();
            drop(guard);
            if has_work {
                break;
            }
            if !self.has_messages() {
                if self.is_wanted.swap(false, Relaxed) {
                    self.waker.notify_one();
                }
                return;
            }
        }
        self.waker.notify_one();
    }

    /// The tasks of the shard that serve connections.
    pub(crate) fn tasks(&self) -> &Arc<TaskCounts> {
        &self.tasks
    }

    /// The number of publications in the mailbox.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(Relaxed)
    }

    /// Bytes that the shard's HTTP tasks hold, outside all connections of clients: bodies of requests while they are
    /// read and served, and HTTP/2 connections and streams, each counted as the most that it may hold.
    pub(crate) fn http_buffered(&self) -> usize {
        self.http_buffered.load(Relaxed)
    }

    /// The counter that the shard's HTTP tasks add to and subtract from, bytes. See [`ShardHandle::http_buffered`].
    pub(crate) fn http_counter(&self) -> &Arc<AtomicUsize> {
        &self.http_buffered
    }

    /// Puts the shard behind the lock: from now on its own thread and inline runners may run it.
    pub(crate) fn install(&self, shard: Box<dyn Runnable>) {
        *self.lock() = Some(shard);
    }

    /// Takes the shard out, because it ends. None if it has been taken out before.
    pub(crate) fn clear(&self) -> Option<Box<dyn Runnable>> {
        self.lock().take()
    }

    /// Runs one turn of the shard on its own thread. Returns whether more work is due at once; None = another thread
    /// holds the lock and wakes this thread after it has released it.
    pub(crate) fn run(&self, turn: impl FnOnce(&mut dyn Runnable) -> bool) -> Option<bool> {
        let mut guard = self.try_lock().or_else(|| self.spin_then_try_take())?;
        let Some(shard) = guard.as_mut() else { return Some(false) };
        let has_work = turn(&mut **shard);
        drop(guard);
        Some(has_work || self.has_messages())
    }

    /// Tries the lock some times more: an inline run usually ends sooner than a thread sleeps and wakes.
    fn spin_then_try_take(&self) -> Option<MutexGuard<'_, Option<Box<dyn Runnable>>>> {
        for _ in 0..SPINS_MAX {
            std::hint::spin_loop();
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
        }
        self.is_wanted.store(true, Relaxed);
        fence(SeqCst);
        // A holder that released the lock before the store above did not see the flag; try once more.
        self.try_lock()
    }

    /// Waits until another thread wakes the shard's own thread.
    pub(crate) async fn woken(&self) {
        self.waker.notified().await;
    }

    /// Subtracts messages that the shard has taken out of the mailbox from the counters.
    pub(crate) fn note_received<'m>(&self, messages: impl Iterator<Item = &'m Message>) {
        let (mut all, mut publications) = (0, 0);
        for message in messages {
            all += 1;
            publications += usize::from(matches!(message, Message::Delivery { .. }));
        }
        self.waiting.fetch_sub(all, Relaxed);
        self.backlog.fetch_sub(publications, Relaxed);
    }

    /// Whether messages wait, among them those of senders that found the shard locked.
    fn has_messages(&self) -> bool {
        fence(SeqCst);
        self.waiting.load(Relaxed) > 0
    }

    /// Locks the shard; waits for the end of an inline run, if one is under way.
    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn Runnable>>> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Box<dyn Runnable>>>> {
        match self.shard.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
