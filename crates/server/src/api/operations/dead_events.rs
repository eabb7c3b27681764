//! `events_dead`, `events_dead_retry`, `events_dead_drop`: events that could not be delivered and are kept in the
//! primary database.

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_store::ledger::{DeadLetter, LedgerError};

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError};
use crate::api::params::{nullable, nullable_fields, plain};
use crate::node::Node;
use crate::runtime::event_mailbox::{DeadReply, DeadRequest, EventMessage};

/// Dead letters in one answer: the default, and the maximum.
const DEAD_PAGE: u32 = 100;
const DEAD_PAGE_MAX: u32 = 1_000;
// A page by default is one that is allowed.
const _: () = assert!(DEAD_PAGE <= DEAD_PAGE_MAX);

/// 108 where no endpoint is durable: dead letters are only counted and logged there; 4010 without the database.
const DEAD_ERRORS: &[Error] = &[Error::NOT_AVAILABLE, Error::STORE_UNAVAILABLE];

/// Asks the thread that tells events.
async fn ask<T>(node: &Node, request: impl FnOnce(DeadReply<T>) -> DeadRequest) -> Result<T, OperationError> {
    let (reply, answer) = oneshot::channel();
    let events = node.events.get().ok_or(Error::NOT_AVAILABLE)?;
    events.command(EventMessage::Dead(request(reply)));
    // The thread drops a request where nothing is kept.
    let answer: Result<T, LedgerError> = answer.await.map_err(|_| Error::NOT_AVAILABLE)?;
    Ok(answer.map_err(|_| Error::STORE_UNAVAILABLE)?)
}

/// Asks for dead letters.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct DeadRequestFields {
    /// Only those of this endpoint; empty = of all.
    #[serde(deserialize_with = "nullable")]
    endpoint: String,
    /// Letters in the answer, 1,000 at most; 0 = 100.
    #[serde(deserialize_with = "nullable")]
    limit: u32,
    /// The `cursor` of the answer before; 0 = from the oldest on.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = i64::MAX))]
    cursor: u64,
}

/// An event that could not be delivered.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLetterReply {
    /// Its number.
    id: u64,
    /// The name of the endpoint.
    endpoint: String,
    /// When the event was made, Unix seconds.
    made_at: u64,
    /// When it was given up, Unix seconds.
    died_at: u64,
    /// How often it was sent.
    tries: u32,
    /// What the endpoint has answered last, or why else it was given up.
    error: String,
    /// The event; a text where the database has none.
    event: Box<RawValue>,
}

/// Dead letters, the oldest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadLettersReply {
    /// The letters, the oldest first.
    letters: Vec<DeadLetterReply>,
    /// Where the next page begins; absent = there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u64>,
}

/// `events_dead`.
pub(crate) struct EventsDeadOperation;

impl Operation for EventsDeadOperation {
    const NAME: &'static str = "events_dead";
    const SUMMARY: &'static str = "Lists events that durable endpoints could not be told, the oldest first";
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

    async fn run(node: &Node, request: DeadRequestFields) -> Result<DeadLettersReply, OperationError> {
        let DeadRequestFields { endpoint, limit, cursor } = request;
        let limit = if limit == 0 { DEAD_PAGE } else { limit.min(DEAD_PAGE_MAX) };
        let letters = page(node, &endpoint, cursor, limit).await?;
        let cursor = letters.last().filter(|_| letters.len() == limit as usize).map(|letter| letter.id);
        Ok(DeadLettersReply { letters: letters.into_iter().filter_map(shown).collect(), cursor })
    }
}

/// A page of the dead letters of an endpoint, or of all.
async fn page(node: &Node, endpoint: &str, behind: u64, limit: u32) -> Result<Vec<DeadLetter>, OperationError> {
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

/// Names dead letters: by their numbers, or by their endpoint.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct DeadChoice {
    /// Numbers of letters, 1,000 at most. One that is not there is passed over.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = DEAD_PAGE_MAX))]
    ids: Vec<u64>,
    /// Instead: the 1,000 oldest letters of this endpoint.
    #[serde(deserialize_with = "nullable")]
    endpoint: String,
}

/// How many dead letters there were.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeadCountReply {
    /// How many of the letters were there.
    count: u64,
}

/// The numbers of the letters that a request names.
async fn chosen(node: &Node, choice: DeadChoice) -> Result<Vec<u64>, OperationError> {
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

/// `events_dead_retry`.
pub(crate) struct EventsDeadRetryOperation;

impl Operation for EventsDeadRetryOperation {
    const NAME: &'static str = "events_dead_retry";
    const SUMMARY: &'static str = "Sends dead letters again, behind what waits for their endpoints";
    const RESULT: &'static str = "`count`: how many of them there were";
    const EXAMPLE: &'static str = r#"{"ids": [7, 8]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"count": 2}"#;
    const ERRORS: &'static [Error] = DEAD_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DeadChoice;
    type Reply = DeadCountReply;

    async fn run(node: &Node, request: DeadChoice) -> Result<DeadCountReply, OperationError> {
        let ids = chosen(node, request).await?;
        Ok(DeadCountReply { count: ask(node, |reply| DeadRequest::Retry { ids, reply }).await? })
    }
}

/// `events_dead_drop`.
pub(crate) struct EventsDeadDropOperation;

impl Operation for EventsDeadDropOperation {
    const NAME: &'static str = "events_dead_drop";
    const SUMMARY: &'static str = "Deletes dead letters";
    const RESULT: &'static str = "`count`: how many of them there were";
    const EXAMPLE: &'static str = r#"{"ids": [7, 8]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"count": 2}"#;
    const ERRORS: &'static [Error] = DEAD_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DeadChoice;
    type Reply = DeadCountReply;

    async fn run(node: &Node, request: DeadChoice) -> Result<DeadCountReply, OperationError> {
        let ids = chosen(node, request).await?;
        Ok(DeadCountReply { count: ask(node, |reply| DeadRequest::Drop { ids, reply }).await? })
    }
}
