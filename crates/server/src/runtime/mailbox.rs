//! The messages that reach a shard from other threads. Each shard has one mailbox and serves it in order. Other threads
//! cannot reach the shard's state in any other way.

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
    /// A connection whose handshake HTTP has finished; from now on the shard serves it.
    Adopt(Box<AdoptedConnection>),
    /// A connection whose client address a trusted proxy has reported (PROXY protocol).
    Introduced { socket: std::net::TcpStream, remote: Remote, side: PortRole, is_for_lines: bool },
    /// A request to the home of a channel.
    Request { channel: ChannelName, request: ChannelRequest, reply_to: ReplyTo },
    /// A report of a log backend to the home of a channel.
    Backend { channel: ChannelName, event: BackendEvent },
    /// A reply from the home of a channel, or from the registry, to a session of this shard.
    SessionReply { connection: ConnectionId, ticket: Ticket, response: Response },
    /// The answer of a backend to a session of this shard.
    HookAnswer { connection: ConnectionId, serial: u32, outcome: Box<HookOutcome> },
    /// A reply to an operation that waits on this shard's thread. Only that thread can wake the operation without a
    /// system call.
    OperationReply { reply: oneshot::Sender<Response>, response: Response },
    /// A publication from the home of a channel to its subscribers on this shard. `accepted_us`: when the home accepted
    /// the publication, in microseconds of the node's clock.
    Delivery { delivery: Delivery, accepted_us: u64 },
    /// A command of the server API for some of the connections.
    Command(Box<ConnectionCommand>),
    /// Counts the subscribers that would get a publication.
    CountAudience(Box<AudienceQuestion>),
    /// There are new bans of these users: the shard ends their connections.
    Judge(Arc<[Box<str>]>),
    /// Bans have changed that may concern any connection: the shard checks all of them.
    JudgeAll,
    /// Another generation of settings, which the shard works with from now on. `taken`: notified when the shard's own
    /// thread works with it.
    Generation { generation: Arc<Generation>, taken: oneshot::Sender<()> },
    /// Whether NATS can be reached; sent after a change.
    Linked(bool),
    /// Other nodes may have stored publications without a notification: the shard checks all channels.
    CatchUp,
    /// The stream of this namespace holds publications that this node has not received: the shard checks its channels.
    Advanced(NamespaceName),
    /// An operation that another node broadcasts to every node. `reply`: called with the result; None = the sender
    /// expects no reply.
    Broadcast { message: Bytes, reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>> },
    /// An operation of the server API that the embedding program calls. `reply`: called with the answer; None = the
    /// operation does not have these fields.
    Operate { operation: Box<str>, params: Bytes, reply: Box<dyn FnOnce(Option<Vec<u8>>) + Send> },
    /// Work of a higher layer that starts on the thread that runs the shard. The shard does not wait for it.
    Start(Box<dyn FnOnce() + Send>),
    /// A command for one client, if it is still connected. `slot`: the slot of its connection.
    Client { owner: OwnerId, slot: u32, command: ClientCommand },
    /// One push for many clients, each with the slot of its connection. Clients that are gone do not get it.
    PushMany { clients: Vec<(OwnerId, u32)>, push: Arc<EncodedPush> },
    /// The open reactions of a channel have changed; None = those of its namespace apply.
    ReactionsOpen(ChannelName, Option<Box<OpenReactions>>),
    /// The reactions of channels whose home is this shard have changed.
    ShowReactions(Vec<ShownReactions>),
    /// Other nodes have reported the clients of this node as gone. The shard reports them again, in this life of the
    /// node.
    TellAgain(u32),
    /// A question of the server API about the shard as a whole.
    Inspect(Inspection),
    /// The shard pings each connection to find out which are alive, and closes the dead ones.
    Probe(Arc<Probe>),
    /// A request of a shard that has no file descriptors left to accept with. The shard closes its `closes` oldest
    /// connections whose client has not connected yet.
    MakeRoom { closes: usize, from: ShardId },
    /// The reply to `MakeRoom`: the connections are closed, or will be when their tasks run.
    RoomIsMade,
    /// The shard disconnects its clients, spread over the drain. For the first `patience_ms` milliseconds it skips
    /// clients that wait for a backend. `done` is notified when all clients are gone.
    Drain { patience_ms: u64, done: oneshot::Sender<()> },
}

/// A connection that HTTP passes to the shard.
pub(crate) struct AdoptedConnection {
    pub(crate) socket: AcceptedSocket,
    pub(crate) negotiated: Negotiated,
    /// Bytes that are written before anything else; empty = none.
    pub(crate) response_head: Bytes,
    /// Input that was read before the shard took the connection: bytes of the socket, or the commands of the request.
    pub(crate) prefix: Bytes,
    /// The user that the client's certificate names; None = there is no certificate, or it names no user.
    pub(crate) user: Option<String>,
}

/// The reactions of a channel, as its subscribers see them.
#[derive(Debug)]
pub(crate) struct ShownReactions {
    pub(crate) channel: ChannelName,
    /// A change for the present subscribers, JSON; None = nothing has changed.
    pub(crate) news: Option<Bytes>,
    /// The state for clients that subscribe from now on, JSON; None = the channel has no reactions any more.
    pub(crate) state: Option<Bytes>,
}

/// A command for one client of this shard.
pub(crate) enum ClientCommand {
    /// Pushes a message, JSON, to the client.
    Push(Vec<u8>),
    /// Pushes a call with this number to the client. `message`: JSON without the number.
    Call { call: u64, message: Bytes },
    /// Runs commands that the client has sent by another request (`/emulation`).
    Commands(Bytes),
    /// Counts a reaction, JSON, that the client has sent by another request (`/reactions`).
    React(Bytes),
    /// Ends the connection of the client.
    Disconnect(Disconnect),
    /// Sends the user of the client to the receiver.
    TellUser(oneshot::Sender<Box<str>>),
    /// Sends the registry a request on behalf of the client.
    Directory { request: DirectoryRequest, reply_to: ReplyTo },
}

/// A command of the server API for some connections.
pub(crate) struct ConnectionCommand {
    pub(crate) selection: Arc<Selection>,
    pub(crate) action: Arc<ConnectionAction>,
    /// The rate of the command; None = the shard carries it out as soon as possible.
    pub(crate) pacer: Option<Arc<Pacer>>,
    /// Receives the number of connections. With a rate, it receives the number as soon as the connections are known;
    /// without, when all have had the command. An error is that of the first connection that refuses the command.
    pub(crate) reply: oneshot::Sender<Result<u64, Error>>,
}

/// The connections to which a command applies.
pub(crate) enum Selection {
    /// The connections of users (empty = the anonymous user). `client`: only the connection with this client id; None =
    /// all.
    Users { users: Vec<String>, client: Option<OwnerId> },
    /// The connection with this client id, whatever its user is.
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
        /// Client ids of connections to which the command does not apply.
        except: HashSet<OwnerId>,
    },
    Refresh {
        is_expired: bool,
        expire_at_s: Option<u64>,
        info: Option<Bytes>,
    },
    /// Pushes data, JSON, as a message.
    Send(Bytes),
}

impl ConnectionAction {
    /// Memory that the action's data takes, in bytes.
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

    /// Which cached answers of backends must be forgotten first, because they would admit the connections again.
    /// Returns the channel (None = any), and whether other connections of the user share the answers. None = nothing
    /// must be forgotten.
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

/// Questions of the server API about a shard.
pub(crate) enum Inspection {
    /// Channels at home on this shard that match a pattern (None = all), each with the number of its subscribers.
    Channels { pattern: Option<Arc<Glob>>, reply: oneshot::Sender<Vec<(ChannelName, u64)>> },
    /// A question about connections. It is boxed because messages are moved.
    Connections(Box<ConnectionQuestion>),
    /// Whether the shard serves its mailbox; if so, it replies.
    Turn { reply: oneshot::Sender<()> },
    /// What the shard knows of one channel whose home it is; None = the channel does not exist there.
    Channel { channel: ChannelName, reply: oneshot::Sender<Option<ChannelFacts>> },
    /// The number of channels at home on this shard that have subscribers.
    ActiveChannels { reply: oneshot::Sender<u64> },
}
