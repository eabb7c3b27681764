//! The lock on a shard, and the handshake by which a thread that sends a message to the shard may run it.
//!
//! No thread blocks: a sender that finds the lock taken leaves its message in the mailbox, and the lock holder checks
//! the mailbox again after it has released the lock. No message is left behind, because at least one of the two sees
//! the other (Dekker's algorithm). The sender increments the counter of messages before it tries the lock. The lock
//! holder reads the counter after it has released the lock. Each side has a fence between the two steps. The shard's
//! own thread asks for the lock in the same way (`is_wanted`).
//!
//! This file knows neither shards nor messages. `tests/inline_runs` compiles it as it is, with another `sync`, and
//! tries all orders of its steps.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::sync::{AtomicBool, AtomicUsize, Lock, LockGuard, Notify, SPINS_MAX, fence, spin_loop};

/// How many times an inline runner rechecks the mailbox: a publication that the home has appended comes back as a
/// delivery.
const INLINE_RECHECKS_MAX: usize = 4;

/// A value that one thread at a time runs: the value's own thread, or a thread that has a message for it. See the
/// module.
pub(crate) struct RunLock<R> {
    /// The number of messages in the mailbox, or about to be put there.
    waiting: AtomicUsize,
    /// Whether the value's own thread has found the lock taken.
    is_wanted: AtomicBool,
    /// Wakes the value's own thread.
    pub(crate) waker: Notify,
    /// None before the value's own thread has started and after it has ended.
    runnable: Lock<Option<R>>,
}

impl<R> RunLock<R> {
    /// Makes a lock that has no value yet.
    pub(crate) fn new() -> Self {
        RunLock {
            waiting: AtomicUsize::new(0),
            is_wanted: AtomicBool::new(false),
            waker: Notify::new(),
            runnable: Lock::new(None),
        }
    }

    /// Puts the value behind the lock: from now on its own thread and inline runners may run it. Waits for the end of
    /// the run under way.
    pub(crate) fn install(&self, runnable: R) {
        *self.runnable.lock() = Some(runnable);
    }

    /// Takes the value out because it ends. Waits for the end of the run under way. None = it has been taken out
    /// before.
    pub(crate) fn clear(&self) -> Option<R> {
        self.runnable.lock().take()
    }

    /// Counts a message, then puts it into the mailbox. The caller must then call [`RunLock::wake`] or
    /// [`RunLock::run_inline`].
    pub(crate) fn enqueue(&self, put: impl FnOnce()) {
        self.waiting.fetch_add(1, Relaxed);
        put();
    }

    /// Subtracts messages that the lock holder has taken out of the mailbox.
    pub(crate) fn note_received(&self, messages: usize) {
        let waiting = self.waiting.fetch_sub(messages, Relaxed);
        debug_assert!(waiting >= messages, "a message is counted before it is in the mailbox");
    }

    /// Wakes the value's own thread if messages wait and no thread runs the value.
    pub(crate) fn wake(&self) {
        if self.has_messages() && self.runnable.try_lock().is_some() {
            self.waker.notify_one();
        }
    }

    /// Runs short turns on the calling thread, which has put a message into the mailbox, unless the lock is taken.
    /// `turn` returns whether more work is due at once.
    pub(crate) fn run_inline(&self, mut turn: impl FnMut(&mut R) -> bool) {
        fence(SeqCst);
        for _ in 0..INLINE_RECHECKS_MAX {
            let Some(mut guard) = self.runnable.try_lock() else { return };
            let Some(runnable) = guard.as_mut() else { return };
            let has_work = turn(runnable);
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

    /// Runs one turn on the value's own thread. `turn` and this function return whether more work is due at once. None
    /// = another thread holds the lock, and wakes this thread after it has released the lock.
    pub(crate) fn run(&self, turn: impl FnOnce(&mut R) -> bool) -> Option<bool> {
        let mut guard = self.runnable.try_lock().or_else(|| self.spin_then_try_take())?;
        let Some(runnable) = guard.as_mut() else { return Some(false) };
        let has_work = turn(runnable);
        drop(guard);
        Some(has_work || self.has_messages())
    }

    /// Tries the lock some more times: an inline run usually ends sooner than a thread sleeps and wakes.
    fn spin_then_try_take(&self) -> Option<LockGuard<'_, Option<R>>> {
        for _ in 0..SPINS_MAX {
            spin_loop();
            if let Some(guard) = self.runnable.try_lock() {
                return Some(guard);
            }
        }
        self.is_wanted.store(true, Relaxed);
        fence(SeqCst);
        // A holder that released the lock before the store above did not see the flag; try once more.
        self.runnable.try_lock()
    }

    /// Whether messages wait, including those of senders that found the lock taken.
    fn has_messages(&self) -> bool {
        fence(SeqCst);
        self.waiting.load(Relaxed) > 0
    }
}
