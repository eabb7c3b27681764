//! The commands of a client as Rust values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::nullable::{nullable, nullable_text, objects};
use crate::data::object;
use crate::filter::FilterNode;
use crate::payload::RawPayload;
use crate::stream::Offset;

/// One command that a client sent.
#[derive(Debug, Default)]
pub struct Command<'a> {
    /// The command id, which the reply repeats. 0 = the client does not expect a reply.
    pub id: u32,
    /// The operation. `None` = the command has no operation that this server knows.
    pub operation: Option<CommandKind<'a>>,
}

/// The operation of a command. If a command names several operations, the first one in this order counts.
#[derive(Debug)]
pub enum CommandKind<'a> {
    /// Opens the session and authenticates the client.
    Connect(ConnectCommand<'a>),
    /// Sends an asynchronous message that gets no reply.
    Send(SendCommand<'a>),
    /// Subscribes to a channel, optionally from a position.
    Subscribe(SubscribeCommand<'a>),
    /// Ends the subscription to a channel.
    Unsubscribe(ChannelCommand<'a>),
    /// Publishes data into a channel.
    Publish(PublishCommand<'a>),
    /// Asks which clients are in a channel.
    Presence(ChannelCommand<'a>),
    /// Asks how many clients and users are in a channel.
    PresenceStats(ChannelCommand<'a>),
    /// Reads publications from a channel's history.
    History(HistoryCommand<'a>),
    /// Calls a method of the server.
    Rpc(RpcCommand<'a>),
    /// Extends the connection with a new connection token.
    Refresh(RefreshCommand<'a>),
    /// Extends a subscription with a new subscription token.
    SubRefresh(SubRefreshCommand<'a>),
}

impl CommandKind<'_> {
    /// The operation's place in the order above.
    fn rank(&self) -> u8 {
        match self {
            CommandKind::Connect(_) => 0,
            CommandKind::Send(_) => 1,
            CommandKind::Subscribe(_) => 2,
            CommandKind::Unsubscribe(_) => 3,
            CommandKind::Publish(_) => 4,
            CommandKind::Presence(_) => 5,
            CommandKind::PresenceStats(_) => 6,
            CommandKind::History(_) => 7,
            CommandKind::Rpc(_) => 8,
            CommandKind::Refresh(_) => 9,
            CommandKind::SubRefresh(_) => 10,
        }
    }
}

impl<'a> Command<'a> {
    /// Stores an operation that the command names, unless an earlier operation in the order is already stored.
    pub(super) fn name(&mut self, operation: CommandKind<'a>) {
        if self.operation.as_ref().is_none_or(|named| operation.rank() <= named.rank()) {
            self.operation = Some(operation);
        }
    }
}

/// Opens the session and authenticates the client.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConnectCommand<'a> {
    /// The connection token. Empty = none.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
    /// Any data, which is passed to hooks.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// Positions of server-side subscriptions by channel, for recovery.
    #[serde(borrow, deserialize_with = "objects")]
    pub subs: BTreeMap<Cow<'a, str>, SubscribeCommand<'a>>,
    /// Header fields that the client states itself because it cannot set those of its transport.
    #[serde(deserialize_with = "nullable")]
    pub headers: BTreeMap<String, String>,
    /// The name of the client's program. Empty = not stated.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub name: Cow<'a, str>,
    /// The version of the client's program. Empty = not stated.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub version: Cow<'a, str>,
}

/// Subscribes to a channel, optionally from a position.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeCommand<'a> {
    /// The channel to subscribe to.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// The subscription token. Empty = none.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
    /// Any data, which is passed to hooks.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// True if the client asks for the publications after `offset`.
    #[serde(deserialize_with = "nullable")]
    pub recover: bool,
    /// The epoch of `offset`. Empty = the current epoch.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub epoch: Cow<'a, str>,
    /// The offset of the last publication that the client has.
    #[serde(deserialize_with = "nullable")]
    pub offset: Offset,
    /// True if the client wants to know its position in the channel.
    #[serde(deserialize_with = "nullable")]
    pub positioned: bool,
    /// True if the client wants to be able to recover missed publications.
    #[serde(deserialize_with = "nullable")]
    pub recoverable: bool,
    /// True if the client wants join and leave events.
    #[serde(deserialize_with = "nullable")]
    pub join_leave: bool,
    /// A delta format that the client understands. Empty = no deltas.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub delta: Cow<'a, str>,
    /// A filter over the tags of publications. `None` = all publications.
    pub tf: Option<Box<FilterNode>>,
    /// Bit flags: 2 = refuse with error 112 if the subscription cannot be recovered.
    #[serde(deserialize_with = "nullable")]
    pub flag: i64,
    /// The kind of the subscription. 0 = a stream of publications, the only kind that the server supports. Other
    /// numbers mean maps and shared polls.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: i32,
}

impl SubscribeCommand<'_> {
    /// A copy without `data` that owns its texts, for code that processes the command later.
    pub fn into_owned(self) -> SubscribeCommand<'static> {
        SubscribeCommand {
            channel: self.channel.into_owned().into(),
            token: self.token.into_owned().into(),
            data: None,
            recover: self.recover,
            epoch: self.epoch.into_owned().into(),
            offset: self.offset,
            positioned: self.positioned,
            recoverable: self.recoverable,
            join_leave: self.join_leave,
            delta: self.delta.into_owned().into(),
            tf: self.tf,
            flag: self.flag,
            kind: self.kind,
        }
    }
}

/// The bit of [`SubscribeCommand::flag`] that turns an unrecovered subscription into error 112.
pub const FLAG_REJECT_UNRECOVERED: i64 = 2;

/// A command that names only a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChannelCommand<'a> {
    /// The channel that the command is about.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
}

/// Publishes data into a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PublishCommand<'a> {
    /// The channel to publish into.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// The payload to publish.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// The kind of the publication. 0 = an entry of a stream, the only kind that the server supports; 1 = an entry of a
    /// map.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: i32,
    /// The key of a map entry. Empty = the publication does not belong to a map.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub key: Cow<'a, str>,
}

/// Reads publications from a channel's history.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HistoryCommand<'a> {
    /// The channel whose history is read.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// The maximum number of publications. 0 = only the position, -1 = as many as allowed.
    #[serde(deserialize_with = "nullable")]
    pub limit: i32,
    /// Asks for publications after this position, or before it if `reverse` is set. `None` = from the start, or from
    /// the end if reversed.
    #[serde(borrow, deserialize_with = "object")]
    pub since: Option<Since<'a>>,
    /// True if the newest publications come first.
    #[serde(deserialize_with = "nullable")]
    pub reverse: bool,
}

/// A position in a channel: offset and epoch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Since<'a> {
    /// The offset in the channel's log.
    #[serde(deserialize_with = "nullable")]
    pub offset: Offset,
    /// The epoch of the offset. Empty = the current epoch.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub epoch: Cow<'a, str>,
}

/// Calls a method of the server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RpcCommand<'a> {
    /// The argument of the method.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// The name of the method.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub method: Cow<'a, str>,
}

/// An asynchronous message that gets no reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SendCommand<'a> {
    /// The payload of the message.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
}

/// Extends the connection with a new connection token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RefreshCommand<'a> {
    /// The new connection token.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
}

/// Extends a subscription with a new subscription token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubRefreshCommand<'a> {
    /// The channel of the subscription. Empty = the channel that the token names.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// The new subscription token.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
}
