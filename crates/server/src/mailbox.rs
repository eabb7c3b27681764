//! All that can reach a shard from elsewhere. Each shard has one inbox, served in order; it is the only door to the
//! shard's state.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use touchline_engine::directory::DirectoryRequest;
use touchline_engine::session::{ServerSubscription, Ticket};
use touchline_engine::{ConnectionId, Delivery, Request, Response, ShardId};
use touchline_protocol::Disconnect;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::{ChannelName, NamespaceName};
use touchline_registry::OwnerId;

use crate::glob::Glob;
use crate::handshake::Negotiated;
use crate::http::Side;
use crate::proxies::Remote;
use crate::registry_actor::Probe;
use crate::shard::AcceptedSocket;

/// A message to a shard.
pub(crate) enum Message {
    /// A client whose socket is its session's from now on.
    Adopt(Box<AdoptedConnection>),
    /// A connection of which a proxy has told whose it is.
    Introduced { socket: std::net::TcpStream, remote: Remote, side: Side, is_for_lines: bool },
    /// To the home of a channel.
    Request { channel: ChannelName, request: Request, asker: ReplyTo },
    /// From the home of a channel to a session of this shard.
    Answer { connection: ConnectionId, ticket: Ticket, response: Response },
    /// To an operation that waits on this shard's thread, which alone wakes it without a system call.
    Reply { reply: oneshot::Sender<Response>, response: Response },
    /// From the home of a channel to its subscribers here. The time is when it was accepted, microseconds of the node's
    /// clock.
    Delivery { delivery: Delivery, accepted_us: u64 },
    /// From the server API, to every connection of a user.
    User(Box<UserCommand>),
    /// Whether the cluster can be reached.
    Linked(bool),
    /// Other nodes may have stored publications that nobody told of.
    CatchUp,
    /// The cluster keeps more of this namespace than before.
    Advanced(NamespaceName),
    /// Something that another node wants every node to do.
    Broadcast { message: Bytes, reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>> },
    /// To one client, if it is still there.
    Client { owner: OwnerId, slot: u32, order: ClientCommand },
    /// One push for many clients, each with its slot, those that are still there.
    PushMany { clients: Vec<(OwnerId, u32)>, push: Arc<EncodedPush> },
    /// From the server API, about the shard as a whole.
    Inspect(Inspection),
    /// Find out which connections live: each is sent a ping, and the dead ones are closed.
    Probe(Arc<Probe>),
    /// From a shard that has no descriptor left: close so many of the oldest connections whose client has not connected
    /// yet.
    MakeRoom { closes: usize, asker: ShardId },
    /// The answer: they are closed, or will be when their tasks run.
    RoomIsMade,
    /// Tell the clients to go, spread over a time.
    Drain { over_ms: u64, done: oneshot::Sender<()> },
}

/// A client that comes in.
pub(crate) struct AdoptedConnection {
    pub(crate) socket: AcceptedSocket,
    pub(crate) negotiated: Negotiated,
    /// What is written before anything else.
    pub(crate) response_head: Bytes,
    /// What the client has sent already: bytes of the socket, or the commands of its request.
    pub(crate) prefix: Bytes,
    /// The user whom its certificate names.
    pub(crate) user: Option<String>,
}

/// Who gets the answer to a request.
pub(crate) enum ReplyTo {
    Session(ConnectionId, Ticket),
    /// An operation, and the shard on whose thread it waits.
    Operation(Option<ShardId>, oneshot::Sender<Response>),
    Nobody,
}

/// What one client is to be given, or made to do.
pub(crate) enum ClientCommand {
    /// A message, JSON.
    Push(Vec<u8>),
    /// A call of this number: a message, JSON, without the number.
    Call { call: u64, message: Bytes },
    /// Commands that it has sent by another request.
    Commands(Bytes),
    /// The end of its connection.
    Disconnect(Disconnect),
    /// Something of the registry, in its name.
    Act { ask: DirectoryRequest, asker: ReplyTo },
}

/// Something to do with the connections of one user.
pub(crate) struct UserCommand {
    pub(crate) user: String,
    /// Only this client id; empty = all of the user's.
    pub(crate) client: String,
    pub(crate) action: UserAction,
    pub(crate) reply: oneshot::Sender<Result<(), touchline_protocol::Error>>,
}

/// What to do with them.
#[derive(Clone)]
pub(crate) enum UserAction {
    Subscribe { channel: String, subscription: ServerSubscription },
    Unsubscribe { channel: String },
    Disconnect { why: Disconnect, except: Vec<String> },
    Refresh { is_expired: bool, expire_at_s: Option<u64>, info: Option<Bytes> },
}

/// Questions about a shard.
pub(crate) enum Inspection {
    /// Channels at home here that fit a pattern (none = all), with their subscribers.
    Channels { pattern: Option<Arc<Glob>>, reply: oneshot::Sender<Vec<(ChannelName, u64)>> },
    /// Whether the shard turns: it answers.
    Turn { reply: oneshot::Sender<()> },
    /// How many channels at home here have subscribers.
    ActiveChannels { reply: oneshot::Sender<u64> },
}
