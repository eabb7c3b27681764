//! A panic costs what was being done, not the thread or the task that serves everybody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Something was given up by a panic. What it worked on may be half done: whoever hears of it throws that away.
#[derive(Debug, thiserror::Error)]
#[error("a defect of this program has ended it")]
pub(crate) struct Panicked;

/// Does something.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// The same for what takes its time.
pub(crate) async fn caught_in<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    let poll = |context: &mut std::task::Context<'_>| match caught(|| work.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    };
    std::future::poll_fn(poll).await
}
