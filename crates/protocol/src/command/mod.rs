//! Commands of a client. Unknown fields are passed over, in JSON `null` is absence, as the official server has it.

mod json;
mod protobuf;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::data::{Object, object};
use crate::filter::FilterNode;
use crate::message::Encoding;
use crate::protobuf::Malformed;
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
    /// An asynchronous message without a reply. What it holds is not read.
    Send,
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
            CommandKind::Send => 1,
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
    fn name(&mut self, operation: CommandKind<'a>) {
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
    pub data: Option<&'a RawValue>,
    /// Positions of server-side subscriptions, for recovery.
    #[serde(borrow, deserialize_with = "objects")]
    pub subs: HashMap<Cow<'a, str>, SubscribeCommand<'a>>,
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
    pub data: Option<&'a RawValue>,
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
    pub data: Option<&'a RawValue>,
    /// Its name.
    #[serde(borrow, deserialize_with = "nullable_text")]
    pub method: Cow<'a, str>,
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

/// The commands of one frame, read one by one; it knows how far it has read.
pub enum Commands<'a> {
    /// JSON values, one after the other, usually one a line.
    Json(serde_json::StreamDeserializer<'a, serde_json::de::SliceRead<'a>, Command<'a>>, &'a [u8]),
    /// Protobuf messages, each with its length before it.
    Protobuf(&'a [u8]),
}

impl<'a> Commands<'a> {
    /// The commands in `input`.
    pub fn read(body: Encoding, input: &'a [u8]) -> Self {
        match body {
            Encoding::Protobuf => Commands::Protobuf(input),
            Encoding::Json | Encoding::Push => {
                Commands::Json(serde_json::Deserializer::from_slice(input).into_iter(), input)
            }
        }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        match self {
            Commands::Json(commands, input) => input.get(commands.byte_offset()..).unwrap_or_default(),
            Commands::Protobuf(rest) => rest,
        }
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Commands::Json(commands, _) => Some(commands.next()?.map_err(|_| Malformed)),
            Commands::Protobuf(rest) => protobuf::next(rest),
        }
    }
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Objects by their names; `null` is absence.
fn objects<'de, D: Deserializer<'de>, K: Eq + Hash + Deserialize<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<HashMap<K, T>, D::Error> {
    struct Objects<K, T>(HashMap<K, T>);
    struct Reader<K, T>(PhantomData<(K, T)>);
    impl<'de, K: Eq + Hash + Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Reader<K, T> {
        type Value = Objects<K, T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("objects by their names")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Objects<K, T>, A::Error> {
            let mut objects = HashMap::new();
            while let Some((name, Object(object))) = map.next_entry()? {
                objects.insert(name, object);
            }
            Ok(Objects(objects))
        }
    }
    impl<'de, K: Eq + Hash + Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Objects<K, T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_map(Reader(PhantomData))
        }
    }
    Ok(Option::<Objects<K, T>>::deserialize(deserializer)?.map(|objects| objects.0).unwrap_or_default())
}

/// Text that borrows from the input unless it holds escapes.
fn nullable_text<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, str>, D::Error> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    Ok(Option::<Text<'de>>::deserialize(deserializer)?.map(|text| text.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_commands_share_a_frame() {
        let text =
            "{\"id\":1,\"connect\":{\"token\":null}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\",\"offset\":7}}\n";
        let commands: Vec<_> =
            Commands::read(Encoding::Json, text.as_bytes()).map(|c| c.expect("the case is valid")).collect();
        assert_eq!(commands.len(), 2);
        assert!(matches!(&commands[0].operation, Some(CommandKind::Connect(c)) if c.token.is_empty()));
        assert!(matches!(
            &commands[1].operation,
            Some(CommandKind::Subscribe(s)) if s.channel == "a" && s.offset == Offset(7)
        ));
    }

    #[test]
    fn what_has_not_been_read_is_left() {
        for (body, first, second) in [
            (Encoding::Json, &b"{\"id\":1}"[..], &b"\n{\"id\":2"[..]),
            (Encoding::Push, b"{}", b"{}"),
            (Encoding::Protobuf, b"\x02\x08\x01", b"\x02\x08\x02"),
        ] {
            let input = [first, second].concat();
            let mut commands = Commands::read(body, &input);
            assert_eq!(commands.rest(), input, "{body:?}");
            assert!(commands.next().is_some_and(|command| command.is_ok()), "{body:?}");
            assert_eq!(commands.rest(), second, "{body:?}");
        }
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        let command: Command<'_> = serde_json::from_str(r#"{"unsubscribe":{"channel":"plain"}}"#).expect("valid");
        assert!(matches!(
            command.operation,
            Some(CommandKind::Unsubscribe(ChannelCommand { channel: Cow::Borrowed("plain") }))
        ));
    }

    #[test]
    fn wrong_types_are_refused_and_unknown_fields_passed_over() {
        assert!(serde_json::from_str::<Command<'_>>(r#"{"id":"one"}"#).is_err());
        assert!(serde_json::from_str::<Command<'_>>(r#"{"id":-1}"#).is_err());
        assert!(serde_json::from_str::<Command<'_>>(r#"{"id":1,"new":{"field":[1]}}"#).is_ok());
        assert!(serde_json::from_str::<Command<'_>>(r#"{"id":1,"id":2}"#).is_err());
    }

    #[test]
    fn a_list_is_no_request() {
        let operations = [
            "connect",
            "subscribe",
            "unsubscribe",
            "publish",
            "presence",
            "presence_stats",
            "history",
            "rpc",
            "refresh",
            "sub_refresh",
        ];
        let lists = operations.map(|operation| format!(r#"{{"id":1,"{operation}":["a"]}}"#));
        let nested = [
            r#"{"id":1,"history":{"channel":"a","since":[1,"x"]}}"#,
            r#"{"id":1,"connect":{"subs":{"a":["a"]}}}"#,
            "[1]",
        ];
        for text in lists.iter().map(String::as_str).chain(nested) {
            assert!(serde_json::from_str::<Command<'_>>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn of_several_operations_the_first_by_their_order_counts() {
        for text in [
            r#"{"rpc":{},"connect":{},"subscribe":{}}"#,
            r#"{"connect":{},"rpc":{},"send":{}}"#,
            r#"{"connect":{},"rpc":null}"#,
        ] {
            let command: Command<'_> = serde_json::from_str(text).expect("valid");
            assert!(matches!(command.operation, Some(CommandKind::Connect(_))), "{text}");
        }
        let none: Command<'_> = serde_json::from_str(r#"{"connect":null,"ping":{}}"#).expect("valid");
        assert!(none.operation.is_none());
    }
}
