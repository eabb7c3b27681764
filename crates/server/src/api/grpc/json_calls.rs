//! Calls of gRPC whose messages are converted to JSON and back.

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

/// Runs an operation whose request and reply are converted through JSON. The operation costs more than the conversion.
pub(super) async fn through_json<Q, A>(call: GrpcCall<'_>, operation: &'static str, message: Q) -> Result<A, Status>
where
    Q: Message + Serialize,
    A: Message + DeserializeOwned,
{
    let node = call.node;
    let reply = match serde_json::to_vec(&message) {
        // The package names of the services contain the version: their messages are those of version 1.
        Ok(params) => {
            let reply = serve(node, &call.caller.rights, operation, &params, V1.number).await;
            reply.map_err(|malformed| malformed.field)
        }
        Err(_) => Err(None),
    };
    let reply = reply.unwrap_or_else(|field| {
        // A field of the type `bytes` does not contain JSON, or contains JSON of another shape.
        node.metrics_here().operations.count_error(place_of(operation), Error::BAD_REQUEST.code);
        ApiReply::of_refusal(OperationError { field: field.or(Some("bytes")), ..Error::BAD_REQUEST.into() })
    });
    if let Some(refusal) = &reply.refusal {
        call.log_refusal(operation, refusal);
    }
    let json = reply.into_body(ErrorMode::Inside);
    serde_json::from_slice(&json).map_err(|error| {
        tracing::error!(operation, %error, "the answer of an operation cannot be written as its gRPC message");
        Status::internal("the answer cannot be written as its gRPC message")
    })
}
