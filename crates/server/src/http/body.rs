//! The body of a request: what is held of it is counted, and what nobody has read of it is passed over, so that the
//! connection can go on.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::header::EXPECT;

/// Unread bytes of a body that are passed over, and the time for that; a connection with more to come ends.
const PASSED_MAX: u64 = 64 * 1024;
const PASSED_TIME: Duration = Duration::from_secs(5);

/// Bytes that are held for requests and streams of HTTP: as long as this lives they are part of
/// [`crate::shard::ShardHandle::http_buffered`].
pub(super) struct BodyBudget {
    buffered: Arc<AtomicUsize>,
    bytes: usize,
}

impl BodyBudget {
    pub(super) fn new(buffered: &Arc<AtomicUsize>, bytes: usize) -> Self {
        buffered.fetch_add(bytes, Relaxed);
        BodyBudget { buffered: Arc::clone(buffered), bytes }
    }

    /// So many bytes more.
    pub(super) fn add(&mut self, bytes: usize) {
        self.buffered.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for BodyBudget {
    fn drop(&mut self) {
        self.buffered.fetch_sub(self.bytes, Relaxed);
    }
}

/// The body of a request.
pub(super) struct RequestBody {
    incoming: Option<Incoming>,
    /// The client waits to be told that it may send the body.
    is_asked_for: bool,
    /// Where what was not read is left. None over HTTP/2, where a stream ends alone.
    rest: Option<Rc<Rest>>,
    buffered: Arc<AtomicUsize>,
}

impl RequestBody {
    /// A request whose body is counted in `buffered`.
    pub(super) fn wrap(
        request: Request<Incoming>,
        rest: Option<Rc<Rest>>,
        buffered: &Arc<AtomicUsize>,
    ) -> Request<Self> {
        let is_asked_for = !request.headers().contains_key(EXPECT);
        request.map(|incoming| RequestBody {
            incoming: Some(incoming),
            is_asked_for,
            rest,
            buffered: Arc::clone(buffered),
        })
    }

    /// The whole body, and what counts its bytes.
    ///
    /// # Errors
    /// 413 when it has more than `limit` bytes, 400 when it is broken off.
    pub(super) async fn read(mut self, limit: usize) -> Result<(Bytes, BodyBudget), StatusCode> {
        self.is_asked_for = true;
        let mut held = BodyBudget::new(&self.buffered, 0);
        let (mut whole, mut more) = (Bytes::new(), BytesMut::new());
        let Some(incoming) = &mut self.incoming else { return Ok((whole, held)) };
        if incoming.size_hint().lower() > limit as u64 {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
            if whole.len() + more.len() + data.len() > limit {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            held.add(data.len());
            if whole.is_empty() && more.is_empty() {
                whole = data;
            } else {
                // Pieces are put together at once: many small ones would cost more than their bytes.
                more.extend_from_slice(&std::mem::take(&mut whole));
                more.extend_from_slice(&data);
            }
        }
        Ok((if more.is_empty() { whole } else { more.freeze() }, held))
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(incoming), Some(rest)) = (self.incoming.take(), &self.rest)
            && !incoming.is_end_stream()
        {
            rest.leave(incoming, self.is_asked_for);
        }
    }
}

/// What was not read of the body of a connection's current request.
#[derive(Default)]
pub(super) struct Rest {
    body: RefCell<Option<Incoming>>,
    is_given_up: Cell<bool>,
    /// Whoever waits for it.
    waker: RefCell<Option<Waker>>,
}

impl Rest {
    fn leave(&self, body: Incoming, is_asked_for: bool) {
        if is_asked_for && body.size_hint().lower() <= PASSED_MAX {
            self.body.replace(Some(body));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        } else {
            self.is_given_up.set(true);
        }
    }

    /// Whether the connection must end because the rest of a body is not read.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.get()
    }

    /// Gives what is left here. This is polled with each request, so it does next to nothing.
    fn poll_left(&self, context: &mut Context<'_>) -> Poll<Incoming> {
        if let Some(body) = self.body.take() {
            return Poll::Ready(body);
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Reads, and throws away, what is left here. To be polled beside the connection.
    pub(super) async fn pass_over(&self) -> Infallible {
        loop {
            let body = poll_fn(|context| self.poll_left(context)).await;
            // Boxed, because it is rare. A body that does not end in time is dropped, and its connection ends.
            let _ = Box::pin(tokio::time::timeout(PASSED_TIME, pass(body))).await;
        }
    }
}

async fn pass(mut body: Incoming) {
    let mut left = PASSED_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        if length > left {
            return;
        }
        left -= length;
    }
}
