//! The slots of a shard that an exclusion concerns. They are looked up once for a publication, not for each subscriber.

use touchline_engine::ShardId;
use touchline_engine::directory::client_from_text;
use touchline_protocol::publication::Exclusion;

use super::connections::Connections;
use super::users::Users;
use crate::runtime::registry_mailbox::route;

/// The slots of the connections of a shard that do not get a publication.
pub(super) struct ExcludedSlots(Vec<u32>);

impl ExcludedSlots {
    /// The slots that an exclusion concerns on shard `id` of `shards`.
    pub(super) fn of(
        exclusion: &Exclusion,
        (id, shards): (ShardId, usize),
        users: &Users,
        connections: &Connections,
    ) -> Self {
        let mut slots = match &*exclusion.user {
            "" => Vec::new(),
            user => users.connections_of(user, connections),
        };
        let owner = client_from_text(&exclusion.client);
        if let Some((owner, (shard, slot))) = owner.and_then(|owner| Some((owner, route(owner, shards)?)))
            && shard == id
            && connections.get(slot).is_some_and(|connection| connection.session.owner() == owner)
        {
            slots.push(slot);
        }
        slots.sort_unstable();
        ExcludedSlots(slots)
    }

    /// Whether the connection in a slot does not get the publication.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.0.binary_search(&slot).is_ok()
    }
}
