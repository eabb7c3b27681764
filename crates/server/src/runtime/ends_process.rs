//! What a panic ends. Code of one connection ends that connection (`Shard::guarded`). Code that owns state of all
//! clients ends the process after a line in the log, because half-changed state must not be served: another node, or
//! the next start, serves the clients from what is stored.

use std::io;
use std::thread::{Builder, JoinHandle};

/// While this value exists, a panic of the thread ends the process.
pub(crate) struct EndsProcess {
    /// The part that owns the state, for the log.
    part: &'static str,
    /// The thread was already unwinding, because of another part.
    was_panicking: bool,
}

impl EndsProcess {
    /// Begins code that owns state of all clients.
    #[inline]
    pub(crate) fn of(part: &'static str) -> Self {
        EndsProcess { part, was_panicking: std::thread::panicking() }
    }
}

impl Drop for EndsProcess {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            end(self.part);
        }
    }
}

#[cold]
fn end(part: &str) -> ! {
    tracing::error!(part, "a fault of the server in state that all clients share: the process ends");
    std::process::abort()
}

/// Starts a thread that owns state of all clients.
///
/// # Errors
/// When the system cannot start a thread.
pub(crate) fn start_owner(part: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(part.to_owned()).spawn(move || {
        let _ends = EndsProcess::of(part);
        work();
    })
}
