//! The operations `inbox_names`, `inbox_list` and `inbox_drop`: messages that wait in the primary database until the
//! owners of their names acknowledge them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_store::{
    DroppedMessages, InboxDrop, InboxListing, InboxNames, InboxPage, InboxPlace, InboxSearch, InboxSummary, Store,
    StoreRefusal, WaitingMessage,
};

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{nullable, nullable_fields, plain};
use crate::backend::store::{drop_messages, refused};

/// The number of names or messages in one answer: the default, and the maximum.
const INBOX_PAGE: usize = 100;
const INBOX_PAGE_MAX: usize = 1_000;
// The default page size is allowed.
const _: () = assert!(INBOX_PAGE <= INBOX_PAGE_MAX);
/// The most messages that one transaction deletes. It is limited because the other writers of the database wait for it.
pub(super) const DROP_STEP: u64 = 2_000;
/// The highest message id that the databases can give.
pub(super) const ID_MAX: u64 = i64::MAX as u64;

/// 108 if no feature needs the primary database, 4010 if the database does not answer.
const READ_ERRORS: &[Error] =
    &[Error::NO_SUCH_SCOPE, Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];

fn page_size(limit: usize) -> usize {
    if limit == 0 { INBOX_PAGE } else { limit.min(INBOX_PAGE_MAX) }
}

/// Returns the primary database; 108 if the node has none.
fn database(node: RequestNode<'_>) -> Result<&Store, OperationError> {
    Ok(node.node().store().ok_or(Error::NOT_AVAILABLE)?)
}

/// Checks that a scope of this name exists.
pub(super) fn check_scope(node: RequestNode<'_>, scope: &str) -> Result<(), OperationError> {
    plain("scope", [scope])?;
    node.generation().session.scopes.find(scope).map(|_| ()).ok_or(Error::NO_SUCH_SCOPE.into())
}

/// Returns the place of the inbox that a request names.
fn place_of(node: RequestNode<'_>, scope: String, name: String) -> Result<InboxPlace, OperationError> {
    check_scope(node, &scope)?;
    plain("name", [&name])?;
    if name.is_empty() {
        return Err(OperationError::bad("name"));
    }
    Ok(InboxPlace { scope: scope.into(), name: name.into() })
}

/// Reads the id of a message.
fn id_of(field: &'static str, text: &str) -> Result<u64, OperationError> {
    text.parse().ok().filter(|id| *id <= ID_MAX).ok_or(OperationError::bad(field))
}

/// Waits for an answer of the database. `ask` sends the request.
pub(super) async fn asked<T>(ask: impl FnOnce(oneshot::Sender<Result<T, StoreRefusal>>)) -> Result<T, OperationError> {
    let (reply, outcome) = oneshot::channel();
    ask(reply);
    Ok(outcome.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)?)
}

/// Returns a callback that sends the answer of the database to the waiting task.
pub(super) fn answering<T: Send + 'static>(
    reply: oneshot::Sender<Result<T, StoreRefusal>>,
) -> Box<dyn FnOnce(Result<T, StoreRefusal>) + Send + Sync> {
    Box::new(move |outcome| {
        // A task that was cancelled needs no answer.
        let _ = reply.send(outcome);
    })
}

/// A request for the names with waiting messages.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct InboxNamesRequest {
    /// Only names of this scope; empty = of all scopes.
    #[serde(deserialize_with = "nullable")]
    scope: String,
    /// Only names that begin with this text; empty = all names.
    #[serde(deserialize_with = "nullable")]
    prefix: String,
    /// The greatest number of names in the answer, up to 1,000; 0 = 100. A page may be shorter: only an absent `cursor`
    /// means the end.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
    /// The `cursor` of the previous page; empty = the first page.
    #[serde(deserialize_with = "nullable")]
    cursor: String,
}

/// A name with its waiting messages.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InboxNameReply {
    /// The scope of the name.
    scope: Box<str>,
    /// The name that messages wait for.
    name: Box<str>,
    /// The number of messages that are not acknowledged. One answer counts at most 100,000 messages: 1,000 of each name
    /// with `limit` 100, 100 of each with `limit` 1,000.
    waiting: u64,
    /// The size of the counted messages, in bytes.
    bytes: u64,
    /// `true`: there may be more messages than were counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
    /// The time when the oldest message was sent, in Unix milliseconds; absent = the message does not contain a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ms: Option<u64>,
}

/// One page of names with waiting messages.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InboxNamesReply {
    /// The names, sorted by scope and name in the order of the database.
    names: Vec<InboxNameReply>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// The operation `inbox_names`.
pub(crate) struct InboxNamesOperation;

impl Operation for InboxNamesOperation {
    const NAME: &'static str = "inbox_names";
    const SUMMARY: &'static str = "Lists the names with waiting messages, and the number of messages";
    const RESULT: &'static str = "`names`, each with `scope`, `name`, `waiting`, `bytes`, `more` (there may be more \
                                  than were counted), `oldest_ms`; `cursor` (absent: last page)";
    const EXAMPLE: &'static str = r#"{"scope": "devices", "prefix": "bike-"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"names": [{
        "scope": "devices", "name": "bike-7", "waiting": 2, "bytes": 310, "oldest_ms": 1795359600000
    }]}"#;
    const ERRORS: &'static [Error] = READ_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InboxNamesRequest;
    type Reply = InboxNamesReply;

    async fn run(node: RequestNode<'_>, request: InboxNamesRequest) -> Result<InboxNamesReply, OperationError> {
        let store = database(node)?;
        let InboxNamesRequest { scope, prefix, limit, cursor } = request;
        plain("prefix", [&prefix])?;
        if !scope.is_empty() {
            check_scope(node, &scope)?;
        }
        let scope = Some(scope.into_boxed_str()).filter(|scope| !scope.is_empty());
        let after = cursor_place(&cursor, scope.as_deref())?;
        let search = InboxSearch { scope, prefix: prefix.into(), after, limit: page_size(limit) };
        let page: InboxNames = asked(|reply| store.inbox_names(search, answering(reply))).await?;
        Ok(InboxNamesReply {
            names: page.names.into_iter().map(InboxNameReply::from).collect(),
            cursor: page.next.map(|place| [&*place.scope, &*place.name].join("\n")),
        })
    }
}

impl From<InboxSummary> for InboxNameReply {
    fn from(summary: InboxSummary) -> Self {
        let InboxSummary { place: InboxPlace { scope, name }, waiting, bytes, has_more, oldest_ms } = summary;
        InboxNameReply { scope, name, waiting, bytes, more: has_more, oldest_ms }
    }
}

/// Returns the place after which a page begins. A cursor contains the scope and the name, which have no control
/// characters.
///
/// # Errors
/// 107 for a cursor that no answer for this scope can contain.
fn cursor_place(cursor: &str, scope: Option<&str>) -> Result<InboxPlace, OperationError> {
    if cursor.is_empty() {
        return Ok(InboxPlace::default());
    }
    let (of_scope, name) = cursor.split_once('\n').ok_or(OperationError::bad("cursor"))?;
    plain("cursor", [of_scope, name])?;
    if scope.is_some_and(|scope| scope != of_scope) {
        return Err(OperationError::bad("cursor"));
    }
    Ok(InboxPlace { scope: of_scope.into(), name: name.into() })
}

/// A request for the messages of a name.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["scope", "name"]), transform = nullable_fields)]
pub(crate) struct InboxListRequest {
    /// The scope of the name.
    #[serde(deserialize_with = "nullable")]
    scope: String,
    /// The name that the messages wait for.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    name: String,
    /// The greatest number of messages in the answer, up to 1,000; 0 = 100. The page also ends when its messages reach
    /// 1 MiB.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
    /// The `cursor` of the previous page; empty = begin with the oldest message.
    #[serde(deserialize_with = "nullable")]
    cursor: String,
}

/// The sender of a message; without fields, a backend sent it.
#[derive(Serialize, Deserialize, Default, JsonSchema)]
#[serde(default)]
pub(crate) struct InboxSender {
    /// The user; absent = the anonymous user or a backend.
    #[serde(skip_serializing_if = "String::is_empty")]
    user: String,
    /// The client id; absent = a backend.
    #[serde(skip_serializing_if = "String::is_empty")]
    client: String,
}

/// A message that waits for the owner of a name.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InboxMessageReply {
    /// The id of the message.
    id: String,
    /// The sender of the message; absent = unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<InboxSender>,
    /// The time when it was sent, in Unix milliseconds; absent = unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_ms: Option<u64>,
    /// The time when it is deleted, in Unix milliseconds.
    expires_ms: u64,
    /// The size of the stored message in bytes, with its sender and time.
    size: usize,
    /// The payload; bytes are written as `{"$b64": "…"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

/// One page of the messages of a name.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InboxListReply {
    /// The messages, the oldest first.
    messages: Vec<InboxMessageReply>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// The operation `inbox_list`.
pub(crate) struct InboxListOperation;

impl Operation for InboxListOperation {
    const NAME: &'static str = "inbox_list";
    const SUMMARY: &'static str =
        "Lists the messages that wait for a name, the oldest first; their delivery does not change";
    const RESULT: &'static str = "`messages`, each with `id`, `from` (empty: a backend), `sent_ms`, `expires_ms`, \
                                  `size` and `data`; `cursor` (absent: last page)";
    const EXAMPLE: &'static str = r#"{"scope": "devices", "name": "bike-7", "limit": 10}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"messages": [{
        "id": "7", "from": {"user": "42", "client": "5b23579a-9066-444b-bfc3-000100000000"},
        "sent_ms": 1795359600000, "expires_ms": 1795446000000, "size": 155, "data": {"text": "hi"}
    }]}"#;
    const ERRORS: &'static [Error] = READ_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InboxListRequest;
    type Reply = InboxListReply;

    async fn run(node: RequestNode<'_>, request: InboxListRequest) -> Result<InboxListReply, OperationError> {
        let store = database(node)?;
        let InboxListRequest { scope, name, limit, cursor } = request;
        let place = place_of(node, scope, name)?;
        let behind = if cursor.is_empty() { 0 } else { id_of("cursor", &cursor)? };
        let listing = InboxListing { place, behind, limit: page_size(limit) };
        let page: InboxPage = asked(|reply| store.inbox_page(listing, answering(reply))).await?;
        let cursor = page.messages.last().filter(|_| page.has_more).map(|last| last.id.to_string());
        Ok(InboxListReply { messages: page.messages.into_iter().map(shown).collect(), cursor })
    }
}

/// The fields of a message in the database.
#[derive(Deserialize, Default)]
#[serde(default)]
struct WaitingFields {
    from: Option<InboxSender>,
    time: Option<u64>,
    data: Option<Box<RawValue>>,
}

/// Returns a message as callers see it.
fn shown(waiting: WaitingMessage) -> InboxMessageReply {
    let WaitingMessage { id, message, expires_ms } = waiting;
    let WaitingFields { from, time, data } = serde_json::from_slice(&message).unwrap_or_default();
    InboxMessageReply { id: id.to_string(), from, sent_ms: time, expires_ms, size: message.len(), data }
}

/// A request to delete waiting messages.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["scope", "name"]), transform = nullable_fields)]
pub(crate) struct InboxDropRequest {
    /// The scope of the name.
    #[serde(deserialize_with = "nullable")]
    scope: String,
    /// The name that the messages wait for.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    name: String,
    /// The ids of the messages, 1,000 at most; absent = all messages that wait for the name. Unknown ids are skipped.
    #[schemars(length(min = 1, max = INBOX_PAGE_MAX))]
    ids: Option<Vec<String>>,
}

/// The number of deleted messages.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxDropReply {
    /// The number of messages that were deleted.
    dropped: u64,
    /// The ids of nodes that did not answer in time. If the owner of the name is connected to one of them, that node
    /// may still deliver a message that it was reading at that moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

/// The operation `inbox_drop`.
pub(crate) struct InboxDropOperation;

impl Operation for InboxDropOperation {
    const NAME: &'static str = "inbox_drop";
    const SUMMARY: &'static str = "Deletes messages that wait for a name: none is delivered after the answer, and \
                                   clients need not acknowledge those that they received";
    const RESULT: &'static str = "`dropped`: how many; `missing_nodes`";
    const EXAMPLE: &'static str = r#"{"scope": "devices", "name": "bike-7", "ids": ["7", "8"]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"dropped": 2}"#;
    const ERRORS: &'static [Error] = READ_ERRORS;
    /// All nodes share one database. Each node deletes what the others have left, so no message counts twice. Each node
    /// knows its own deliveries.
    const SCOPE: OperationScope = OperationScope::Gather;
    /// Without ids, a second request also deletes messages that arrived after the first.
    const IS_IDEMPOTENT: bool = false;

    type Request<'a> = InboxDropRequest;
    type Reply = InboxDropReply;

    async fn run(node: RequestNode<'_>, request: InboxDropRequest) -> Result<InboxDropReply, OperationError> {
        database(node)?;
        let InboxDropRequest { scope, name, ids } = request;
        let place = place_of(node, scope, name)?;
        let ids = match ids {
            Some(ids) if ids.is_empty() || ids.len() > INBOX_PAGE_MAX => return Err(OperationError::bad("ids")),
            Some(ids) => Some(ids.iter().map(|id| id_of("ids", id)).collect::<Result<Vec<_>, _>>()?),
            None => None,
        };
        let is_all = ids.is_none();
        let mut step = InboxDrop { place, ids, until: ID_MAX, limit: DROP_STEP };
        let mut dropped = 0;
        loop {
            let told: DroppedMessages = asked(|reply| drop_messages(&node, step.clone(), reply)).await?;
            dropped += told.count;
            if !is_all || told.count < DROP_STEP {
                return Ok(InboxDropReply { dropped, missing_nodes: Vec::new() });
            }
            // Messages that arrive from now on are not deleted.
            step.until = step.until.min(told.top);
        }
    }

    fn merge(reply: &mut InboxDropReply, others: &OtherNodes<'_>) {
        let read =
            others.results.iter().filter_map(|(_, json)| serde_json::from_str::<InboxDropReply>(json.get()).ok());
        reply.dropped += read.map(|other| other.dropped).sum::<u64>();
        reply.missing_nodes = others.missing.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_shown_with_what_is_known_of_it() {
        let of = |message: &str| {
            let message = WaitingMessage { id: 7, message: message.to_owned().into(), expires_ms: 9 };
            serde_json::to_string(&shown(message)).expect("it can be written")
        };
        assert_eq!(
            of(r#"{"from":{"user":"ann","client":"c"},"to":"bike","data":{"a":1.0},"time":8}"#),
            r#"{"id":"7","from":{"user":"ann","client":"c"},"sent_ms":8,"expires_ms":9,"size":74,"data":{"a":1.0}}"#
        );
        assert_eq!(of(r#"{"from":{},"data":null}"#), r#"{"id":"7","from":{},"expires_ms":9,"size":23}"#);
        assert_eq!(of("x"), r#"{"id":"7","expires_ms":9,"size":1}"#);
    }

    #[test]
    fn a_cursor_is_of_its_scope() {
        let place = InboxPlace { scope: "a".into(), name: "b:c".into() };
        assert_eq!(cursor_place("a\nb:c", Some("a")), Ok(place));
        assert_eq!(cursor_place("", Some("a")), Ok(InboxPlace::default()));
        for bad in ["a", "b\nc", "a\nb\nc", "a\n\0"] {
            assert_eq!(cursor_place(bad, Some("a")), Err(OperationError::bad("cursor")), "{bad:?}");
        }
        let ids =
            ["7", "9223372036854775807", "9223372036854775808", "-1", "", "x"].map(|text| id_of("ids", text).ok());
        assert_eq!(ids, [Some(7), Some(ID_MAX), None, None, None, None]);
    }
}
