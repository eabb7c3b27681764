//! The messages that reach a shard from other threads. Each shard has one mailbox, served in order; no other way leads
//! to the shard's state.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use touchline_engine::channels::ChannelFacts;
use touchline_engine::directory::DirectoryRequest;
use touchline_engine::hook::HookOutcome;
use touchline_engine::reactions::OpenReactions;
use touchline_engine::request::{BackendEvent, ChannelRequest};
use touchline_engine::session::{ServerSubscription, Ticket};
use touchline_engine::{ConnectionId, Delivery, Response, ShardId};
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::{ChannelName, NamespaceName};
use touchline_protocol::{Disconnect, Error};
use touchline_registry::OwnerId;

use crate::net::glob::Glob;
use crate::net::negotiated::Negotiated;
use crate::net::port::PortRole;
use crate::net::remote::Remote;
use crate::net::socket::AcceptedSocket;
use crate::runtime::audience::AudienceQuestion;
use crate::runtime::connection_query::ConnectionQuestion;
use crate::runtime::generation::Generation;
use crate::runtime::pacer::Pacer;
use crate::runtime::registry_mailbox::Probe;
use crate::runtime::reply_to::ReplyTo;

/// A message to a shard.
pub(crate) enum Message {
    /// A connection whose handshake HTTP has finished: from now on the shard serves it.
    Adopt(Box<AdoptedConnection>),
    /// A connection whose client address a trusted proxy has told (PROXY protocol).
    Introduced { socket: std::net::TcpStream, remote: Remote, side: PortRole, is_for_lines: bool },
    /// A request to the home of a channel.
    Request { channel: ChannelName, request: ChannelRequest, reply_to: ReplyTo },
    /// A report of a log backend to the home of a channel.
    Backend { channel: ChannelName, event: BackendEvent },
    /// A reply from the home of a channel, or from the registry, to a session of this shard.
    SessionReply { connection: ConnectionId, ticket: Ticket, response: Response },
    /// The answer of a backend to a session of this shard.
    HookAnswer { connection: ConnectionId, serial: u32, outcome: Box<HookOutcome> },
    /// A reply to an operation that waits on this shard's thread: only that thread wakes it without a system call.
    OperationReply { reply: oneshot::Sender<Response>, response: Response },
    /// From the home of a channel to its subscribers on this shard. `accepted_us`: when the home accepted the
    /// publication, microseconds of the node's clock.
    Delivery { delivery: Delivery, accepted_us: u64 },
    /// A command of the server API for some connections.
    Command(Box<ConnectionCommand>),
    /// Count who would get a publication.
    CountAudience(Box<AudienceQuestion>),
    /// There are new bans of these users: end their connections.
    Judge(Arc<[Box<str>]>),
    /// Bans have changed that may concern any connection: judge all of them.
    JudgeAll,
    /// Work with another generation of settings. `taken`: told when the shard's own thread does.
    Generation { generation: Arc<Generation>, taken: oneshot::Sender<()> },
    /// Whether NATS can be reached, after a change.
    Linked(bool),
    /// Other nodes may have stored publications without a notification: check all channels.
    CatchUp,
    /// The stream of this namespace holds publications that this node has not received: check its channels.
    Advanced(NamespaceName),
    /// An operation that another node broadcasts to every node. `reply`: called with the result; None = no reply is
    /// expected.
    Broadcast { message: Bytes, reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>> },
    /// An operation that the program asks for that embeds the server. `reply`: called with the answer; None = the
    /// operation does not have these fields.
    Operate { operation: Box<str>, params: Bytes, reply: Box<dyn FnOnce(Option<Vec<u8>>) + Send> },
    /// Work of a floor above that begins on the thread that runs the shard, and that the shard does not wait for.
    Start(Box<dyn FnOnce() + Send>),
    /// A command for one client, if it is still connected. `slot`: where its connection was.
    Client { owner: OwnerId, slot: u32, command: ClientCommand },
    /// One push for many clients, each with its slot; clients that are gone do not get it.
    PushMany { clients: Vec<(OwnerId, u32)>, push: Arc<EncodedPush> },
    /// What is open in a channel has changed; None = what its namespace says.
    ReactionsOpen(ChannelName, Option<Box<OpenReactions>>),
    /// The reactions of channels that are at home here have changed.
    ShowReactions(Vec<ShownReactions>),
    /// Other nodes have told the clients of this one as gone: tell them again, in this life of the node.
    TellAgain(u32),
    /// A question of the server API about the shard as a whole.
    Inspect(Inspection),
    /// Find out which connections are alive: the shard pings each, and closes the dead ones.
    Probe(Arc<Probe>),
    /// From a shard that cannot accept for want of file descriptors: close the oldest `closes` connections whose client
    /// has not connected yet.
    MakeRoom { closes: usize, from: ShardId },
    /// The reply to `MakeRoom`: they are closed, or will be when their tasks run.
    RoomIsMade,
    /// Disconnect the clients, spread over `over_ms` milliseconds; for as many as `patience_ms`, those that wait for a
    /// backend are passed over. `done` is told when all are gone.
    Drain { over_ms: u64, patience_ms: u64, done: oneshot::Sender<()> },
}

/// A connection that HTTP hands over to the shard.
pub(crate) struct AdoptedConnection {
    pub(crate) socket: AcceptedSocket,
    pub(crate) negotiated: Negotiated,
    /// Bytes written before anything else; empty = none.
    pub(crate) response_head: Bytes,
    /// Input that was read before the hand-over: bytes of the socket, or the commands of the request.
    pub(crate) prefix: Bytes,
    /// The user that the client's certificate names; None = it names none, or there is no certificate.
    pub(crate) user: Option<String>,
}

/// The reactions of a channel.
#[derive(Debug)]
pub(crate) struct ShownReactions {
    pub(crate) channel: ChannelName,
    /// For subscribers, JSON; None = nothing new.
    pub(crate) news: Option<Bytes>,
    /// For those who subscribe from now on, JSON; None = there are none any more.
    pub(crate) state: Option<Bytes>,
}

/// A command for one client.
pub(crate) enum ClientCommand {
    /// Push a message, JSON.
    Push(Vec<u8>),
    /// Push a call of this number. `message`: JSON without the number.
    Call { call: u64, message: Bytes },
    /// Run commands that the client has sent by another request (`/emulation`).
    Commands(Bytes),
    /// Count a reaction that the client has sent by another request (`/reactions`), JSON.
    React(Bytes),
    /// End its connection.
    Disconnect(Disconnect),
    /// Tell its user.
    TellUser(oneshot::Sender<Box<str>>),
    /// Send the registry a request in the client's name.
    Directory { request: DirectoryRequest, reply_to: ReplyTo },
}

/// A command for some connections.
pub(crate) struct ConnectionCommand {
    pub(crate) selection: Arc<Selection>,
    pub(crate) action: Arc<ConnectionAction>,
    /// The rate of the command; None = it is carried out as soon as possible.
    pub(crate) pacer: Option<Arc<Pacer>>,
    /// Takes the number of connections: without a rate when all have had the command, else as soon as they are known.
    /// The error is the first one of a connection that refuses the command.
    pub(crate) reply: oneshot::Sender<Result<u64, Error>>,
}

/// The connections that a command is for.
pub(crate) enum Selection {
    /// Those of users (empty = the anonymous user). `client`: only the one of this client id; None = all.
    Users { users: Vec<String>, client: Option<OwnerId> },
    /// One, whoever its user is.
    Client(OwnerId),
}

/// What a [`ConnectionCommand`] does with each connection.
pub(crate) enum ConnectionAction {
    Subscribe {
        channel: String,
        subscription: ServerSubscription,
    },
    Unsubscribe {
        channel: String,
    },
    Disconnect {
        why: Disconnect,
        /// Client ids of connections that are left alone.
        except: HashSet<OwnerId>,
    },
    Refresh {
        is_expired: bool,
        expire_at_s: Option<u64>,
        info: Option<Bytes>,
    },
    /// Push data, JSON, as a message.
    Send(Bytes),
}

impl ConnectionAction {
    /// Memory of what it carries, bytes.
    pub(crate) fn size(&self) -> usize {
        let of = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        match self {
            ConnectionAction::Subscribe { channel, subscription } => {
                channel.len() + of(&subscription.info) + of(&subscription.data)
            }
            ConnectionAction::Unsubscribe { channel } => channel.len(),
            ConnectionAction::Disconnect { why, except } => why.reason.len() + except.len() * size_of::<OwnerId>(),
            ConnectionAction::Refresh { info, .. } => of(info),
            ConnectionAction::Send(data) => data.len(),
        }
    }

    /// What the thread that asks backends has to forget before: what would let the connections in again. The channel
    /// (None = any), and whether other connections of the user share it; None = nothing.
    pub(crate) fn forgets(&self) -> Option<(Option<&str>, bool)> {
        match self {
            ConnectionAction::Unsubscribe { channel } => {
                Some((Some(channel.as_str()).filter(|channel| !channel.is_empty()), true))
            }
            ConnectionAction::Disconnect { .. } => Some((None, false)),
            ConnectionAction::Subscribe { .. } | ConnectionAction::Refresh { .. } | ConnectionAction::Send(_) => None,
        }
    }
}

/// Questions about a shard.
pub(crate) enum Inspection {
    /// Channels at home on this shard that match a pattern (None = all), with the number of their subscribers.
    Channels { pattern: Option<Arc<Glob>>, reply: oneshot::Sender<Vec<(ChannelName, u64)>> },
    /// A question about connections; boxed, because messages are moved.
    Connections(Box<ConnectionQuestion>),
    /// Whether the shard serves its mailbox: it replies.
    Turn { reply: oneshot::Sender<()> },
    /// What is known of one channel that is at home on this shard.
    Channel { channel: ChannelName, reply: oneshot::Sender<Option<ChannelFacts>> },
    /// The number of channels at home on this shard that have subscribers.
    ActiveChannels { reply: oneshot::Sender<u64> },
}
