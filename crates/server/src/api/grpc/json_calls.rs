//! Calls of gRPC whose messages become JSON, and are made of it.

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;
use touchline_protocol::Error;

use super::call::GrpcCall;
use crate::api::operation::OperationError;
use crate::api::reply::{ApiReply, ErrorMode};
use crate::api::serve::serve;
use crate::api::table::place_of;
use crate::api::version::V1;

/// Runs an operation whose request and reply are written as JSON: its cost is not that of these.
pub(super) async fn through_json<Q, A>(call: GrpcCall<'_>, operation: &'static str, message: Q) -> Result<A, Status>
where
    Q: Message + Serialize,
    A: Message + DeserializeOwned,
{
    let node = &call.origin.node;
    let reply = match serde_json::to_vec(&message) {
        // The packages of the services name the version: their messages are those of version 1.
        Ok(params) => {
            let reply = serve(node, &call.caller.rights, operation, &params, V1.number).await;
            reply.map_err(|malformed| malformed.field)
        }
        Err(_) => Err(None),
    };
    let reply = reply.unwrap_or_else(|field| {
        // A field of the type `bytes` holds no JSON, or JSON of another shape.
        node.metrics_here().operations.count_error(place_of(operation), Error::BAD_REQUEST.code);
        ApiReply::of_refusal(OperationError { field: field.or(Some("bytes")), ..Error::BAD_REQUEST.into() })
    });
    if let Some(refusal) = &reply.refusal {
        call.log_refusal(operation, refusal);
    }
    let json = reply.into_body(ErrorMode::Inside);
    serde_json::from_slice(&json).map_err(|error| {
        tracing::error!(operation, %error, "the answer of an operation has no form in gRPC");
        Status::internal("the answer has no form in gRPC")
    })
}
