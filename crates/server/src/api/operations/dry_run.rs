//! The dry run of `publish`: counts the clients that would get a publication.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_engine::request::{History, Publish};
use touchline_engine::{ChannelRequest, Response, ShardId};
use touchline_protocol::publication::LogPosition;
use touchline_protocol::stream::StreamPosition;
use touchline_protocol::{Error, Publication};

use crate::api::operation::{OperationError, OtherNodes, RequestNode};
use crate::runtime::audience::{AudienceQuestion, NodeAudience};
use crate::runtime::mailbox::Message;

/// The clients that would get a publication.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(in crate::api) struct Audience {
    /// The audience of each node, by the name of the node.
    pub(in crate::api) nodes: BTreeMap<String, NodeAudience>,
    /// The nodes that did not answer in time, refused, or are of an earlier version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) missing_nodes: Vec<Box<str>>,
}

/// The result of another node.
#[derive(Deserialize)]
struct OtherResult {
    audience: Audience,
}

impl Audience {
    /// Counts the audience on this node. `is_kept`: the publication would be kept in the channel's history.
    ///
    /// # Errors
    /// 111 when a shard already has too many such requests.
    pub(super) async fn here(
        node: RequestNode<'_>,
        channel: &str,
        publish: Publish,
        is_kept: bool,
    ) -> Result<Self, OperationError> {
        let top = if is_kept { Some(top(node, channel).await) } else { None };
        let place = top.as_ref().map(|top| LogPosition {
            offset: top.offset.next(),
            epoch: top.epoch.as_str(),
            time_ms: node.clock.now_ms(),
        });
        let publication = Publication::encode(channel, &publish.content, place).excluding(publish.exclusion);
        let publication = Arc::new(publication);
        let mut answers = Vec::with_capacity(node.shards.len());
        for shard in 0..node.shards.len() {
            let (reply, answer) = oneshot::channel();
            let question = AudienceQuestion { channel: channel.into(), publication: Arc::clone(&publication), reply };
            node.send(shard as ShardId, Message::CountAudience(Box::new(question)));
            answers.push(answer);
        }
        let mut here = NodeAudience::default();
        for answer in answers {
            here.add(&answer.await.unwrap_or(Err(Error::INTERNAL))?);
        }
        Ok(Audience { nodes: BTreeMap::from([(node.id.clone(), here)]), missing_nodes: Vec::new() })
    }

    /// Adds the results of other nodes, and names the nodes without a result.
    pub(super) fn merge(&mut self, others: &OtherNodes<'_>) {
        let results = others.results.iter();
        let results = results.filter_map(|(_, result)| serde_json::from_str::<OtherResult>(result.get()).ok());
        self.nodes.extend(results.flat_map(|other| other.audience.nodes));
        self.missing_nodes.clone_from(&others.missing);
    }
}

/// Returns the position of a channel, as far as it is known.
async fn top(node: RequestNode<'_>, channel: &str) -> StreamPosition {
    let history = History { limit: Some(0), ..History::default() };
    match node.request_home(channel, ChannelRequest::History(Box::new(history))).await {
        Response::History { position, .. } => position,
        _ => StreamPosition::default(),
    }
}
