//! What the cluster stores for channels: publications, histories, and how they are requested. Also the room of the
//! other nodes.

use bytes::Bytes;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset};

use crate::hello::Hello;

/// A stored publication of a channel with history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPublication {
    /// The sequence in the stream of the namespace.
    pub offset: Offset,
    /// The payload of the publication.
    pub payload: Bytes,
}

/// The history of a channel.
#[derive(Debug, Clone)]
pub struct StreamHistory {
    /// The epoch of the channel. It includes the run of the stream if any run after the first one has begun.
    pub epoch: Epoch,
    /// The stored publications, oldest first, after the requested offset.
    pub kept: Vec<StoredPublication>,
    /// The channel's last offset, or the stream's last offset if the channel is empty.
    pub top: Offset,
    /// No publication after this offset is missing in `kept`.
    pub floor: Offset,
    /// True if publications up to the floor may be missing only because of their age, at the end of `history_ttl`. This
    /// is known if nothing is kept, and only age removes the last publication of a channel.
    pub is_aged: bool,
}

/// The room of the other nodes in sight for the clients of this node when it drains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterRoom {
    /// The number of nodes that take clients and say how many.
    pub takers: u32,
    /// The number of clients per second that these nodes can take together.
    pub connect_rate: u32,
    /// The number of nodes that take clients and do not say how many, because their program is older.
    pub silent: u32,
    /// The number of nodes that drain.
    pub draining: u32,
}

impl ClusterRoom {
    /// Sums up the room of the nodes that sent these hellos.
    pub(crate) fn of<'a>(hellos: impl Iterator<Item = &'a Hello>) -> Self {
        let mut room = ClusterRoom::default();
        for hello in hellos {
            match (hello.draining, hello.connect_rate) {
                (true, _) => room.draining += 1,
                (false, 0) => room.silent += 1,
                (false, rate) => {
                    room.takers += 1;
                    room.connect_rate = room.connect_rate.saturating_add(rate);
                }
            }
        }
        room
    }

    /// Whether no other node takes clients.
    pub fn is_none(&self) -> bool {
        self.takers + self.silent == 0
    }

    /// Whether the numbers of nodes of each kind are equal, whatever the nodes can take.
    pub fn has_nodes_of(&self, other: &ClusterRoom) -> bool {
        (self.takers, self.silent, self.draining) == (other.takers, other.silent, other.draining)
    }
}

/// A request for everything that is stored of a channel after an offset.
#[derive(Debug)]
pub(crate) struct StreamLoad {
    pub(crate) channel: ChannelName,
    pub(crate) namespace: NamespaceName,
    /// The offset and the number of the load.
    pub(crate) id: LoadId,
    /// True if the request is answered only when there are publications.
    pub(crate) is_check: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_the_sum_of_what_nodes_say() {
        let says = |connect_rate: u32, draining: bool| Hello { connect_rate, draining, ..Hello::default() };
        let hellos = [says(500, false), says(300, false), says(0, false), says(900, true)];
        let room = ClusterRoom::of(hellos.iter());
        assert_eq!(room, ClusterRoom { takers: 2, connect_rate: 800, silent: 1, draining: 1 });
        assert!(!room.is_none() && room.has_nodes_of(&ClusterRoom { connect_rate: 7, ..room }));
        let most = [says(u32::MAX, false), says(300, false)];
        assert_eq!(ClusterRoom::of(most.iter()).connect_rate, u32::MAX);
        assert!(ClusterRoom::of([says(900, true)].iter()).is_none());
    }
}
