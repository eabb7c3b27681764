//! The operation `channels`.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{nullable, nullable_fields};
use crate::net::glob::{Glob, PATTERN_MAX};
use crate::runtime::mailbox::Inspection;

/// A request for the channels that have subscribers.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct ChannelsRequest {
    /// A glob that the names must match; empty = every channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = PATTERN_MAX))]
    pattern: String,
    /// The greatest number of names on the page, in their order; absent = all names, in no order.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<usize>,
    /// The cursor of the previous page: the last name on it; empty = the first page.
    #[serde(deserialize_with = "nullable")]
    cursor: String,
}

/// The most channels on one page.
const LIMIT_MAX: usize = 1_000;

/// The channels that have subscribers, each once.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChannelsReply {
    /// The number of subscribers of each channel, by name.
    #[serde(serialize_with = "as_object")]
    #[schemars(with = "BTreeMap<String, ClientCount>")]
    channels: Vec<(Box<str>, ClientCount)>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    cursor: Option<Box<str>>,
    /// The ids of nodes that did not answer in time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
    /// `true`: channels may be left out. Nodes are missing, or the asked node is cut off from the others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
    #[serde(skip)]
    page: Option<ChannelsPage>,
}

/// The page that the request asks for.
#[derive(Debug, Clone)]
struct ChannelsPage {
    /// The page begins after this name.
    after: Box<str>,
    limit: usize,
}

impl ChannelsReply {
    /// Sorts the names, and keeps those of the page.
    fn cut(&mut self, page: &ChannelsPage) {
        self.channels.retain(|(name, _)| **name > *page.after);
        self.channels.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        if self.channels.len() > page.limit {
            self.channels.truncate(page.limit);
            self.cursor = self.channels.last().map(|(name, _)| name.clone());
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct ClientCount {
    /// The connections that subscribe to the channel.
    num_clients: u64,
}

/// Writes names and counts as one object. A list is enough: shards never report the same channel, and one node may have
/// very many channels.
fn as_object<S: Serializer>(channels: &[(Box<str>, ClientCount)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(channels.iter().map(|(name, count)| (name, count)))
}

/// The reply of another node.
#[derive(Deserialize)]
struct ChannelsOfNode {
    channels: BTreeMap<Box<str>, ClientCount>,
    #[serde(default)]
    cursor: Option<Box<str>>,
}

/// The operation `channels`.
pub(crate) struct ChannelsOperation;

impl Operation for ChannelsOperation {
    const NAME: &'static str = "channels";
    const SUMMARY: &'static str = "Lists the channels that have subscribers, with the number of subscribers";
    const RESULT: &'static str =
        "`channels`: name → `{num_clients}`; for a page `cursor` (absent: last page); `missing_nodes`, `is_partial`";
    const EXAMPLE: &'static str = r#"{"pattern": "news*"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"channels": {"news": {"num_clients": 2}}}"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(8);

    type Request<'a> = ChannelsRequest;
    type Reply = ChannelsReply;

    async fn run(node: RequestNode<'_>, request: ChannelsRequest) -> Result<ChannelsReply, OperationError> {
        let pattern = match request.pattern.as_str() {
            "" => None,
            pattern => Some(Arc::new(Glob::parse(pattern).ok_or(OperationError::bad("pattern"))?)),
        };
        let page = match request.limit {
            None if request.cursor.is_empty() => None,
            None => return Err(OperationError::bad("limit")),
            Some(limit @ 1..=LIMIT_MAX) => Some(ChannelsPage { after: request.cursor.into(), limit }),
            Some(_) => return Err(OperationError::bad("limit")),
        };
        let inspection = |reply| Inspection::Channels { pattern: pattern.clone(), reply };
        let found = node.inspect(inspection).await.into_iter().flatten();
        let channels = found.map(|(name, num_clients)| ((*name).into(), ClientCount { num_clients })).collect();
        let mut reply = ChannelsReply { channels, cursor: None, missing_nodes: Vec::new(), is_partial: false, page };
        if let Some(page) = reply.page.clone() {
            reply.cut(&page);
        }
        Ok(reply)
    }

    fn merge(reply: &mut ChannelsReply, others: &OtherNodes<'_>) {
        let mut all: BTreeMap<Box<str>, ClientCount> = reply.channels.drain(..).collect();
        let parts = others.results.iter().filter_map(|(_, json)| serde_json::from_str(json.get()).ok());
        for ChannelsOfNode { channels, cursor } in parts {
            for (name, count) in channels {
                all.entry(name).or_insert(ClientCount { num_clients: 0 }).num_clients += count.num_clients;
            }
            // A node that has more names after its last one has returned every name before it.
            if reply.cursor.is_none() {
                reply.cursor = cursor;
            }
        }
        reply.channels = all.into_iter().collect();
        if let Some(page) = reply.page.clone() {
            let has_more = reply.cursor.take().is_some();
            reply.cut(&page);
            if has_more {
                reply.cursor = reply.channels.last().map(|(name, _)| name.clone());
            }
        }
        reply.missing_nodes = others.missing.clone();
        reply.is_partial = others.are_partial();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn the_counts_of_all_nodes_are_added_in_the_order_of_names() {
        let own = [("b", 1), ("a", 2)];
        let channels = own.map(|(name, num_clients)| (name.into(), ClientCount { num_clients })).into();
        let mut reply =
            ChannelsReply { channels, cursor: None, missing_nodes: Vec::new(), is_partial: false, page: None };
        let written = |reply: &ChannelsReply| serde_json::to_string(reply).expect("JSON");
        assert_eq!(written(&reply), r#"{"channels":{"b":{"num_clients":1},"a":{"num_clients":2}}}"#);
        let others = [r#"{"channels":{"b":{"num_clients":3},"c":{"num_clients":4}}}"#, "{}", "[1]"];
        let results = others.map(|json| (None, serde_json::from_str::<&RawValue>(json).expect("JSON"))).into();
        let others = OtherNodes { results, ..OtherNodes::default() };
        ChannelsOperation::merge(&mut reply, &others);
        let expected = r#"{"channels":{"a":{"num_clients":2},"b":{"num_clients":4},"c":{"num_clients":4}}}"#;
        assert_eq!(written(&reply), expected);
    }
}
