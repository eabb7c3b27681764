//! The messages that reach the registry actor, and what other threads see of it.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;
use tokio::sync::oneshot;
use touchline_engine::ShardId;
use touchline_engine::directory::{DirectoryRequest, DroppedIds, HeldEntries, Requester, ScopeMetrics, ToldChanges};
use touchline_registry::OwnerId;

use super::reply_to::ReplyTo;

/// A message to the registry actor.
pub(crate) enum RegistryMessage {
    /// A request of a client or of the server API.
    Request { requester: Requester, request: DirectoryRequest, reply_to: ReplyTo },
    /// What some connections of this node hold, in their order, so many names and groups of each at most; of few
    /// connections in one message, because it is answered at once.
    Held { owners: Vec<OwnerId>, most: usize, reply: oneshot::Sender<Vec<HeldEntries>> },
    /// From another node's replica of a scope.
    ScopeMessage { scope: Arc<str>, message: Bytes },
    /// From another node's directory.
    DirectoryMessage { from: Arc<str>, message: Bytes },
    /// Backends are told of these changes from now on.
    Tell(ToldChanges),
    /// A connection that a shard was to send something to is gone.
    OwnerGone(OwnerId),
    /// The store holds an inbox message for a name.
    MessageQueued { scope: Arc<str>, name: Box<str> },
    /// Inbox messages for a name, each with its id; None = the store can't read them now.
    InboxMessages { scope: Arc<str>, name: Box<str>, messages: Option<Vec<(u64, Bytes)>> },
    /// Ids of inbox messages that the store has discarded, because they have arrived.
    Discarded(Vec<u64>),
    /// The store has deleted messages of a name that nobody has acknowledged. `then`: called once none of them is
    /// delivered any more.
    Dropped { scope: Box<str>, name: Box<str>, dropped: DroppedIds, then: Box<dyn FnOnce() + Send> },
    /// This node takes part in the cluster from now on; these other nodes see it.
    Joined(Vec<Arc<str>>),
    /// This node takes no part in the cluster any more.
    Parted,
    /// Whether another node is suspected to be dead.
    Suspected(Arc<str>, bool),
    /// Another node is dead.
    NodeDead(Arc<str>),
    /// The backend has chosen between two claims of a name; None = it has not answered.
    ConflictResolved { scope: Arc<str>, name: Box<str>, keeps_mine: Option<bool> },
    /// All shards have probed their connections.
    Probed,
    /// The node stops.
    Stop,
}

/// Held by each shard while it probes its connections. When the last shard drops it, the registry actor gets
/// [`RegistryMessage::Probed`].
pub(crate) struct Probe(Sender<RegistryMessage>);

impl Probe {
    /// A probe whose end the registry actor hears by this sender.
    pub(crate) fn new(registry: Sender<RegistryMessage>) -> Self {
        Probe(registry)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // An actor that has ended needs no answer.
        let _ = self.0.send(RegistryMessage::Probed);
    }
}

/// The counters of the registry actor.
#[derive(Debug, Default)]
pub(crate) struct RegistryMetrics {
    pub(crate) scopes: Vec<ScopeMetrics>,
    /// Calls that wait for a reply.
    pub(crate) calls_waiting: usize,
}

/// The shard and slot of a client's connection, which are part of its id. None = the id is not of this node.
pub(crate) fn route(owner: OwnerId, shards: usize) -> Option<(ShardId, u32)> {
    let [.., a, b, c, d, e, f] = owner.0;
    let shard = u16::from_be_bytes([a, b]);
    (usize::from(shard) < shards).then(|| (shard, u32::from_be_bytes([c, d, e, f])))
}

/// The last bytes of a client id: the shard and slot of its connection.
pub(crate) fn client_id_suffix(shard: ShardId, slot: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (shard.to_be_bytes(), slot.to_be_bytes());
    [a, b, c, d, e, f]
}
