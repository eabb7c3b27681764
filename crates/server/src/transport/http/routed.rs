//! The border between HTTP and what answers its requests.

use hyper::Request;

use super::body::RequestBody;
use super::caller::Origin;
use super::respond::HttpResponse;
use super::stream::Admitted;
use crate::net::negotiated::Negotiated;

/// The outcome of a request.
pub(crate) enum Routed {
    /// A whole answer.
    Answer(HttpResponse),
    /// An answer after which the connection or stream is a WebSocket.
    Upgrade(HttpResponse, Negotiated),
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
