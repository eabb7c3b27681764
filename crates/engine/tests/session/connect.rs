//! Connect: the reply for each transport, the subscriptions of a token, and how a connect fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use touchline_engine::Response;
use touchline_engine::session::{TransportMode, UserCounter};
use touchline_protocol::Error;

use crate::story::{Settings, Story, with_history};
use crate::tokens::calm;

#[test]
fn a_client_id_is_a_random_uuid() {
    for (byte, expected) in [
        (0x00, "00000000-0000-4000-8000-000000000000"),
        (0xff, "ffffffff-ffff-4fff-bfff-ffffffffffff"),
        (0x5a, "5a5a5a5a-5a5a-4a5a-9a5a-5a5a5a5a5a5a"),
    ] {
        let session = touchline_engine::Session::new([byte; 16], TransportMode::Duplex, true, 0, &Default::default());
        assert_eq!(&*session.client_id(), expected, "version 4, variant 10");
    }
    let id = |place: usize| {
        let mut random = [0; 16];
        random[place] = 1;
        touchline_engine::Session::new(random, TransportMode::Duplex, true, 0, &Default::default()).client_id()
    };
    let ids: std::collections::BTreeSet<_> = (0..16).map(id).collect();
    assert_eq!(ids.len(), 16, "every random byte counts: {ids:?}");
}

#[test]
fn the_reply_says_what_the_link_needs() {
    let cases = [
        (TransportMode::Duplex, r#""ping":25,"pong":true"#),
        (TransportMode::Emulated, r#""ping":25,"pong":true,"session":"seal of 1","node":"node""#),
        (TransportMode::Lines, r#""ping":25"#),
    ];
    for (link, rest) in cases {
        let mut story = Story::with(|_| ());
        story.open("ann", link);
        story.play(&format!(
            r#"
            ann> {{"id":7,"connect":{{"name":"js","version":"2.0"}}}}
            ann< {{"id":7,"connect":{{"client":"<ann>","version":"1.0",{rest}}}}}
            "#
        ));
        assert_eq!(story.program("ann"), Some(("js", "2.0")));
        assert!(story.session("ann").is_connected());
    }
    let mut story = Story::with(|settings| {
        settings.client.connect_include_server_time = true;
        settings.client.ping_interval = Duration::from_millis(400);
    });
    story.open("ann", TransportMode::OneWay);
    let sends = r#""session":"seal of 1","node":"node""#;
    story.play(&format!(
        r#"
        ann> {{"version":"2.0"}}
        ann< {{"connect":{{"client":"<ann>","version":"1.0","ping":1,{sends},"time":1000000000000}}}}
        ann> {{}}
        ann< disconnect 3501 bad request
        "#,
    ));
    assert_eq!(story.program("ann"), None);
}

#[test]
fn a_client_names_its_program_only_after_it_has_authenticated() {
    let mut story = Story::with(|settings| settings.client.allow_anonymous_connect_without_token = false);
    for (token, program) in [("'not a token", None), ("{'sub':'ann'}", Some(("js", "2.0")))] {
        story.open("ann", TransportMode::Duplex);
        story.say("ann", &format!(r#"{{"id":1,"connect":{{"token":"{token}","name":"js","version":"2.0"}}}}"#));
        story.received("ann");
        assert_eq!(story.program("ann"), program, "{token}");
    }
}

#[test]
fn a_session_begins_with_one_connect() {
    for first in [
        r#"{"id":0,"connect":{}}"#,
        r#"{"connect":{}}"#,
        r#"{"id":1,"subscribe":{"channel":"a"}}"#,
        r#"{"id":1,"ping":{}}"#,
        "{}",
        "x",
        "",
    ] {
        assert_eq!(Story::with(|_| ()).code("ann", first), 3501, "{first}");
    }
    for (second, expected) in [
        (r#"{"id":2,"connect":{}}"#, 3501),
        (r#"{"id":2}"#, 3501),
        (r#"{"id":2,"send":{}}"#, 3508),
        ("x", 3501),
        ("", 3501),
    ] {
        let mut story = Story::with(|_| ());
        story.connect("ann", "");
        assert_eq!(story.code("ann", second), expected, "{second}");
    }
    let mut story = Story::with(|_| ());
    story.open("eve", TransportMode::OneWay);
    story.play("eve> [\neve< disconnect 3501 bad request");
}

#[test]
fn a_client_that_does_not_connect_in_time_is_disconnected() {
    let mut story = Story::with(calm);
    story.open("ann", TransportMode::Duplex);
    story.at(9_999);
    story.play("@ 10000\nann< disconnect 3502 stale");
    // What the connect waits for may not take longer either.
    let mut story = Story::with(calm);
    story.is_slow = true;
    story.say("ann", r#"{"id":1,"connect":{"token":"{'sub':'ann','channels':['room:a']}"}}"#);
    assert!(!story.session("ann").is_connected());
    story.play("@ 9999");
    story.play("@ 10000\nann< disconnect 3502 stale");
}

#[test]
fn a_refused_client_may_close_by_itself() {
    let mut story = Story::with(calm);
    story.play(
        r#"
        @ 1000
        ann> {"id":1,"connect":{"token":"expired"}}
        ann< {"id":1,"error":{"code":109,"message":"token expired"}}
        @ 5999
        @ 6000
        ann< disconnect 3000 connection closed
        "#,
    );
    assert!(!story.session("ann").is_listening());
    let refused = story.refused("ann").remove(0);
    assert_eq!((refused.code, refused.cause, &*refused.channel), (109, "exp of the token has passed", ""));
}

#[test]
fn a_client_that_only_listens_is_told_by_the_end_of_its_stream() {
    let held = "'names':[{'scope':'devices','name':'held'}]";
    for (token, expected) in [
        ("expired", "disconnect 3005 connection expired"),
        ("early", "disconnect 3004 internal server error"),
        ("{'exp':1000000000}", "disconnect 3005 connection expired"),
        (&format!("{{{held}}}"), "disconnect 3004 internal server error"),
    ] {
        let mut story = Story::with(|settings| {
            calm(settings);
            settings.scope("devices", |options| {
                options.conflict_policy = touchline_engine::directory::ConflictPolicy::Reject
            });
        });
        story.connect("holder", &format!("{{{held}}}"));
        story.open("ann", TransportMode::OneWay);
        story.play(&format!("ann> {{\"token\":\"{token}\"}}\nann< {expected}"));
    }
    for (error, expected) in [
        (Error::TOO_MANY_REQUESTS, "disconnect 3013 too many requests"),
        (Error::PERMISSION_DENIED, "disconnect 3507 permission denied"),
        (Error::NAME_TAKEN, "disconnect 3004 internal server error"),
    ] {
        let mut story = Story::with(|settings| settings.scope("devices", |_| ()));
        story.is_slow = true;
        story.open("ann", TransportMode::OneWay);
        story.say("ann", &format!("{{\"token\":\"{{{held}}}\"}}"));
        story.forge_answer(Response::Refused(error));
        story.arrive();
        story.play(&format!("ann< {expected}"));
    }
}

#[test]
fn a_token_subscribes_its_client() {
    let mut story = Story::with(|settings| {
        calm(settings);
        settings.namespace("log", |options| {
            with_history(options);
            options.force_recovery = true;
        });
    });
    (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
    story.play(
        r#"
        ann> {"id":1,"connect":{"token":"{'sub':'ann','channels':['room:a'],'subs':{'room:b':{'data':{'x':1}},\
            'room:c':{'b64data':'eyJuIjoxfQ'}}}"}}
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","subs":{"room:a":{},"room:b":{"data":{"x":1}},\
            "room:c":{"data":{"n":1}}},"ping":100000,"pong":true}}
        bob> {"id":1,"connect":{"token":"{'sub':'bob','channels':['log:a']}","subs":{"log:a":{"recover":true,\
            "offset":2},"room:x":{"recover":true}}}}
        bob< {"id":1,"connect":{"client":"<bob>","version":"1.0","subs":{"log:a":{"recoverable":true,"epoch":"epoch-1",\
            "publications":[{"data":3,"offset":3,"time":1000000000000}],"recovered":true,"offset":2,"positioned":true,\
            "was_recovering":true}},"ping":100000,"pong":true}}
        cid> {"id":1,"connect":{"token":"{'sub':'cid','subs':{'log:a':{'override':{'force_recovery':{'value':false},\
            'force_positioning':{'value':true}}}}}"}}
        cid< {"id":1,"connect":{"client":"<cid>","version":"1.0","subs":{"log:a":{"epoch":"epoch-1","offset":3,\
            "positioned":true}},"ping":100000,"pong":true}}
        dan> {"id":1,"connect":{"token":"{'sub':'dan','subs':{'log:a':{'override':\
            {'force_recovery':{'value':false}}}}}"}}
        dan< {"id":1,"connect":{"client":"<dan>","version":"1.0","subs":{"log:a":{}},"ping":100000,"pong":true}}
        "#,
    );
    let told = |name| {
        format!(r#"{name}< {{"push":{{"channel":"log:a","pub":{{"data":4,"offset":4,"time":1000000000000}}}}}}"#)
    };
    story.publish("log:a", "4");
    story.play(&["bob", "cid", "dan"].map(told).join("\n"));
}

#[test]
fn a_token_with_channels_that_cannot_be_is_refused() {
    for (claims, expected) in [
        ("'channels':['room:a','room:b']", 0),
        ("'channels':['room:a','room:b','room:c']", 3505),
        ("'channels':['room:a','room:b','room:b']", 0),
        ("'channels':['nothing:a']", 3501),
        ("'channels':['']", 3501),
        (r"'channels':['a\\u0007']", 3501),
        ("'names':[{'scope':'nothing','name':'x'}]", 3501),
        (r"'groups':[{'scope':'devices','group':'a\\u0007'}]", 3501),
        ("'groups':[{'scope':'devices','group':'a'}]", 0),
    ] {
        let mut story = Story::with(|settings| {
            calm(settings);
            settings.client.channel_limit = 2;
            settings.scope("devices", |_| ());
        });
        let connect = format!(r#"{{"id":1,"connect":{{"token":"{{'sub':'ann',{claims}}}"}}}}"#);
        assert_eq!(story.code("ann", &connect), expected, "{claims}");
    }
}

#[test]
fn a_listener_gets_the_channels_that_it_asks_for_and_may_have() {
    let mut story = Story::with(|settings| {
        calm(settings);
        settings.namespace("open", |options| options.allow_subscribe_for_client = true);
    });
    story.open("ann", TransportMode::OneWay);
    let sends = r#""session":"seal of 1","node":"node""#;
    let asked = r#"{"open:a":{},"room:a":{},"room:b":{},"$open:b":{}}"#;
    let subs = r#"{"room:a":{},"open:a":{}}"#;
    story.play(&format!(
        r#"
        ann> {{"token":"{{'sub':'ann','channels':['room:a']}}","subs":{asked}}}
        ann< {{"connect":{{"client":"<ann>","version":"1.0","subs":{subs},"ping":100000,{sends}}}}}
        "#,
    ));
    let mut codes: Vec<_> =
        story.refused("ann").into_iter().map(|refused| (refused.channel.into_string(), refused.code)).collect();
    codes.sort();
    assert_eq!(codes, [("$open:b".to_owned(), 103), ("room:b".to_owned(), 103)], "the log says why");
    story.publish("open:a", "1");
    story.play(r#"ann< {"channel":"open:a","pub":{"data":1}}"#);
    story.open("bob", TransportMode::OneWay);
    story.play("bob> {\"subs\":{\"nothing:a\":{},\"nothing:b\":{}}}\nbob< disconnect 3501 bad request");
    assert_eq!(story.refused("bob").len(), 1, "the first one ends it");
    // The client does not get a channel that it may not have for another reason than a permission. The connect
    // continues.
    let bad_delta = [(107, "delta of the subscribe is not fossil")];
    for (asked, causes) in [(r#""open:a":{"delta":"other"}"#, &bad_delta[..]), (r#""open:a":{"type":1}"#, &[])] {
        let mut story =
            Story::with(|settings| settings.namespace("open", |options| options.allow_subscribe_for_client = true));
        story.open("cid", TransportMode::OneWay);
        let connected =
            r#"{"connect":{"client":"<cid>","version":"1.0","ping":25,"session":"seal of 1","node":"node"}}"#;
        story.play(&format!("cid> {{\"subs\":{{{asked}}}}}\ncid< {connected}"));
        let noted: Vec<_> = story.refused("cid").iter().map(|refused| (refused.code, refused.cause)).collect();
        assert_eq!(noted, causes, "{asked}");
    }
}

#[test]
fn publications_that_come_before_the_reply_stand_behind_it() {
    let mut story = Story::with(calm);
    story.is_slow = true;
    story.say("ann", r#"{"id":1,"connect":{"token":"{'sub':'ann','channels':['room:a','room:b']}"}}"#);
    // The response of one home, its next publication, then the response of the other home.
    story.arrive();
    assert_eq!(story.session("ann").buffered_bytes(), "room:a{}".len(), "a name, and what is said of its subscription");
    story.publish("room:a", "1");
    while story.under_way() > 2 {
        story.arrive();
    }
    assert!(story.session("ann").is_holding());
    story.play("");
    let held = story.session("ann").buffered_bytes();
    assert!(held > 0, "{held} bytes are held");
    while story.under_way() > 0 {
        story.arrive();
    }
    let received = story.received("ann");
    assert!(received[0].starts_with(r#"{"id":1,"connect":"#), "{received:?}");
    assert_eq!(received[1..].len(), 1, "{received:?}");
    assert_eq!(story.session("ann").buffered_bytes(), 0);
}

#[test]
fn names_of_a_token_come_before_anything_else() {
    let node = |settings: &mut Settings| {
        calm(settings);
        settings.scope("devices", |options| {
            options.allow_lookup_for_client = true;
            options.conflict_policy = touchline_engine::directory::ConflictPolicy::Reject;
        });
    };
    let mut story = Story::with(node);
    story.is_slow = true;
    let claims = "{'sub':'ann','channels':['room:a'],'names':[{'scope':'devices','name':'bike','meta':{'x':1}}],\
                  'groups':[{'scope':'devices','group':'bikes'}]}";
    story.say("ann", &format!(r#"{{"id":1,"connect":{{"token":"{claims}"}}}}"#));
    assert!(story.requests.is_empty(), "no home is asked before the names are there");
    story.arrive();
    assert_eq!(story.requests.len(), 1);
    assert!(!story.session("ann").is_connected());
    story.arrive();
    story.play(
        r#"
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","subs":{"room:a":{}},"ping":100000,"pong":true}}
        "#,
    );
    story.is_slow = false;
    story.play(
        r#"
        ann> {"id":2,"rpc":{"method":"registry.member","data":{"scope":"devices","group":"bikes"}}}
        ann< {"id":2,"rpc":{"data":{"client":"<ann>","node":"here"}}}
        bob> {"id":1,"connect":{"token":"{'sub':'bob','channels':['room:a','room:b'],\
            'names':[{'scope':'devices','name':'bike'}]}"}}
        bob< {"id":1,"error":{"code":4001,"message":"name taken","temporary":true}}
        "#,
    );
    assert_eq!(story.requests.len(), 1, "the homes of bob's channels are never asked");
    assert_eq!(story.session("bob").subscription_count(), 0);
}

/// Limits each user to a number of connections.
#[derive(Default)]
struct Two(Mutex<BTreeMap<String, u32>>);

impl UserCounter for Two {
    fn take(&self, user: &str) -> bool {
        let mut counts = self.0.lock().expect("no test panics while it counts");
        let count = counts.entry(user.to_owned()).or_default();
        let may = *count < 2;
        *count += u32::from(may);
        may
    }

    fn give_back(&self, user: &str) {
        let mut counts = self.0.lock().expect("no test panics while it counts");
        *counts.get_mut(user).expect("it was counted") -= 1;
    }
}

#[test]
fn a_user_has_no_more_connections_than_it_may() {
    let users = Arc::new(Two::default());
    let counter: Arc<dyn UserCounter + Send + Sync> = users.clone();
    let mut story = Story::with(|settings| {
        calm(settings);
        settings.users = Some(counter);
        settings
            .scope("devices", |options| options.conflict_policy = touchline_engine::directory::ConflictPolicy::Reject);
    });
    story.connect("a", "{'sub':'ann'}");
    story.connect("b", "{'sub':'ann','names':[{'scope':'devices','name':'x'}]}");
    story.connect("c", "{'sub':'bob'}");
    for name in ["d", "e", "f"] {
        story.connect(name, "{}");
    }
    assert_eq!(story.code("g", r#"{"id":1,"connect":{"token":"{'sub':'ann'}"}}"#), 3504);
    let refused = r#"{"id":1,"connect":{"token":"{'sub':'bob','names':[{'scope':'devices','name':'x'}]}"}}"#;
    for name in ["h", "i", "j"] {
        assert_eq!(story.code(name, refused), 4001, "a refused connect is not counted any more");
    }
    story.decide("a", |session, context| session.close(context));
    story.connect("k", "{'sub':'ann'}");
    assert_eq!(story.code("l", r#"{"id":1,"connect":{"token":"{'sub':'ann'}"}}"#), 3504);
    drop(story);
    let counts = users.0.lock().expect("no test panics while it counts");
    assert!(counts.values().all(|count| *count == 0), "{counts:?}");
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["ann", "bob"], "anonymous clients are not counted");
}

#[test]
fn a_client_that_is_authenticated_otherwise_needs_no_token() {
    let mut story = Story::with(|settings| settings.client.allow_anonymous_connect_without_token = false);
    story.open("device", TransportMode::Lines);
    story.decide("device", |session, _| session.certify("bike-7".into()));
    assert_eq!(story.code("device", r#"{"id":1,"connect":{}}"#), 0);
    assert_eq!(story.session("device").user(), "bike-7");
}
