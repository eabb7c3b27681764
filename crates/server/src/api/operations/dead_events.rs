//! The operations `events_dead`, `events_dead_retry` and `events_dead_drop`: events that could not be delivered and are
//! kept in the primary database.

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_store::ledger::{DeadLetter, LedgerError};

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields, plain};
use crate::runtime::event_mailbox::{DeadReply, DeadRequest, EventMessage};

/// The number of dead letters in one answer: the default, and the maximum.
const DEAD_PAGE: u32 = 100;
const DEAD_PAGE_MAX: u32 = 1_000;
// The default page size is allowed.
const _: () = assert!(DEAD_PAGE <= DEAD_PAGE_MAX);

/// 108 if no endpoint is durable, because dead letters are then only counted and logged. 4010 without the database.
const DEAD_ERRORS: &[Error] = &[Error::NOT_AVAILABLE, Error::STORE_UNAVAILABLE];

/// Sends a request to the thread that delivers events, and waits for the answer.
pub(super) async fn ask<T>(
    node: RequestNode<'_>,
    request: impl FnOnce(DeadReply<T>) -> DeadRequest,
) -> Result<T, OperationError> {
    let (reply, answer) = oneshot::channel();
    let events = node.events.get().ok_or(Error::NOT_AVAILABLE)?;
    events.command(EventMessage::Dead(request(reply)));
    // The thread drops the request if it does not keep events.
    let answer: Result<T, LedgerError> = answer.await.map_err(|_| Error::NOT_AVAILABLE)?;
    Ok(answer.map_err(|_| Error::STORE_UNAVAILABLE)?)
}

/// A request for a page of dead letters.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct DeadRequestFields {
    /// Only events for this endpoint; empty = for all endpoints.
    #[serde(deserialize_with = "nullable")]
    endpoint: String,
    /// The greatest number of dead letters in the answer, up to 1,000; 0 = 100.
    #[serde(deserialize_with = "nullable")]
    limit: u32,
    /// The `cursor` of the previous page; 0 = begin with the oldest.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = i64::MAX))]
    cursor: u64,
}

/// An event that could not be delivered.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLetterReply {
    /// The number of the dead letter.
    id: u64,
    /// The name of the endpoint.
    endpoint: String,
    /// The time when the event was made, in Unix seconds.
    made_at: u64,
    /// The time when the node gave up the event, in Unix seconds.
    died_at: u64,
    /// How many times the event was sent.
    tries: u32,
    /// The last answer of the endpoint, or another reason why the event was given up.
    error: String,
    /// The event as an object. If the stored row is not JSON, its content as text.
    event: Box<RawValue>,
}

/// One page of dead letters, the oldest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLettersReply {
    /// The dead letters, the oldest first.
    letters: Vec<DeadLetterReply>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u64>,
}

/// The operation `events_dead`.
pub(crate) struct EventsDeadOperation;

impl Operation for EventsDeadOperation {
    const NAME: &'static str = "events_dead";
    const SUMMARY: &'static str = "Lists the events that could not be delivered to durable endpoints, the oldest first";
    const RESULT: &'static str =
        "`letters`, each with `id`, `endpoint`, `made_at`, `died_at`, `tries`, `error` and the `event`; `cursor`";
    const EXAMPLE: &'static str = r#"{"endpoint": "billing", "limit": 10}"#;
    const REPLY_EXAMPLE: &'static str = concat!(
        r#"{"letters": [{"id": 7, "endpoint": "billing", "made_at": 1795359600, "died_at": 1795359607, "tries": 5, "#,
        r#""error": "the status of the answer is 422", "event": {"id": "user:42:7"}}]}"#
    );
    const ERRORS: &'static [Error] = DEAD_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DeadRequestFields;
    type Reply = DeadLettersReply;

    async fn run(node: RequestNode<'_>, request: DeadRequestFields) -> Result<DeadLettersReply, OperationError> {
        let DeadRequestFields { endpoint, limit, cursor } = request;
        let limit = if limit == 0 { DEAD_PAGE } else { limit.min(DEAD_PAGE_MAX) };
        let letters = page(node, &endpoint, cursor, limit).await?;
        let cursor = letters.last().filter(|_| letters.len() == limit as usize).map(|letter| letter.id);
        Ok(DeadLettersReply { letters: letters.into_iter().filter_map(shown).collect(), cursor })
    }
}

/// Loads a page of the dead letters of one endpoint, or of all endpoints.
async fn page(
    node: RequestNode<'_>,
    endpoint: &str,
    behind: u64,
    limit: u32,
) -> Result<Vec<DeadLetter>, OperationError> {
    plain("endpoint", [endpoint])?;
    let behind = i64::try_from(behind).map_err(|_| OperationError::bad("cursor"))? as u64;
    let endpoint = Some(endpoint.to_owned()).filter(|endpoint| !endpoint.is_empty());
    ask(node, |reply| DeadRequest::List { endpoint, behind, limit, reply }).await
}

fn shown(letter: DeadLetter) -> Option<DeadLetterReply> {
    let DeadLetter { id, endpoint, made_ms, died_ms, tries, last_error, body } = letter;
    let is_json = serde_json::from_str::<IgnoredAny>(&body).is_ok();
    let event = if is_json { body } else { serde_json::to_string(&body).ok()? };
    let event = RawValue::from_string(event).ok()?;
    Some(DeadLetterReply {
        id,
        endpoint,
        made_at: made_ms / 1_000,
        died_at: died_ms / 1_000,
        tries,
        error: last_error,
        event,
    })
}

/// A request that selects dead letters: by their numbers, or by their endpoint.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct DeadChoice {
    /// The numbers of dead letters, 1,000 at most. Unknown numbers are skipped.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = DEAD_PAGE_MAX))]
    ids: Vec<u64>,
    /// Instead of `ids`: the 1,000 oldest dead letters of this endpoint.
    #[serde(deserialize_with = "nullable")]
    endpoint: String,
}

/// The number of dead letters that were found.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadCountReply {
    /// The number of the selected dead letters that exist.
    count: u64,
}

/// Returns the numbers of the dead letters that a request selects.
async fn chosen(node: RequestNode<'_>, choice: DeadChoice) -> Result<Vec<u64>, OperationError> {
    let DeadChoice { ids, endpoint } = choice;
    if ids.is_empty() == endpoint.is_empty() || ids.len() > DEAD_PAGE_MAX as usize {
        return Err(OperationError::bad("ids"));
    }
    if ids.iter().any(|id| i64::try_from(*id).is_err()) {
        return Err(OperationError::bad("ids"));
    }
    if !ids.is_empty() {
        return Ok(ids);
    }
    Ok(page(node, &endpoint, 0, DEAD_PAGE_MAX).await?.into_iter().map(|letter| letter.id).collect())
}

/// The operation `events_dead_retry`.
pub(crate) struct EventsDeadRetryOperation;

impl Operation for EventsDeadRetryOperation {
    const NAME: &'static str = "events_dead_retry";
    const SUMMARY: &'static str = "Queues dead letters again, after the events that wait for their endpoints";
    const RESULT: &'static str = "`count`: how many of them exist";
    const EXAMPLE: &'static str = r#"{"ids": [7, 8]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"count": 2}"#;
    const ERRORS: &'static [Error] = DEAD_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DeadChoice;
    type Reply = DeadCountReply;

    async fn run(node: RequestNode<'_>, request: DeadChoice) -> Result<DeadCountReply, OperationError> {
        let ids = chosen(node, request).await?;
        Ok(DeadCountReply { count: ask(node, |reply| DeadRequest::Retry { ids, reply }).await? })
    }
}

/// The operation `events_dead_drop`.
pub(crate) struct EventsDeadDropOperation;

impl Operation for EventsDeadDropOperation {
    const NAME: &'static str = "events_dead_drop";
    const SUMMARY: &'static str = "Deletes dead letters";
    const RESULT: &'static str = "`count`: how many of them exist";
    const EXAMPLE: &'static str = r#"{"ids": [7, 8]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"count": 2}"#;
    const ERRORS: &'static [Error] = DEAD_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DeadChoice;
    type Reply = DeadCountReply;

    async fn run(node: RequestNode<'_>, request: DeadChoice) -> Result<DeadCountReply, OperationError> {
        let ids = chosen(node, request).await?;
        Ok(DeadCountReply { count: ask(node, |reply| DeadRequest::Drop { ids, reply }).await? })
    }
}
