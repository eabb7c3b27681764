//! Tests of commands read from JSON.

use std::borrow::Cow;

use super::{ChannelCommand, Command, CommandKind, Commands};
use crate::encoding::Encoding;
use crate::stream::Offset;

#[test]
fn several_commands_share_a_frame() {
    let text = "{\"id\":1,\"connect\":{\"token\":null}}\n{\"id\":2,\"subscribe\":{\"channel\":\"a\",\"offset\":7}}\n";
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
    let nested =
        [r#"{"id":1,"history":{"channel":"a","since":[1,"x"]}}"#, r#"{"id":1,"connect":{"subs":{"a":["a"]}}}"#, "[1]"];
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
