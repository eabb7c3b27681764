//! Operations that come from a consumer instead of a request. They run one after the other, each as if it came over
//! HTTP from a caller with all permissions.

use bytes::Bytes;
use serde::Deserialize;
use touchline_engine::channels::DurablePublication;
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::malformed::MalformedRequest;
use super::operation::{Operation as _, OperationError, RequestNode, yield_sometimes};
use super::operations::publish::{BroadcastOperation, PublishOperation, PublishRequest};
use super::params::object;
use super::table::Call;
use super::version::NEWEST;
use crate::auth::ApiRights;
use crate::node::Node;
use crate::traces::{Span, TracedPart, within};

/// An operation and its fields as a JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperationCall {
    /// The name of the operation.
    pub(crate) operation: &'static str,
    /// The fields of the operation, as a JSON object.
    pub(crate) params: Bytes,
    /// The `traceparent` of the command; None = the command has none.
    pub(crate) parent: Option<Box<str>>,
}

/// Why an operation failed on one node or on several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// The same operation may succeed later.
    Temporary(Error),
    /// The same operation will fail again. The text names the error, and the field if one is at fault. It may repeat a
    /// part of the request.
    Final(String),
}

/// Runs operations one after the other, up to the first that may succeed later. This thread must be a shard's. Returns
/// the results of the operations that were tried. `is_wanted`: whether to continue.
pub(crate) async fn run_in_order(
    node: &Node,
    calls: &[OperationCall],
    is_wanted: impl Fn() -> bool,
) -> Vec<Result<(), CallFailure>> {
    let mut results = Vec::with_capacity(calls.len());
    for (index, call) in calls.iter().enumerate() {
        if !is_wanted() {
            break;
        }
        let result = run_one(node, call).await;
        let is_over = matches!(result, Err(CallFailure::Temporary(_)));
        results.push(result);
        if is_over {
            break;
        }
        yield_sometimes(index).await;
    }
    results
}

async fn run_one(node: &Node, asked: &OperationCall) -> Result<(), CallFailure> {
    let OperationCall { operation, params, parent } = asked;
    let mut span = Span::begin(TracedPart::Consuming, || format!("consume {operation}"), parent.as_deref());
    let outcome = within(&span, run_traced(node, operation, params)).await;
    match &outcome {
        Ok(()) => {}
        Err(CallFailure::Temporary(error)) => span.fail(|| error.to_string()),
        // The text may repeat a part of the command, so the span does not contain it.
        Err(CallFailure::Final(_)) => span.fail(|| "the command cannot be carried out".to_owned()),
    }
    outcome
}

async fn run_traced(node: &Node, operation: &str, params: &[u8]) -> Result<(), CallFailure> {
    let generation = node.generation();
    let node = RequestNode::new(node, &generation).without_limit();
    let call = Call::read(operation, params, NEWEST.number).map_err(malformed)?;
    let mut answer = Vec::with_capacity(64);
    let mut writer = ObjectWriter::open(&mut answer);
    let refusal = call.run(node, &ApiRights::ALL, &mut writer, "result").await;
    writer.close();
    match refusal {
        Some(refusal) => Err(refused(refusal)),
        None if operation == BroadcastOperation::NAME => of_channels(&answer),
        None => Ok(()),
    }
}

fn malformed(cause: MalformedRequest) -> CallFailure {
    let field = cause.field.map_or(String::new(), |field| format!(" ({field})"));
    CallFailure::Final(format!("{}: {cause}{field}", Error::BAD_REQUEST))
}

fn refused(refusal: OperationError) -> CallFailure {
    if refusal.error.temporary {
        return CallFailure::Temporary(refusal.error);
    }
    let detail = refusal.detail.as_deref().map(|detail| format!(": {detail}"));
    let field = refusal.field.map(|field| format!(" ({field})"));
    CallFailure::Final(format!("{}{}", refusal.error, detail.or(field).unwrap_or_default()))
}

/// Returns the outcome of a broadcast. A temporary error in one channel repeats the whole broadcast.
fn of_channels(answer: &[u8]) -> Result<(), CallFailure> {
    #[derive(Deserialize)]
    struct Answer {
        result: Responses,
    }
    #[derive(Deserialize)]
    struct Responses {
        responses: Vec<ChannelResponse>,
    }
    #[derive(Deserialize)]
    struct ChannelResponse {
        error: Option<ChannelError>,
    }
    #[derive(Deserialize)]
    struct ChannelError {
        code: u32,
        #[serde(default)]
        message: String,
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(answer) else {
        return Err(CallFailure::Temporary(Error::INTERNAL));
    };
    let responses = answer.result.responses;
    let found = |code: u32| Error::ALL.iter().find(|error| error.code == code).copied().unwrap_or(Error::INTERNAL);
    let errors: Vec<(Error, &str)> = responses
        .iter()
        .filter_map(|each| each.error.as_ref().map(|error| (found(error.code), &*error.message)))
        .collect();
    match errors.iter().find(|(error, _)| error.temporary) {
        Some((error, _)) => Err(CallFailure::Temporary(*error)),
        None => match errors.first() {
            Some((error, message)) => {
                let code = error.code;
                let text = format!("{code}: {message}, in {} of {} channels", errors.len(), responses.len());
                Err(CallFailure::Final(text))
            }
            None => Ok(()),
        },
    }
}

/// Reads the fields of a `publish` into a durable channel. Returns the channel and the publication; None = the channel
/// is not durable, or the publication is not to be kept.
///
/// # Errors
/// The errors of `publish`.
pub(crate) fn durable_publication(
    node: &Node,
    params: &[u8],
) -> Result<Option<(String, DurablePublication)>, CallFailure> {
    let request: PublishRequest<'_> =
        object(params).map_err(|cause| malformed(MalformedRequest::of::<PublishOperation>(params, cause)))?;
    if request.dry_run {
        return Ok(None);
    }
    let generation = node.generation();
    let (channel, options, publish) =
        PublishOperation::checked(RequestNode::new(node, &generation), request).map_err(refused)?;
    if !options.durable || !options.has_history() || publish.skip_history {
        return Ok(None);
    }
    let time_ms = node.clock.now_ms();
    let publication = DurablePublication {
        payload: DurablePublication::encode(&publish, time_ms),
        time_ms,
        idempotency_key: publish.idempotency_key,
        version: publish.version,
        version_epoch: publish.version_epoch,
        retention: options.retention(),
    };
    Ok(Some((channel, publication)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broadcast_is_repeated_for_one_temporary_error_and_put_aside_for_others() {
        let of = |text: &str| of_channels(text.as_bytes());
        assert_eq!(of(r#"{"result":{"responses":[{"result":{}},{"result":{"offset":1}}]}}"#), Ok(()));
        let both = r#"{"result":{"responses":[{"error":{"code":102}},{"error":{"code":4009}}]}}"#;
        assert_eq!(of(both), Err(CallFailure::Temporary(Error::CLUSTER_UNREACHABLE)));
        let text = of(r#"{"result":{"responses":[{"result":{}},{"error":{"code":102,"message":"x: y"}}]}}"#);
        assert_eq!(text, Err(CallFailure::Final("102: x: y, in 1 of 2 channels".into())));
        let detail = || OperationError::about(Error::BAD_REQUEST, "data", "data is missing");
        assert_eq!(refused(detail()), CallFailure::Final("107: bad request: data is missing".into()));
        assert_eq!(refused(OperationError::bad("data")), CallFailure::Final("107: bad request (data)".into()));
        assert_eq!(of("{}"), Err(CallFailure::Temporary(Error::INTERNAL)));
    }
}
