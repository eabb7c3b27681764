//! The body of a request. Its bytes in memory are counted, and its unread rest is skipped, so that the connection can
//! serve the next request.

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

/// How many unread bytes of a body are skipped at most, and for how long. A connection with a longer rest is closed.
const PASSED_MAX: u64 = 64 * 1024;
const PASSED_TIME: Duration = Duration::from_secs(5);

/// Counts bytes in memory for requests and streams of HTTP. Until this is dropped, they count in
/// [`crate::runtime::shard_handle::ShardHandle::http_buffered`].
pub(crate) struct BodyBudget {
    buffered: Arc<AtomicUsize>,
    bytes: usize,
}

impl BodyBudget {
    pub(crate) fn new(buffered: &Arc<AtomicUsize>, bytes: usize) -> Self {
        buffered.fetch_add(bytes, Relaxed);
        BodyBudget { buffered: Arc::clone(buffered), bytes }
    }

    /// Counts `bytes` more bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.buffered.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for BodyBudget {
    fn drop(&mut self) {
        self.buffered.fetch_sub(self.bytes, Relaxed);
    }
}

/// The body of a request. If it is dropped unread, its rest goes to [`Rest`].
pub(crate) struct RequestBody {
    incoming: Option<Incoming>,
    /// Whether the client sends the body: it did not ask for `100 Continue` first, or it has received it.
    is_being_sent: bool,
    /// Takes the unread rest; None over HTTP/2, where a stream can end without its connection.
    rest: Option<Rc<Rest>>,
    buffered: Arc<AtomicUsize>,
}

impl RequestBody {
    /// Wraps a request so that `buffered` counts its body.
    pub(crate) fn wrap(
        request: Request<Incoming>,
        rest: Option<Rc<Rest>>,
        buffered: &Arc<AtomicUsize>,
    ) -> Request<Self> {
        let is_being_sent = !request.headers().contains_key(EXPECT);
        request.map(|incoming| RequestBody {
            incoming: Some(incoming),
            is_being_sent,
            rest,
            buffered: Arc::clone(buffered),
        })
    }

    /// Returns the body as it arrives, for a stream that is answered meanwhile; None over HTTP/1.
    #[cfg(feature = "grpc")]
    pub(crate) fn into_stream(mut self) -> Option<Incoming> {
        self.incoming.take_if(|_| self.rest.is_none())
    }

    /// Reads the whole body. The returned [`BodyBudget`] counts its bytes until it is dropped.
    ///
    /// # Errors
    /// 413 if the body has more than `limit` bytes, 400 if the client breaks it off.
    pub(crate) async fn read(mut self, limit: usize) -> Result<(Bytes, BodyBudget), StatusCode> {
        self.is_being_sent = true;
        let mut budget = BodyBudget::new(&self.buffered, 0);
        let (mut whole, mut more) = (Bytes::new(), BytesMut::new());
        let Some(incoming) = &mut self.incoming else { return Ok((whole, budget)) };
        if incoming.size_hint().lower() > limit as u64 {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
            if whole.len() + more.len() + data.len() > limit {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            budget.add(data.len());
            if whole.is_empty() && more.is_empty() {
                whole = data;
            } else {
                // Pieces are joined at once, because many small ones would use more memory than their bytes.
                more.extend_from_slice(&std::mem::take(&mut whole));
                more.extend_from_slice(&data);
            }
        }
        Ok((if more.is_empty() { whole } else { more.freeze() }, budget))
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(incoming), Some(rest)) = (self.incoming.take(), &self.rest)
            && !incoming.is_end_stream()
        {
            rest.put(incoming, self.is_being_sent);
        }
    }
}

/// The unread rest of the body of a connection's current request.
#[derive(Default)]
pub(crate) struct Rest {
    body: RefCell<Option<Incoming>>,
    is_given_up: Cell<bool>,
    /// The waker of the task that runs [`Rest::pass_over`].
    waker: RefCell<Option<Waker>>,
}

impl Rest {
    /// Takes a body whose rest is to be skipped. If the rest is too long, it gives the connection up.
    fn put(&self, body: Incoming, is_being_sent: bool) {
        if is_being_sent && body.size_hint().lower() <= PASSED_MAX {
            self.body.replace(Some(body));
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        } else {
            self.is_given_up.set(true);
        }
    }

    /// Whether the connection must be closed because the rest of a body is not read.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.get()
    }

    /// Becomes ready with the next unread rest. It is polled with each request, so it must be cheap.
    fn poll_rest(&self, context: &mut Context<'_>) -> Poll<Incoming> {
        if let Some(body) = self.body.take() {
            return Poll::Ready(body);
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Reads and discards unread rests; never returns. The caller polls this beside the connection.
    pub(crate) async fn pass_over(&self) -> Infallible {
        loop {
            let body = poll_fn(|context| self.poll_rest(context)).await;
            // The future is boxed, because it is rare. If a body does not end in time, it is dropped and its connection
            // is closed.
            // real time: this only frees memory earlier.
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
