//! Presence: the clients in a channel, what others see of them, and join and leave events.

use std::sync::Arc;

use bytes::Bytes;
use touchline_engine::directory::{DirectoryRequest, client_text};
use touchline_protocol::ClientInfo;

use crate::world::{World, devices, owner};

/// A client enters the room: `c1` is user `u1`.
fn enter(client: u32, is_shown: bool, is_announced: bool) -> DirectoryRequest {
    enter_with(client, Some("5"), is_shown, is_announced)
}

fn enter_with(client: u32, conn_info: Option<&str>, is_shown: bool, is_announced: bool) -> DirectoryRequest {
    let info = ClientInfo {
        user: format!("u{client}").into(),
        client: client_text(owner(client)).into(),
        conn_info: conn_info.map(|info| Bytes::copy_from_slice(info.as_bytes())),
        chan_info: Some(Bytes::from_static(b"[6]")),
    };
    DirectoryRequest::Enter { channel: "room".into(), info: Arc::new(info), is_shown, is_announced }
}

fn info(client: u32) -> String {
    format!(r#"{{"user":"u{client}","client":"c{client}","conn_info":5,"chan_info":[6]}}"#)
}

fn announced(node: &str, kind: &str, info: &str) -> String {
    format!(r#"{node} announces in room: {{"push":{{"channel":"room","{kind}":{{"info":{info}}}}}}}"#)
}

fn presence(world: &mut World, node: &str, limit: usize) -> String {
    world.order(node, 9, DirectoryRequest::Presence { channel: "room".into(), limit }).remove(0)
}

fn stats(world: &mut World, node: &str) -> String {
    world.order(node, 9, DirectoryRequest::PresenceStats { channel: "room".into() }).remove(0)
}

#[test]
fn a_client_is_shown_and_announced_on_each_node_as_its_options_say() {
    let mut world = World::cluster(&["a", "b"], devices());
    assert_eq!(presence(&mut world, "a", 10), r#"a answers 9: {"presence":{}}"#);
    assert_eq!(stats(&mut world, "a"), r#"a answers 9: {"num_clients":0,"num_users":0}"#);
    let come = |world: &mut World, client, is_shown, is_announced| {
        world.order("a", client, enter(client, is_shown, is_announced))
    };
    assert_eq!(
        come(&mut world, 1, true, true),
        [announced("a", "join", &info(1)), "a answers 1: {}".into(), announced("b", "join", &info(1))]
    );
    assert_eq!(come(&mut world, 2, true, false), ["a answers 2: {}"]);
    assert_eq!(come(&mut world, 3, false, true)[..1], [announced("a", "join", &info(3))]);
    assert_eq!(come(&mut world, 4, false, false), ["a answers 4: {}"]);
    for node in ["a", "b"] {
        let (one, two) = (format!(r#""c1":{}"#, info(1)), format!(r#""c2":{}"#, info(2)));
        let shown = presence(&mut world, node, 10);
        let either = [format!("{one},{two}"), format!("{two},{one}")]
            .map(|shown| format!(r#"{node} answers 9: {{"presence":{{{shown}}}}}"#));
        assert!(either.contains(&shown), "{shown}");
        assert_eq!(stats(&mut world, node), format!(r#"{node} answers 9: {{"num_clients":2,"num_users":2}}"#));
    }
    // A member that changes does not join again.
    assert_eq!(world.order("a", 1, enter_with(1, Some("7"), true, true)), ["a answers 1: {}"]);
    let exit = || DirectoryRequest::Exit { channel: "room".into() };
    let changed = info(1).replace(":5,", ":7,");
    let left = [announced("a", "leave", &changed), "a answers 1: {}".into(), announced("b", "leave", &changed)];
    assert_eq!(world.order("a", 1, exit()), left);
    assert_eq!(world.order("a", 1, exit()), ["a answers 1: {}"], "it is not there");
    assert_eq!(world.order("a", 2, exit()), ["a answers 2: {}"]);
    assert_eq!(world.close("a", 3), [announced("a", "leave", &info(3)), announced("b", "leave", &info(3))]);
    assert_eq!(presence(&mut world, "b", 10), r#"b answers 9: {"presence":{}}"#);
}

#[test]
fn one_user_with_many_connections_is_one_until_the_last_has_left() {
    let mut world = World::alone(devices());
    for client in [1, 2] {
        let info = ClientInfo {
            user: "ann".into(),
            client: client_text(owner(client)).into(),
            conn_info: None,
            chan_info: None,
        };
        world.order(
            "a",
            client,
            DirectoryRequest::Enter {
                channel: "room".into(),
                info: Arc::new(info),
                is_shown: true,
                is_announced: false,
            },
        );
    }
    assert_eq!(stats(&mut world, "a"), r#"a answers 9: {"num_clients":2,"num_users":1}"#);
    world.close("a", 1);
    assert_eq!(stats(&mut world, "a"), r#"a answers 9: {"num_clients":1,"num_users":1}"#);
    assert_eq!(presence(&mut world, "a", 1), r#"a answers 9: {"presence":{"c2":{"user":"ann","client":"c2"}}}"#);
    world.close("a", 2);
    assert_eq!(stats(&mut world, "a"), r#"a answers 9: {"num_clients":0,"num_users":0}"#);
}

#[test]
fn a_list_that_is_cut_says_how_many_there_are() {
    let mut world = World::alone(devices());
    (1..=3).for_each(|client| drop(world.order("a", client, enter(client, true, false))));
    // A client that is not shown does not count in the list.
    world.order("a", 4, enter(4, false, false));
    let cut = presence(&mut world, "a", 2);
    assert!(cut.ends_with(r#"},"sample":true,"num_clients":3}"#) && cut.matches("chan_info").count() == 2, "{cut}");
    let none = presence(&mut world, "a", 0);
    assert_eq!(none, r#"a answers 9: {"presence":{},"sample":true,"num_clients":3}"#);
    let whole = presence(&mut world, "a", 3);
    assert!(whole.ends_with("}}}") && !whole.contains("sample") && whole.matches("chan_info").count() == 3, "{whole}");
}

#[test]
fn what_is_too_large_for_other_nodes_is_left_out_and_the_client_is_there_all_the_same() {
    // The bytes of what others see of the client, with its prefix and the name of the channel.
    let whole = r#"{"user":"u1","client":"01010101-0101-0101-0101-010101010101","conn_info":5,"chan_info":[6]}"#.len()
        + 1
        + 4
        + 2
        + 4;
    for (most, is_whole) in [(512 + whole, true), (512 + whole - 1, false)] {
        let mut world = World::cluster(&["a", "b"], devices());
        world.node("a").set_message_max(most);
        let kept = if is_whole { info(1) } else { r#"{"user":"u1","client":"c1"}"#.into() };
        assert_eq!(world.order("a", 1, enter(1, true, true))[0], announced("a", "join", &kept));
        assert_eq!(presence(&mut world, "b", 10), format!(r#"b answers 9: {{"presence":{{"c1":{kept}}}}}"#));
    }
}

#[test]
fn members_of_a_node_that_is_dead_leave() {
    let mut world = World::cluster(&["a", "b"], devices());
    world.order("b", 1, enter(1, true, true));
    world.order("b", 2, enter(2, true, false));
    assert_eq!(stats(&mut world, "a"), r#"a answers 9: {"num_clients":2,"num_users":2}"#);
    let now_ms = world.now_ms;
    world.cut_off("b");
    world.node("a").gone("b", now_ms);
    assert_eq!(world.settle(), [announced("a", "leave", &info(1))]);
    assert_eq!(stats(&mut world, "a"), r#"a answers 9: {"num_clients":0,"num_users":0}"#);
}
