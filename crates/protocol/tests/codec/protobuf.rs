//! Compares the Protobuf form with the JSON form and with another Protobuf implementation. They must read the same
//! commands and write the same replies.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message as _;
use serde_json::{Value, json};
use touchline_protocol::command::{CommandKind, Commands};
use touchline_protocol::message::{ConnectResult, Encoding, Messages, Push, Reply, SubscribeResult};
use touchline_protocol::publication::{Content, Delta, LogPosition, Publication, Recovered};
use touchline_protocol::stream::Offset;
use touchline_protocol::wire::{Coding, Framing};
use touchline_protocol::{Disconnect, Error, Unsubscribe, Wire, deflate};

use crate::random::{Random, fuzz};

/// The used part of `client.proto`, for the other implementation.
pub(crate) mod proto {
    use std::collections::HashMap;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Command {
        #[prost(uint32, tag = "1")]
        pub(crate) id: u32,
        #[prost(message, optional, tag = "4")]
        pub(crate) connect: Option<Connect>,
        #[prost(message, optional, tag = "5")]
        pub(crate) subscribe: Option<Subscribe>,
        #[prost(message, optional, tag = "6")]
        pub(crate) unsubscribe: Option<Channel>,
        #[prost(message, optional, tag = "7")]
        pub(crate) publish: Option<Publish>,
        #[prost(message, optional, tag = "8")]
        pub(crate) presence: Option<Channel>,
        #[prost(message, optional, tag = "9")]
        pub(crate) presence_stats: Option<Channel>,
        #[prost(message, optional, tag = "10")]
        pub(crate) history: Option<History>,
        /// The content of this field is not read.
        #[prost(message, optional, tag = "12")]
        pub(crate) send: Option<Channel>,
        #[prost(message, optional, tag = "13")]
        pub(crate) rpc: Option<Rpc>,
        #[prost(message, optional, tag = "14")]
        pub(crate) refresh: Option<Channel>,
        #[prost(message, optional, tag = "15")]
        pub(crate) sub_refresh: Option<SubRefresh>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Connect {
        #[prost(string, tag = "1")]
        pub(crate) token: String,
        #[prost(bytes = "vec", tag = "2")]
        pub(crate) data: Vec<u8>,
        #[prost(map = "string, message", tag = "3")]
        pub(crate) subs: HashMap<String, Subscribe>,
        #[prost(string, tag = "4")]
        pub(crate) name: String,
        #[prost(string, tag = "5")]
        pub(crate) version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Subscribe {
        #[prost(string, tag = "1")]
        pub(crate) channel: String,
        #[prost(string, tag = "2")]
        pub(crate) token: String,
        #[prost(bool, tag = "3")]
        pub(crate) recover: bool,
        #[prost(string, tag = "6")]
        pub(crate) epoch: String,
        #[prost(uint64, tag = "7")]
        pub(crate) offset: u64,
        #[prost(bool, tag = "9")]
        pub(crate) positioned: bool,
        #[prost(bool, tag = "10")]
        pub(crate) recoverable: bool,
        #[prost(bool, tag = "11")]
        pub(crate) join_leave: bool,
        #[prost(string, tag = "12")]
        pub(crate) delta: String,
        #[prost(message, optional, tag = "13")]
        pub(crate) tf: Option<Filter>,
        #[prost(int64, tag = "14")]
        pub(crate) flag: i64,
        #[prost(int32, tag = "15")]
        pub(crate) kind: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Filter {
        #[prost(string, tag = "1")]
        pub(crate) op: String,
        #[prost(string, tag = "2")]
        pub(crate) key: String,
        #[prost(string, tag = "3")]
        pub(crate) cmp: String,
        #[prost(string, tag = "4")]
        pub(crate) val: String,
        #[prost(string, repeated, tag = "5")]
        pub(crate) vals: Vec<String>,
        #[prost(message, repeated, tag = "6")]
        pub(crate) nodes: Vec<Filter>,
    }

    /// Any request whose first field is a text: a channel or a token.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Channel {
        #[prost(string, tag = "1")]
        pub(crate) text: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Publish {
        #[prost(string, tag = "1")]
        pub(crate) channel: String,
        #[prost(bytes = "vec", tag = "2")]
        pub(crate) data: Vec<u8>,
        #[prost(int32, tag = "3")]
        pub(crate) kind: i32,
        #[prost(string, tag = "4")]
        pub(crate) key: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct SubRefresh {
        #[prost(string, tag = "1")]
        pub(crate) channel: String,
        #[prost(string, tag = "2")]
        pub(crate) token: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct History {
        #[prost(string, tag = "1")]
        pub(crate) channel: String,
        #[prost(int32, tag = "7")]
        pub(crate) limit: i32,
        #[prost(message, optional, tag = "8")]
        pub(crate) since: Option<Position>,
        #[prost(bool, tag = "9")]
        pub(crate) reverse: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Position {
        #[prost(uint64, tag = "1")]
        pub(crate) offset: u64,
        #[prost(string, tag = "2")]
        pub(crate) epoch: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Rpc {
        #[prost(bytes = "vec", tag = "1")]
        pub(crate) data: Vec<u8>,
        #[prost(string, tag = "2")]
        pub(crate) method: String,
    }
}

fn name(random: &mut Random) -> String {
    format!("c{}", random.next() % 1_000)
}

fn number(random: &mut Random) -> u64 {
    random.next() >> (random.next() % 63)
}

/// A subscribe command in both forms.
fn subscribe(
    channel: String,
    token: String,
    recover: bool,
    offset: u64,
    is_filtered: bool,
) -> (Value, proto::Subscribe) {
    let mut json = json!({
        "channel": channel, "token": token, "recover": recover, "offset": offset,
        "epoch": "abcd", "delta": "fossil", "flag": 2,
    });
    let tf = is_filtered.then(|| {
        json["tf"] = json!({"op": "not", "nodes": [{"key": "k", "cmp": "in", "vals": [token]}]});
        let vals = vec![token.clone()];
        let leaf = proto::Filter { key: "k".into(), cmp: "in".into(), vals, ..Default::default() };
        proto::Filter { op: "not".into(), nodes: vec![leaf], ..Default::default() }
    });
    let (epoch, delta) = ("abcd".into(), "fossil".into());
    let message = proto::Subscribe { channel, token, recover, epoch, offset, delta, tf, flag: 2, ..Default::default() };
    (json, message)
}

/// A command in both forms.
fn command(random: &mut Random) -> (Value, proto::Command) {
    let (id, channel, text) = (1 + random.below(1 << 20) as u32, name(random), random.text());
    let (data, offset, flag) = (Value::from(random.text()), number(random), random.one_in(2));
    let bytes = data.to_string().into_bytes();
    let mut c = proto::Command { id, ..Default::default() };
    let json = match random.below(8) {
        0 => {
            let sub = proto::Subscribe { recover: flag, offset, epoch: "e".into(), ..Default::default() };
            let subs = HashMap::from([(channel.clone(), sub)]);
            c.connect = Some(proto::Connect {
                token: text.clone(),
                data: bytes,
                subs,
                name: "sdk".into(),
                ..Default::default()
            });
            let subs = json!({channel: {"recover": flag, "offset": offset, "epoch": "e"}});
            json!({"connect": {"token": text, "data": data, "subs": subs, "name": "sdk"}})
        }
        1 => {
            let (json, subscribe) = subscribe(channel, text, flag, offset, random.one_in(2));
            c.subscribe = Some(subscribe);
            json!({"subscribe": json})
        }
        2 => {
            c.unsubscribe = Some(proto::Channel { text: channel.clone() });
            json!({"unsubscribe": {"channel": channel}})
        }
        3 => {
            c.publish = Some(proto::Publish { channel: channel.clone(), data: bytes, ..Default::default() });
            json!({"publish": {"channel": channel, "data": data}})
        }
        4 => {
            c.presence = Some(proto::Channel { text: channel.clone() });
            json!({"presence": {"channel": channel}})
        }
        5 => {
            let limit = random.below(100) as i32 - 1;
            let since = Some(proto::Position { offset, epoch: text.clone() });
            c.history = Some(proto::History { channel: channel.clone(), limit, since, reverse: flag });
            let since = json!({"offset": offset, "epoch": text});
            json!({"history": {"channel": channel, "limit": limit, "since": since, "reverse": flag}})
        }
        6 => {
            c.rpc = Some(proto::Rpc { data: bytes, method: text.clone() });
            json!({"rpc": {"data": data, "method": text}})
        }
        _ => {
            c.refresh = Some(proto::Channel { text: text.clone() });
            json!({"refresh": {"token": text}})
        }
    };
    let mut json = json;
    json["id"] = id.into();
    (json, c)
}

#[test]
fn both_forms_of_a_command_are_read_as_the_same() {
    fuzz(|random| {
        let (mut lines, mut messages, mut count) = (String::new(), Vec::new(), 0);
        for _ in 0..1 + random.below(4) {
            let (json, message) = command(random);
            lines.push_str(&format!("{json}\n"));
            message.encode_length_delimited(&mut messages).expect("a vector has room");
            count += 1;
        }
        let read = |body, input| {
            Commands::read(body, input).map(|command| format!("{:?}", command.expect("it is good"))).collect::<Vec<_>>()
        };
        let (json, protobuf) = (read(Encoding::Json, lines.as_bytes()), read(Encoding::Protobuf, &messages));
        assert_eq!(json.len(), count);
        assert_eq!(json, protobuf);
    });
}

#[test]
fn what_is_broken_is_refused_or_read_as_others_read_it() {
    fuzz(|random| {
        let mut bytes = command(random).1.encode_length_delimited_to_vec();
        random.mutate(&mut bytes);
        let theirs = proto::Command::decode_length_delimited(&bytes[..]);
        let ours = Commands::read(Encoding::Protobuf, &bytes).next();
        if let (Ok(theirs), Some(Ok(ours))) = (theirs, ours) {
            assert_eq!(theirs.id, ours.id);
            let (publish, subscribe) =
                (theirs.publish.map(|p| p.channel), theirs.subscribe.map(|s| (s.channel, s.offset)));
            match ours.operation {
                // These operations hide the later ones.
                Some(CommandKind::Connect(_) | CommandKind::Send(_)) => {}
                Some(CommandKind::Subscribe(ours)) => {
                    assert_eq!(subscribe, Some((ours.channel.into_owned(), ours.offset.0)))
                }
                Some(CommandKind::Publish(ours)) => {
                    assert_eq!((subscribe, publish), (None, Some(ours.channel.into_owned())))
                }
                Some(CommandKind::Unsubscribe(_)) => assert_eq!(subscribe, None),
                _ => assert_eq!((subscribe, publish), (None, None)),
            }
        }
    });
}

/// Parses a message of the server only by the rules of the wire format: numbers, and bytes that may be messages.
fn fields(mut message: &[u8]) -> Vec<(u32, Vec<u8>, u64)> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let (tag, kind) = prost::encoding::decode_key(&mut message).expect("a key");
        match kind {
            prost::encoding::WireType::Varint => {
                all.push((tag, Vec::new(), prost::encoding::decode_varint(&mut message).expect("a number")))
            }
            prost::encoding::WireType::LengthDelimited => {
                let length = prost::encoding::decode_varint(&mut message).expect("a length") as usize;
                all.push((tag, message[..length].to_vec(), 0));
                message = &message[length..];
            }
            other => panic!("{other:?} is not written"),
        }
    }
    all
}

/// The schema of the server's messages with the names of the JSON form: the name and the kind of each field.
#[derive(Clone, Copy)]
enum Kind {
    Number,
    Flag,
    Text,
    Json,
    Message(&'static [(u32, &'static str, Kind)]),
    List(&'static [(u32, &'static str, Kind)]),
    /// A map from text to text.
    Texts,
    /// A map from text to a message.
    Map(&'static [(u32, &'static str, Kind)]),
}
use Kind::{Flag, Json, List, Number, Text, Texts};

const INFO: &[(u32, &str, Kind)] =
    &[(1, "user", Text), (2, "client", Text), (3, "conn_info", Json), (4, "chan_info", Json)];
const PUBLICATION: &[(u32, &str, Kind)] = &[
    (4, "data", Json),
    (5, "info", Kind::Message(INFO)),
    (6, "offset", Number),
    (7, "tags", Texts),
    (8, "delta", Flag),
    (9, "time", Number),
    (14, "epoch", Text),
];
const SUBSCRIBED: &[(u32, &str, Kind)] = &[
    (1, "expires", Flag),
    (2, "ttl", Number),
    (3, "recoverable", Flag),
    (6, "epoch", Text),
    (7, "publications", List(PUBLICATION)),
    (8, "recovered", Flag),
    (9, "offset", Number),
    (10, "positioned", Flag),
    (11, "data", Json),
    (12, "was_recovering", Flag),
    (13, "delta", Flag),
];
const CONNECTED: &[(u32, &str, Kind)] = &[
    (1, "client", Text),
    (2, "version", Text),
    (3, "expires", Flag),
    (4, "ttl", Number),
    (5, "data", Json),
    (6, "subs", Kind::Map(SUBSCRIBED)),
    (7, "ping", Number),
    (8, "pong", Flag),
    (9, "session", Text),
    (10, "node", Text),
    (11, "time", Number),
];
const REPLY: &[(u32, &str, Kind)] = &[
    (1, "id", Number),
    (2, "error", Kind::Message(&[(1, "code", Number), (2, "message", Text), (3, "temporary", Flag)])),
    (
        4,
        "push",
        Kind::Message(&[
            (2, "channel", Text),
            (4, "pub", Kind::Message(PUBLICATION)),
            (7, "unsubscribe", Kind::Message(&[(2, "code", Number), (3, "reason", Text)])),
            (8, "message", Kind::Message(&[(1, "data", Json)])),
            (
                9,
                "subscribe",
                Kind::Message(&[
                    (1, "recoverable", Flag),
                    (4, "epoch", Text),
                    (5, "offset", Number),
                    (6, "positioned", Flag),
                    (7, "data", Json),
                ]),
            ),
            (11, "disconnect", Kind::Message(&[(1, "code", Number), (2, "reason", Text), (3, "reconnect", Flag)])),
            (12, "refresh", Kind::Message(&[(1, "expires", Flag), (2, "ttl", Number)])),
        ]),
    ),
    (5, "connect", Kind::Message(CONNECTED)),
    (6, "subscribe", Kind::Message(SUBSCRIBED)),
    (7, "unsubscribe", Kind::Message(&[])),
    (8, "publish", Kind::Message(&[])),
    (9, "presence", Kind::Message(&[(1, "presence", Kind::Map(INFO))])),
    (10, "presence_stats", Kind::Message(&[(1, "num_clients", Number), (2, "num_users", Number)])),
    (
        11,
        "history",
        Kind::Message(&[(1, "publications", List(PUBLICATION)), (2, "epoch", Text), (3, "offset", Number)]),
    ),
    (13, "rpc", Kind::Message(&[(1, "data", Json)])),
    (
        14,
        "refresh",
        Kind::Message(&[(1, "client", Text), (2, "version", Text), (3, "expires", Flag), (4, "ttl", Number)]),
    ),
    (15, "sub_refresh", Kind::Message(&[(1, "expires", Flag), (2, "ttl", Number)])),
];

fn value(message: &[u8], schema: &[(u32, &str, Kind)]) -> Value {
    let mut object = json!({});
    for (tag, bytes, number) in fields(message) {
        let (_, name, kind) =
            schema.iter().find(|(known, ..)| *known == tag).unwrap_or_else(|| panic!("field {tag} is unknown"));
        let text = || String::from_utf8(bytes.clone()).expect("text is UTF-8");
        match kind {
            Number => object[name] = number.into(),
            Flag => object[name] = (number != 0).into(),
            Text => object[name] = text().into(),
            Json => object[name] = serde_json::from_slice(&bytes).unwrap_or_else(|_| text().into()),
            Kind::Message(schema) => object[name] = value(&bytes, schema),
            List(schema) => match object[name].as_array_mut() {
                Some(list) => list.push(value(&bytes, schema)),
                None => object[name] = json!([value(&bytes, schema)]),
            },
            Texts | Kind::Map(_) => {
                let entry = fields(&bytes);
                let part =
                    |tag| entry.iter().find(|(t, ..)| *t == tag).map_or(Vec::new(), |(_, bytes, _)| bytes.clone());
                let key = String::from_utf8(part(1)).expect("UTF-8");
                object[name][key] = match kind {
                    Kind::Map(schema) => value(&part(2), schema),
                    _ => String::from_utf8(part(2)).expect("UTF-8").into(),
                };
            }
        }
    }
    object
}

/// A value without the empty fields that one form always writes and the other omits.
fn trimmed(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_empty = |value: &Value| *value == json!("") || *value == json!(0) || *value == json!([]);
            Value::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name, trimmed(value)))
                    .filter(|(_, value)| !is_empty(value))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(trimmed).collect(),
        other => other,
    }
}

fn publication(random: &mut Random, channel: &str, data: &Value) -> Arc<Publication> {
    let content = Content {
        data: data.to_string().into(),
        tags: (0..random.below(3)).map(|_| (format!("k{}", random.below(9)), random.text())).collect(),
        info: None,
        expires_ms: 0,
    };
    let place = random.one_in(2).then(|| LogPosition {
        offset: Offset(1 + random.next() % 5),
        epoch: "abcdefgh",
        time_ms: random.next() >> 20,
    });
    Arc::new(Publication::encode(channel, &content, place))
}

/// The output of both encoders for the same input.
pub(crate) fn both(write: impl Fn(&mut Messages)) -> (Value, Value) {
    let (mut json, mut protobuf) = (Messages::default(), Messages::default());
    protobuf.encode_as(Encoding::Protobuf);
    write(&mut json);
    write(&mut protobuf);
    let mut rest = protobuf.bytes();
    let length = prost::encoding::decode_varint(&mut rest).expect("a length") as usize;
    assert_eq!(length, rest.len(), "one whole message");
    (trimmed(serde_json::from_slice(json.bytes()).expect("JSON")), trimmed(value(rest, REPLY)))
}

#[test]
fn both_forms_of_a_reply_say_the_same() {
    fuzz(|random| {
        let (id, channel, data) = (1 + random.below(1 << 20) as u32, name(random), json!({"t": random.text()}));
        let text = data.to_string();
        let publications: Vec<_> = (0..random.below(4)).map(|_| publication(random, &channel, &data)).collect();
        let ttl_s = random.one_in(2).then(|| 1 + random.next() % 1_000);
        let flag = random.one_in(2);
        let subscribe = SubscribeResult {
            ttl_s,
            recoverable: flag,
            positioned: !flag,
            epoch: "abcdefgh",
            offset: number(random),
            recovered: flag,
            was_recovering: flag,
            delta: flag,
            data: Some(text.as_bytes()),
            missed: Recovered { publications: &publications, is_delta: false },
        };
        let connect = ConnectResult {
            client: "id",
            version: "1",
            ttl_s,
            data: flag.then_some(text.as_bytes()),
            subs: &[],
            ping_s: 25,
            pong: flag,
            session: "s",
            node: "n",
            time_ms: 7,
        };
        let error = Error::ALL[random.below(Error::ALL.len())];
        let replies = [
            Reply::Error(error),
            Reply::Refusal { code: 450, message: "no", temporary: flag },
            Reply::Connect(connect),
            Reply::Subscribe(subscribe),
            Reply::Unsubscribe,
            Reply::Publish,
            Reply::PresenceStats(br#"{"num_clients":3,"num_users":2}"#),
            Reply::History { publications: &publications, epoch: "abcdefgh", offset: number(random) },
            Reply::Rpc(text.as_bytes()),
            Reply::Refresh { client: "id", version: "1", ttl_s },
            Reply::SubRefresh { ttl_s },
        ];
        let reply = replies[random.below(replies.len())];
        let (json, protobuf) = both(|messages| messages.reply(id, &reply));
        assert_eq!(json, protobuf, "{reply:?}");
        let one = publication(random, &channel, &data);
        let disconnect = &Disconnect::ALL[random.below(Disconnect::ALL.len())];
        let pushes = [
            Push::Publication(&one),
            Push::Unsubscribe(Unsubscribe::EXPIRED),
            Push::Message(text.as_bytes()),
            Push::Subscribe(SubscribeResult { missed: Recovered::default(), ..subscribe }),
            Push::Disconnect(disconnect),
            Push::Refresh { ttl_s: 5 },
        ];
        let push = pushes[random.below(pushes.len())];
        let (json, protobuf) = both(|messages| messages.push(&channel, &push));
        assert_eq!(json, protobuf, "{push:?}");
    });
}

#[test]
fn shared_publications_say_the_same_in_every_form() {
    fuzz(|random| {
        let (channel, data) = (name(random), json!({"t": random.text()}));
        let one = publication(random, &channel, &data);
        let line = |body, envelope| one.framed(Wire { encoding: body, framing: envelope }, Delta::None);
        let json: Value =
            serde_json::from_slice(&line(Encoding::Json, Framing::Stream(Coding::Identity))).expect("JSON");
        let push: Value =
            serde_json::from_slice(&line(Encoding::Push, Framing::Stream(Coding::Identity))).expect("JSON");
        assert_eq!(json["push"], push);
        let event = line(Encoding::Push, Framing::EventStream(Coding::Identity));
        let event = event.strip_prefix(b"data: ").and_then(|event| event.strip_suffix(b"\n\n")).expect("an event");
        assert_eq!(serde_json::from_slice::<Value>(event).expect("JSON"), push);
        let message = line(Encoding::Protobuf, Framing::Stream(Coding::Identity));
        let mut rest = &message[..];
        prost::encoding::decode_varint(&mut rest).expect("a length");
        assert_eq!(trimmed(value(rest, REPLY)), trimmed(json));
    });
}

#[test]
fn compressed_noise_is_refused_and_never_grows_beyond_its_limit() {
    fuzz(|random| {
        let length = random.below(300);
        let bytes = random.bytes(length);
        let most = random.below(10_000);
        assert!(deflate::inflate(&bytes, most).is_none_or(|message| message.len() <= most));
    });
}
