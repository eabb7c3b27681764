//! Every kind of command, reply and push with all its fields, in both forms. This does not compile if a new kind is not
//! listed here.

use std::collections::HashSet;
use std::mem::discriminant;
use std::sync::Arc;

use prost::Message as _;
use serde_json::{Value, json};
use touchline_protocol::command::{CommandKind, Commands};
use touchline_protocol::filter::{Filter, FilterLimits};
use touchline_protocol::message::{ConnectResult, Encoding, Messages, Push, Reply, SubscribeResult};
use touchline_protocol::publication::{Content, LogPosition, Publication, Recovered};
use touchline_protocol::stream::Offset;
use touchline_protocol::{Disconnect, Error, Unsubscribe};

use crate::protobuf::{both, proto};

/// The kinds of commands by their JSON names.
fn kind_of_command(operation: &CommandKind<'_>) -> &'static str {
    match operation {
        CommandKind::Connect(_) => "connect",
        CommandKind::Send(_) => "send",
        CommandKind::Subscribe(_) => "subscribe",
        CommandKind::Unsubscribe(_) => "unsubscribe",
        CommandKind::Publish(_) => "publish",
        CommandKind::Presence(_) => "presence",
        CommandKind::PresenceStats(_) => "presence_stats",
        CommandKind::History(_) => "history",
        CommandKind::Rpc(_) => "rpc",
        CommandKind::Refresh(_) => "refresh",
        CommandKind::SubRefresh(_) => "sub_refresh",
    }
}

const COMMANDS: usize = 11;

/// A subscribe command with all its fields, none of them empty.
fn subscribe() -> proto::Subscribe {
    let leaf = proto::Filter {
        key: "k".into(),
        cmp: "eq".into(),
        val: "v".into(),
        vals: vec!["w".into()],
        ..Default::default()
    };
    proto::Subscribe {
        channel: "c".into(),
        token: "t".into(),
        recover: true,
        epoch: "e".into(),
        offset: 7,
        positioned: true,
        recoverable: true,
        join_leave: true,
        delta: "fossil".into(),
        tf: Some(proto::Filter { op: "not".into(), nodes: vec![leaf], ..Default::default() }),
        flag: 2,
        kind: 3,
    }
}

/// The same subscribe command as JSON.
fn subscribe_json() -> Value {
    json!({
        "channel": "c", "token": "t", "recover": true, "epoch": "e", "offset": 7,
        "positioned": true, "recoverable": true, "join_leave": true, "delta": "fossil", "flag": 2, "type": 3,
        "tf": {"op": "not", "nodes": [{"key": "k", "cmp": "eq", "val": "v", "vals": ["w"]}]},
    })
}

/// Each command with all its fields, none of them empty.
fn commands() -> [(Value, proto::Command); COMMANDS] {
    let channel = || Some(proto::Channel { text: "c".into() });
    let command = |id, change: &dyn Fn(&mut proto::Command)| {
        let mut command = proto::Command { id, ..Default::default() };
        change(&mut command);
        command
    };
    let since = || Some(proto::Position { offset: 5, epoch: "e".into() });
    [
        (
            json!({"id": 1, "connect": {
                "token": "t", "data": [1], "subs": {"c": subscribe_json()}, "name": "js", "version": "2",
            }}),
            command(1, &|c| {
                let subs = [("c".to_owned(), subscribe())].into();
                c.connect = Some(proto::Connect {
                    token: "t".into(),
                    data: b"[1]".into(),
                    subs,
                    name: "js".into(),
                    version: "2".into(),
                });
            }),
        ),
        (json!({"id": 2, "send": {"data": 1}}), command(2, &|c| c.send = Some(proto::Channel { text: "1".into() }))),
        (json!({"id": 3, "subscribe": subscribe_json()}), command(3, &|c| c.subscribe = Some(subscribe()))),
        (json!({"id": 4, "unsubscribe": {"channel": "c"}}), command(4, &|c| c.unsubscribe = channel())),
        (
            json!({"id": 5, "publish": {"channel": "c", "data": {"x": 1}, "type": 1, "key": "k"}}),
            command(5, &|c| {
                c.publish =
                    Some(proto::Publish { channel: "c".into(), data: br#"{"x":1}"#.into(), kind: 1, key: "k".into() });
            }),
        ),
        (json!({"id": 6, "presence": {"channel": "c"}}), command(6, &|c| c.presence = channel())),
        (json!({"id": 7, "presence_stats": {"channel": "c"}}), command(7, &|c| c.presence_stats = channel())),
        (
            json!({"id": 8, "history": {
                "channel": "c", "limit": -1, "since": {"offset": 5, "epoch": "e"}, "reverse": true,
            }}),
            command(8, &|c| {
                c.history = Some(proto::History { channel: "c".into(), limit: -1, since: since(), reverse: true })
            }),
        ),
        (
            json!({"id": 9, "rpc": {"data": 1, "method": "m"}}),
            command(9, &|c| c.rpc = Some(proto::Rpc { data: b"1".into(), method: "m".into() })),
        ),
        (json!({"id": 10, "refresh": {"token": "c"}}), command(10, &|c| c.refresh = channel())),
        (
            json!({"id": 11, "sub_refresh": {"channel": "c", "token": "t"}}),
            command(11, &|c| c.sub_refresh = Some(proto::SubRefresh { channel: "c".into(), token: "t".into() })),
        ),
    ]
}

#[test]
fn every_kind_of_command_is_read_from_both_forms() {
    let mut kinds = Vec::new();
    for (json, message) in commands() {
        let text = json.to_string();
        let bytes = message.encode_length_delimited_to_vec();
        let (mut lines, mut messages) =
            (Commands::read(Encoding::Json, text.as_bytes()), Commands::read(Encoding::Protobuf, &bytes));
        let ours = lines.next().expect("a command").expect("it is good");
        let theirs = messages.next().expect("a command").expect("it is good");
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert!(lines.next().is_none() && messages.next().is_none() && messages.rest().is_empty(), "{text}");
        assert_eq!(json["id"], ours.id);
        let kind = kind_of_command(&ours.operation.expect("it is known"));
        assert!(json.get(kind).is_some(), "{kind} was read of {text}");
        kinds.push(kind);
    }
    kinds.dedup();
    assert_eq!(kinds.len(), COMMANDS, "each kind once: {kinds:?}");
}

#[test]
fn of_two_operations_in_one_message_the_first_by_their_order_counts() {
    let all = commands();
    for (first, second) in (0..COMMANDS).flat_map(|first| (first + 1..COMMANDS).map(move |second| (first, second))) {
        let whole = [&all[second].1, &all[first].1].map(|message| message.encode_to_vec()).concat();
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(whole.len() as u64, &mut bytes);
        bytes.extend_from_slice(&whole);
        let command = Commands::read(Encoding::Protobuf, &bytes).next().expect("a command").expect("it is good");
        let kind = kind_of_command(&command.operation.expect("it is known"));
        assert!(all[first].0.get(kind).is_some(), "{kind} of {first} and {second}");
    }
}

#[test]
fn a_filter_nests_so_deep_in_protobuf_too() {
    let nested = |nodes: usize| {
        let leaf = proto::Filter { key: "k".into(), cmp: "ex".into(), ..Default::default() };
        (1..nodes).fold(leaf, |inner, _| proto::Filter { op: "not".into(), nodes: vec![inner], ..Default::default() })
    };
    // A filter that has been read is checked afterwards. A deeper one is not even read.
    for (nodes, is_read, is_good) in [(32, true, true), (33, true, false), (34, false, false)] {
        let subscribe = proto::Subscribe { channel: "c".into(), tf: Some(nested(nodes)), ..Default::default() };
        let bytes =
            proto::Command { id: 1, subscribe: Some(subscribe), ..Default::default() }.encode_length_delimited_to_vec();
        let read = Commands::read(Encoding::Protobuf, &bytes).next().expect("a command");
        assert_eq!(read.is_ok(), is_read, "{nodes}");
        let Ok(Some(CommandKind::Subscribe(request))) = read.map(|command| command.operation) else { continue };
        let limits = FilterLimits { nodes: 64, size: 4_096 };
        assert_eq!(Filter::check(&request.tf.expect("it has a filter"), limits).is_some(), is_good, "{nodes}");
    }
}

fn kind_of_reply(reply: &Reply<'_>) -> &'static str {
    match reply {
        Reply::Error(_) | Reply::Refusal { .. } => "error",
        Reply::Connect(_) => "connect",
        Reply::Subscribe(_) => "subscribe",
        Reply::Unsubscribe => "unsubscribe",
        Reply::Publish => "publish",
        Reply::Presence(_) => "presence",
        Reply::PresenceStats(_) => "presence_stats",
        Reply::History { .. } => "history",
        Reply::Rpc(_) => "rpc",
        Reply::Refresh { .. } => "refresh",
        Reply::SubRefresh { .. } => "sub_refresh",
    }
}

const REPLIES: usize = 12;

fn kind_of_push(push: &Push<'_>) -> &'static str {
    match push {
        Push::Publication(_) => "pub",
        Push::Unsubscribe(_) => "unsubscribe",
        Push::Message(_) => "message",
        Push::Subscribe(_) => "subscribe",
        Push::Disconnect(_) => "disconnect",
        Push::Refresh { .. } => "refresh",
    }
}

const PUSHES: usize = 6;

fn publication(offset: u64) -> Arc<Publication> {
    let content = Content { data: "1".into(), tags: [("k".to_owned(), "v".to_owned())].into(), ..Content::default() };
    Arc::new(Publication::encode(
        "c",
        &content,
        Some(LogPosition { offset: Offset(offset), epoch: "abcdefgh", time_ms: 5 }),
    ))
}

/// A subscribe result with all its fields.
fn subscribed(publications: &[Arc<Publication>]) -> SubscribeResult<'_> {
    SubscribeResult {
        ttl_s: Some(60),
        recoverable: true,
        positioned: true,
        epoch: "abcdefgh",
        offset: 2,
        recovered: true,
        was_recovering: true,
        delta: true,
        data: Some(b"7"),
        missed: Recovered { publications, is_delta: false },
    }
}

/// The JSON of its two publications, and of the whole result.
fn said_of_subscription() -> (Value, Value) {
    let pubs = json!([
        {"data": 1, "tags": {"k": "v"}, "offset": 1, "time": 5, "epoch": "abcdefgh"},
        {"data": 1, "tags": {"k": "v"}, "offset": 2, "time": 5},
    ]);
    let result = json!({
        "expires": true, "ttl": 60, "recoverable": true, "epoch": "abcdefgh", "publications": pubs,
        "recovered": true, "offset": 2, "positioned": true, "data": 7, "was_recovering": true, "delta": true,
    });
    (pubs, result)
}

#[test]
fn every_kind_of_reply_says_all_in_both_forms() {
    let publications = [publication(1), publication(2)];
    let connect = ConnectResult {
        client: "id",
        version: "1",
        ttl_s: Some(60),
        data: Some(b"8"),
        subs: &[],
        ping_s: 25,
        pong: true,
        session: "s",
        node: "n",
        time_ms: 7,
    };
    let presence = br#"{"presence":{"id":{"user":"u","client":"id","conn_info":1,"chan_info":{"x":2}}}}"#;
    let (pubs, result) = said_of_subscription();
    let connected = json!({
        "client": "id", "version": "1", "expires": true, "ttl": 60, "data": 8, "ping": 25, "pong": true,
        "session": "s", "node": "n", "time": 7,
    });
    let cases: [(Reply<'_>, Value); REPLIES] = [
        (Reply::Error(Error::NAME_TAKEN), json!({"code": 4001, "message": "name taken", "temporary": true})),
        (
            Reply::Refusal { code: 450, message: "no \"room\"", temporary: true },
            json!({"code": 450, "message": "no \"room\"", "temporary": true}),
        ),
        (Reply::Connect(connect), connected),
        (Reply::Subscribe(subscribed(&publications)), result),
        (Reply::Unsubscribe, json!({})),
        (Reply::Publish, json!({})),
        (Reply::Presence(presence), serde_json::from_slice(presence).expect("JSON")),
        (Reply::PresenceStats(br#"{"num_clients":3,"num_users":2}"#), json!({"num_clients": 3, "num_users": 2})),
        (
            Reply::History { publications: &publications, epoch: "abcdefgh", offset: 2 },
            json!({"publications": pubs, "epoch": "abcdefgh", "offset": 2}),
        ),
        (Reply::Rpc(br#"{"x":1}"#), json!({"data": {"x": 1}})),
        (
            Reply::Refresh { client: "id", version: "1", ttl_s: Some(60) },
            json!({"client": "id", "version": "1", "expires": true, "ttl": 60}),
        ),
        (Reply::SubRefresh { ttl_s: Some(60) }, json!({"expires": true, "ttl": 60})),
    ];
    let mut variants = HashSet::new();
    for (index, (reply, said)) in cases.into_iter().enumerate() {
        let (id, kind) = (index as u32 + 1, kind_of_reply(&reply));
        let (ours, theirs) = both(|messages| messages.reply(id, &reply));
        let expected = json!({"id": id, kind: said});
        assert_eq!(ours, expected, "JSON of {kind}");
        assert_eq!(theirs, expected, "Protobuf of {kind}");
        assert!(variants.insert(discriminant(&reply)), "{kind} is there twice");
    }
}

#[test]
fn subscriptions_within_a_connect_reply_say_all_in_both_forms() {
    let publications = [publication(1), publication(2)];
    let (_, result) = said_of_subscription();
    // These results are written separately before.
    let (ours, theirs) = both(|messages| {
        let subs = [
            ("a".to_owned(), messages.result(&subscribed(&publications))),
            ("b".to_owned(), messages.result(&SubscribeResult::default())),
        ];
        messages.reply(1, &Reply::Connect(ConnectResult { client: "id", subs: &subs, ..ConnectResult::default() }));
    });
    let expected = json!({"id": 1, "connect": {"client": "id", "subs": {"a": result, "b": {}}}});
    assert_eq!((ours, theirs), (expected.clone(), expected));
}

#[test]
fn who_only_listens_is_told_of_the_connection_by_a_push() {
    let mut bare = Messages::default();
    bare.encode_as(Encoding::Push);
    bare.reply(1, &Reply::Connect(ConnectResult { client: "id", version: "1", ..ConnectResult::default() }));
    assert_eq!(
        serde_json::from_slice::<Value>(bare.bytes()).expect("JSON"),
        json!({"connect": {"client": "id", "version": "1"}})
    );
}

#[test]
fn every_kind_of_push_says_all_in_both_forms() {
    let one = publication(1);
    let subscribed = SubscribeResult {
        recoverable: true,
        positioned: true,
        epoch: "abcdefgh",
        offset: 2,
        data: Some(b"7"),
        ..SubscribeResult::default()
    };
    let cases: [(Push<'_>, Value); PUSHES] = [
        (Push::Publication(&one), json!({"data": 1, "tags": {"k": "v"}, "offset": 1, "time": 5, "epoch": "abcdefgh"})),
        (Push::Unsubscribe(Unsubscribe::EXPIRED), json!({"code": 2501, "reason": "subscription expired"})),
        (Push::Message(b"[1]"), json!({"data": [1]})),
        (
            Push::Subscribe(subscribed),
            json!({"recoverable": true, "positioned": true, "epoch": "abcdefgh", "offset": 2, "data": 7}),
        ),
        (Push::Disconnect(&Disconnect::SLOW), json!({"code": 3008, "reason": "slow", "reconnect": true})),
        (Push::Refresh { ttl_s: 9 }, json!({"expires": true, "ttl": 9})),
    ];
    let mut kinds = Vec::new();
    for (push, said) in cases {
        let kind = kind_of_push(&push);
        let (ours, theirs) = both(|messages| messages.push("c", &push));
        let expected = json!({"push": {"channel": "c", kind: said}});
        assert_eq!(ours, expected, "JSON of {kind}");
        assert_eq!(theirs, expected, "Protobuf of {kind}");
        let mut bare = Messages::default();
        bare.encode_as(Encoding::Push);
        bare.push("c", &push);
        assert_eq!(
            serde_json::from_slice::<Value>(bare.bytes()).expect("JSON"),
            expected["push"],
            "{kind} for one who only listens"
        );
        kinds.push(kind);
    }
    kinds.dedup();
    assert_eq!(kinds.len(), PUSHES, "each kind once: {kinds:?}");
}

#[test]
fn messages_stand_one_behind_the_other() {
    for body in [Encoding::Json, Encoding::Protobuf, Encoding::Push] {
        let mut messages = Messages::default();
        messages.encode_as(body);
        assert!(messages.is_empty());
        messages.push("c", &Push::Refresh { ttl_s: 1 });
        assert!(!messages.is_empty());
        let one = messages.bytes().to_vec();
        messages.push("c", &Push::Refresh { ttl_s: 1 });
        let between: &[u8] = if body == Encoding::Protobuf { b"" } else { b"\n" };
        assert_eq!(messages.bytes(), [&one, between, &one].concat(), "{body:?}");
        messages.clear();
        assert!(messages.is_empty() && messages.encoding() == body);
        messages.reply(1, &Reply::Publish);
        assert_eq!(messages.is_empty(), body == Encoding::Push, "who only listens has sent no command");
    }
}
