//! What `run_lock.rs` uses to synchronize threads. The model of inline runs (`tests/inline_runs`) compiles that file
//! with another module of this name. In that module a checker chooses every order of threads and every value that a
//! load may return.

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, fence};

pub(crate) use tokio::sync::Notify;
pub(crate) use touchline_lock::{Lock, LockGuard};

/// How often a shard's own thread tries to take a lock before it sleeps: about 20 µs.
pub(crate) const SPINS_MAX: usize = 500;
