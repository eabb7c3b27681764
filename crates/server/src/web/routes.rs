//! Paths that a program answers itself, on the port for clients.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use http_body_util::Full;
use hyper::{Request, Response};

/// The future of an answer. It runs on the thread of the connection's shard.
pub type RouteFuture = Pin<Box<dyn Future<Output = Response<Bytes>>>>;

/// Answers the requests of a path ([`crate::ServerBuilder::route`]). A function that takes a request and returns a
/// future of a response implements this trait.
///
/// The handler is called on the thread of a shard, which serves other clients too, so it must not block. Work that
/// waits belongs into the future, and long computations onto a thread of the program. The future need not be `Send`. A
/// panic in it ends its connection.
pub trait RouteHandler: Send + Sync + 'static {
    /// Answers a request. Its body is complete and at most as large as `http_api.body_size_limit`.
    fn answer(&self, request: Request<Bytes>) -> RouteFuture;
}

impl<H, F> RouteHandler for H
where
    H: Fn(Request<Bytes>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Bytes>> + 'static,
{
    fn answer(&self, request: Request<Bytes>) -> RouteFuture {
        Box::pin(self(request))
    }
}

/// The handlers of a program, by the exact paths of their requests.
#[derive(Default)]
pub(crate) struct Routes(HashMap<String, Arc<dyn RouteHandler>>);

impl Routes {
    /// Adds a handler. Returns whether there was none for this path before.
    pub(crate) fn add(&mut self, path: &str, handler: Arc<dyn RouteHandler>) -> bool {
        self.0.insert(path.to_owned(), handler).is_none()
    }

    /// The handler for a path; None = there is no handler.
    pub(crate) fn find(&self, path: &str) -> Option<&Arc<dyn RouteHandler>> {
        self.0.get(path)
    }

    /// The paths of the handlers, in any order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The answer of a handler in the form in which the node sends it.
pub(crate) fn whole(response: Response<Bytes>) -> Response<Full<Bytes>> {
    response.map(Full::new)
}
