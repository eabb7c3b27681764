//! Channels and sessions: order, history, recovery, presence, permissions. The crate also contains a node's directory:
//! names, groups, calls and inboxes of clients.
//!
//! The crate is pure: no runtime, no clock, no randomness, no sockets. The caller passes `now_ms` (Unix milliseconds)
//! and seeds as arguments, and gets values back. So tests and fuzzers can drive whole sessions without a network.
//!
//! - [`Channels`] owns the channels whose home is one shard: their order, history, presence.
//! - [`Hub`] knows which connections of one shard are subscribed to which channel.
//! - [`Session`] is the protocol state of one client: commands and replies in, messages and requests out.
//!
//! The crate is not a server. A shard of `touchline-server` passes in the time, the commands and the responses, and
//! carries out the decisions. The crate is not a database either: the cluster or the store keeps the logs of replicated
//! channels.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use touchline_engine::request::{History, Publish};
//! use touchline_engine::{ChannelOptions, ChannelRequest, ChannelSettings, Channels, Namespaces, Response};
//! use touchline_protocol::publication::Content;
//! use touchline_protocol::stream::Offset;
//! use touchline_registry::HashSeed;
//!
//! let now_ms = 1_700_000_000_000;
//! let history_ttl = Duration::from_secs(60);
//! let options = ChannelOptions { history_size: 10, history_ttl, ..ChannelOptions::default() };
//! let settings = ChannelSettings { without_namespace: options, ..ChannelSettings::default() };
//! // A node that clients reach takes secret seeds.
//! let mut channels = Channels::new(Arc::new(Namespaces::new(settings)), 1, 7, HashSeed::repeatable(7));
//!
//! for data in ["1", "2"] {
//!     let content = Content { data: Bytes::from_static(data.as_bytes()), ..Content::default() };
//!     let publish = ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() }));
//!     assert!(matches!(channels.execute(&"news".into(), publish, now_ms), Response::Published(Some(_))));
//! }
//! let history = ChannelRequest::History(Box::new(History::default()));
//! let Response::History { publications, position } = channels.execute(&"news".into(), history, now_ms) else {
//!     panic!("the channel has a history");
//! };
//! assert_eq!((publications.len(), position.offset), (2, Offset(2)));
//! ```
//!
//! # Where to begin
//!
//! 1. `request/channel_request.rs`: the requests that a session or the server API sends to the home of a channel.
//! 2. `channels/mod.rs`: how a home answers, with a diagram. `channels/sync.rs` is the table of its states.
//! 3. `session/mod.rs`: one client. `session/commands.rs` receives its messages.
//! 4. `directory/mod.rs`: names, groups, presence and calls, on top of `touchline-registry`.
//!
//! # What never happens
//!
//! - Nothing here reads a clock, opens a socket or a file, waits, or starts a thread.
//! - No session carries out an action itself: it decides, and its shard carries out the [`Effects`].
//! - No subscriber receives a publication of a log twice, or before an earlier one, unless it was asked to subscribe
//!   again in between.
//! - No permission of a namespace is on by default.

// This module comes first: the modules below use its macros.
#[macro_use]
pub mod setting;

pub mod bans;
pub mod base64_text;
pub mod caps;
pub mod channels;
pub mod claims;
pub mod directory;
pub mod duration;
pub mod events;
mod field_names;
mod go_regex;
mod history;
pub mod hook;
pub mod hub;
mod idempotency;
pub mod ledger;
pub mod limit;
mod namespace;
pub mod reactions;
pub mod request;
pub mod session;
mod settings;
pub mod stable_hash;
mod token_settings;
pub mod tracker;
pub mod wheel;
mod whole_regex;
pub mod wildcard;
mod work;

pub use channels::Channels;
pub use claims::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier};
pub use field_names::field_names;
pub use hub::Hub;
pub use namespace::{
    ChannelOptions, ChannelSettings, Namespace, NamespaceIndex, Namespaces, OTHER_NAMESPACE, REGISTRY_NAMESPACE,
    RecoveryMode, SlowConsumer,
};
pub use request::{ChannelRequest, ConnectionId, Delivery, Response, ShardId};
pub use session::{ClientProgram, Context, Effects, RefusalReport, Session};
pub use settings::{ClientSettings, PersonalChannel};
pub use token_settings::{
    ClaimPath, ClaimPaths, ProviderOptions, SubscriptionTokenSettings, TokenJwksSettings, TokenProvider, TokenSettings,
};
