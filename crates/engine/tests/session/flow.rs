//! How many commands are under way at once, what waits, and what is too much.

use touchline_engine::session::{Room, TransportMode};

use crate::story::{Settings, Story, with_history};
use crate::tokens::calm;

fn node(settings: &mut Settings) {
    calm(settings);
    settings.client.commands_in_flight_max = 3;
    settings.namespace("log", |options| {
        with_history(options);
        (options.allow_publish_for_client, options.allow_history_for_client, options.allow_subscribe_for_client) =
            (true, true, true);
    });
    settings.scope("devices", |options| options.allow_call_for_client = true);
}

/// A story with ann connected, whose requests are answered when the story decides.
fn slow() -> Story {
    let mut story = Story::with(node);
    story.connect("bob", "{'names':[{'scope':'devices','name':'bob'}]}");
    story.connect("ann", "{'sub':'ann'}");
    story.is_slow = true;
    story
}

fn publish(id: u32) -> String {
    format!(r#"{{"id":{id},"publish":{{"channel":"log:a","data":{id}}}}}"#)
}

fn answered(story: &mut Story) -> Vec<u64> {
    let id = |received: &String| serde_json::from_str::<serde_json::Value>(received).expect("JSON")["id"].as_u64();
    story.received("ann").iter().filter_map(id).collect()
}

#[test]
fn so_many_commands_are_under_way_and_the_others_wait() {
    let mut story = slow();
    story.say("ann", &(2..=7).map(publish).collect::<Vec<_>>().join("\n"));
    assert_eq!(story.requests.len(), 3, "three are under way");
    assert!(story.session("ann").is_deferring() && story.session("ann").is_busy(&story.node.client));
    assert!(story.session("ann").buffered_bytes() >= publish(5).len() * 3);
    // Commands that arrive while others wait also wait.
    story.say("ann", &publish(8));
    assert_eq!(story.requests.len(), 3);
    story.arrive();
    assert_eq!((answered(&mut story), story.requests.len()), (vec![2], 4), "with each answer the next one goes");
    assert!(story.session("ann").is_awaiting());
    while story.under_way() > 0 {
        story.arrive();
    }
    assert_eq!(answered(&mut story), [3, 4, 5, 6, 7, 8]);
    let session = story.session("ann");
    assert!(!session.is_deferring() && !session.is_busy(&story.node.client) && !session.is_awaiting());
    assert_eq!(session.buffered_bytes(), 0);
    let published: Vec<_> = story
        .requests
        .iter()
        .map(|(_, request)| request.split("data: b\"").nth(1).map(|data| data[..1].to_owned()))
        .collect();
    assert_eq!(published, ["2", "3", "4", "5", "6", "7", "8"].map(|data| Some(data.to_owned())), "in their order");
}

#[test]
fn what_may_have_a_large_answer_goes_alone() {
    let history = r#"{"id":3,"history":{"channel":"log:a","limit":1}}"#;
    let recover = r#"{"id":3,"subscribe":{"channel":"log:a","recover":true}}"#;
    for large in [history, recover] {
        let mut story = slow();
        story.say("ann", &[&publish(2), large, &publish(4), &publish(5)].join("\n"));
        assert_eq!(story.requests.len(), 2, "nothing behind it goes before its answer: {large}");
        assert!(story.session("ann").is_busy(&story.node.client));
        story.arrive();
        assert_eq!(story.requests.len(), 2, "the answer to another one changes nothing");
        story.arrive();
        assert_eq!(story.requests.len(), 4);
        story.is_slow = false;
        story.decide("ann", |_, _| ());
        assert_eq!(answered(&mut story), [2, 3, 4, 5]);
    }
    // A command with a small reply does not wait.
    for small in [r#"{"id":3,"history":{"channel":"log:a"}}"#, r#"{"id":3,"subscribe":{"channel":"log:a"}}"#] {
        let mut story = slow();
        story.say("ann", &[&publish(2), small, &publish(4)].join("\n"));
        assert_eq!(story.requests.len(), 3, "{small}");
    }
}

#[test]
fn a_call_holds_nothing_up() {
    let call = |id: u32| {
        format!(
            r#"{{"id":{id},"rpc":{{"method":"registry.call","data":{{"scope":"devices","name":"bob","data":1}}}}}}"#
        )
    };
    let mut story = slow();
    story.say("ann", &(2..=9).map(call).chain([publish(10)]).collect::<Vec<_>>().join("\n"));
    assert_eq!(story.received("bob").len(), 8, "calls have a limit of their own");
    assert!(story.session("ann").is_awaiting(), "the publish is not answered yet");
    story.arrive();
    assert_eq!(answered(&mut story), [10]);
    assert!(!story.session("ann").is_awaiting());
}

#[test]
fn commands_wait_for_room_in_the_connection() {
    let mut story = slow();
    story.is_slow = false;
    story.room = Room { bytes: 0, is_scarce: false };
    story.say("ann", &[publish(2), publish(3)].join("\n"));
    assert_eq!(answered(&mut story), [] as [u64; 0]);
    // A reply that begins below the limit may end above it; the next one may not begin.
    story.room = Room { bytes: 1, is_scarce: false };
    story.decide("ann", |_, _| ());
    assert_eq!(answered(&mut story), [2, 3], "each has its own room");
    // Commands that arrive when there is room again wait for those that are already waiting.
    story.room = Room { bytes: 0, is_scarce: false };
    story.say("ann", &publish(8));
    story.room = Room::ANY;
    story.say("ann", &publish(9));
    assert_eq!(answered(&mut story), [8, 9]);
    let refused = |id: u32| format!(r#"{{"id":{id},"rpc":{{"method":"nothing"}}}}"#);
    story.room = Room { bytes: 1, is_scarce: false };
    let count = story
        .decide("ann", |session, context| session.receive([refused(4), refused(5)].join("\n").as_bytes(), context));
    assert_eq!(count, 1, "the first one has filled the room");
    assert_eq!(answered(&mut story), [4, 5]);
}

#[test]
fn what_is_sent_ahead_of_the_connect_waits_for_it() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.deferred_max = 100;
    });
    story.is_slow = true;
    story.say("ann", r#"{"id":1,"connect":{"token":"{'sub':'ann','channels':['room:a']}"}}"#);
    let before = publish(2);
    story.say("ann", &before);
    assert_eq!(story.requests.len(), 1, "the publish waits");
    story.arrive();
    assert_eq!(story.requests.len(), 2);
    story.arrive();
    assert_eq!(answered(&mut story), [1, 2]);
    // Exactly this many bytes may wait; line ends do not count.
    for (more, is_ended) in [(0, false), (1, true)] {
        let mut story = Story::with(|settings| {
            node(settings);
            settings.deferred_max = before.len() * 2 + 1;
        });
        story.is_slow = true;
        story.say("ann", r#"{"id":1,"connect":{"token":"{'sub':'ann','channels':['room:a']}"}}"#);
        story.say("ann", &before);
        story.say("ann", &format!("{before}{}", " ".repeat(more)));
        let expected = if is_ended { "disconnect 3013 too many requests" } else { "" };
        assert_eq!(story.received("ann").join(""), expected);
    }
}

#[test]
fn control_frames_before_the_connect_are_counted() {
    let mut story = Story::with(node);
    story.open("ann", TransportMode::Duplex);
    for n in 1..=20 {
        let allows = story.decide("ann", |session, _| session.allows_control_frame());
        assert_eq!(allows, n <= 16, "frame {n}");
    }
    assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0);
    for _ in 0..300 {
        assert!(story.decide("ann", |session, _| session.allows_control_frame()), "who has connected may send them");
    }
}

#[test]
fn what_waits_for_a_connect_may_be_so_much() {
    let frame = || bytes::Bytes::from_static(b"{\"push\":{}}");
    let size = frame().len() + touchline_engine::session::ENTRY_SIZE;
    for (most, is_ended) in [(size * 2, false), (size * 2 - 1, true)] {
        let mut story = Story::with(node);
        story.open("ann", TransportMode::Duplex);
        assert!(
            story.decide("ann", |session, _| session.hold(frame(), most)).is_some(),
            "before its connect nothing is held"
        );
        story.is_slow = true;
        story.say("ann", r#"{"id":1,"connect":{"token":"{'channels':['room:a']}"}}"#);
        for _ in 0..2 {
            assert!(story.decide("ann", |session, _| session.hold(frame(), most)).is_none());
        }
        let held = story.session("ann").buffered_bytes();
        assert_eq!(held, size * 2);
        story.say("ann", "{\"id\":2,\"rpc\":{}}");
        assert!(story.session("ann").buffered_bytes() > held, "commands that wait count too");
        story.is_slow = false;
        story.decide("ann", |_, _| ());
        let received = story.received("ann");
        match is_ended {
            true => assert_eq!(received, ["disconnect 3008 slow"]),
            false => {
                assert!(received[0].starts_with(r#"{"id":1,"connect":"#), "{received:?}");
                assert_eq!(received[1..3], ["{\"push\":{}}", "{\"push\":{}}"], "behind the reply");
                assert!(
                    received[3].starts_with(r#"{"id":2,"error":"#),
                    "before the answers to what was sent ahead: {received:?}"
                );
            }
        }
    }
}

#[test]
fn what_is_carried_out_is_counted() {
    let receive = |story: &mut Story, text: &str| {
        story.decide("ann", |session, context| session.receive(text.as_bytes(), context))
    };
    let mut story = Story::with(node);
    story.open("ann", TransportMode::Duplex);
    assert_eq!(receive(&mut story, r#"{"id":1,"connect":{"token":"{'sub':'ann'}"}}"#), 1);
    story.is_slow = true;
    let four = (2..=5).map(publish).collect::<Vec<_>>().join("\n");
    assert_eq!(receive(&mut story, &four), 3, "the fourth waits");
    assert_eq!(receive(&mut story, &publish(6)), 0, "so does what comes behind it");
    story.is_slow = false;
    story.decide("ann", |_, _| ());
    assert_eq!(answered(&mut story), [1, 2, 3, 4, 5, 6]);
    assert_eq!(receive(&mut story, &[&publish(7), "x", &publish(8)].join("\n")), 2, "what is no command counts");
    story.play("ann< disconnect 3501 bad request");
    assert_eq!(story.decide("ann", |session, context| session.resume(context)), 0, "it is over");
    story.open("bob", TransportMode::OneWay);
    assert_eq!(story.decide("bob", |session, context| session.receive(b"{}", context)), 1);
    story.received("bob");
}

#[test]
fn commands_in_protobuf_wait_as_they_came() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.client.commands_in_flight_max = 1;
    });
    story.open("ann", TransportMode::Duplex);
    story.in_protobuf("ann");
    let receive =
        |story: &mut Story, bytes: &[u8]| story.decide("ann", |session, context| session.receive(bytes, context));
    // Command 1: connect, with `{'sub':'a'}` as its token.
    let connect = b"\x11\x08\x01\x22\x0d\x0a\x0b{'sub':'a'}";
    assert_eq!(receive(&mut story, connect), 1);
    assert_eq!(story.received("ann"), ["Protobuf"]);
    // Publishes `1` into `log:a`. The number of the command is that of a line break.
    let publish = b"\x0e\x08\x0a\x3a\x0a\x0a\x05log:a\x12\x011";
    story.is_slow = true;
    assert_eq!(receive(&mut story, &publish.repeat(3)), 1);
    assert_eq!(receive(&mut story, publish), 0);
    for answered in 1..=4 {
        assert_eq!(story.requests.len(), answered);
        story.arrive();
        assert_eq!(story.received("ann"), ["Protobuf"]);
    }
    assert!(!story.session("ann").is_deferring());
    // The rest of a message is a command whatever its form.
    assert_eq!(receive(&mut story, &[&publish[..], b"\x0a"].concat()), 1);
    assert!(story.session("ann").is_deferring());
    story.is_slow = false;
    story.decide("ann", |_, _| ());
    assert_eq!(story.received("ann"), ["Protobuf", "disconnect 3501 bad request"]);
}

#[test]
fn the_end_of_a_line_is_no_command_that_waits() {
    let mut story = slow();
    story.say("ann", &[publish(2), publish(3), format!("{}\r\n", publish(4))].join("\n"));
    assert_eq!(story.requests.len(), 3);
    assert!(story.session("ann").is_busy(&story.node.client) && !story.session("ann").is_deferring());
    story.say("ann", " \n");
    assert!(!story.session("ann").is_deferring());
}

#[test]
fn what_is_sent_ahead_of_a_connect_that_is_refused_is_not_carried_out() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.scopes[0].conflict_policy = touchline_engine::directory::ConflictPolicy::Reject;
    });
    story.connect("bob", "{'names':[{'scope':'devices','name':'bike'}]}");
    story.is_slow = true;
    story.say("ann", r#"{"id":1,"connect":{"token":"{'sub':'ann','names':[{'scope':'devices','name':'bike'}]}"}}"#);
    story.say("ann", &publish(2));
    assert!(story.session("ann").is_deferring());
    story.arrive();
    story.play("ann< {\"id\":1,\"error\":{\"code\":4001,\"message\":\"name taken\",\"temporary\":true}}");
    assert_eq!(story.decide("ann", |session, context| session.resume(context)), 0, "there would be room");
}
