//! One question over gRPC: its message and metadata, and the meaning of its answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::HeaderMap;
use prost::Message;
use serde::Serialize;
use tonic::Code;
use touchline_engine::caps::CapsCache;
use touchline_engine::directory::client_text;
use touchline_engine::hook::{HookKind, HookRequest};
use touchline_protocol::notation::bytes_of;

use super::endpoint::Endpoint;
use super::grpc_backend::GrpcBackend;
use super::request::{Asked, headers};
use crate::outbound::GrpcError;
use crate::proto::centrifugo_proxy::{
    ConnectRequest, ConnectResponse, PublishRequest, PublishResponse, RefreshRequest, RefreshResponse, RpcRequest,
    RpcResponse, SubRefreshRequest, SubRefreshResponse, SubscribeRequest, SubscribeResponse,
};
use crate::runtime::hook_mailbox::HookJob;
use crate::traces::Span;

/// Returns the path of a method.
macro_rules! path {
    ($method:literal) => {
        concat!("/centrifugal.centrifugo.proxy.CentrifugoProxy/", $method)
    };
}

/// A call to a method of a backend.
struct HookCaller<'c> {
    backend: &'c GrpcBackend,
    endpoint: &'c Endpoint,
    metadata: HeaderMap,
    kind: HookKind,
    caps: &'c CapsCache,
    answer_max: usize,
}

impl HookCaller<'_> {
    /// Sends a question and reads its answer. The answer is converted to the JSON that it would be over HTTP.
    async fn ask<Q, A>(self, path: &'static str, question: Q) -> Asked
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Serialize + Send + Sync + 'static,
    {
        let HookCaller { backend, endpoint, metadata, kind, caps, answer_max } = self;
        let answer = backend.client.call::<Q, A>(path, question, metadata, endpoint.timeout, answer_max).await;
        match answer.map(|answer| serde_json::to_vec(&answer)) {
            Ok(Ok(json)) => Asked::read(kind, &json, caps),
            Ok(Err(_)) => Asked::failed("a field of the answer that must contain JSON does not".into(), false),
            Err(error) => failed(path, error),
        }
    }
}

/// Returns the outcome of a call without an answer. Only errors of a backend that is unreachable or broken count
/// against it.
fn failed(path: &str, GrpcError { code, text }: GrpcError) -> Asked {
    let broken = [Code::Unavailable, Code::DeadlineExceeded, Code::Internal, Code::Unknown];
    let is_outage = code.is_some_and(|code| broken.contains(&code));
    match code {
        Some(Code::Unimplemented) => Asked::failed(format!("the backend has no method {path} (UNIMPLEMENTED)"), false),
        _ => Asked::failed(text, is_outage),
    }
}

/// Asks a backend over gRPC. The caller sets the time limit and the span.
pub(super) async fn ask(
    endpoint: &Endpoint,
    backend: &GrpcBackend,
    (job, span): (&HookJob, &Span),
    caps: &CapsCache,
    answer_max: usize,
) -> Asked {
    let kind = job.call.request.kind();
    let mut metadata = headers(endpoint, &backend.metadata, job);
    span.hand_to(&mut metadata);
    let caller = HookCaller { backend, endpoint, metadata, kind, caps, answer_max };
    question(caller, endpoint, job).await
}

/// The fields that all questions have.
struct Common {
    client: String,
    transport: String,
    protocol: String,
    encoding: String,
    user: String,
    channel: String,
    data: Bytes,
    b64data: String,
    meta: Bytes,
    labels: BTreeMap<String, String>,
}

impl Common {
    fn of(endpoint: &Endpoint, job: &HookJob) -> Self {
        let call = &job.call;
        let payload = call.request.data().cloned().unwrap_or_default();
        let (data, b64data) = match bytes_of(&payload) {
            bytes if endpoint.is_binary => (Bytes::new(), STANDARD.encode(bytes)),
            Cow::Owned(bytes) => (bytes.into(), String::new()),
            Cow::Borrowed(_) => (payload, String::new()),
        };
        let labels = call.labels.as_ref().and_then(|labels| serde_json::from_slice(labels).ok());
        Common {
            client: client_text(job.client),
            transport: job.transport.into(),
            protocol: job.protocol.into(),
            encoding: if endpoint.is_binary { "binary" } else { "json" }.into(),
            user: call.user.as_ref().into(),
            channel: call.request.channel().unwrap_or_default().into(),
            data,
            b64data,
            meta: call.meta.clone().filter(|_| endpoint.includes_meta).unwrap_or_default(),
            labels: labels.unwrap_or_default(),
        }
    }
}

/// Makes a message from the common fields and the fields of its own.
macro_rules! message {
    ($message:ident of $common:ident: $($field:ident)*; $($own:ident = $value:expr)*) => {
        $message {
            client: $common.client,
            transport: $common.transport,
            protocol: $common.protocol,
            encoding: $common.encoding,
            $($field: $common.$field,)*
            $($own: $value,)*
        }
    };
}

/// Asks the question of a hook. The future is boxed, because each question has a type of its own and only one is under
/// way.
fn question<'c>(
    caller: HookCaller<'c>,
    endpoint: &Endpoint,
    job: &HookJob,
) -> Pin<Box<dyn Future<Output = Asked> + Send + 'c>> {
    let of = Common::of(endpoint, job);
    match &job.call.request {
        HookRequest::Connect { name, version, channels, .. } => {
            let channels = channels.iter().map(|channel| String::from(&**channel)).collect();
            let message = message!(ConnectRequest of of: data b64data;
                name = (&**name).into() version = (&**version).into() channels = channels);
            Box::pin(caller.ask::<_, ConnectResponse>(path!("Connect"), message))
        }
        HookRequest::Refresh => {
            let message = message!(RefreshRequest of of: user meta labels;);
            Box::pin(caller.ask::<_, RefreshResponse>(path!("Refresh"), message))
        }
        HookRequest::Subscribe { .. } => {
            let message = message!(SubscribeRequest of of: user channel meta data b64data labels;
                token = String::new());
            Box::pin(caller.ask::<_, SubscribeResponse>(path!("Subscribe"), message))
        }
        HookRequest::Publish { .. } => {
            let message = message!(PublishRequest of of: user channel data b64data meta labels;);
            Box::pin(caller.ask::<_, PublishResponse>(path!("Publish"), message))
        }
        HookRequest::SubRefresh { .. } => {
            let message = message!(SubRefreshRequest of of: user channel meta labels;);
            Box::pin(caller.ask::<_, SubRefreshResponse>(path!("SubRefresh"), message))
        }
        HookRequest::Rpc { method, .. } => {
            let message = message!(RpcRequest of of: user data b64data meta labels; method = (&**method).into());
            Box::pin(caller.ask::<_, RpcResponse>(path!("RPC"), message))
        }
        HookRequest::Conflict { .. } => {
            Box::pin(async { Asked::failed("conflicts of names cannot be decided over gRPC".into(), false) })
        }
    }
}
