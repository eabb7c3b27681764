//! The operation `activity`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_protocol::Error;

use super::info::InfoRequest;
use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::console::Activity;

/// The most changes in one answer.
const ENTRIES_MAX: usize = 1_000;

/// The changes on the nodes.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct ActivityReply {
    /// The changes, the newest first.
    activity: Vec<Activity>,
    /// The ids of nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

/// The operation `activity`.
pub(crate) struct ActivityOperation;

impl Operation for ActivityOperation {
    const NAME: &'static str = "activity";
    const SUMMARY: &'static str = "Lists the newest 1,000 changes on the nodes, with their authors";
    const RESULT: &'static str = "`activity`, each with `at_ms`, `node`, `who`, `role`, `what`, `target`, `result`; \
                                  `missing_nodes`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "activity": [{
            "at_ms": 1700000000000, "node": "node-1", "who": "the node", "role": "", "what": "start",
            "target": "0.1.0", "result": "ok"
        }]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InfoRequest;
    type Reply = ActivityReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<ActivityReply, OperationError> {
        Ok(ActivityReply { activity: node.console.activity.newest(ENTRIES_MAX), missing_nodes: Vec::new() })
    }

    fn merge(reply: &mut ActivityReply, others: &OtherNodes<'_>) {
        let read = others.results.iter().filter_map(|(_, json)| serde_json::from_str::<ActivityReply>(json.get()).ok());
        reply.activity.extend(read.flat_map(|other| other.activity));
        reply.activity.sort_by_key(|activity| std::cmp::Reverse(activity.at_ms));
        reply.activity.truncate(ENTRIES_MAX);
        reply.missing_nodes = others.missing.clone();
    }
}
