//! What capabilities and `allow` grant: to a new subscription, and to one whose grants change.

use touchline_engine::ChannelOptions;
use touchline_engine::session::ServerSubscription;

use crate::story::{Settings, Story, with_history};
use crate::tokens::calm;

const DENIED: u64 = 103;

/// A node with two namespaces whose options permit nothing. `room` has everything that can be granted; `told` has a
/// backend that is asked about its channels.
fn node(settings: &mut Settings) {
    calm(settings);
    settings.channel.namespaces.clear();
    let full = |options: &mut ChannelOptions| {
        with_history(options);
        (options.presence, options.join_leave) = (true, true);
    };
    settings.namespace("room", full);
    settings.namespace("told", |options| {
        full(options);
        options.subscribe_proxy_enabled = true;
    });
    settings.scope("devices", |_| ());
}

fn with_caps(allow: &str) -> String {
    format!("{{'sub':'ann','caps':[{{'channels':['room:*'],'match':'wildcard','allow':[{allow}]}}]}}")
}

fn of_channel(allow: &str) -> String {
    format!("{{'sub':'ann','channel':'room:a','allow':[{allow}]}}")
}

/// Subscribes to `room:a` and asks for everything. Returns whether the client gets a position, and join and leave
/// events.
fn subscribed(story: &mut Story, token: &str) -> [bool; 2] {
    story.say(
        "ann",
        &format!(
            r#"{{"id":2,"subscribe":{{"channel":"room:a","token":"{token}",\
            "positioned":true,"recoverable":true,"join_leave":true}}}}"#
        )
        .replace("\\\n", ""),
    );
    let reply = story.received("ann").join("");
    assert!(reply.contains(r#""subscribe":"#), "{reply}");
    assert_eq!(reply.contains("positioned"), reply.contains("recoverable"), "{reply}");
    [reply.contains("positioned"), hears_joins(story)]
}

/// Whether ann gets join and leave events.
fn hears_joins(story: &mut Story) -> bool {
    let claims = "{'sub':'bob','channels':['room:a']}";
    let name = String::leak(format!("bob{}", story.now_ms));
    story.now_ms += 1;
    story.connect(name, claims);
    let joined = story.received("ann").join("").contains(r#""join":"#);
    story.decide(name, |session, context| session.server_unsubscribe("", context));
    assert_eq!(story.received("ann").join("").contains(r#""leave":"#), joined);
    story.received(name);
    joined
}

/// The code with which ann's subscription ends: 0 = it continues.
fn ended(story: &mut Story) -> u64 {
    let received = story.received("ann").join("");
    [2_000, 2_500]
        .into_iter()
        .find(|code| received.contains(&format!(r#""unsubscribe":{{"code":{code}"#)))
        .unwrap_or_default()
}

fn refresh(story: &mut Story, claims: &str) -> u64 {
    story.say("ann", &format!(r#"{{"id":7,"refresh":{{"token":"{claims}"}}}}"#));
    ended(story)
}

fn sub_refresh(story: &mut Story, claims: &str) -> u64 {
    story.say("ann", &format!(r#"{{"id":7,"sub_refresh":{{"channel":"room:a","token":"{claims}"}}}}"#));
    ended(story)
}

#[test]
fn a_new_subscription_has_what_its_own_token_and_the_connection_grant() {
    for (caps, allow, expected) in [
        ("", "", [false, false]),
        ("", "'hst'", [true, false]),
        ("", "'prs'", [false, true]),
        ("", "'hst','prs'", [true, true]),
        ("'hst'", "'prs'", [true, true]),
        ("'hst','prs'", "", [true, true]),
        ("'sub','pub'", "'pub'", [false, false]),
    ] {
        let mut story = Story::with(node);
        story.connect("ann", &with_caps(caps));
        assert_eq!(subscribed(&mut story, &of_channel(allow)), expected, "caps {caps}, allow {allow}");
    }
}

#[test]
fn what_a_refresh_takes_away_ends_what_it_had_granted() {
    for (before, after, expected) in [
        ("'sub','hst','prs'", "'sub','hst','prs'", 0),
        ("'sub','hst','prs'", "'hst','prs'", 2_000),
        ("'sub','hst','prs'", "'sub','prs'", 2_500),
        ("'sub','hst','prs'", "'sub','hst'", 2_500),
        ("'sub','pub'", "'sub'", 0),
        ("'sub'", "'sub','hst','prs'", 0),
    ] {
        let mut story = Story::with(node);
        story.connect("ann", &with_caps(before));
        let had = subscribed(&mut story, "");
        assert_eq!(had, [before.contains("hst"), before.contains("prs")]);
        assert_eq!(refresh(&mut story, &with_caps(after)), expected, "{before} to {after}");
        if expected == 2_500 {
            // The client subscribes again, as SDKs do.
            let has = [after.contains("hst"), after.contains("prs")];
            assert_eq!(subscribed(&mut story, ""), has, "{before} to {after}");
        }
        assert_eq!(refresh(&mut story, &with_caps(after)), 0, "nothing is taken away twice");
    }
    // If an option permits it too, no refresh withdraws it.
    let mut story = Story::with(|settings| {
        node(settings);
        let options = &mut settings.channel.namespaces[0].options;
        (options.allow_subscribe_for_client, options.allow_presence_for_subscriber) = (true, true);
        options.allow_recovery = true;
        options.allow_positioning = true;
    });
    story.connect("ann", &with_caps("'sub','hst','prs'"));
    assert_eq!(subscribed(&mut story, ""), [true, true]);
    assert_eq!(refresh(&mut story, "{'sub':'ann'}"), 0);
}

#[test]
fn what_a_token_of_the_channel_takes_away_ends_too() {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann'}");
    assert_eq!(subscribed(&mut story, &of_channel("'hst','prs'")), [true, true]);
    assert_eq!(sub_refresh(&mut story, &of_channel("'prs','hst','pub'")), 0);
    assert_eq!(refresh(&mut story, &with_caps("'prs'")), 0);
    assert_eq!(sub_refresh(&mut story, &of_channel("'hst'")), 0, "the connection grants it now");
    assert_eq!(refresh(&mut story, "{'sub':'ann'}"), 2_500);
}

#[test]
fn who_is_permitted_anew_does_not_live_by_caps_any_more() {
    for by_token in [true, false] {
        let mut story = Story::with(node);
        story.connect("ann", &with_caps("'sub'"));
        subscribed(&mut story, "");
        if by_token {
            assert_eq!(sub_refresh(&mut story, &of_channel("")), 0);
        } else {
            let subscription = ServerSubscription::default();
            story
                .decide("ann", |session, context| session.server_subscribe("room:a", subscription, context))
                .expect("the channel can be subscribed to");
        }
        assert_eq!(refresh(&mut story, "{'sub':'ann'}"), 0, "by a token: {by_token}");
    }
}

#[test]
fn a_subscribe_that_still_waits_is_answered_by_what_is_granted_in_the_end() {
    for (after, answer, end) in [("", "103", 0), ("'sub'", r#""subscribe":"#, 2_500), ("'sub','hst'", "epoch", 0)] {
        let mut story = Story::with(node);
        story.connect("ann", &with_caps("'sub','hst'"));
        story.is_slow = true;
        story.say("ann", r#"{"id":2,"subscribe":{"channel":"room:a","positioned":true}}"#);
        story.say("ann", &format!(r#"{{"id":3,"refresh":{{"token":"{}"}}}}"#, with_caps(after)));
        let refreshed = story.received("ann").join("");
        assert!(refreshed.contains(r#""refresh":"#) && !refreshed.contains("unsubscribe"), "{refreshed}");
        while story.under_way() > 0 {
            story.arrive();
        }
        let received = story.received("ann");
        assert!(received[0].contains(answer), "{after}: {received:?}");
        assert_eq!(received.iter().any(|push| push.contains("2500")), end == 2_500, "{after}: {received:?}");
        assert_eq!(story.session("ann").subscription_count(), usize::from(answer == "epoch"), "{after}");
    }
}

#[test]
fn only_the_registry_publishes_into_the_channel_of_a_scope() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.client.insecure = true;
        settings.namespace("registry", |options| {
            (options.allow_publish_for_client, options.publish_proxy_enabled) = (true, true);
        });
    });
    story.connect("ann", "{'sub':'ann','caps':[{'channels':['*'],'match':'wildcard','allow':['sub','pub']}]}");
    for channel in ["$registry:devices", "$registry:", "$registry:none"] {
        let publish = format!(r#"{{"id":2,"publish":{{"channel":"{channel}","data":1}}}}"#);
        assert_eq!(story.code("ann", &publish), DENIED, "{channel}");
    }
    assert!(story.questions.is_empty(), "no backend is asked");
}

#[test]
fn a_backend_that_is_asked_decides_about_every_channel_that_reaches_it() {
    for (is_insecure, channel, is_asked) in [
        (false, "told:a", true),
        (false, "told:a#ann", false),
        (false, "$told:a", false),
        (true, "told:a", true),
        (true, "told:a#ann", true),
        (true, "$told:a", true),
    ] {
        let mut story = Story::with(|settings| {
            node(settings);
            settings.client.insecure = is_insecure;
        });
        story.connect("ann", "{'sub':'ann'}");
        story.say("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#));
        let received = story.received("ann").join("");
        assert_eq!(!story.questions.is_empty(), is_asked, "{channel} {is_insecure}");
        assert_eq!(received.contains("103"), !is_asked, "{channel} {is_insecure}: {received}");
    }
}
