//! The operation `refusals`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_protocol::Error;

use super::info::InfoRequest;
use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::runtime::refusals::RefusalCount;

/// The most causes in one answer.
const CAUSES_MAX: usize = 200;
/// Status codes of HTTP and codes of closed connections. Other codes are those of errors.
const CONNECTION_CODES: std::ops::RangeInclusive<u32> = 400..=599;
const CLOSE_CODES: std::ops::RangeInclusive<u32> = 3_000..=4_000;

/// The refusals of all nodes.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct RefusalsReply {
    /// The causes, the newest first.
    refusals: Vec<RefusedCause>,
    /// The ids of nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

/// The refusals for one cause on one node since its start.
#[derive(Serialize, Deserialize, JsonSchema)]
struct RefusedCause {
    /// The time of the last refusal, in Unix milliseconds.
    last_ms: u64,
    /// The name of the node.
    node: String,
    /// What was refused: `connection`, `command` or `api`.
    kind: String,
    /// The operation of the server API that was refused last; empty = none.
    what: String,
    /// The channel of the last refusal; empty = the refusal has no channel.
    channel: String,
    /// The name of the caller's key; empty = the refusal has no key.
    key: String,
    /// The code that the caller received: of an error, of a closed connection, or of HTTP; 0 = none.
    code: u32,
    /// The cause of the refusals, as text.
    words: String,
    /// The number of refusals.
    count: u64,
}

/// The operation `refusals`.
pub(crate) struct RefusalsOperation;

impl Operation for RefusalsOperation {
    const NAME: &'static str = "refusals";
    const SUMMARY: &'static str = "Lists why clients and backends were refused since the nodes started: up to 200 \
                                   causes of each node";
    const RESULT: &'static str = "`refusals`, the newest first, each with `last_ms`, `node`, `kind` (`connection`, \
                                  `command` or `api`), `what`, `channel`, `key`, `code`, `words`, `count`; \
                                  `missing_nodes`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "refusals": [{
            "last_ms": 1700000000000, "node": "node-1", "kind": "command", "what": "", "channel": "news", "key": "",
            "code": 103, "words": "subscribing is not allowed", "count": 12
        }]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InfoRequest;
    type Reply = RefusalsReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<RefusalsReply, OperationError> {
        let name = node.generation().settings.node.name.clone();
        let report = |counted: RefusalCount| {
            let (code, channel, operation) = counted.said;
            RefusedCause {
                last_ms: node.clock.unix_ms(counted.last_ms.saturating_mul(1_000)),
                node: name.clone(),
                kind: kind(code, &operation).to_owned(),
                what: operation.into(),
                channel: channel.into(),
                key: counted.key.into(),
                code,
                words: counted.cause.to_owned(),
                count: counted.count,
            }
        };
        let mut refusals: Vec<RefusedCause> = node.refusals.counts().into_iter().map(report).collect();
        newest_first(&mut refusals);
        refusals.truncate(CAUSES_MAX);
        Ok(RefusalsReply { refusals, missing_nodes: Vec::new() })
    }

    fn merge(reply: &mut RefusalsReply, others: &OtherNodes<'_>) {
        let read = others.results.iter().filter_map(|(_, json)| serde_json::from_str::<RefusalsReply>(json.get()).ok());
        reply.refusals.extend(read.flat_map(|other| other.refusals));
        newest_first(&mut reply.refusals);
        reply.missing_nodes = others.missing.clone();
    }
}

fn newest_first(refusals: &mut [RefusedCause]) {
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.last_ms));
}

/// Returns what a refusal is about, by the code that the caller received.
fn kind(code: u32, operation: &str) -> &'static str {
    match code {
        _ if !operation.is_empty() => "api",
        code if CONNECTION_CODES.contains(&code) || CLOSE_CODES.contains(&code) => "connection",
        _ => "command",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_what_was_refused() {
        for (code, operation, expected) in [
            (403, "", "connection"),
            (3_500, "", "connection"),
            (103, "", "command"),
            (103, "publish", "api"),
            (4_003, "", "command"),
        ] {
            assert_eq!(kind(code, operation), expected, "{code}");
        }
    }
}
