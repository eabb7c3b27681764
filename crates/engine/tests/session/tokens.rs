//! Tokens: their users, their expiry, and how a client prolongs what they granted.

use std::time::Duration;

use touchline_engine::session::TransportMode;

use crate::story::{START_S, Settings, Story};

/// Makes pings so rare that none is due in a story.
pub(crate) fn calm(settings: &mut Settings) {
    settings.client.ping_interval = Duration::from_secs(100_000);
    settings.namespace("room", |options| (options.presence, options.allow_presence_for_client) = (true, true));
}

#[test]
fn a_subscription_token_is_for_one_user_one_channel_and_one_connection() {
    let now = START_S;
    let cases = [
        ("{'sub':'ann','channel':'room:a'}".to_owned(), 0),
        ("{'sub':'ann','channel':'room:a','client':'<ann>'}".to_owned(), 0),
        ("{'sub':'ann','channel':'room:a','client':'<bob>'}".to_owned(), 3500),
        ("{'sub':'bob','channel':'room:a'}".to_owned(), 3500),
        ("{'sub':'bob','channel':'room:a','client':'<ann>'}".to_owned(), 3500),
        ("{'sub':'','channel':'room:a','client':'<ann>'}".to_owned(), 3500),
        ("{'sub':'ann','channel':'room:b'}".to_owned(), 3500),
        ("{'sub':'ann'}".to_owned(), 3500),
        ("expired".to_owned(), 109),
        ("forged".to_owned(), 103),
        (format!("{{'sub':'ann','channel':'room:a','exp':{}}}", now - 1), 110),
        (format!("{{'sub':'ann','channel':'room:a','exp':{now}}}"), 110),
        (format!("{{'sub':'ann','channel':'room:a','exp':{}}}", now + 1), 0),
        (format!("{{'sub':'ann','channel':'room:a','exp':{}.5}}", now + 1), 0),
        ("{'sub':'ann','channel':'room:a','exp':0}".to_owned(), 0),
        ("{'sub':'ann','channel':'room:a','exp':-5}".to_owned(), 110),
        ("{'sub':'ann','channel':'room:a','exp':null}".to_owned(), 0),
        (format!("{{'sub':'ann','channel':'room:a','exp':{},'expire_at':{now}}}", now + 9), 110),
        (format!("{{'sub':'ann','channel':'room:a','exp':{now},'expire_at':{}}}", now + 1), 0),
        (format!("{{'sub':'ann','channel':'room:a','exp':{now},'expire_at':0}}"), 0),
    ];
    for (token, expected) in cases {
        let mut story = Story::with(calm);
        story.connect("ann", "{'sub':'ann'}");
        story.connect("bob", "{'sub':'bob'}");
        let subscribe = format!(r#"{{"id":2,"subscribe":{{"channel":"room:a","token":"{token}"}}}}"#);
        assert_eq!(story.code("ann", &subscribe), expected, "subscribes with {token}");
        assert_eq!(story.session("ann").subscription_count(), usize::from(expected == 0), "{token}");
        // The same token prolongs a subscription, or does not. If something is wrong with it, the client is
        // disconnected.
        let mut story = Story::with(calm);
        story.connect("ann", "{'sub':'ann','channels':['room:b']}");
        story.connect("bob", "{'sub':'bob'}");
        let subscribe = r#"{"id":2,"subscribe":{"channel":"room:a","token":"{'sub':'ann','channel':'room:a'}"}}"#;
        assert_eq!(story.code("ann", subscribe), 0);
        let refresh = format!(r#"{{"id":3,"sub_refresh":{{"channel":"room:a","token":"{token}"}}}}"#);
        let expected = match expected {
            109 | 110 => 3006,
            103 => 3500,
            other => other,
        };
        assert_eq!(story.code("ann", &refresh), expected, "refreshes with {token}");
    }
}

#[test]
fn a_token_whose_keys_have_not_come_ends_nothing() {
    let mut story = Story::with(calm);
    story.connect("ann", "{'sub':'ann','exp':1000000060}");
    story.play(
        r#"
        ann> {"id":2,"subscribe":{"channel":"room:a","token":"early"}}
        ann< {"id":2,"error":{"code":100,"message":"internal server error","temporary":true}}
        ann> {"id":3,"subscribe":{"channel":"room:a","token":"{'sub':'ann','channel':'room:a','exp':1000000060}"}}
        ann< {"id":3,"subscribe":{"expires":true,"ttl":60}}
        ann> {"id":4,"sub_refresh":{"channel":"room:a","token":"early"}}
        ann< {"id":4,"error":{"code":100,"message":"internal server error","temporary":true}}
        ann> {"id":5,"refresh":{"token":"early"}}
        ann< {"id":5,"error":{"code":100,"message":"internal server error","temporary":true}}
        ann> {"id":6,"refresh":{"token":"{'sub':'ann','exp':1000000090}"}}
        ann< {"id":6,"refresh":{"client":"<ann>","version":"1.0","expires":true,"ttl":90}}
        "#,
    );
    assert_eq!(story.session("ann").subscription_count(), 1);
}

#[test]
fn a_client_that_only_listens_comes_back_for_a_channel_whose_token_cannot_be_verified_yet() {
    let mut story = Story::with(calm);
    story.open("ann", TransportMode::OneWay);
    story.play(
        r#"
        ann> {"token":"{'sub':'ann'}","subs":{"room:a":{"token":"early"}}}
        ann< disconnect 3004 internal server error
        "#,
    );
}

#[test]
fn a_subscription_lasts_as_long_as_its_token_and_a_while() {
    let mut story = Story::with(calm);
    story.connect("ann", "{'sub':'ann'}");
    story.play(
        r#"
        ann> {"id":2,"subscribe":{"channel":"room:a","token":"{'sub':'ann','channel':'room:a','exp':1000000060}"}}
        ann< {"id":2,"subscribe":{"expires":true,"ttl":60}}
        ann> {"id":3,"subscribe":{"channel":"room:b","token":"{'sub':'ann','channel':'room:b','exp':1000000070}"}}
        ann< {"id":3,"subscribe":{"expires":true,"ttl":70}}
        ann> {"id":4,"subscribe":{"channel":"room:c","token":"{'sub':'ann','channel':'room:c'}"}}
        ann< {"id":4,"subscribe":{}}
        @ 40000
        ann> {"id":5,"sub_refresh":{"channel":"room:a","token":"{'sub':'ann','channel':'room:a','exp':1000000100}"}}
        ann< {"id":5,"sub_refresh":{"expires":true,"ttl":60}}
        @ 94999
        @ 95000
        ann< {"push":{"channel":"room:b","unsubscribe":{"code":2501,"reason":"subscription expired"}}}
        @ 99999
        ann> {"id":6,"sub_refresh":{"token":"{'sub':'ann','channel':'room:a','exp':1000000101}"}}
        ann< {"id":6,"sub_refresh":{"expires":true,"ttl":2}}
        @ 125999
        @ 126000
        ann< {"push":{"channel":"room:a","unsubscribe":{"code":2501,"reason":"subscription expired"}}}
        ann> {"id":7,"sub_refresh":{"channel":"room:a","token":"{'sub':'ann','channel':'room:a','exp':1000000500}"}}
        ann< {"id":7,"error":{"code":103,"message":"permission denied"}}
        ann> {"id":8,"sub_refresh":{"channel":"room:c","token":""}}
        ann< {"id":8,"error":{"code":107,"message":"bad request"}}
        ann> {"id":9,"sub_refresh":{"channel":"room:c","token":"{'sub':'ann','channel':'room:c','exp':9999999999}"}}
        ann< {"id":9,"sub_refresh":{"expires":true,"ttl":3294967169}}
        ann> {"id":10,"sub_refresh":{"channel":"room:c","token":"{'sub':'ann','channel':'room:c'}"}}
        ann< {"id":10,"sub_refresh":{}}
        @ 49999999
        "#,
    );
}

#[test]
fn a_connection_lasts_as_long_as_its_token_and_a_while() {
    let mut story = Story::with(calm);
    story.play(
        r#"
        ann> {"id":1,"connect":{"token":"{'sub':'ann','exp':1000000060}"}}
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","expires":true,"ttl":60,"ping":100000,"pong":true}}
        bob> {"id":1,"connect":{"token":"{'sub':'bob','exp':1000000060}"}}
        bob< {"id":1,"connect":{"client":"<bob>","version":"1.0","expires":true,"ttl":60,"ping":100000,"pong":true}}
        @ 59000
        ann> {"id":2,"refresh":{"token":"{'sub':'ann','exp':1000000061}"}}
        ann< {"id":2,"refresh":{"client":"<ann>","version":"1.0","expires":true,"ttl":2}}
        @ 84999
        @ 85000
        bob< disconnect 3005 connection expired
        @ 85999
        ann> {"id":3,"refresh":{"token":"{'sub':'ann'}"}}
        ann< {"id":3,"refresh":{"client":"<ann>","version":"1.0"}}
        @ 49999999
        "#,
    );
}

#[test]
fn the_token_of_a_connection_has_its_user_and_its_expiry() {
    let now = START_S;
    let cases = [
        ("{'sub':'ann'}".to_owned(), 0, 0),
        ("expired".to_owned(), 109, 3005),
        ("forged".to_owned(), 3500, 3500),
        ("{'sub':'ann','channel':'room:a'}".to_owned(), 3500, 3500),
        ("{'sub':'ann','channel':''}".to_owned(), 0, 0),
        (r"{'sub':'an\\u0007n'}".to_owned(), 3500, 3500),
        (format!("{{'sub':'ann','exp':{now}}}"), 110, 3005),
        (format!("{{'sub':'ann','exp':{}}}", now + 1), 0, 0),
        (format!("{{'sub':'ann','exp':{},'expire_at':{now}}}", now + 9), 110, 3005),
        (format!("{{'sub':'ann','exp':{now},'expire_at':{}}}", now + 1), 0, 0),
        (format!("{{'sub':'ann','exp':{now},'expire_at':0}}"), 0, 0),
        ("{'sub':'ann','channels':['room:b']}".to_owned(), 0, 0),
        ("{'sub':'ann','channels':['room:a','room:b']}".to_owned(), 0, 3010),
        ("{'sub':'ann','subs':{'room:a':{}}}".to_owned(), 0, 3010),
        ("{'sub':'bob'}".to_owned(), 0, 3500),
        ("{}".to_owned(), 0, 3500),
    ];
    for (token, connects, refreshes) in cases {
        let connect = format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#);
        assert_eq!(Story::with(calm).code("ann", &connect), connects, "connects with {token}");
        let mut story = Story::with(calm);
        story.connect("ann", "{'sub':'ann','channels':['room:b']}");
        let refresh = format!(r#"{{"id":2,"refresh":{{"token":"{token}"}}}}"#);
        assert_eq!(story.code("ann", &refresh), refreshes, "refreshes with {token}");
    }
    let mut story = Story::with(calm);
    story.connect("ann", "{'sub':'ann'}");
    assert_eq!(story.code("ann", r#"{"id":2,"refresh":{"token":""}}"#), 3501);
}

#[test]
fn what_a_token_says_of_a_client_is_shown_to_others() {
    let mut story = Story::with(calm);
    let subscribe = |story: &mut Story, id: u32, channel: &str, info: &str| {
        let token = format!("{{'sub':'ann','channel':'{channel}',{info}}}");
        let command = format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}","token":"{token}"}}}}"#);
        assert_eq!(story.code("ann", &command), 0);
    };
    // "eyJuIjoxfQ" is {"n":1} in base64.
    story.connect("ann", "{'sub':'ann','info':{'name':'Ann'},'subs':{'room:a':{'info':1}}}");
    subscribe(&mut story, 2, "room:b", "'b64info':'eyJuIjoxfQ'");
    subscribe(&mut story, 3, "room:c", "'info':null,'override':{'presence':{'value':false}}");
    story.play(
        r#"
        ann> {"id":4,"presence":{"channel":"room:a"}}
        ann< {"id":4,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":{"name":"Ann"},\
            "chan_info":1}}}}
        ann> {"id":5,"presence":{"channel":"room:b"}}
        ann< {"id":5,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":{"name":"Ann"},\
            "chan_info":{"n":1}}}}}
        ann> {"id":6,"presence":{"channel":"room:c"}}
        ann< {"id":6,"presence":{"presence":{}}}
        ann> {"id":7,"refresh":{"token":"{'sub':'ann','info':'A.'}"}}
        ann< {"id":7,"refresh":{"client":"<ann>","version":"1.0"}}
        ann> {"id":8,"presence":{"channel":"room:b"}}
        ann< {"id":8,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":"A.",\
            "chan_info":{"n":1}}}}}
        ann> {"id":9,"presence":{"channel":"room:c"}}
        ann< {"id":9,"presence":{"presence":{}}}
        ann> {"id":10,"refresh":{"token":"{'sub':'ann','b64info':'eyJuIjoxfQ'}"}}
        ann< {"id":10,"refresh":{"client":"<ann>","version":"1.0"}}
        ann> {"id":11,"presence":{"channel":"room:a"}}
        ann< {"id":11,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":{"n":1},\
            "chan_info":1}}}}
        ann> {"id":12,"refresh":{"token":"{'sub':'ann'}"}}
        ann< {"id":12,"refresh":{"client":"<ann>","version":"1.0"}}
        ann> {"id":13,"presence":{"channel":"room:a"}}
        ann< {"id":13,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":{"n":1},\
            "chan_info":1}}}}
        ann> {"id":14,"presence_stats":{"channel":"room:b"}}
        ann< {"id":14,"presence_stats":{"num_clients":1,"num_users":1}}
        "#,
    );
}
