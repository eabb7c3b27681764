//! What a home sends to the shards that have subscribers.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Publication;
use touchline_protocol::publication::{Content, EncodedPush};
use touchline_protocol::stream::{ChannelName, Offset};
use touchline_registry::spare_capacity;

use super::table::{Channel, Channels};
use crate::request::{ChannelEvent, Delivery, Response, ShardId};

impl Channels {
    /// Removes and returns the deliveries since the last call, in order.
    pub fn deliveries(&mut self) -> std::vec::Drain<'_, (ShardId, Delivery)> {
        self.outgoing.drain(..)
    }

    /// Delivers reactions to all subscribers of a channel. `data` is JSON.
    pub fn show_reactions(&mut self, name: &ChannelName, data: Bytes) {
        if let Some(channel) = self.table.get_mut(name) {
            deliver_publication(&mut self.outgoing, channel, Arc::new(unstored(name, data)));
        }
    }

    /// Sets the reactions that clients get when they subscribe from now on, JSON; `None` = nothing.
    pub fn set_reactions(&mut self, name: &ChannelName, data: Option<Bytes>) {
        match data {
            Some(data) => drop(self.reactions.insert(name.clone(), Arc::new(unstored(name, data)))),
            None => {
                self.reactions.swap_remove(name);
                if let Some(capacity) = spare_capacity(self.reactions.len(), self.reactions.capacity()) {
                    self.reactions.shrink_to(capacity);
                }
            }
        }
    }

    pub(super) fn announce(&mut self, name: &ChannelName, push: Arc<EncodedPush>) -> Response {
        if let Some(channel) = self.table.get(name) {
            deliver(&mut self.outgoing, channel, ChannelEvent::Membership(push));
        }
        Response::Done
    }
}

/// A publication that no log keeps.
fn unstored(name: &ChannelName, data: Bytes) -> Publication {
    Publication::encode(name, &Content { data, ..Content::default() }, None)
}

/// Delivers a publication to all subscribers, with the previous one if some subscribers may want deltas. A publication
/// outside the history is neither sent as a delta nor the base of one: recovering clients have not seen it.
pub(super) fn deliver_publication(
    outgoing: &mut Vec<(ShardId, Delivery)>,
    channel: &mut Channel,
    publication: Arc<Publication>,
) {
    let is_in_history = channel.log.is_some() == (publication.offset > Offset::START);
    let previous = channel.latest.take().filter(|_| is_in_history);
    channel.latest = (channel.has_changes && is_in_history).then(|| Arc::clone(&publication));
    deliver(outgoing, channel, ChannelEvent::Publication { publication, previous });
}

/// Queues one message to each shard that has subscribers.
pub(super) fn deliver(outgoing: &mut Vec<(ShardId, Delivery)>, channel: &Channel, event: ChannelEvent) {
    let audience = channel.subscribers.iter().sum();
    for (shard, count) in channel.subscribers.iter().enumerate() {
        if *count > 0 {
            outgoing.push((
                shard as ShardId,
                Delivery { channel: channel.name.clone(), event: event.clone(), subscriber_count: audience },
            ));
        }
    }
}
