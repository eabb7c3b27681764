//! What `run_lock.rs` uses to synchronize threads in the model, on loom's atomics. Some parts of the server allow more
//! orders than loom's part of the same name. These parts are implemented here, so that the model allows those orders
//! too.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::AtomicUsize;
use loom::thread::yield_now;

/// The spins of a thread that finds the lock taken only repeat what it does at the end. Each would double the orders.
pub(crate) const SPINS_MAX: usize = 0;

loom::lazy_static! {
    static ref FENCES: AtomicUsize = AtomicUsize::new(0);
}

/// loom runs no other thread between a thread's step and the fence after it, so the fence is made a step.
pub(crate) fn fence(ordering: Ordering) {
    FENCES.fetch_add(1, Relaxed);
    loom::sync::atomic::fence(ordering);
}

/// A flag whose changes have one order, in which a store is an exchange. With loom's flag, one thread's store may come
/// before another thread's exchange that returned the value from before that store. A third thread's exchange could
/// then miss the store even after fences, which the memory model forbids.
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(crate) fn store(&self, value: bool, ordering: Ordering) {
        self.swap(value, ordering);
    }

    pub(crate) fn swap(&self, value: bool, ordering: Ordering) -> bool {
        self.0.swap(value, ordering)
    }
}

/// A lock like that of the server: one atomic number, taken with acquire and released with release. loom's own lock
/// always knows whether it is taken. This one may be found taken after its release, as hardware and the language's
/// memory model allow.
pub(crate) struct Lock<T> {
    is_locked: loom::sync::atomic::AtomicBool,
    /// No thread waits for it, because `is_locked` admits only one thread.
    value: std::sync::Mutex<T>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Lock { is_locked: loom::sync::atomic::AtomicBool::new(false), value: std::sync::Mutex::new(value) }
    }

    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        // A failed exchange is a load, which may return an older value; loom's exchange returns the newest.
        if self.is_locked.load(Relaxed) || self.is_locked.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return None;
        }
        let value = self.value.try_lock().expect("one thread holds the lock");
        Some(LockGuard { value: Some(value), is_locked: &self.is_locked })
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => yield_now(),
            }
        }
    }
}

pub(crate) struct LockGuard<'m, T> {
    /// The guard of the value; None = this guard is being dropped.
    value: Option<std::sync::MutexGuard<'m, T>>,
    is_locked: &'m loom::sync::atomic::AtomicBool,
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the guard lives")
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the guard lives")
    }
}

impl<T> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.is_locked.store(false, Release);
    }
}

/// A wake that is kept until it is consumed, like tokio's. The lowest bit of the number is the wake. The other bits are
/// how many other threads still run.
pub(crate) struct Notify {
    state: AtomicUsize,
}

const WAKE: usize = 1;
const OTHER: usize = 2;

impl Notify {
    pub(crate) fn new() -> Self {
        Notify { state: AtomicUsize::new(0) }
    }

    pub(crate) fn notify_one(&self) {
        self.state.fetch_or(WAKE, AcqRel);
    }

    /// Waits for a wake, and consumes it. False = there is none, and no thread is left that could make one.
    pub(crate) fn wait(&self) -> bool {
        loop {
            let state = self.state.fetch_and(!WAKE, AcqRel);
            if state & WAKE != 0 || state < OTHER {
                return state & WAKE != 0;
            }
            yield_now();
        }
    }

    /// Called before the other threads run.
    pub(crate) fn others_begin(&self, count: usize) {
        self.state.fetch_add(count * OTHER, Relaxed);
    }

    /// Wakes the waiting thread without a wake to consume, because another thread has ended.
    pub(crate) fn another_ends(&self) {
        self.state.fetch_sub(OTHER, Relaxed);
    }
}
