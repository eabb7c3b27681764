//! Which slots of a shard an exclusion is about. It is asked once for a publication, and not for each subscriber.

use touchline_engine::ShardId;
use touchline_engine::directory::client_from_text;
use touchline_protocol::publication::Exclusion;

use super::connections::Connections;
use super::users::Users;
use crate::runtime::registry_mailbox::route;

/// The connections of a shard that do not get a publication.
pub(super) struct ExcludedSlots(Vec<u32>);

impl ExcludedSlots {
    /// Those of an exclusion, on shard `id` of `shards`.
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

    /// Whether the connection of a slot does not get it.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.0.binary_search(&slot).is_ok()
    }
}
