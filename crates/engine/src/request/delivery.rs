//! What the home of a channel sends to the shards that have subscribers.

use std::sync::Arc;

use touchline_protocol::Publication;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;

/// An event that the home of a channel sends to a shard with subscribers.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The channel.
    pub channel: ChannelName,
    /// The event.
    pub event: ChannelEvent,
    /// Subscribers of the channel on all shards.
    pub subscriber_count: u32,
}

/// An event of a channel.
#[derive(Debug, Clone)]
pub enum ChannelEvent {
    /// For every subscriber.
    Publication {
        /// What was published.
        publication: Arc<Publication>,
        /// The previous one, if subscribers may request deltas; `None` = there is no base for a delta.
        previous: Option<Arc<Publication>>,
    },
    /// A join or leave push, for the subscribers that want such events.
    Membership(Arc<EncodedPush>),
    /// Some publications are lost and cannot be loaded: subscribers must subscribe anew.
    Broken,
}
