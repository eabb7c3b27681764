//! `channels`.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError};
use crate::api::params::{nullable, nullable_fields};
use crate::net::glob::{Glob, PATTERN_MAX};
use crate::node::Node;
use crate::runtime::mailbox::Inspection;

/// Asks for channels that have subscribers.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct ChannelsRequest {
    /// A glob that the names must match; empty = every channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = PATTERN_MAX))]
    pattern: String,
}

/// Channels that have subscribers, each once.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChannelsReply {
    /// The channels, by name.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, ClientCount>")]
    channels: Vec<(Box<str>, ClientCount)>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct ClientCount {
    /// Connections that subscribe to the channel.
    num_clients: u64,
}

/// Writes names and counts as one object. A list is enough, because the channels of one node may be very many, and
/// shards never name the same one.
fn as_object<S: Serializer>(channels: &[(Box<str>, ClientCount)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(channels.iter().map(|(name, count)| (name, count)))
}

/// The reply of another node.
#[derive(Deserialize)]
struct ChannelsOfNode {
    channels: BTreeMap<Box<str>, ClientCount>,
}

/// `channels`.
pub(crate) struct ChannelsOperation;

impl Operation for ChannelsOperation {
    const NAME: &'static str = "channels";
    const SUMMARY: &'static str = "Lists channels that have subscribers, with the number of these";
    const RESULT: &'static str = "`channels`: name → `{num_clients}`";
    const EXAMPLE: &'static str = r#"{"pattern": "news*"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"channels": {"news": {"num_clients": 2}}}"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(8);

    type Request<'a> = ChannelsRequest;
    type Reply = ChannelsReply;

    async fn run(node: &Node, request: ChannelsRequest) -> Result<ChannelsReply, OperationError> {
        let pattern = match request.pattern.as_str() {
            "" => None,
            pattern => Some(Arc::new(Glob::parse(pattern).ok_or(OperationError::bad("pattern"))?)),
        };
        let inspection = |reply| Inspection::Channels { pattern: pattern.clone(), reply };
        let found = node.inspect(inspection).await.into_iter().flatten();
        let channels = found.map(|(name, num_clients)| ((*name).into(), ClientCount { num_clients })).collect();
        Ok(ChannelsReply { channels })
    }

    fn merge(reply: &mut ChannelsReply, others: &[&RawValue]) {
        let mut all: BTreeMap<Box<str>, ClientCount> = reply.channels.drain(..).collect();
        for other in others.iter().filter_map(|json| serde_json::from_str::<ChannelsOfNode>(json.get()).ok()) {
            for (name, count) in other.channels {
                all.entry(name).or_insert(ClientCount { num_clients: 0 }).num_clients += count.num_clients;
            }
        }
        reply.channels = all.into_iter().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_nodes_are_added_in_the_order_of_names() {
        let own = [("b", 1), ("a", 2)];
        let channels = own.map(|(name, num_clients)| (name.into(), ClientCount { num_clients })).into();
        let mut reply = ChannelsReply { channels };
        let written = |reply: &ChannelsReply| serde_json::to_string(reply).expect("JSON");
        assert_eq!(written(&reply), r#"{"channels":{"b":{"num_clients":1},"a":{"num_clients":2}}}"#);
        let others = [r#"{"channels":{"b":{"num_clients":3},"c":{"num_clients":4}}}"#, "{}", "[1]"];
        let others = others.map(|json| serde_json::from_str::<&RawValue>(json).expect("JSON"));
        ChannelsOperation::merge(&mut reply, &others);
        let expected = r#"{"channels":{"a":{"num_clients":2},"b":{"num_clients":4},"c":{"num_clients":4}}}"#;
        assert_eq!(written(&reply), expected);
    }
}
