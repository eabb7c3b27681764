//! The time of a simulated day. Each thread has its own, and only its simulation moves it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Default)]
struct Timers {
    now: Duration,
    next_id: u64,
    wakers: BTreeMap<(Duration, u64), Waker>,
}

thread_local! {
    static TIMERS: RefCell<Timers> = RefCell::default();
}

/// The beginning of all days: only the differences matter.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}

/// Begins a day at zero.
pub(crate) fn begin() {
    TIMERS.with_borrow_mut(|timers| *timers = Timers::default());
}

/// Moves the time, and wakes who waits for it.
pub(crate) fn advance(to: Duration) {
    let due = TIMERS.with_borrow_mut(|timers| {
        timers.now = to;
        let later = timers.wakers.split_off(&(to, u64::MAX));
        std::mem::replace(&mut timers.wakers, later)
    });
    due.into_values().for_each(Waker::wake);
}

/// Another id. A day gives the same ids whenever it is repeated.
pub(crate) fn new_id() -> u64 {
    TIMERS.with_borrow_mut(|timers| {
        timers.next_id += 1;
        0xAB_0000_0000 + timers.next_id
    })
}

pub(crate) fn now() -> Instant {
    beginning() + TIMERS.with_borrow(|timers| timers.now)
}

/// Waits until a time.
pub(crate) struct Sleep {
    until: Duration,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        TIMERS.with_borrow_mut(|timers| {
            if timers.now >= self.until {
                return Poll::Ready(());
            }
            let id = *self.id.get_or_insert_with(|| {
                timers.next_id += 1;
                timers.next_id
            });
            timers.wakers.insert((self.until, id), context.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // The thread may be ending.
            let _ = TIMERS.try_with(|timers| timers.borrow_mut().wakers.remove(&(self.until, id)));
        }
    }
}

pub(crate) fn sleep_until(until: Instant) -> Sleep {
    Sleep { until: until.duration_since(beginning()), id: None }
}

// waits: nothing, because a simulation moves the time.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// The time is over.
#[derive(Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout_at<F: Future>(until: Instant, work: F) -> Result<F::Output, Elapsed> {
    tokio::select! {
        biased;
        output = work => Ok(output),
        () = sleep_until(until) => Err(Elapsed),
    }
}

pub(crate) async fn timeout<F: Future>(limit: Duration, work: F) -> Result<F::Output, Elapsed> {
    timeout_at(now() + limit, work).await
}
