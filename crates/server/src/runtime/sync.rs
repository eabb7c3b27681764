//! What `run_lock.rs` synchronizes with. The model of inline runs (`tests/inline_runs`) compiles that file with another
//! module of this name, whose parts let a checker choose every order of threads and every value that a load may return.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, TryLockError};

pub(crate) use tokio::sync::Notify;

/// Attempts to take a lock before its own thread goes to sleep: some 20 µs.
pub(crate) const SPINS_MAX: usize = 500;
