//! The shard's own poller inside its runtime. The runtime watches one descriptor; the poller watches all connections.

use std::io;
use std::time::Duration;

use mio::Events;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Reports which sockets are ready, by token, without a task for each socket.
pub(crate) struct Poller {
    inner: AsyncFd<mio::Poll>,
}

impl Poller {
    /// Makes a poller and registers it with the current runtime.
    ///
    /// # Errors
    /// The error of the system, most often because no file descriptors are left.
    pub(crate) fn new() -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        #[expect(
            unsafe_code,
            reason = "the only way to watch a poller's descriptor; crossing it costs 650 bytes less a connection"
        )]
        // SAFETY: `mio::Poll` owns one epoll descriptor from its creation to its drop, gives the same one at every
        // call, and never closes it before. It is moved into the `AsyncFd`, so it lives as long.
        let inner = unsafe { AsyncFd::register_with_interest(poll, Interest::READABLE) }?;
        Ok(Poller { inner })
    }

    /// The registry of the poller, in which sockets are registered.
    pub(crate) fn registry(&self) -> io::Result<mio::Registry> {
        self.inner.get_ref().registry().try_clone()
    }

    /// Waits until some socket may be ready.
    pub(crate) async fn ready(&self) {
        // An error here means that the runtime ends, which the shard notices by itself.
        let _ = self.inner.readable().await.map(|mut guard| guard.retain_ready());
    }

    /// Takes the events that are ready, up to the room in `events`, without waiting. The descriptor counts as not ready
    /// once all events were taken.
    pub(crate) fn poll(&mut self, events: &mut Events, room: usize) {
        let _ = self.inner.try_io_mut(Interest::READABLE, |poll| {
            poll.poll(events, Some(Duration::ZERO))?;
            if events.iter().count() >= room { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
    }
}
