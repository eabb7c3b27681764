//! The interface between HTTP and the code that answers its requests.

use std::pin::Pin;

use hyper::Request;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::RequestBody;
use super::caller::Origin;
use super::respond::HttpResponse;
use super::stream::Admitted;
use crate::net::negotiated::Negotiated;

/// What a connection becomes after an answer. It gets the socket, with the bytes that were read after the request.
pub(crate) type HandedOver = Box<dyn FnOnce(Box<dyn Duplex>) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A socket, with or without TLS.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// The outcome of a request.
pub(crate) enum Routed {
    /// A complete answer.
    Answer(HttpResponse),
    /// An answer after which the connection or stream is a WebSocket.
    Upgrade(HttpResponse, Negotiated),
    /// An answer after which a separate task has the connection.
    HandOver(HttpResponse, HandedOver),
    /// A separate task takes the connection at once, and writes the answer. Only over HTTP/1.
    TakeOver(HandedOver),
    /// An endless answer to an admitted client.
    Stream(Box<Admitted>),
    /// An answer over gRPC, and how many bytes of its message are complete.
    #[cfg(feature = "grpc")]
    Grpc(hyper::Response<tonic::body::Body>, usize),
}

/// Answers requests. The layer of the API implements this. One router serves a connection.
pub(crate) trait Router: 'static {
    /// Answers one request of a connection.
    fn answer(origin: &Origin, request: Request<RequestBody>) -> impl Future<Output = Routed>;
}
