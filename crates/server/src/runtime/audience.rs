//! The audience of a publication: the question to a shard, and the counts of its answer.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{Error, Publication};

/// Asks a shard which of its subscribers would get a publication.
pub(crate) struct AudienceQuestion {
    pub(crate) channel: ChannelName,
    /// The publication, with the clients that are left out.
    pub(crate) publication: Arc<Publication>,
    /// Receives the counts. The error is 111 if too many questions wait.
    pub(crate) reply: oneshot::Sender<Result<NodeAudience, Error>>,
}

/// The subscribers of one node that would get a publication.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NodeAudience")]
#[serde(default)]
pub(crate) struct NodeAudience {
    /// Subscribers that would get it.
    pub(crate) clients: u64,
    /// Bytes that would be sent to them.
    pub(crate) bytes: u64,
    /// How many of the bytes go to clients with JSON.
    pub(crate) json_bytes: u64,
    /// How many of the bytes go to clients with Protobuf.
    pub(crate) protobuf_bytes: u64,
    /// Subscribers that do not get it because of their filter.
    pub(crate) filtered: u64,
    /// Subscribers that `exclude_client` or `exclude_user` leaves out.
    pub(crate) excluded: u64,
}

impl NodeAudience {
    /// Adds the counts of another shard.
    pub(crate) fn add(&mut self, other: &NodeAudience) {
        self.clients += other.clients;
        self.bytes += other.bytes;
        self.json_bytes += other.json_bytes;
        self.protobuf_bytes += other.protobuf_bytes;
        self.filtered += other.filtered;
        self.excluded += other.excluded;
    }
}
