//! The operation `info`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::runtime::mailbox::Inspection;
use crate::runtime::process;

/// The request has no fields: any value is ignored.
pub(crate) struct InfoRequest;

impl<'de> Deserialize<'de> for InfoRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| InfoRequest)
    }
}

impl JsonSchema for InfoRequest {
    fn schema_name() -> Cow<'static, str> {
        "InfoRequest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "The request has no fields: any value is ignored." })
    }
}

/// The nodes of the cluster; the asked node comes first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InfoReply {
    /// One entry for each node that answered.
    #[schemars(with = "Vec<OwnInfo>")]
    nodes: Vec<NodeInfo>,
    /// The ids of nodes that did not answer in time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum NodeInfo {
    Own(Box<OwnInfo>),
    /// The JSON of another node, whose version may have other fields.
    Other(Box<RawValue>),
}

/// What one node holds and has counted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "NodeInfo")]
struct OwnInfo {
    /// The id of the node; it changes at each start of the node.
    uid: String,
    /// The name of the node (`node.name`); absent = it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// The version of the server.
    version: &'static str,
    /// The number of connections.
    num_clients: u64,
    /// Users that are connected to this node.
    num_users: u64,
    /// The number of subscriptions.
    num_subs: u64,
    /// The number of channels that have subscribers.
    num_channels: u64,
    /// Seconds since the node started.
    uptime: u64,
    /// The number of the configuration in use: 1 at the start of the node, plus 1 for each reload that changes it.
    config_generation: u64,
    /// The names of nodes whose configuration differs from that of this node; the id of a node without a name. Absent
    /// = all are equal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes_with_other_configuration: Vec<String>,
    /// The counters of the node.
    metrics: InfoMetrics,
    /// What the node's process uses.
    process: InfoProcess,
}

/// The counters of one node.
#[derive(Serialize, JsonSchema)]
struct InfoMetrics {
    /// Seconds since the node started.
    interval: f64,
    /// The counts since the node started, by name.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, u64>")]
    items: Vec<(&'static str, u64)>,
}

/// The processor time and memory that a process uses.
#[derive(Serialize, JsonSchema)]
struct InfoProcess {
    /// Processor time since the node started, in percent of one processor.
    cpu: f64,
    /// Resident memory in bytes.
    rss: u64,
}

fn as_object<S: Serializer>(items: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(items.iter().copied())
}

/// Rounds a number to so many digits after the decimal point.
fn rounded(number: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (number * unit).round() / unit
}

/// Returns all counters of the node, without labels.
fn counts(node: RequestNode<'_>) -> Vec<(&'static str, u64)> {
    node.collector().values().chain([("api_requests", node.api_requests())]).collect()
}

/// The reply of another node, whose entries are kept as JSON.
#[derive(Deserialize)]
struct InfoOfNode {
    nodes: Vec<Box<RawValue>>,
}

/// The operation `info`.
pub(crate) struct InfoOperation;

impl Operation for InfoOperation {
    const NAME: &'static str = "info";
    const SUMMARY: &'static str = "Returns what each node holds and its counters";
    const RESULT: &'static str = "`nodes`: each with `uid`, `name`, `version`, `num_clients`, `num_users`, `num_subs`, \
                                  `num_channels`, `uptime`, `config_generation`, \
                                  `nodes_with_other_configuration`, `metrics`, `process`; `missing_nodes`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{
        "nodes": [{
            "uid": "8f1c", "version": "0.1.0", "num_clients": 2, "num_users": 1, "num_subs": 3, "num_channels": 1,
            "uptime": 60, "config_generation": 1, "metrics": {"interval": 60.0, "items": {"api_requests": 7}},
            "process": {"cpu": 0.5, "rss": 9000000}
        }]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(9);

    type Request<'a> = InfoRequest;
    type Reply = InfoReply;

    async fn run(node: RequestNode<'_>, _: InfoRequest) -> Result<InfoReply, OperationError> {
        let num_channels = node.inspect(|reply| Inspection::ActiveChannels { reply }).await.iter().sum();
        let others = node.others_with_other_configuration();
        let up_s = node.clock.elapsed_us() as f64 / 1e6;
        let own = OwnInfo {
            uid: node.id.clone(),
            name: node.generation().settings.node.name.clone(),
            version: node.generation().session.version,
            num_clients: node.connections(),
            num_users: node.users.users(),
            num_subs: node.shards.iter().map(|shard| shard.metrics.subscriptions.get()).sum(),
            num_channels,
            uptime: up_s as u64,
            config_generation: node.generation().number,
            nodes_with_other_configuration: others.iter().map(ToString::to_string).collect(),
            metrics: InfoMetrics { interval: rounded(up_s, 3), items: counts(node) },
            process: InfoProcess {
                cpu: rounded(100.0 * process::processor_s() / up_s.max(0.001), 2),
                rss: process::resident(),
            },
        };
        Ok(InfoReply { nodes: vec![NodeInfo::Own(Box::new(own))], missing_nodes: Vec::new() })
    }

    fn merge(reply: &mut InfoReply, others: &OtherNodes<'_>) {
        let read = others.results.iter().filter_map(|(_, json)| serde_json::from_str::<InfoOfNode>(json.get()).ok());
        reply.missing_nodes = others.missing.clone();
        reply.nodes.extend(read.flat_map(|of_node| of_node.nodes).map(NodeInfo::Other));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_another_version_keep_their_fields() {
        let mut reply = InfoReply { nodes: Vec::new(), missing_nodes: Vec::new() };
        let others = [r#"{"nodes":[{"uid":"b","later":[1.50]}]}"#, "{}", r#"{"nodes":[{"uid":"c"}]}"#];
        let results = others.map(|json| (None, serde_json::from_str::<&RawValue>(json).expect("JSON"))).into();
        let others = OtherNodes { results, ..OtherNodes::default() };
        InfoOperation::merge(&mut reply, &others);
        let written = serde_json::to_string(&reply).expect("JSON");
        assert_eq!(written, r#"{"nodes":[{"uid":"b","later":[1.50]},{"uid":"c"}]}"#);
    }

    #[test]
    fn figures_are_rounded() {
        assert_eq!((rounded(12.345_67, 3), rounded(0.005, 2), rounded(7.0, 2)), (12.346, 0.01, 7.0));
    }
}
