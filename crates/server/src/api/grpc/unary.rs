//! Reads and answers a call with one message.

use std::cell::Cell;

use http_body_util::Full;
use hyper::{Request, StatusCode};
use prost::Message;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

use crate::node::Node;
use crate::transport::http::Routed;
use crate::transport::http::body::RequestBody;

/// The number of bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A function that answers a message, in the form that the library calls.
struct Answering<F>(F);

impl<F, Q, A, T> UnaryService<Q> for Answering<F>
where
    F: FnMut(Q) -> T,
    T: Future<Output = Result<tonic::Response<A>, Status>>,
{
    type Response = A;
    type Future = T;

    fn call(&mut self, request: tonic::Request<Q>) -> T {
        self.0(request.into_inner())
    }
}

/// Reads a message, runs its function, and answers the call. The bytes of both messages are counted while they are in
/// memory.
pub(super) async fn unary<Q, A, T>(node: &Node, request: Request<RequestBody>, mut run: impl FnMut(Q) -> T) -> Routed
where
    Q: Message + Default + Send + 'static,
    A: Message + Send + 'static,
    T: Future<Output = Result<A, Status>>,
{
    let limit = node.generation().settings.grpc_api.max_receive_message_size;
    let (head, body) = request.into_parts();
    let (body, _budget) = match body.read(limit.saturating_add(PREFIX)).await {
        Ok(read) => read,
        Err(StatusCode::PAYLOAD_TOO_LARGE) => {
            return refuse(Status::resource_exhausted("the message is larger than grpc_api.max_receive_message_size"));
        }
        Err(_) => return refuse(Status::cancelled("the request is incomplete")),
    };
    let size = Cell::new(0);
    let answering = Answering(|message| {
        let answer = run(message);
        let size = &size;
        async move {
            let answer = answer.await?;
            size.set(answer.encoded_len());
            Ok(tonic::Response::new(answer))
        }
    });
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::new())
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limit);
    let answer = grpc.unary(answering, Request::from_parts(head, Full::new(body))).await;
    Routed::Grpc(answer, size.get())
}

/// Makes an answer that has a status and no message.
pub(super) fn refuse(status: Status) -> Routed {
    Routed::Grpc(status.into_http(), 0)
}
