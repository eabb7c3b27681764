//! The services for operators: health and reflection. They need no key. Their streams end when the node drains.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Request;
use hyper::body::Frame;
use hyper::header::HeaderMap;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic_health::pb::health_server::HealthServer;

use super::health::NodeHealth;
use super::reflection::{self, MESSAGE_MAX, ReflectionVersion};
use super::unary::refuse;
use crate::node::Node;
use crate::transport::http::body::RequestBody;
use crate::transport::http::{Origin, Routed};

/// A service for operators.
#[derive(Debug, Clone, Copy)]
pub(super) enum OperatorService {
    Health,
    Reflection(ReflectionVersion),
}

/// Returns the service that a path names; None = the path names none, or the service is off.
pub(super) fn service_of(node: &Node, path: &str) -> Option<OperatorService> {
    let (service, _) = path.strip_prefix("/grpc.")?.split_once('/')?;
    match service {
        "health.v1.Health" => Some(OperatorService::Health),
        _ if !node.generation().settings.grpc_api.reflection => None,
        "reflection.v1.ServerReflection" => Some(OperatorService::Reflection(ReflectionVersion::V1)),
        "reflection.v1alpha.ServerReflection" => Some(OperatorService::Reflection(ReflectionVersion::V1Alpha)),
        _ => None,
    }
}

/// Answers a request to a service for operators.
pub(super) async fn answer(origin: &Origin, service: OperatorService, request: Request<RequestBody>) -> Routed {
    let (head, body) = request.into_parts();
    let Some(body) = body.into_stream() else { return refuse(Status::internal("the request has no body")) };
    let request = Request::from_parts(head, body);
    let answer = match service {
        OperatorService::Health => {
            let health = NodeHealth(Arc::clone(&origin.node));
            match HealthServer::new(health).max_decoding_message_size(MESSAGE_MAX).call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        }
        OperatorService::Reflection(version) => reflection::answer(version, request).await,
    };
    let node = Arc::clone(&origin.node);
    let drain = Box::pin(async move {
        node.drain.begun().await;
    });
    Routed::Grpc(answer.map(|body| Body::new(UntilDrain { body, drain, is_over: false })), 0)
}

/// A stream of messages that ends with UNAVAILABLE when the node drains.
struct UntilDrain {
    body: Body,
    drain: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
}

impl hyper::body::Body for UntilDrain {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        std::task::ready!(self.drain.as_mut().poll(context));
        self.is_over = true;
        let mut trailers = HeaderMap::new();
        Status::unavailable("the node drains: call another one").add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }
}
