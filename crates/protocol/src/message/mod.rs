//! The messages of the server to one client: replies and pushes as values, written in the client's encoding.

mod json;
mod messages;
mod protobuf;
mod types;

pub use crate::encoding::Encoding;
pub use messages::Messages;
pub use types::{ConnectResult, Push, Reply, SubscribeResult};
