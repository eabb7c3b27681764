//! Catches panics, so that a panic ends only one request, and not the thread or task that serves all requests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// A panic ended the work. Its data may be half changed, so the caller must discard it.
#[derive(Debug, thiserror::Error)]
#[error("a defect of this program has ended it")]
pub struct Panicked;

/// Runs a closure and catches its panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// Runs a future and catches its panic.
pub(crate) async fn caught_in<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    let poll = |context: &mut std::task::Context<'_>| match caught(|| work.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    };
    std::future::poll_fn(poll).await
}
