//! The border between HTTP and what answers its requests.

use std::pin::Pin;

use hyper::Request;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::RequestBody;
use super::caller::Origin;
use super::respond::HttpResponse;
use super::stream::Admitted;
use crate::net::negotiated::Negotiated;

/// What a connection becomes after an answer: the socket, with the bytes that were read behind the request.
pub(crate) type HandedOver = Box<dyn FnOnce(Box<dyn Duplex>) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A socket, with TLS or without.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// The outcome of a request.
pub(crate) enum Routed {
    /// A whole answer.
    Answer(HttpResponse),
    /// An answer after which the connection or stream is a WebSocket.
    Upgrade(HttpResponse, Negotiated),
    /// An answer after which a task of its own has the connection.
    HandOver(HttpResponse, HandedOver),
    /// A task of its own has the connection at once, and writes the answer. Over HTTP/1 only.
    TakeOver(HandedOver),
    /// An endless answer.
    Stream(Box<Admitted>),
    /// An answer over gRPC, and the bytes of its message as far as it is whole.
    #[cfg(feature = "grpc")]
    Grpc(hyper::Response<tonic::body::Body>, usize),
}

/// Answers requests. The API's floor implements this; a connection is served by one router.
pub(crate) trait Router: 'static {
    /// Answers one request.
    fn answer(origin: &Origin, request: Request<RequestBody>) -> impl Future<Output = Routed>;
}
