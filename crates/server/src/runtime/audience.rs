//! Who would get a publication: the question to a shard, and what it counts.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{Error, Publication};

/// A question to a shard: who of its subscribers would get a publication.
pub(crate) struct AudienceQuestion {
    pub(crate) channel: ChannelName,
    /// The publication, with who is left out.
    pub(crate) publication: Arc<Publication>,
    /// The error is 111, when too many questions wait.
    pub(crate) reply: oneshot::Sender<Result<NodeAudience, Error>>,
}

/// Who would get a publication, of one node.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NodeAudience")]
#[serde(default)]
pub(crate) struct NodeAudience {
    /// Subscribers that would get it.
    pub(crate) clients: u64,
    /// Bytes that would be sent to them.
    pub(crate) bytes: u64,
    /// Of these bytes those to clients that get JSON.
    pub(crate) json_bytes: u64,
    /// Of these bytes those to clients that get Protobuf.
    pub(crate) protobuf_bytes: u64,
    /// Subscribers whose filter leaves it out.
    pub(crate) filtered: u64,
    /// Subscribers that `exclude_client` or `exclude_user` leaves out.
    pub(crate) excluded: u64,
}

impl NodeAudience {
    /// Adds what another shard has counted.
    pub(crate) fn add(&mut self, other: &NodeAudience) {
        self.clients += other.clients;
        self.bytes += other.bytes;
        self.json_bytes += other.json_bytes;
        self.protobuf_bytes += other.protobuf_bytes;
        self.filtered += other.filtered;
        self.excluded += other.excluded;
    }
}
