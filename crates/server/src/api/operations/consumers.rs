//! The operation `consumers`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_protocol::Error;

use super::info::InfoRequest;
use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};

/// The consumers of all nodes.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct ConsumersReply {
    /// The consumers: one entry for each node that runs one.
    consumers: Vec<ConsumerReport>,
    /// The ids of nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

/// The state of a consumer on one node.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ConsumerReport {
    /// The name of the consumer.
    name: String,
    /// The name of the node.
    node: String,
    /// The number of rows or messages that wait.
    waiting: u64,
    /// The age of the oldest waiting row or message, in seconds.
    oldest_s: f64,
    /// The number of rows or messages that failed and are retried.
    retrying: u64,
    /// The number of rows in partitions that no node reads.
    unread: u64,
    /// The state of the consumer: `running`, `behind` or `stuck`.
    state: String,
}

/// The operation `consumers`.
pub(crate) struct ConsumersOperation;

impl Operation for ConsumersOperation {
    const NAME: &'static str = "consumers";
    const SUMMARY: &'static str = "Returns how far the consumers of the nodes have read";
    const RESULT: &'static str = "`consumers`, each with `name`, `node`, `waiting`, `oldest_s`, `retrying`, `unread`, \
                                  `state` (`running`, `behind` or `stuck`); `missing_nodes`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "consumers": [{
            "name": "shop", "node": "node-1", "waiting": 0, "oldest_s": 0.0, "retrying": 0, "unread": 0,
            "state": "running"
        }]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = InfoRequest;
    type Reply = ConsumersReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<ConsumersReply, OperationError> {
        let generation = node.generation();
        let of_node = generation.settings.node.name.clone();
        let consumers = generation.consumers.iter().map(|consumer| {
            let lag = consumer.lag();
            let state = match (consumer.is_stuck(), lag.oldest_s > BEHIND_S) {
                (true, _) => "stuck",
                (false, true) => "behind",
                (false, false) => "running",
            };
            ConsumerReport {
                name: consumer.name().to_owned(),
                node: of_node.clone(),
                waiting: lag.waiting,
                oldest_s: lag.oldest_s,
                retrying: lag.retrying,
                unread: lag.unread,
                state: state.to_owned(),
            }
        });
        Ok(ConsumersReply { consumers: consumers.collect(), missing_nodes: Vec::new() })
    }

    fn merge(reply: &mut ConsumersReply, others: &OtherNodes<'_>) {
        let read =
            others.results.iter().filter_map(|(_, json)| serde_json::from_str::<ConsumersReply>(json.get()).ok());
        reply.consumers.extend(read.flat_map(|other| other.consumers));
        reply.missing_nodes = others.missing.clone();
    }
}

/// A consumer is behind when its oldest row or message is older than this, in seconds.
const BEHIND_S: f64 = 5.0;
