//! What the server API does with a client.

use touchline_engine::claims::{BoolValue, Overrides};
use touchline_engine::request::ClientPosition;
use touchline_engine::session::ServerSubscription;
use touchline_engine::{Response, Session};
use touchline_protocol::{Error, Offset};

use crate::story::{START_S, Settings, Story, with_history};
use crate::tokens::calm;

fn node(settings: &mut Settings) {
    calm(settings);
    settings.client.channel_limit = 2;
    settings.namespace("log", |options| {
        with_history(options);
        (options.force_recovery, options.join_leave, options.force_push_join_leave) = (true, true, true);
    });
}

fn subscribe(story: &mut Story, channel: &str, subscription: ServerSubscription) -> Result<(), Error> {
    story.decide("ann", |session, context| session.server_subscribe(channel, subscription, context))
}

#[test]
fn a_client_is_told_what_it_is_subscribed_to() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann','info':'Ann'}");
    (1..=3).for_each(|n| story.publish("log:a", &n.to_string()));
    let subscription = ServerSubscription {
        info: Some("7".into()),
        data: Some("{\"x\":1}".into()),
        recover: Some(ClientPosition { offset: Offset(1), epoch: "".into() }),
        ..ServerSubscription::default()
    };
    assert_eq!(subscribe(&mut story, "log:a", subscription), Ok(()));
    story.play(
        r#"
        ann< {"push":{"channel":"log:a","subscribe":{"recoverable":true,"epoch":"epoch-1","offset":3,"positioned":true,\
            "data":{"x":1}}}}
        ann< {"push":{"channel":"log:a","pub":{"data":2,"offset":2,"time":1000000000000}}}
        ann< {"push":{"channel":"log:a","pub":{"data":3,"offset":3,"time":1000000000000}}}
        ann< {"push":{"channel":"log:a","join":{"info":{"user":"ann","client":"<ann>","conn_info":"Ann",\
            "chan_info":7}}}}
        "#,
    );
    // Doing it twice has the effect of doing it once. A subscription without positioning has no position.
    assert_eq!(subscribe(&mut story, "log:a", ServerSubscription::default()), Ok(()));
    story.play("");
    let off = Some(BoolValue { value: false });
    let overrides =
        Overrides { force_recovery: off, join_leave: off, force_push_join_leave: off, ..Overrides::default() };
    assert_eq!(
        subscribe(&mut story, "log:b", ServerSubscription { overrides, ..ServerSubscription::default() }),
        Ok(())
    );
    story.publish("log:b", "1");
    story.play(
        r#"
        ann< {"push":{"channel":"log:b","subscribe":{}}}
        ann< {"push":{"channel":"log:b","pub":{"data":1,"offset":1,"time":1000000000000,"epoch":"epoch-2"}}}
        "#,
    );
    assert_eq!(subscribe(&mut story, "log:c", ServerSubscription::default()), Err(Error::LIMIT_EXCEEDED));
    assert_eq!(subscribe(&mut story, "nothing:c", ServerSubscription::default()), Err(Error::UNKNOWN_CHANNEL));
    story.play("");
}

#[test]
fn a_client_that_has_not_connected_is_subscribed_to_nothing() {
    let mut story = Story::with(node);
    story.open("ann", touchline_engine::session::TransportMode::Duplex);
    assert_eq!(subscribe(&mut story, "log:a", ServerSubscription::default()), Ok(()));
    assert!(story.requests.is_empty());
    assert_eq!(story.session("ann").subscription_count(), 0);
}

#[test]
fn a_subscription_that_its_home_refuses_or_that_is_over_already_is_not_told() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann'}");
    story.is_slow = true;
    assert_eq!(subscribe(&mut story, "log:a", ServerSubscription::default()), Ok(()));
    story.forge_answer(Response::Refused(Error::INTERNAL));
    story.arrive();
    assert_eq!(story.session("ann").subscription_count(), 0);
    assert_eq!(subscribe(&mut story, "log:a", ServerSubscription::default()), Ok(()));
    story.decide("ann", |session, context| session.server_unsubscribe("log:a", context));
    story.is_slow = false;
    story.play(r#"ann< {"push":{"channel":"log:a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}"#);
    story.decide("ann", |_, _| ());
    story.play("");
    assert_eq!(story.session("ann").subscription_count(), 0);
}

#[test]
fn a_client_is_unsubscribed_from_one_channel_or_from_all() {
    let mut story = Story::with(node);
    let unsubscribe = |story: &mut Story, channel: &str| {
        story.decide("ann", |session, context| session.server_unsubscribe(channel, context))
    };
    story.connect("ann", "{'sub':'ann','channels':['room:a','room:b']}");
    unsubscribe(&mut story, "room:c");
    unsubscribe(&mut story, "room:a");
    story.play(r#"ann< {"push":{"channel":"room:a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}"#);
    assert_eq!(story.code("ann", r#"{"id":2,"presence":{"channel":"room:a"}}"#), 0);
    assert_eq!(subscribe(&mut story, "room:c", ServerSubscription::default()), Ok(()));
    story.received("ann");
    unsubscribe(&mut story, "");
    let mut received = story.received("ann");
    received.sort();
    assert_eq!(received.len(), 2, "{received:?}");
    assert!(
        received[0].contains("room:b")
            && received[1].contains("room:c")
            && received.iter().all(|message| message.contains("2000")),
        "{received:?}"
    );
    assert_eq!(story.session("ann").subscription_count(), 0);
    story.play(
        r#"
        ann> {"id":3,"presence":{"channel":"room:b"}}
        ann< {"id":3,"presence":{"presence":{}}}
        "#,
    );
}

#[test]
fn a_client_that_is_unsubscribed_while_it_connects_has_to_connect_again() {
    let mut story = Story::with(node);
    story.is_slow = true;
    story.say("ann", r#"{"id":1,"connect":{"token":"{'sub':'ann','channels':['room:a']}"}}"#);
    story.decide("ann", |session, context| session.server_unsubscribe("room:a", context));
    let asked: Vec<_> = story.requests.iter().map(|(_, request)| request.split([' ', '(']).next()).collect();
    assert_eq!(asked, [Some("Subscribe"), Some("Unsubscribe")], "the home takes back what it gives");
    story.arrive();
    story.play(
        r#"
        ann< {"push":{"channel":"room:a","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}
        ann< disconnect 3004 internal server error
        "#,
    );
}

#[test]
fn what_cannot_be_continued_is_subscribed_to_again() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann','channels':['room:a']}");
    story.decide("ann", |session, context| session.lose("room:b", context));
    story.decide("ann", |session, context| session.lose("room:a", context));
    story.play(r#"ann< {"push":{"channel":"room:a","unsubscribe":{"code":2500,"reason":"insufficient state"}}}"#);
}

#[test]
fn a_server_side_subscription_that_expires_ends_the_connection() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann'}");
    let subscription = ServerSubscription { expire_at_s: START_S as u32 + 60, ..ServerSubscription::default() };
    assert_eq!(subscribe(&mut story, "room:a", subscription), Ok(()));
    story.play(
        r#"
        ann< {"push":{"channel":"room:a","subscribe":{}}}
        @ 84999
        @ 85500
        ann< disconnect 3006 subscription expired
        "#,
    );
}

#[test]
fn a_connection_is_prolonged_or_ended() {
    let refresh = |story: &mut Story, is_expired: bool, expire_at_s: Option<u64>, info: Option<&'static str>| {
        let act = |session: &mut Session, context: &mut touchline_engine::Context<'_>| {
            session.server_refresh(is_expired, expire_at_s, info.map(Into::into), context);
        };
        story.decide("ann", act);
    };
    for (is_expired, expire_at_s) in
        [(true, None), (true, Some(START_S + 60)), (false, Some(START_S)), (false, Some(START_S - 1))]
    {
        let mut story = Story::with(node);
        story.connect("ann", "{'sub':'ann'}");
        refresh(&mut story, is_expired, expire_at_s, None);
        story.play("ann< disconnect 3005 connection expired");
    }
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann','exp':1000000010,'info':1,'channels':['room:a']}");
    refresh(&mut story, false, Some(START_S + 1), Some("2"));
    story.play(
        r#"
        ann< {"push":{"refresh":{"expires":true,"ttl":1}}}
        ann> {"id":2,"presence":{"channel":"room:a"}}
        ann< {"id":2,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":2}}}}
        @ 25999
        "#,
    );
    refresh(&mut story, false, None, None);
    story.play(
        r#"
        ann> {"id":3,"presence":{"channel":"room:a"}}
        ann< {"id":3,"presence":{"presence":{"<ann>":{"user":"ann","client":"<ann>","conn_info":2}}}}
        @ 49999999
        "#,
    );
    refresh(&mut story, false, Some(u64::MAX), None);
    story.play(r#"ann< {"push":{"refresh":{"expires":true,"ttl":3294917296}}}"#);
}

#[test]
fn a_message_is_for_one_client() {
    let mut story = Story::with(node);
    story.connect("ann", "");
    story.connect("bob", "");
    story.decide("ann", |session, context| session.message(b"{\"hello\":1}", context));
    story.play(r#"ann< {"push":{"message":{"data":{"hello":1}}}}"#);
}
