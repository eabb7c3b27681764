//! The messages that reach the registry actor, and what other threads know of it.

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
    /// Asks which names and groups some connections of this node hold, at most `most` of each per connection, in their
    /// order. One message may contain few connections, because the actor answers it at once.
    Held { owners: Vec<OwnerId>, most: usize, reply: oneshot::Sender<Vec<HeldEntries>> },
    /// A message from another node's replica of a scope.
    ScopeMessage { scope: Arc<str>, message: Bytes },
    /// A message from another node's directory.
    DirectoryMessage { from: Arc<str>, message: Bytes },
    /// Events of these changes are sent to backends from now on.
    Tell(ToldChanges),
    /// A shard was to send something to this client, but its connection is gone.
    OwnerGone(OwnerId),
    /// The store holds an inbox message for a name.
    MessageQueued { scope: Arc<str>, name: Box<str> },
    /// Inbox messages for a name, each with its id; None = the store can't read them now.
    InboxMessages { scope: Arc<str>, name: Box<str>, messages: Option<Vec<(u64, Bytes)>> },
    /// Ids of inbox messages that the store has discarded, because they were delivered.
    Discarded(Vec<u64>),
    /// The store has deleted unacknowledged messages of a name. `then`: called once none of them is delivered any more.
    Dropped { scope: Box<str>, name: Box<str>, dropped: DroppedIds, then: Box<dyn FnOnce() + Send> },
    /// This node takes part in the cluster from now on, and these other nodes see it.
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

/// A handle that each shard holds while it probes its connections. When the last shard drops it, the registry actor
/// gets [`RegistryMessage::Probed`].
pub(crate) struct Probe(Sender<RegistryMessage>);

impl Probe {
    /// Makes a probe. When it ends, the registry actor is notified by this sender.
    pub(crate) fn new(registry: Sender<RegistryMessage>) -> Self {
        Probe(registry)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // If the actor has ended, nothing waits for the message.
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

/// The shard and slot of a client's connection, which are part of its client id; None = this node did not make the id.
pub(crate) fn route(owner: OwnerId, shards: usize) -> Option<(ShardId, u32)> {
    let [.., a, b, c, d, e, f] = owner.0;
    let shard = u16::from_be_bytes([a, b]);
    (usize::from(shard) < shards).then(|| (shard, u32::from_be_bytes([c, d, e, f])))
}

/// The last bytes of a client id, which contain the shard and slot of its connection.
pub(crate) fn client_id_suffix(shard: ShardId, slot: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (shard.to_be_bytes(), slot.to_be_bytes());
    [a, b, c, d, e, f]
}
