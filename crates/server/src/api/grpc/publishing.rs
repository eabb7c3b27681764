//! `Publish` and `Broadcast`, whose messages are converted directly into requests of their operations.

use std::cell::Cell;

use bytes::Bytes;
use tonic::Status;
use touchline_protocol::payload::RawPayload;

use super::call::GrpcCall;
use super::json_calls::through_json;
use crate::api::json::ErrorJson;
use crate::api::operation::{Operation, OperationError};
use crate::api::operations::publish::{self, BroadcastOperation, ChannelOutcome, PublishOperation, PublishReply};
use crate::api::table::run_alone;
use crate::proto::centrifugo_api::{
    BroadcastRequest, BroadcastResponse, BroadcastResult, Error, PublishRequest, PublishResponse, PublishResult,
};

/// Publishes into one channel, and measures the time.
pub(super) async fn publish(call: GrpcCall<'_>, message: PublishRequest) -> Result<PublishResponse, Status> {
    if message.dry_run {
        // A dry run asks the other nodes.
        return Box::pin(through_json(call, PublishOperation::NAME, message)).await;
    }
    let node = call.node;
    let PublishRequest { channel, data, b64data, skip_history, tags, idempotency_key, exclude_client, .. } = message;
    let request = Ok(publish::PublishRequest {
        channel,
        data: given(&data, &b64data),
        b64data,
        skip_history,
        tags,
        idempotency_key,
        version: message.version,
        version_epoch: message.version_epoch,
        expires_in: message.expires_in,
        exclude_client,
        exclude_user: message.exclude_user,
        dry_run: false,
    });
    let outcome = run_alone::<PublishOperation>(node, &call.caller.rights, request).await;
    Ok(match outcome {
        Ok(reply) => published(reply),
        Err(refusal) => {
            call.log_refusal(PublishOperation::NAME, &refusal);
            PublishResponse { error: Some(refusal.into()), result: None }
        }
    })
}

/// Publishes into many channels.
pub(super) async fn broadcast(call: GrpcCall<'_>, message: BroadcastRequest) -> Result<BroadcastResponse, Status> {
    let BroadcastRequest { channels, data, b64data, skip_history, tags, idempotency_key, exclude_client, .. } = message;
    let request = Ok(publish::BroadcastRequest {
        channels,
        data: given(&data, &b64data),
        b64data,
        skip_history,
        tags,
        idempotency_key,
        version: message.version,
        version_epoch: message.version_epoch,
        expires_in: message.expires_in,
        exclude_client,
        exclude_user: message.exclude_user,
        dry_run: message.dry_run,
    });
    let refused = Cell::default();
    Ok(match run_alone::<BroadcastOperation>(call.node.noting(&refused), &call.caller.rights, request).await {
        Ok(reply) => {
            if let Some(refusal) = refused.take() {
                call.log_refusal(BroadcastOperation::NAME, &refusal);
            }
            let responses = reply.responses.into_iter().map(|outcome| match outcome {
                ChannelOutcome::Result(reply) => published(reply),
                ChannelOutcome::Error(error) => PublishResponse { error: Some(error.into()), result: None },
            });
            BroadcastResponse { error: None, result: Some(BroadcastResult { responses: responses.collect() }) }
        }
        Err(refusal) => {
            call.log_refusal(BroadcastOperation::NAME, &refusal);
            BroadcastResponse { error: Some(refusal.into()), result: None }
        }
    })
}

/// Returns the payload of a message; `None` = the other field has it. Protobuf does not distinguish an empty payload
/// from an absent one.
fn given<'m>(data: &'m Bytes, base64: &str) -> Option<RawPayload<'m>> {
    (!data.is_empty() || base64.is_empty()).then_some(RawPayload::Bytes(data))
}

/// Makes the answer to a request that has published something.
fn published(PublishReply { offset, epoch, .. }: PublishReply) -> PublishResponse {
    let result = PublishResult { offset, epoch: epoch.as_str().to_owned(), audience: None };
    PublishResponse { error: None, result: Some(result) }
}

impl From<OperationError> for Error {
    fn from(refusal: OperationError) -> Self {
        ErrorJson::from(refusal).into()
    }
}

impl From<ErrorJson> for Error {
    fn from(ErrorJson { code, message, field }: ErrorJson) -> Self {
        Error { code, message: message.into_owned(), field: field.unwrap_or_default().to_owned() }
    }
}
