//! Channels and sessions: order, history, recovery, presence, permissions.
//!
//! Pure: no runtime, no clock, no randomness, no sockets. `now_ms` (Unix milliseconds) and a seed come in, values come
//! out; so tests and fuzzers can drive whole sessions without a network.
//!
//! - [`Channels`] owns the channels whose home is one shard: their order, history, presence.
//! - [`Hub`] knows which connections of one shard are subscribed to which channel.
//! - [`Session`] is the protocol state of one client: commands and replies in, messages and requests out.

// First: its macros are for the modules below.
#[macro_use]
pub mod setting;

pub mod base64_text;
pub mod channels;
pub mod claims;
pub mod directory;
pub mod duration;
mod history;
pub mod hub;
mod idempotency;
mod namespace;
pub mod request;
pub mod session;
mod settings;
pub mod tracker;
pub mod wheel;
pub mod wildcard;
mod work;

pub use channels::Channels;
pub use claims::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier};
pub use hub::Hub;
pub use namespace::{ChannelOptions, ChannelSettings, Namespace, Namespaces, REGISTRY_NAMESPACE, RecoveryMode};
pub use request::{ChannelRequest, ConnectionId, Delivery, Response, ShardId};
pub use session::{Context, Effects, RefusalReport, Session};
pub use settings::{ClientSettings, PersonalChannel, SubscriptionTokenSettings, TokenSettings};
