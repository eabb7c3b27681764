//! The messages to and from the home of a channel.
//!
//! A [`ChannelRequest`] is answered with one [`Response`]; a [`BackendEvent`] is not answered. Both can cause a
//! [`Delivery`] to each shard that has subscribers.

mod backend_event;
mod channel_request;
mod connection;
mod delivery;
mod response;

pub use backend_event::{Appended, BackendEvent, Loaded};
pub use channel_request::{ChannelRequest, ClientPosition, History, Publish, Recover, Subscribe, WaitingRequest};
pub use connection::{ConnectionId, ShardId};
pub use delivery::{ChannelEvent, Delivery};
pub use response::{Response, Subscribed};
