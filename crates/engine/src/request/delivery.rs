//! What the home of a channel sends to the shards that have subscribers of the channel.

use std::sync::Arc;

use touchline_protocol::Publication;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;

/// An event that the home of a channel sends to a shard with subscribers.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The channel of the event.
    pub channel: ChannelName,
    /// The event to deliver.
    pub event: ChannelEvent,
    /// The number of the channel's subscribers on all shards.
    pub subscriber_count: u32,
}

/// An event in a channel.
#[derive(Debug, Clone)]
pub enum ChannelEvent {
    /// A publication, which goes to every subscriber.
    Publication {
        /// The publication to deliver.
        publication: Arc<Publication>,
        /// The previous publication, if subscribers may request deltas; `None` = there is no base for a delta.
        previous: Option<Arc<Publication>>,
    },
    /// A join or leave push, for the subscribers that want such events.
    Membership(Arc<EncodedPush>),
    /// Some publications are lost and cannot be loaded. All subscribers must subscribe again.
    Broken,
}
