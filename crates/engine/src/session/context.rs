//! What a session is given while it decides.

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

/// What all sessions of a node share.
pub struct SessionSettings {
    /// The `client` settings.
    pub client: ClientSettings,
    /// The channels' options.
    pub namespaces: Arc<Namespaces>,
    /// Verifies tokens.
    pub verifier: Box<dyn Verifier + Send + Sync>,
    /// Who is not let in, whatever else permits it.
    pub bans: Arc<Bans>,
    /// The registry's scopes.
    pub scopes: Scopes,
    /// What hooks need of sessions.
    pub hooks: HookNeeds,
    /// The server's version, for connect replies.
    pub version: &'static str,
    /// The node's id, for clients whose commands come in separate HTTP requests.
    pub id: String,
    /// Signs client ids, so that such a request can prove that it is of its client.
    pub signer: Arc<dyn SessionSigner + Send + Sync>,
    /// Counts the connections of users; `None` = they have no limit.
    pub users: Option<Arc<dyn UserCounter + Send + Sync>>,
    /// The rates of commands, errors and failed connects; `None` = none is switched on.
    pub limits: Option<RateLimits>,
    /// Bytes that a client may send ahead while its connect is under way.
    pub deferred_max: usize,
    /// The limits of what clients may report.
    pub track: TrackLimits,
    /// Subscriptions that begin and end are noted ([`Effects::subscription_changes`]).
    pub notes_subscriptions: bool,
    /// How long a client that sends lines may be silent; zero = for ever.
    pub line_idle: Duration,
}

/// What the hooks of a node need of its sessions.
#[derive(Debug, Default)]
pub struct HookNeeds {
    /// Methods that a backend answers.
    pub rpc: RpcSettings,
    /// Names, in lower case, of header fields that clients may claim because some hook passes them on.
    pub emulated_header_names: Vec<String>,
    /// Somebody is sent the `meta` of connections.
    pub keeps_meta: bool,
    /// The compiled capabilities of connections.
    pub caps: Arc<CapsCache>,
}

/// Signs client ids, so that `/emulation` can authenticate them.
pub trait SessionSigner {
    /// The signature of a client id. It is a secret between the node and the client.
    fn sign(&self, client: OwnerId) -> String;
}

/// What a session can use while it decides.
pub struct Context<'a> {
    /// Unix milliseconds.
    pub now_ms: u64,
    /// The time by which rates are measured: microseconds of a clock that is never set.
    pub now_us: u64,
    /// A random number, new for each call.
    pub random: u64,
    /// The id of the session's connection.
    pub id: ConnectionId,
    /// Time between two pings of this session.
    pub ping_interval: Duration,
    /// What all sessions of the node share.
    pub node: &'a SessionSettings,
    /// The subscribers of the session's shard.
    pub hub: &'a mut Hub,
    /// The reports of the clients of the session's shard.
    pub tracker: &'a mut Tracker,
    /// The reactions of the clients of the session's shard.
    pub reactions: &'a mut ReactionBoard,
    /// How much the connection may be sent now.
    pub room: Room,
    /// The effects that the shard carries out.
    pub effects: &'a mut Effects,
}

impl Context<'_> {
    /// The time of the call, Unix seconds.
    pub(super) fn now_s(&self) -> u64 {
        self.now_ms / 1_000
    }

    /// The time by which rates are measured, nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_us.saturating_mul(1_000)
    }

    /// Sends a request to the home of a channel. Without a ticket there is no reply.
    pub(super) fn request(&mut self, channel: ChannelName, ticket: Option<Ticket>, request: ChannelRequest) {
        self.effects.requests.push(Outbound { channel, ticket, request });
    }
}
