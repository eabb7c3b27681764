//! The registry by `rpc`: what a session answers itself, what it forwards, and what it leaves when it ends.

use touchline_engine::Response;
use touchline_engine::directory::RegistryMethod;
use touchline_engine::tracker::TrackLimits;
use touchline_protocol::Error;

use crate::story::{Settings, Story};
use crate::tokens::calm;

fn node(settings: &mut Settings) {
    calm(settings);
    settings.scope("devices", |options| {
        (options.allow_register, options.allow_join) = (vec!["*".into()], vec!["*".into()]);
        (options.allow_lookup_for_client, options.allow_send_for_client, options.allow_call_for_client) =
            (true, true, true);
        options.allow_for_anonymous = true;
    });
}

#[test]
fn a_method_that_cannot_be_is_refused() {
    for (rpc, code) in [
        (r#""method":"nothing""#, 108),
        (r#""method":"""#, 108),
        (r#""method":"register","data":{"scope":"devices","name":"x"}"#, 108),
        (r#""method":"registry.nothing""#, 104),
        (r#""method":"registry.names""#, 107),
        (r#""method":"registry.names","data":{"scope":"nowhere"}"#, 4003),
        (r#""method":"registry.names","data":{"scope":7}"#, 107),
        (r#""method":"registry.lookup","data":{"scope":"devices","name":"x"}"#, 4002),
        (r#""method":"inbox.ack""#, 0),
        (r#""method":"reply""#, 4008),
        (r#""method":"registry.reply""#, 4008),
        (r#""method":"stats.track","data":{"event":"x"}"#, 108),
    ] {
        let mut story = Story::with(node);
        story.connect("ann", "");
        assert_eq!(story.code("ann", &format!(r#"{{"id":2,"rpc":{{{rpc}}}}}"#)), code, "{rpc}");
    }
}

#[test]
fn what_a_client_holds_ends_with_it() {
    let mut story = Story::with(node);
    story.connect("bob", "{'sub':'bob'}");
    for (take, look) in [
        (
            r#""registry.register","data":{"scope":"devices","name":"x"}"#,
            r#""registry.names","data":{"scope":"devices"}"#,
        ),
        (
            r#""registry.join","data":{"scope":"devices","group":"x"}"#,
            r#""registry.groups","data":{"scope":"devices"}"#,
        ),
    ] {
        story.connect("ann", "");
        assert_eq!(story.code("ann", &format!(r#"{{"id":2,"rpc":{{"method":{take}}}}}"#)), 0);
        let names = |story: &mut Story| {
            story.say("bob", &format!(r#"{{"id":3,"rpc":{{"method":{look}}}}}"#));
            story.received("bob").join("").matches(r#""x""#).count()
        };
        assert_eq!(names(&mut story), 1, "{take}");
        story.say("ann", r#"{"id":3,"publish":{"channel":""}}"#);
        assert_eq!(story.received("ann"), ["disconnect 3501 bad request"]);
        assert_eq!(names(&mut story), 0, "{take}");
        assert_eq!(story.asks.iter().filter(|ask| *ask == "Close").count(), 1);
        story.asks.clear();
    }
    // A session without entries sends nothing to the directory.
    story.connect("cid", "");
    story.say("cid", r#"{"id":2,"rpc":{"method":"registry.count","data":{"scope":"devices"}}}"#);
    story.say("cid", r#"{"id":3,"publish":{"channel":""}}"#);
    assert_eq!(story.received("cid").len(), 2);
    assert!(!story.asks.contains(&"Close".to_owned()), "{:?}", story.asks);
}

#[test]
fn a_client_that_is_gone_leaves_all_its_channels_by_one_request() {
    let mut story = Story::with(node);
    story.connect("bob", "{'sub':'bob','channels':['room:a','room:b']}");
    story.connect("ann", "{'sub':'ann','channels':['room:a']}");
    story.asks.clear();
    story.decide("bob", |session, context| session.server_unsubscribe("room:b", context));
    assert_eq!(story.asks, [r#"Exit { channel: "room:b" }"#]);
    story.asks.clear();
    story.play(
        r#"
        bob< {"push":{"channel":"room:b","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}
        bob> {"id":2,"publish":{"channel":""}}
        bob< disconnect 3501 bad request
        "#,
    );
    assert_eq!(story.asks, ["Close"]);
    story.play(
        r#"
        ann> {"id":3,"presence":{"channel":"room:a"}}
        ann< {"id":3,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>"}}}}
        "#,
    );
}

#[test]
fn a_caller_that_is_gone_is_forgotten() {
    let mut story = Story::with(node);
    story.connect("bob", "{'names':[{'scope':'devices','name':'bob'}]}");
    story.connect("ann", "{'sub':'ann'}");
    story.say("ann", r#"{"id":2,"rpc":{"method":"registry.call","data":{"scope":"devices","name":"bob","data":7}}}"#);
    let received = story.received("bob").join("");
    let call: serde_json::Value = serde_json::from_str(&received).expect("one message");
    let number = &call["push"]["message"]["data"]["call"];
    assert_eq!(call["push"]["message"]["data"]["data"], 7, "{received}");
    story.asks.clear();
    story.say("ann", r#"{"id":3,"publish":{"channel":""}}"#);
    story.received("ann");
    assert_eq!(story.asks, ["Close"], "a call alone is a reason to tell the directory");
    let reply = format!(r#"{{"id":2,"rpc":{{"method":"reply","data":{{"call":{number},"data":8}}}}}}"#);
    assert_eq!(story.code("bob", &reply), 4008);
}

#[test]
fn a_call_is_answered_by_its_callee() {
    let mut story = Story::with(node);
    story.connect("bob", "{'names':[{'scope':'devices','name':'bob'}]}");
    story.connect("ann", "{'sub':'ann'}");
    story.say("ann", r#"{"id":2,"rpc":{"method":"registry.call","data":{"scope":"devices","name":"bob","data":7}}}"#);
    let received: serde_json::Value = serde_json::from_str(&story.received("bob").join("")).expect("one message");
    let number = &received["push"]["message"]["data"]["call"];
    story.play(&format!(
        r#"
        bob> {{"id":2,"rpc":{{"method":"reply","data":{{"call":{number},"data":8}}}}}}
        bob< {{"id":2,"rpc":{{"data":{{}}}}}}
        ann< {{"id":2,"rpc":{{"data":{{"data":8}}}}}}
        "#
    ));
}

#[test]
fn names_of_a_token_are_taken_back_with_what_waits_for_them() {
    // A client disconnects or is unsubscribed while the names of its token are being registered.
    let connect = "{'sub':'ann','channels':['room:a','room:b'],'names':[{'scope':'devices','name':'x'}]}";
    let begin = || {
        let mut story = Story::with(node);
        story.is_slow = true;
        story.say("ann", &format!(r#"{{"id":1,"connect":{{"token":"{connect}"}}}}"#));
        story
    };
    let mut story = begin();
    assert_eq!(story.session("ann").subscription_count(), 2);
    story.decide("ann", |session, context| session.server_unsubscribe("room:a", context));
    story.received("ann");
    story.arrive();
    assert_eq!(story.requests.iter().map(|(channel, _)| &**channel).collect::<Vec<_>>(), ["room:b"]);
    story.arrive();
    story.play(
        r#"
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","subs":{"room:b":{}},"ping":100000,"pong":true}}
        "#,
    );
    let mut story = begin();
    story.decide("ann", |session, context| session.server_unsubscribe("", context));
    story.received("ann");
    story.arrive();
    story.play(
        r#"
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","ping":100000,"pong":true}}
        "#,
    );
    assert!(story.requests.is_empty());
    let mut story = begin();
    story.decide("ann", |session, context| session.close(context));
    assert_eq!(story.session("ann").subscription_count(), 0);
    assert!(story.requests.is_empty(), "a home without a request gets no unsubscribe");
    let mut story = begin();
    story.forge_answer(Response::Done);
    story.arrive();
    assert_eq!(story.requests.len(), 2, "anything but a refusal goes on");
}

#[test]
fn the_server_acts_for_a_client() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann'}");
    let params = r#"{"scope":"devices","name":"x"}"#;
    let ask =
        touchline_engine::directory::read(RegistryMethod::Register, params, &story.node.scopes).expect("it is good");
    let (requester, _) = story.decide("ann", |session, _| session.act(ask));
    assert_eq!((&*requester.user, requester.is_backend, requester.owner), ("ann", false, story.session("ann").owner()));
    story.decide("ann", |session, context| session.close(context));
    assert_eq!(story.asks, ["Close"], "what it holds by that ends with it");
}

#[test]
fn a_client_reports_so_many_events_in_a_second() {
    let mut story = Story::with(|settings| {
        calm(settings);
        settings.track = TrackLimits { rate: 2, props_max: 10 };
    });
    story.connect("ann", "{'sub':'ann'}");
    let track = |story: &mut Story, event: &str| {
        story.code("ann", &format!(r#"{{"id":2,"rpc":{{"method":"stats.track","data":{event}}}}}"#))
    };
    for (event, expected) in [
        (r#"{"event":""}"#, 107),
        (r#"{"event":"x","props":1}"#, 107),
        (r#"{"event":"x","props":{"a":12345}}"#, 107),
        (r#"{"event":"x","props":{"a":1234}}"#, 0),
        (r#"{"event":"y"}"#, 0),
        (r#"{"event":"z"}"#, 111),
    ] {
        assert_eq!(track(&mut story, event), expected, "{event}");
    }
    story.now_ms += 999;
    assert_eq!(track(&mut story, r#"{"event":"z"}"#), 111);
    story.now_ms += 1;
    assert_eq!(track(&mut story, r#"{"event":"z"}"#), 0);
    let taken: Vec<_> = story.tracker.drain().map(|event| (event.name, event.user, event.props)).collect();
    let expected = [("x", r#"{"a":1234}"#), ("y", "{}"), ("z", "{}")]
        .map(|(name, props)| (name.into(), "ann".into(), props.into()));
    assert_eq!(taken, expected);
}

#[test]
fn what_the_directory_refuses_its_client_is_told() {
    let mut story = Story::with(node);
    story.connect("ann", "");
    story.is_slow = true;
    for (answer, code) in [(Response::Refused(Error::NAME_TAKEN), 4001), (Response::Done, 100)] {
        story.say("ann", r#"{"id":2,"rpc":{"method":"registry.register","data":{"scope":"devices","name":"x"}}}"#);
        story.forge_answer(answer);
        story.arrive();
        assert!(story.received("ann").join("").contains(&format!(r#""error":{{"code":{code},"#)));
    }
}
