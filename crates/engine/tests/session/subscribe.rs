//! Subscriptions that clients request: how they begin, their replies, and how they end.

use std::sync::Arc;

use touchline_engine::Response;
use touchline_engine::session::Room;
use touchline_protocol::publication::Content;
use touchline_protocol::{ClientInfo, Error};

use crate::story::{Settings, Story, with_history};
use crate::tokens::calm;

fn node(settings: &mut Settings) {
    calm(settings);
    settings.namespace("log", |options| {
        with_history(options);
        (options.allow_subscribe_for_client, options.allow_history_for_client, options.allow_publish_for_client) =
            (true, true, true);
        (options.allow_recovery, options.allow_positioning, options.allow_tags_filter) = (true, true, true);
        options.allowed_delta_types = vec!["fossil".into()];
    });
    settings.namespace("open", |options| {
        (options.allow_subscribe_for_client, options.allow_publish_for_client) = (true, true)
    });
}

fn ann() -> Story {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann'}");
    story
}

#[test]
fn a_request_that_cannot_be_is_refused() {
    let long = "x".repeat(255);
    let cases = [
        (r#""subscribe":{"channel":""}"#.to_owned(), 3501),
        (r#""subscribe":{"channel":"open:a","delta":"other"}"#.to_owned(), 3501),
        (r#""subscribe":{"channel":"open:a","delta":"fossil"}"#.to_owned(), 0),
        (r#""subscribe":{"channel":"open:a","type":1}"#.to_owned(), 108),
        (r#""subscribe":{"channel":"nothing:a"}"#.to_owned(), 102),
        (r#""subscribe":{"channel":"open:\u0007"}"#.to_owned(), 107),
        (format!(r#""subscribe":{{"channel":"open:{}"}}"#, &long[..250]), 0),
        (format!(r#""subscribe":{{"channel":"open:{}"}}"#, &long[..251]), 107),
        (r#""subscribe":{"channel":"open:a","tf":{"key":"k","cmp":"ex"}}"#.to_owned(), 107),
        (r#""subscribe":{"channel":"log:a","tf":{"key":"k","cmp":"ex"}}"#.to_owned(), 0),
        (r#""subscribe":{"channel":"log:a","tf":{"key":"k","cmp":"like"}}"#.to_owned(), 107),
        (r#""subscribe":{"channel":"log:a","tf":{"key":"k","cmp":"ex"},"delta":"fossil"}"#.to_owned(), 107),
        (r#""unsubscribe":{"channel":""}"#.to_owned(), 3501),
        (r#""unsubscribe":{"channel":"nothing:a"}"#.to_owned(), 0),
        (r#""publish":{"channel":"","data":1}"#.to_owned(), 3501),
        (r#""publish":{"channel":"open:a"}"#.to_owned(), 107),
        (r#""publish":{"channel":"open:a","data":null}"#.to_owned(), 107),
        (r#""publish":{"channel":"open:a","data":1,"type":1}"#.to_owned(), 108),
        (r#""publish":{"channel":"open:a","data":1,"key":"x"}"#.to_owned(), 108),
        (r#""publish":{"channel":"nothing:a","data":1}"#.to_owned(), 102),
        (format!(r#""publish":{{"channel":"open:a","data":{}{}}}"#, "[".repeat(128), "]".repeat(128)), 0),
        (format!(r#""publish":{{"channel":"open:a","data":{}{}}}"#, "[".repeat(129), "]".repeat(129)), 107),
        (r#""history":{"channel":""}"#.to_owned(), 3501),
        (r#""history":{"channel":"open:a"}"#.to_owned(), 108),
        (r#""history":{"channel":"nothing:a"}"#.to_owned(), 102),
        (r#""presence":{"channel":""}"#.to_owned(), 3501),
        (r#""presence":{"channel":"open:a"}"#.to_owned(), 108),
        (r#""presence":{"channel":"nothing:a"}"#.to_owned(), 102),
        (r#""presence_stats":{"channel":"open:a"}"#.to_owned(), 108),
    ];
    for (request, expected) in cases {
        assert_eq!(ann().code("ann", &format!("{{\"id\":2,{request}}}")), expected, "{request:.90}");
    }
}

#[test]
fn a_client_has_so_many_channels_and_each_of_them_once() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.client.channel_limit = 3;
    });
    story.connect("ann", "{'sub':'ann','channels':['room:a']}");
    for (channel, expected) in [("room:a", 105), ("open:a", 0), ("open:a", 105), ("open:b", 0), ("open:c", 106)] {
        assert_eq!(
            story.code("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#)),
            expected,
            "{channel}"
        );
    }
    story.play("ann> {\"id\":3,\"unsubscribe\":{\"channel\":\"open:a\"}}\nann< {\"id\":3,\"unsubscribe\":{}}");
    assert_eq!(story.code("ann", r#"{"id":4,"subscribe":{"channel":"open:c"}}"#), 0);
    story.publish("open:a", "1");
    story.publish("open:b", "2");
    story.play(r#"ann< {"push":{"channel":"open:b","pub":{"data":2}}}"#);
}

#[test]
fn what_was_missed_comes_with_the_subscription() {
    let mut story = ann();
    (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
    story.play(
        r#"
        ann> {"id":2,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":1}}
        ann< {"id":2,"subscribe":{"recoverable":true,"epoch":"epoch-1",\
            "publications":[{"data":2,"offset":2,"time":1000000000000},{"data":3,"offset":3,"time":1000000000000}],\
            "recovered":true,"offset":1,"positioned":true,"was_recovering":true}}
        ann> {"id":3,"unsubscribe":{"channel":"log:a"}}
        ann< {"id":3,"unsubscribe":{}}
        ann> {"id":4,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":3,"epoch":"epoch-1"}}
        ann< {"id":4,"subscribe":{"recoverable":true,"epoch":"epoch-1","recovered":true,"offset":3,"positioned":true,\
            "was_recovering":true}}
        ann> {"id":5,"unsubscribe":{"channel":"log:a"}}
        ann< {"id":5,"unsubscribe":{}}
        ann> {"id":6,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":3,"epoch":"other"}}
        ann< {"id":6,"subscribe":{"recoverable":true,"epoch":"epoch-1","offset":3,"positioned":true,\
            "was_recovering":true}}
        ann> {"id":7,"unsubscribe":{"channel":"log:a"}}
        ann< {"id":7,"unsubscribe":{}}
        ann> {"id":8,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":3,"epoch":"other",\
            "flag":2}}
        ann< {"id":8,"error":{"code":112,"message":"unrecoverable position"}}
        ann> {"id":9,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":3,"flag":3}}
        ann< {"id":9,"subscribe":{"recoverable":true,"epoch":"epoch-1","recovered":true,"offset":3,"positioned":true,\
            "was_recovering":true}}
        ann> {"id":10,"unsubscribe":{"channel":"log:a"}}
        ann< {"id":10,"unsubscribe":{}}
        ann> {"id":11,"subscribe":{"channel":"log:a","recover":true,"positioned":true,"offset":1}}
        ann< {"id":11,"subscribe":{"epoch":"epoch-1","offset":3,"positioned":true}}
        "#,
    );
}

/// A connect with a token that subscribes to these channels, and recovers them from offset 1.
fn recovering_connect(channels: &[&str]) -> String {
    let token =
        channels.iter().map(|channel| format!("'{channel}':{{'override':{{'force_recovery':{{'value':true}}}}}}"));
    let subs = channels.iter().map(|channel| format!(r#""{channel}":{{"recover":true,"offset":1}}"#));
    let (token, subs) = (token.collect::<Vec<_>>().join(","), subs.collect::<Vec<_>>().join(","));
    format!(r#"{{"id":1,"connect":{{"token":"{{'subs':{{{token}}}}}","subs":{{{subs}}}}}}}"#)
}

#[test]
fn a_recovery_has_its_limits() {
    // This many publications, or this many bytes of them, and no more.
    for (publications, bytes, is_recovered) in [(2, 10_000, true), (1, 10_000, false), (2, 100, false)] {
        let mut story = Story::with(|settings| {
            node(settings);
            (settings.client.recovery_max_publication_limit, settings.client.answer_max_size) = (publications, bytes);
        });
        story.connect("ann", "{'sub':'ann'}");
        (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
        story.say("ann", r#"{"id":2,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":1}}"#);
        let received = story.received("ann").join("");
        assert_eq!(received.contains(r#""recovered":true"#), is_recovered, "{publications} {bytes}: {received}");
        // The subscriptions in one connect reply share the byte limit.
        story.say("bob", &recovering_connect(&["log:a"]));
        let received = story.received("bob").join("");
        assert_eq!(received.contains(r#""recovered":true"#), is_recovered, "{publications} {bytes}: {received}");
    }
    let mut story = Story::with(|settings| {
        node(settings);
        settings.client.answer_max_size = 300;
    });
    (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
    (1..=3).for_each(|n| story.publish("log:b", &n.to_string()));
    story.say("ann", &recovering_connect(&["log:a", "log:b"]));
    let received = story.received("ann").join("");
    assert_eq!(received.matches(r#""recovered":true"#).count(), 1, "the second has no room: {received}");
    assert_eq!(received.matches(r#""was_recovering":true"#).count(), 2);
}

#[test]
fn changes_begin_with_what_the_client_has() {
    let state = |n: u32| format!(r#"{{"teams":["Roma","Lazio"],"stadium":"Olimpico","goals":{n}}}"#);
    let mut story = ann();
    (1..=2).for_each(|n| story.publish("log:a", &state(n)));
    let is_change = |story: &mut Story| {
        let received = story.received("ann");
        assert_eq!(received.len(), 1, "{received:?}");
        assert!(received[0].contains(r#""data":""#), "the payload is text: {received:?}");
        received[0].contains(r#""delta":true"#)
    };
    story.say("ann", r#"{"id":2,"subscribe":{"channel":"log:a","delta":"fossil"}}"#);
    assert_eq!(story.received("ann").join(""), r#"{"id":2,"subscribe":{"delta":true}}"#);
    story.publish("log:a", &state(3));
    assert!(!is_change(&mut story), "the client has nothing to change");
    story.publish("log:a", &state(4));
    assert!(is_change(&mut story));
    story.play("ann> {\"id\":3,\"unsubscribe\":{\"channel\":\"log:a\"}}\nann< {\"id\":3,\"unsubscribe\":{}}");
    story.say(
        "ann",
        r#"{"id":4,"subscribe":{"channel":"log:a","delta":"fossil","recoverable":true,"recover":true,"offset":3}}"#,
    );
    let received = story.received("ann").join("");
    assert!(received.contains(r#""recovered":true"#) && received.contains(r#""delta":true}"#), "{received}");
    story.publish("log:a", &state(5));
    assert!(is_change(&mut story), "the client has the last one: it was recovered");
    // If the namespace does not allow deltas, publications are sent as they are.
    story.play(
        r#"
        ann> {"id":5,"subscribe":{"channel":"open:a","delta":"fossil"}}
        ann< {"id":5,"subscribe":{}}
        "#,
    );
}

#[test]
fn a_filter_holds_for_what_was_missed_and_for_what_comes() {
    let mut story = ann();
    let publish = |story: &mut Story, league: &str| {
        let tags = [("league".to_owned(), league.to_owned())].into();
        story.publish_content("log:a", Content { data: "1".into(), tags, ..Content::default() });
    };
    ["a", "b", "a"].iter().for_each(|league| publish(&mut story, league));
    story.play(
        r#"
        ann> {"id":2,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"tf":{"key":"league","cmp":"eq",\
            "val":"b"}}}
        ann< {"id":2,"subscribe":{"recoverable":true,"epoch":"epoch-1","publications":[{"data":1,"tags":{"league":"b"},\
            "offset":2,"time":1000000000000}],"recovered":true,"positioned":true,"was_recovering":true}}
        "#,
    );
    // If nothing is missing anywhere, recovery leads to the top.
    story.play(
        r#"
        bob> {"id":1,"connect":{"token":"{'sub':'bob'}"}}
        bob< {"id":1,"connect":{"client":"<bob>","version":"1.0","ping":100000,"pong":true}}
        bob> {"id":2,"subscribe":{"channel":"log:a","recoverable":true,"recover":true,"tf":{"key":"league","cmp":"eq",\
            "val":"z"}}}
        bob< {"id":2,"subscribe":{"recoverable":true,"epoch":"epoch-1","recovered":true,"offset":3,"positioned":true,\
            "was_recovering":true}}
        "#,
    );
    ["a", "b"].iter().for_each(|league| publish(&mut story, league));
    story.play(
        r#"ann< {"push":{"channel":"log:a","pub":{"data":1,"tags":{"league":"b"},"offset":5,"time":1000000000000}}}"#,
    );
}

#[test]
fn what_a_home_refuses_its_client_is_told() {
    for (answer, expected) in [
        (
            Response::Refused(Error::CLUSTER_UNREACHABLE),
            r#"{"id":2,"error":{"code":4009,"message":"cluster unreachable","temporary":true}}"#,
        ),
        (Response::Done, r#"{"id":2,"error":{"code":100,"message":"internal server error","temporary":true}}"#),
    ] {
        let mut story = ann();
        story.is_slow = true;
        story.say("ann", r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
        story.forge_answer(answer);
        story.arrive();
        story.play(&format!("ann< {expected}"));
        assert_eq!(story.session("ann").subscription_count(), 0);
    }
    let commands = [
        r#""publish":{"channel":"log:a","data":1}"#,
        r#""history":{"channel":"log:a"}"#,
        r#""presence":{"channel":"room:a"}"#,
    ];
    for command in commands {
        for (answer, code) in [(Response::Refused(Error::STORE_UNAVAILABLE), 4010), (Response::Done, 100)] {
            let mut story = ann();
            story.is_slow = true;
            story.say("ann", &format!("{{\"id\":2,{command}}}"));
            story.forge_answer(answer);
            story.arrive();
            let received = story.received("ann").join("");
            assert!(received.contains(&format!(r#""error":{{"code":{code},"#)), "{command}: {received}");
        }
    }
    // If a home refuses a subscription from a token, the connect ends.
    let mut story = Story::with(node);
    story.is_slow = true;
    story.say("ann", r#"{"id":1,"connect":{"token":"{'channels':['room:a']}"}}"#);
    story.forge_answer(Response::Refused(Error::INTERNAL));
    story.arrive();
    story.play("ann< disconnect 3004 internal server error");
}

#[test]
fn a_client_that_unsubscribes_before_the_reply_gets_nothing_of_the_channel() {
    let mut story = ann();
    story.is_slow = true;
    story.say("ann", r#"{"id":2,"subscribe":{"channel":"open:a"}}"#);
    story.say("ann", r#"{"id":3,"unsubscribe":{"channel":"open:a"}}"#);
    story.play("ann< {\"id\":3,\"unsubscribe\":{}}");
    story.say("ann", r#"{"id":4,"subscribe":{"channel":"open:a"}}"#);
    story.arrive();
    story.play("ann< {\"id\":2,\"subscribe\":{}}");
    story.publish("open:a", "1");
    story.is_slow = false;
    story.publish("open:a", "2");
    story.play(
        r#"
        ann< {"id":4,"subscribe":{}}
        ann< {"push":{"channel":"open:a","pub":{"data":1}}}
        ann< {"push":{"channel":"open:a","pub":{"data":2}}}
        "#,
    );
    assert_eq!(story.session("ann").subscription_count(), 1);
}

#[test]
fn a_publication_has_the_info_of_its_publisher() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann','info':'Ann'}");
    story.connect("bob", "{'sub':'bob'}");
    story.play(
        r#"
        ann> {"id":2,"subscribe":{"channel":"open:a","token":"{'sub':'ann','channel':'open:a','info':7}"}}
        ann< {"id":2,"subscribe":{}}
        ann> {"id":3,"publish":{"channel":"open:a","data":"x"}}
        ann< {"id":3,"publish":{}}
        ann< {"push":{"channel":"open:a","pub":{"data":"x","info":{"user":"ann","client":"<ann>","conn_info":"Ann",\
            "chan_info":7}}}}
        bob> {"id":3,"publish":{"channel":"open:a","data":"y"}}
        bob< {"id":3,"publish":{}}
        ann< {"push":{"channel":"open:a","pub":{"data":"y","info":{"user":"bob","client":"<bob>"}}}}
        ann> {"id":4,"publish":{"channel":"open:b","data":"z"}}
        ann< {"id":4,"publish":{}}
        "#,
    );
    let info = ClientInfo { user: "x".into(), client: "y".into(), conn_info: None, chan_info: None };
    story.publish_content("open:a", Content { data: "1".into(), info: Some(Arc::new(info)), ..Content::default() });
    story.play(r#"ann< {"push":{"channel":"open:a","pub":{"data":1,"info":{"user":"x","client":"y"}}}}"#);
}

#[test]
fn history_is_read_as_it_is_asked_for() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.client.history_max_publication_limit = 3;
    });
    story.connect("ann", "{'sub':'ann'}");
    (1..=5).for_each(|n| story.publish("log:a", &n.to_string()));
    for (asked, offsets) in [
        ("", vec![]),
        (r#","limit":1"#, vec![1]),
        (r#","limit":3"#, vec![1, 2, 3]),
        (r#","limit":4"#, vec![1, 2, 3]),
        (r#","limit":-1"#, vec![1, 2, 3]),
        (r#","limit":2,"reverse":true"#, vec![5, 4]),
        (r#","limit":2,"since":{"offset":3,"epoch":"epoch-1"}"#, vec![4, 5]),
        (r#","limit":9,"since":{"offset":3},"reverse":true"#, vec![2, 1]),
    ] {
        story.say("ann", &format!(r#"{{"id":2,"history":{{"channel":"log:a"{asked}}}}}"#));
        let received: serde_json::Value = serde_json::from_str(&story.received("ann").join("")).expect("one answer");
        let history = &received["history"];
        assert_eq!((history["epoch"].as_str(), history["offset"].as_u64()), (Some("epoch-1"), Some(5)), "{received}");
        let got: Vec<_> =
            history["publications"].as_array().into_iter().flatten().filter_map(|p| p["offset"].as_u64()).collect();
        assert_eq!(got, offsets, "{asked}");
    }
    assert_eq!(
        story.code("ann", r#"{"id":2,"history":{"channel":"log:a","limit":1,"since":{"offset":3,"epoch":"other"}}}"#),
        112
    );
}

#[test]
fn where_memory_is_scarce_large_answers_are_refused() {
    let scarce = Room { bytes: usize::MAX, is_scarce: true };
    let recover = r#""subscribe":{"channel":"log:a","recoverable":true,"recover":true,"offset":1}"#;
    let cases = [
        (r#""history":{"channel":"log:a","limit":1}"#, 111),
        (r#""history":{"channel":"log:a"}"#, 0),
        (recover, 111),
        (r#""subscribe":{"channel":"log:a"}"#, 0),
        (r#""presence":{"channel":"room:a"}"#, 111),
        (r#""presence_stats":{"channel":"room:a"}"#, 0),
        (r#""publish":{"channel":"log:a","data":1}"#, 0),
        (r#""rpc":{"method":"registry.names","data":{"scope":"devices"}}"#, 111),
        (r#""rpc":{"method":"registry.count","data":{"scope":"devices"}}"#, 0),
    ];
    let node = |settings: &mut Settings| {
        node(settings);
        settings.scope("devices", |options| options.allow_lookup_for_client = true);
    };
    for (command, expected) in cases {
        let command = format!("{{\"id\":2,{command}}}");
        let mut story = Story::with(node);
        story.connect("ann", "{'sub':'ann'}");
        (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
        story.room = scarce;
        let asked = |story: &Story| story.requests.len() + story.asks.len();
        let before = asked(&story);
        assert_eq!(story.code("ann", &command), expected, "{command}");
        assert_eq!(asked(&story) == before, expected == 111, "no home gets a useless request: {command}");
        // The same if memory becomes scarce while the reply is made: an empty result is still sent.
        let mut story = Story::with(node);
        story.connect("ann", "{'sub':'ann'}");
        (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
        story.is_slow = true;
        story.say("ann", &command);
        story.room = scarce;
        story.arrive();
        let received = story.received("ann").join("");
        assert_eq!(received.contains(r#""code":111"#), expected == 111, "{command}: {received}");
        if command.contains("recover") {
            assert_eq!(story.session("ann").subscription_count(), 0);
        }
    }
    // The connect still gets a reply. The client has to get in another way what it would have recovered.
    let mut story = Story::with(node);
    (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
    story.room = scarce;
    story.say("ann", &recovering_connect(&["log:a"]));
    let received = story.received("ann").join("");
    assert!(received.contains(r#""was_recovering":true"#) && !received.contains(r#""recovered":true"#), "{received}");
}
