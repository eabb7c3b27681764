//! The protocol state of one client: commands, replies and ticks go in; messages, requests and a disconnect come out.
//!
//! A session only decides. Its shard passes it a [`Context`] and carries its [`Effects`] out.

mod channel_commands;
mod connect;
mod counted;
mod flow;
mod heartbeat;
mod lines;
mod permission;
mod refresh;
mod refusal;
mod registry;
mod server;
mod subscribe;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_protocol::command::{Command, CommandKind, Commands};
use touchline_protocol::filter::Filter;
use touchline_protocol::message::{Messages, Push};
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{ClientInfo, Disconnect};
use touchline_registry::OwnerId;

use crate::claims::Verifier;
use crate::directory::{DirectoryRequest, Requester, Scopes, client_text};
use crate::duration::millis;
use crate::hub::{Hub, LocalChannel, Membership};
use crate::namespace::Namespaces;
use crate::request::{ChannelRequest, ConnectionId, Response};
use crate::settings::ClientSettings;
use crate::tracker::{TrackLimits, Tracker};

use counted::RareState;
pub use counted::UserCounter;
pub use flow::{Room, Weight};
pub use refusal::RefusalReport;
pub use server::ServerSubscription;

use flow::Flow;
use heartbeat::{Heartbeat, next_ping_ms};
use permission::Action;

/// How long a refused client may take to close the connection, milliseconds.
const REFUSED_CLOSE_MS: u64 = 5_000;
/// What a queued push costs besides its bytes: its entry, and the allocation of its frame. Bytes.
pub const ENTRY_SIZE: usize = 64;

/// What all sessions of a node share.
pub struct SessionSettings {
    /// The `client` settings.
    pub client: ClientSettings,
    /// The channels' options.
    pub namespaces: Arc<Namespaces>,
    /// Verifies tokens.
    pub verifier: Box<dyn Verifier + Send + Sync>,
    /// The registry's scopes.
    pub scopes: Scopes,
    /// The server's version, for connect replies.
    pub version: &'static str,
    /// The node's id, for clients whose commands come in separate HTTP requests.
    pub id: String,
    /// Signs client ids, so that such a request can prove that it is of its client.
    pub signer: Arc<dyn SessionSigner + Send + Sync>,
    /// Counts the connections of users; `None` = they have no limit.
    pub users: Option<Arc<dyn UserCounter + Send + Sync>>,
    /// Bytes that a client may send ahead while its connect is under way.
    pub deferred_max: usize,
    /// The limits of what clients may report.
    pub track: TrackLimits,
    /// How long a client that sends lines may be silent; zero = for ever.
    pub line_idle: Duration,
}

/// Signs client ids, so that `/emulation` can authenticate them.
pub trait SessionSigner {
    /// The signature of a client id. It is a secret between the node and the client.
    fn sign(&self, client: OwnerId) -> String;
}

/// What a client's transport can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportMode {
    /// Messages go both ways: a WebSocket.
    Duplex,
    /// Messages go to the client; its commands come by other requests.
    Emulated,
    /// Messages go to the client only.
    OneWay,
    /// Lines go both ways. A person who types them gets an error for a mistake, and does not have to reply to pings.
    Lines,
}

impl TransportMode {
    /// Whether the client must reply to pings. For the other transports TCP's acknowledgements show that the client is
    /// there.
    pub fn answers_pings(self) -> bool {
        matches!(self, TransportMode::Duplex | TransportMode::Emulated)
    }
}

/// What a session can use while it decides.
pub struct Context<'a> {
    /// Unix milliseconds.
    pub now_ms: u64,
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
    /// How much the connection may be sent now.
    pub room: Room,
    /// The effects that the shard carries out.
    pub effects: &'a mut Effects,
}

/// The effects of a session that its shard carries out. Reused from call to call.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages for the client, in its own encoding.
    pub messages: Messages,
    /// A ping for the client.
    pub ping: bool,
    /// Pushes that were held back while the connect was under way. They follow the messages.
    pub released: Vec<Bytes>,
    /// Requests to homes of channels.
    pub requests: Vec<Outbound>,
    /// Requests to the directory. With a ticket they need a reply.
    pub directory_requests: Vec<(Option<Ticket>, Requester, DirectoryRequest)>,
    /// Ends the connection.
    pub disconnect: Option<Disconnect>,
    /// Name and version of the client's program, once the client has sent them; for metrics.
    pub program: Option<(Box<str>, Box<str>)>,
    /// Numbers of the errors that were sent to the client; for metrics.
    pub errors: Vec<u32>,
    /// Causes of the client's refusals; for the log.
    pub refusals: Vec<RefusalReport>,
    /// The client gets the cause, too.
    tells_cause: bool,
}

/// A request to the home of a channel.
#[derive(Debug)]
pub struct Outbound {
    /// The channel.
    pub channel: ChannelName,
    /// The ticket comes back with the reply; `None` = there is no reply.
    pub ticket: Option<Ticket>,
    /// The request.
    pub request: ChannelRequest,
}

/// What a home's or the directory's reply is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticket {
    /// A command whose reply is the home's reply.
    Reply {
        /// The command.
        command: u32,
        /// The size that the reply may have.
        weight: Weight,
    },
    /// A command that the directory replies to.
    Directory {
        /// The command.
        command: u32,
        /// The field of the reply.
        kind: ReplyKind,
        /// The size that the reply may have.
        weight: Weight,
    },
    /// The names and groups of the token, which the connect reply waits for.
    Registrations,
    /// A subscription of the client.
    Subscribe {
        /// The command.
        command: u32,
        /// The subscription.
        serial: u32,
        /// The size that the reply may have.
        weight: Weight,
    },
    /// A server-side subscription that the connect reply waits for.
    Connect {
        /// The subscription.
        serial: u32,
    },
    /// A server-side subscription made by the server API.
    Server {
        /// The subscription.
        serial: u32,
    },
}

/// The field of a reply that has the directory's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// `rpc`, with the directory's reply as its data.
    Rpc,
    /// `presence`.
    Presence,
    /// `presence_stats`.
    PresenceStats,
}

#[derive(Debug)]
enum Phase {
    /// The client has not sent a connect command.
    AwaitingConnect,
    /// The connect reply waits for server-side subscriptions.
    Connecting(Box<Connecting>),
    /// The connect reply was sent.
    Connected,
    /// The connect was refused; the client is expected to close the connection.
    Refused,
    /// The session has ended.
    Closed,
}

/// A connect under way.
#[derive(Debug, Default)]
struct Connecting {
    command: u32,
    /// Server-side subscriptions without a reply, and one more if the names and groups of the token have no reply.
    awaited: usize,
    /// Requests to homes of channels that leave once the names and groups of the token are registered.
    deferred: Vec<Outbound>,
    /// Channel and `SubscribeResult`, encoded.
    subs: Vec<(String, Vec<u8>)>,
    /// Bytes of `subs`.
    subs_bytes: usize,
    /// Pushes of the new subscriptions. They follow the reply.
    held: Vec<Bytes>,
    /// Bytes of `held`.
    held_bytes: usize,
    /// More came than may be held: the client has to connect again.
    is_overrun: bool,
}

/// One subscription of a session.
#[derive(Debug)]
struct Subscription {
    channel: LocalChannel,
    /// `None` while the home's reply is under way.
    membership: Option<Membership>,
    serial: u32,
    /// Unix seconds; 0 = never.
    expire_at_s: u32,
    is_server_side: bool,
    is_positioned: bool,
    is_recoverable: bool,
    wants_membership_events: bool,
    /// Publications come as deltas to the previous one.
    is_delta: bool,
    /// What other clients see of it, from the home's reply on; `None` = presence, join and leave do not show it.
    entry: Option<Box<PresenceEntry>>,
    rejects_unrecovered: bool,
    /// The offset from which the client recovers; `None` = it does not recover.
    recover_offset: Option<u64>,
    extra: Option<Box<Extra>>,
}

/// How a subscription shows in presence, join and leave.
#[derive(Debug)]
struct PresenceEntry {
    info: Arc<ClientInfo>,
    is_shown: bool,
    is_announced: bool,
    is_in: bool,
}

/// Fields that few subscriptions have.
#[derive(Debug, Default)]
struct Extra {
    chan_info: Option<Bytes>,
    data: Option<Bytes>,
    filter: Option<Arc<Filter>>,
}

/// The protocol state of one client.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    heartbeat: Heartbeat,
    flow: Flow,
    client: [u8; 16],
    user: Box<str>,
    conn_info: Option<Box<Bytes>>,
    subscriptions: Vec<Subscription>,
    next_serial: u32,
    /// Unix seconds; 0 = never.
    expire_at_s: u32,
    is_loopback: bool,
    transport: TransportMode,
    /// Lines that were not valid commands, less those that valid commands have made up for.
    mistakes: u8,
    /// Commands since a mistake was last subtracted.
    commands_since_mistake: u8,
    /// When the client last sent something, Unix seconds.
    last_input_s: u32,
    /// The directory may have entries or calls of this client.
    has_entries: bool,
    rare: Option<Box<RareState>>,
}

impl Session {
    /// A session of a client that has sent nothing yet. `client` is random; `is_loopback`: the client is on this
    /// machine.
    pub fn new(
        client: [u8; 16],
        transport: TransportMode,
        is_loopback: bool,
        now_ms: u64,
        client_settings: &ClientSettings,
    ) -> Self {
        Session {
            phase: Phase::AwaitingConnect,
            heartbeat: Heartbeat::Due(now_ms.saturating_add(millis(client_settings.stale_close_delay))),
            flow: Flow::default(),
            client,
            user: Box::default(),
            conn_info: None,
            subscriptions: Vec::new(),
            next_serial: 0,
            expire_at_s: 0,
            is_loopback,
            transport,
            mistakes: 0,
            commands_since_mistake: 0,
            last_input_s: (now_ms / 1_000) as u32,
            has_entries: false,
            rare: None,
        }
    }

    /// Sets the client's user before it connects: the client was authenticated in another way than by a token.
    pub fn certify(&mut self, user: String) {
        self.user = user.into();
    }

    /// The client id: a version 4 UUID (RFC 9562) out of the session's random bytes.
    pub fn owner(&self) -> OwnerId {
        let mut bytes = self.client;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        OwnerId(bytes)
    }

    /// The client id in its usual form.
    pub fn client_id(&self) -> Box<str> {
        client_text(self.owner()).into()
    }

    /// The user; empty = anonymous, or not connected yet.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Whether the connect reply was sent.
    pub fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected)
    }

    /// Whether the session reads commands.
    pub fn is_listening(&self) -> bool {
        !matches!(self.phase, Phase::Refused | Phase::Closed)
    }

    /// Subscriptions, those under way included.
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// When [`Session::tick`] is due, Unix milliseconds.
    pub fn deadline_ms(&self, client: &ClientSettings) -> u64 {
        let heartbeat = match self.heartbeat {
            Heartbeat::Due(at) | Heartbeat::Awaited(at, _) => at,
        };
        heartbeat.min(self.next_expiry_ms(client))
    }

    /// Handles a message of the client: one or more commands. Returns how many were executed or not valid.
    pub fn receive(&mut self, input: &[u8], context: &mut Context<'_>) -> usize {
        self.last_input_s = context.now_s() as u32;
        if self.is_deferring() || self.is_holding() {
            self.defer(input, context);
            return 0;
        }
        if self.transport == TransportMode::OneWay {
            self.connect_one_way(input, context);
            return 1;
        }
        let (count, used) = self.execute_commands(input, context);
        self.defer(&input[used..], context);
        if count == 0 && used == input.len() && self.transport != TransportMode::Lines {
            context.disconnect(Disconnect::BAD_REQUEST);
        }
        count
    }

    /// Executes commands while there is room. Returns how many, and their length in bytes.
    fn execute_commands(&mut self, input: &[u8], context: &mut Context<'_>) -> (usize, usize) {
        let mut commands = Commands::read(context.effects.messages.encoding(), input);
        let mut count = 0;
        while self.has_room(context) {
            let Some(command) = commands.next() else { return (count, input.len()) };
            count += 1;
            let Ok(command) = command else {
                self.note_mistake(input, context);
                return (count, input.len());
            };
            self.note_command();
            self.command(command, context);
            if context.effects.disconnect.is_some() || !self.is_listening() {
                return (count, input.len());
            }
        }
        (count, input.len() - commands.rest().len())
    }

    /// Sends a message to this client alone, JSON.
    pub fn message(&mut self, data: &[u8], context: &mut Context<'_>) {
        context.effects.messages.push("", &Push::Message(data));
    }

    fn command(&mut self, command: Command<'_>, context: &mut Context<'_>) {
        let Command { id, operation } = command;
        match operation {
            Some(CommandKind::Connect(request)) => self.connect(id, request, context),
            _ if !self.is_connected() => context.disconnect(Disconnect::BAD_REQUEST),
            Some(CommandKind::Send) => context.disconnect(Disconnect::NOT_AVAILABLE),
            _ if id == 0 => self.pong(context),
            Some(CommandKind::Subscribe(request)) => self.subscribe(id, request, context),
            Some(CommandKind::Unsubscribe(request)) => self.unsubscribe(id, &request.channel, context),
            Some(CommandKind::Publish(request)) => self.publish(id, request, context),
            Some(CommandKind::Presence(request)) => self.presence(id, &request.channel, ReplyKind::Presence, context),
            Some(CommandKind::PresenceStats(request)) => {
                self.presence(id, &request.channel, ReplyKind::PresenceStats, context)
            }
            Some(CommandKind::History(request)) => self.history(id, request, context),
            Some(CommandKind::Rpc(request)) => self.rpc(id, &request, context),
            Some(CommandKind::Refresh(request)) => self.refresh(id, &request.token, context),
            Some(CommandKind::SubRefresh(request)) => self.sub_refresh(id, request, context),
            None => context.disconnect(Disconnect::BAD_REQUEST),
        }
    }

    /// Handles the reply of a home or of the directory.
    pub fn handle_reply(&mut self, ticket: Ticket, response: Response, context: &mut Context<'_>) {
        self.flow.end(ticket);
        let response = if ticket.is_large() && context.room.is_scarce { response.without_contents() } else { response };
        match ticket {
            Ticket::Reply { command, .. } => channel_commands::reply(command, response, context),
            Ticket::Directory { command, kind, .. } => registry::reply(command, kind, response, context),
            Ticket::Registrations => self.handle_registered(response, context),
            Ticket::Subscribe { command, serial, .. } => self.subscribed(command, serial, response, context),
            Ticket::Connect { serial } => self.subscribed_at_connect(serial, response, context),
            Ticket::Server { serial } => self.subscribed_by_server(serial, response, context),
        }
    }

    /// Holds a push back while the connect is under way, up to `limit` bytes: beyond them the connect ends with 3008.
    /// Returns the push if it can be sent at once.
    pub fn hold(&mut self, frame: Bytes, limit: usize) -> Option<Bytes> {
        let Phase::Connecting(connecting) = &mut self.phase else { return Some(frame) };
        connecting.held_bytes += frame.len() + ENTRY_SIZE;
        connecting.is_overrun |= connecting.held_bytes > limit;
        if connecting.is_overrun {
            connecting.held = Vec::new();
        } else {
            connecting.held.push(frame);
        }
        None
    }

    /// Moves the deadline of a pong: the client is alive, and its pong is queued behind other data. Returns whether the
    /// next ping is due meanwhile.
    pub fn wait_longer(&mut self, now_ms: u64, pong_timeout: Duration, ping_interval: Duration) -> bool {
        let Heartbeat::Awaited(at, later) = self.heartbeat else { return false };
        let next = next_ping_ms(at, later);
        if at > now_ms || !self.is_connected() {
            return false;
        }
        let is_ping_due = next <= now_ms;
        let next = if is_ping_due { now_ms.saturating_add(millis(ping_interval)) } else { next };
        self.heartbeat = Heartbeat::awaited(now_ms.saturating_add(millis(pong_timeout)), next);
        is_ping_due
    }

    /// Whether pushes must go through [`Session::hold`].
    pub fn is_holding(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_))
    }

    /// Does what is due: sends pings, and ends what has expired.
    pub fn tick(&mut self, context: &mut Context<'_>) {
        self.expire(context);
        if context.effects.disconnect.is_some() {
            return;
        }
        let now_ms = context.now_ms;
        match (&self.phase, self.heartbeat) {
            (_, Heartbeat::Due(at) | Heartbeat::Awaited(at, _)) if at > now_ms => {}
            (Phase::AwaitingConnect | Phase::Connecting(_), _) => context.disconnect(Disconnect::STALE),
            (Phase::Refused | Phase::Closed, _) => context.disconnect(Disconnect::CONNECTION_CLOSED),
            (Phase::Connected, _) if self.is_idle(context) => context.disconnect(Disconnect::IDLE),
            (Phase::Connected, Heartbeat::Awaited(..)) => context.disconnect(Disconnect::NO_PONG),
            (Phase::Connected, Heartbeat::Due(_)) => {
                let next_ms = now_ms.saturating_add(millis(context.ping_interval));
                let pong_ms = now_ms.saturating_add(millis(context.node.client.pong_timeout));
                let heartbeat = if self.transport.answers_pings() {
                    Heartbeat::awaited(pong_ms, next_ms)
                } else {
                    Heartbeat::Due(next_ms)
                };
                self.heartbeat = heartbeat;
                context.effects.ping = true;
            }
        }
    }

    /// Whether a client that sends lines has been silent for too long.
    fn is_idle(&self, context: &Context<'_>) -> bool {
        let limit_s = context.node.line_idle.as_secs();
        self.transport == TransportMode::Lines
            && limit_s > 0
            && u64::from(self.last_input_s).saturating_add(limit_s) < context.now_s()
    }

    fn pong(&mut self, context: &mut Context<'_>) {
        match self.heartbeat {
            Heartbeat::Awaited(at, later) => self.heartbeat = Heartbeat::Due(next_ping_ms(at, later)),
            Heartbeat::Due(_) if self.transport == TransportMode::Lines => {}
            Heartbeat::Due(_) => context.disconnect(Disconnect::BAD_REQUEST),
        }
    }

    /// Releases everything that the session holds: its subscriptions, on this shard and at the channels' homes.
    pub fn close(&mut self, context: &mut Context<'_>) {
        self.drop_deferred(context);
        self.phase = Phase::Closed;
        self.rare = None;
        for subscription in std::mem::take(&mut self.subscriptions) {
            self.release(subscription, context);
        }
        if std::mem::take(&mut self.has_entries) {
            context.effects.directory_requests.push((None, self.who(), DirectoryRequest::Close));
        }
    }

    /// Sends a command's request to a channel's home.
    fn request(&mut self, channel: ChannelName, ticket: Ticket, request: ChannelRequest, context: &mut Context<'_>) {
        if let Ticket::Reply { weight, .. } = ticket {
            self.flow.begin(weight);
        }
        context.request(channel, Some(ticket), request);
    }

    /// The client's info, as other clients see it.
    fn info(&self, chan_info: Option<Bytes>) -> Arc<ClientInfo> {
        let conn_info = self.conn_info.as_deref().cloned();
        Arc::new(ClientInfo { user: self.user.clone(), client: self.client_id(), conn_info, chan_info })
    }

    fn find(&self, channel: &str, hub: &Hub) -> Option<usize> {
        let channel = hub.find(channel)?;
        self.subscriptions.iter().position(|s| s.channel == channel)
    }
}

impl Context<'_> {
    fn now_s(&self) -> u64 {
        self.now_ms / 1_000
    }

    fn request(&mut self, channel: ChannelName, ticket: Option<Ticket>, request: ChannelRequest) {
        self.effects.requests.push(Outbound { channel, ticket, request });
    }
}
