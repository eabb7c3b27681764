//! What the cluster keeps of channels: publications, lives of streams, histories, and how they are asked for.

use bytes::Bytes;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset};

/// A publication of a channel with history, as the cluster keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPublication {
    /// Its sequence in the stream of its namespace.
    pub offset: Offset,
    /// What was published.
    pub payload: Bytes,
}

/// The history of a channel.
#[derive(Debug, Clone)]
pub struct StreamHistory {
    /// The epoch, in the run of the stream if another run than its first one has begun.
    pub epoch: Epoch,
    /// What is kept, oldest first, from the asked offset on.
    pub kept: Vec<StoredPublication>,
    /// The channel's last offset; the stream's, if the channel is empty.
    pub top: Offset,
    /// Nothing behind this offset is missing in `kept`.
    pub floor: Offset,
    /// What may be missing up to the floor has gone by its age, at the end of `history_ttl`: nothing is kept, and
    /// nothing but age takes the last publication of a channel away.
    pub is_aged: bool,
}

/// What is asked for: all that is kept of a channel behind an offset.
#[derive(Debug)]
pub(crate) struct StreamLoad {
    pub(crate) channel: ChannelName,
    pub(crate) namespace: NamespaceName,
    /// The offset, and the number of the load.
    pub(crate) id: LoadId,
    /// It is answered only if there is something.
    pub(crate) is_check: bool,
}
