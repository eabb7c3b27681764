//! Commands as values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::nullable::{nullable, nullable_text, objects};
use crate::data::object;
use crate::filter::FilterNode;
use crate::payload::RawPayload;
use crate::stream::Offset;

/// One command of a client.
#[derive(Debug, Default)]
pub struct Command<'a> {
    /// Echoed by the reply; zero where none is expected.
    pub id: u32,
    /// What the client wants; none = nothing that is known.
    pub operation: Option<CommandKind<'a>>,
}

/// What a command is about. Of a command that names several, the first in this order counts.
#[derive(Debug)]
pub enum CommandKind<'a> {
    /// Opens the session.
    Connect(ConnectCommand<'a>),
    /// An asynchronous message without a reply.
    Send(SendCommand<'a>),
    /// Subscribes to a channel.
    Subscribe(SubscribeCommand<'a>),
    /// Ends a subscription.
    Unsubscribe(ChannelCommand<'a>),
    /// Publishes into a channel.
    Publish(PublishCommand<'a>),
    /// Asks who is in a channel.
    Presence(ChannelCommand<'a>),
    /// Asks how many are in a channel.
    PresenceStats(ChannelCommand<'a>),
    /// Asks for publications of a channel.
    History(HistoryCommand<'a>),
    /// Calls a method.
    Rpc(RpcCommand<'a>),
    /// Shows a new connection token.
    Refresh(RefreshCommand<'a>),
    /// Shows a new subscription token.
    SubRefresh(SubRefreshCommand<'a>),
}

impl CommandKind<'_> {
    /// Its place in the order above.
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
    /// Takes an operation that the command names, unless one counts already that comes before it.
    pub(super) fn name(&mut self, operation: CommandKind<'a>) {
        if self.operation.as_ref().is_none_or(|named| operation.rank() <= named.rank()) {
            self.operation = Some(operation);
        }
    }
}

/// Opens the session.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConnectCommand<'a> {
    /// A connection token, or empty.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
    /// Anything, for hooks.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// Positions of server-side subscriptions, for recovery.
    #[serde(borrow, deserialize_with = "objects")]
    pub subs: BTreeMap<Cow<'a, str>, SubscribeCommand<'a>>,
    /// Header fields that a client claims which cannot set those of its transport.
    #[serde(deserialize_with = "nullable")]
    pub headers: BTreeMap<String, String>,
    /// Name of the client's program.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub name: Cow<'a, str>,
    /// Version of the client's program.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub version: Cow<'a, str>,
}

/// Subscribes to a channel, perhaps from a position on.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeCommand<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// A subscription token, or empty.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
    /// Anything, for hooks.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// Give what was published since `offset`.
    #[serde(deserialize_with = "nullable")]
    pub recover: bool,
    /// Epoch of `offset`; empty = whichever is current.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub epoch: Cow<'a, str>,
    /// The last offset that the client has.
    #[serde(deserialize_with = "nullable")]
    pub offset: Offset,
    /// The client wants to know its position.
    #[serde(deserialize_with = "nullable")]
    pub positioned: bool,
    /// The client wants to recover.
    #[serde(deserialize_with = "nullable")]
    pub recoverable: bool,
    /// The client wants join and leave events.
    #[serde(deserialize_with = "nullable")]
    pub join_leave: bool,
    /// A delta format that the client understands.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub delta: Cow<'a, str>,
    /// A filter over tags.
    pub tf: Option<Box<FilterNode>>,
    /// Bits; 2 = refuse with error 112 if not recovered.
    #[serde(deserialize_with = "nullable")]
    pub flag: i64,
    /// The kind of the subscription; 0 = a stream of publications, the only kind that is served. Others are maps and
    /// shared polls.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: i32,
}

impl SubscribeCommand<'_> {
    /// The command without its `data`, for those who carry it out later.
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

/// A request about a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChannelCommand<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
}

/// Publishes into a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PublishCommand<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// What to publish.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// The kind of the publication; 0 = one of a stream, the only kind that is served. 1 is one of a map.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: i32,
    /// The entry of a map that is published; empty = none.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub key: Cow<'a, str>,
}

/// Asks for publications of a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HistoryCommand<'a> {
    /// The channel.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// How many; 0 = the position only, -1 = as many as allowed.
    #[serde(deserialize_with = "nullable")]
    pub limit: i32,
    /// Publications behind this position (before it, if reversed).
    #[serde(borrow, deserialize_with = "object")]
    pub since: Option<Since<'a>>,
    /// Newest first.
    #[serde(deserialize_with = "nullable")]
    pub reverse: bool,
}

/// A position in a channel.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Since<'a> {
    /// The offset.
    #[serde(deserialize_with = "nullable")]
    pub offset: Offset,
    /// Its epoch; empty = whichever is current.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub epoch: Cow<'a, str>,
}

/// Calls a method.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RpcCommand<'a> {
    /// Its argument.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
    /// Its name.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub method: Cow<'a, str>,
}

/// Says something that is not answered.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SendCommand<'a> {
    /// What it says.
    #[serde(borrow)]
    pub data: Option<RawPayload<'a>>,
}

/// Shows a new connection token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RefreshCommand<'a> {
    /// The token.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
}

/// Shows a new subscription token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubRefreshCommand<'a> {
    /// The channel; a client that leaves it out means the token's.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub channel: Cow<'a, str>,
    /// The token.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub token: Cow<'a, str>,
}
