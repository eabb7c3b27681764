//! What a session can read and use while it decides.

use std::sync::Arc;
use std::time::Duration;

use touchline_protocol::stream::ChannelName;
use touchline_registry::OwnerId;

use super::counted::UserCounter;
use super::effects::{Effects, Outbound};
use super::ticket::Ticket;
use super::weight::Room;
use crate::bans::Bans;
use crate::caps::CapsCache;
use crate::claims::Verifier;
use crate::directory::Scopes;
use crate::hook::RpcSettings;
use crate::hub::Hub;
use crate::limit::RateLimits;
use crate::namespace::Namespaces;
use crate::reactions::ReactionBoard;
use crate::request::{ChannelRequest, ConnectionId};
use crate::settings::ClientSettings;
use crate::tracker::{TrackLimits, Tracker};

/// The settings and services that all sessions of a node share.
pub struct SessionSettings {
    /// The `client` settings.
    pub client: ClientSettings,
    /// The namespaces with the options of their channels.
    pub namespaces: Arc<Namespaces>,
    /// Verifies connection and subscription tokens.
    pub verifier: Box<dyn Verifier + Send + Sync>,
    /// The bans. They take precedence over every permission.
    pub bans: Arc<Bans>,
    /// The scopes of the registry.
    pub scopes: Scopes,
    /// What hooks require of sessions.
    pub hooks: HookNeeds,
    /// The server's version, which connect replies contain.
    pub version: &'static str,
    /// The node's id, which clients need whose commands come in separate HTTP requests.
    pub id: String,
    /// Signs client ids. With the signature, a separate HTTP request proves that it belongs to its client.
    pub signer: Arc<dyn SessionSigner + Send + Sync>,
    /// Counts the connections of each user; `None` = there is no limit of connections per user.
    pub users: Option<Arc<dyn UserCounter + Send + Sync>>,
    /// The rates of commands, errors and failed connects; `None` = no rate is switched on.
    pub limits: Option<RateLimits>,
    /// How many bytes a client may send ahead while its connect is under way.
    pub deferred_max: usize,
    /// The limits on events that clients report about themselves.
    pub track: TrackLimits,
    /// Whether begins and ends of subscriptions are noted ([`Effects::subscription_changes`]).
    pub notes_subscriptions: bool,
    /// How long a client that sends lines may be silent; zero = for ever.
    pub line_idle: Duration,
}

/// What the hooks of a node require of its sessions.
#[derive(Debug, Default)]
pub struct HookNeeds {
    /// The methods that a backend answers.
    pub rpc: RpcSettings,
    /// The header fields, in lower case, that clients may claim because some hook forwards them.
    pub emulated_header_names: Vec<String>,
    /// Whether the `meta` of connections is kept, because some backend receives it.
    pub keeps_meta: bool,
    /// The compiled capabilities of the node's connections.
    pub caps: Arc<CapsCache>,
}

/// Signs client ids, so that `/emulation` can authenticate them.
pub trait SessionSigner {
    /// Returns the signature of a client id. It is a secret between the node and the client.
    fn sign(&self, client: OwnerId) -> String;
}

/// What a session can use while it decides.
pub struct Context<'a> {
    /// The time of the call, Unix milliseconds.
    pub now_ms: u64,
    /// The time that rates use: microseconds of a monotonic clock.
    pub now_us: u64,
    /// A random number, different in each call.
    pub random: u64,
    /// The id of the session's connection.
    pub id: ConnectionId,
    /// The time between two pings of this session.
    pub ping_interval: Duration,
    /// The settings and services that all sessions of the node share.
    pub node: &'a SessionSettings,
    /// The subscribers of the session's shard.
    pub hub: &'a mut Hub,
    /// The events that clients of the session's shard have reported.
    pub tracker: &'a mut Tracker,
    /// The reactions of clients of the session's shard.
    pub reactions: &'a mut ReactionBoard,
    /// How much may be sent to the connection now.
    pub room: Room,
    /// The effects that the shard carries out.
    pub effects: &'a mut Effects,
}

impl Context<'_> {
    /// The time of the call, Unix seconds.
    pub(super) fn now_s(&self) -> u64 {
        self.now_ms / 1_000
    }

    /// The time that rates use, nanoseconds of a monotonic clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_us.saturating_mul(1_000)
    }

    /// Sends a request to the home of a channel. `ticket`: `None` = the session needs no response.
    pub(super) fn request(&mut self, channel: ChannelName, ticket: Option<Ticket>, request: ChannelRequest) {
        self.effects.requests.push(Outbound { channel, ticket, request });
    }
}
