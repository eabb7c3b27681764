//! Pings and pongs, with exact times in milliseconds.

use std::time::Duration;

use touchline_engine::session::TransportMode;

use crate::story::Story;

#[test]
fn pings_come_at_their_interval_and_a_missing_pong_ends_the_connection() {
    let mut story = Story::with(|_| ());
    story.connect("ann", "");
    story.play(
        r#"
        @ 12499
        @ 12500
        ann< ping
        ann> {}
        @ 37499
        @ 37500
        ann< ping
        @ 45499
        ann> {}
        @ 62499
        @ 62500
        ann< ping
        @ 70499
        @ 70500
        ann< disconnect 3012 no pong
        "#,
    );
}

#[test]
fn the_first_pings_of_many_clients_are_spread_over_half_an_interval() {
    for (random, first) in
        [(0, 12_500), (1, 12_501), (12_499, 24_999), (12_500, 12_500), (u64::MAX, 12_500 + u64::MAX % 12_500)]
    {
        let mut story = Story::with(|_| ());
        story.random = random;
        story.connect("ann", "");
        assert_eq!(story.deadline("ann"), first, "with {random}");
    }
    let mut story = Story::with(|settings| settings.client.ping_interval = Duration::from_millis(1));
    story.connect("ann", "");
    assert_eq!(story.deadline("ann"), 0, "an interval that has no half");
}

#[test]
fn a_pong_without_a_ping_is_a_mistake() {
    for (link, expected) in [
        (TransportMode::Duplex, "disconnect 3501 bad request"),
        (TransportMode::Emulated, "disconnect 3501 bad request"),
        (TransportMode::Lines, ""),
    ] {
        let mut story = Story::with(|_| ());
        story.open("ann", link);
        assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0);
        story.say("ann", "{}");
        assert_eq!(story.received("ann").join(""), expected, "{link:?}");
    }
}

#[test]
fn a_client_that_does_not_have_to_reply_is_only_pinged() {
    for link in [TransportMode::Lines, TransportMode::OneWay] {
        let mut story = Story::with(|_| ());
        story.open("ann", link);
        story.say("ann", if link == TransportMode::Lines { r#"{"id":1,"connect":{}}"# } else { "{}" });
        assert_eq!(story.received("ann").len(), 1);
        story.play("@ 12500\nann< ping\n@ 37499\n@ 37500\nann< ping\n@ 62500\nann< ping");
        assert!(!story.session("ann").awaits_pong());
    }
}

#[test]
fn a_node_that_was_suspended_pings_all_clients_at_once() {
    let mut story = Story::with(|_| ());
    story.connect("ann", "");
    story.decide("ann", |session, context| session.probe(context));
    story.play("ann< ping\n@ 1000");
    assert!(story.session("ann").awaits_pong());
    // A client whose pong is awaited gets no further ping, and a client that has not connected gets none at all.
    story.decide("ann", |session, context| session.probe(context));
    story.play("ann> {}");
    assert!(!story.session("ann").awaits_pong());
    story.open("bob", TransportMode::Duplex);
    story.decide("bob", |session, context| session.probe(context));
    story.play("@ 10999\n@ 11000\nbob< disconnect 3502 stale");
    // The next ping comes an interval after that probe.
    story.play("@ 24999\n@ 25000\nann< ping");
}

#[test]
fn a_pong_that_stands_behind_something_else_is_waited_for() {
    let (pong_timeout, interval) = (Duration::from_secs(8), Duration::from_secs(25));
    let wait = |story: &mut Story| {
        let now_ms = story.now_ms;
        story.decide("ann", |session, _| session.wait_longer(now_ms, pong_timeout, interval))
    };
    let mut story = Story::with(|_| ());
    story.open("ann", TransportMode::Duplex);
    assert!(!wait(&mut story), "before its connect there is nothing to wait for");
    story.play(
        r#"
        ann> {"id":1,"connect":{}}
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","ping":25,"pong":true}}
        "#,
    );
    assert!(!wait(&mut story), "nor before a ping");
    story.play("@ 12500\nann< ping\n@ 20499");
    assert!(!wait(&mut story), "nor before the pong is due");
    assert_eq!(story.deadline("ann"), 20_500);
    story.now_ms += 1;
    assert!(!wait(&mut story), "the next ping is not due");
    assert_eq!(story.deadline("ann"), 28_500, "the pong may come until then");
    story.play("@ 28499");
    story.now_ms += 1;
    assert!(!wait(&mut story));
    assert_eq!(story.deadline("ann"), 36_500);
    story.now_ms += 8_100;
    assert!(!wait(&mut story), "late, but before the next ping is due");
    assert_eq!(story.deadline("ann"), 44_600);
    story.now_ms += 8_000;
    assert!(wait(&mut story), "the next ping is due meanwhile");
    assert_eq!(story.deadline("ann"), 52_600);
    // The pong arrives after all. The next ping comes an interval after the one that was due. Both pings are answered.
    story.play("ann> {}\nann> {}");
    assert_eq!(story.deadline("ann"), 69_600);
    story.play("@ 69599\n@ 69600\nann< ping\n@ 77600\nann< disconnect 3012 no pong");
    assert!(!wait(&mut story), "it is over");
}

#[test]
fn there_are_no_more_pongs_than_pings() {
    let mut story = Story::with(|_| ());
    story.open("ann", TransportMode::Duplex);
    story.play(
        r#"
        ann> {"id":1,"connect":{}}
        ann< {"id":1,"connect":{"client":"<ann>","version":"1.0","ping":25,"pong":true}}
        @ 12500
        ann< ping
        "#,
    );
    story.now_ms += 25_100;
    let now_ms = story.now_ms;
    let (pong_timeout, interval) = (Duration::from_secs(8), Duration::from_secs(25));
    story.decide("ann", |session, _| assert!(session.wait_longer(now_ms, pong_timeout, interval), "a second ping"));
    story.play("ann> {}\nann> {}\nann> {}\nann< disconnect 3501 bad request");
}

#[test]
fn a_client_that_sends_lines_may_be_silent_for_so_long() {
    for (line_idle, ends) in [(60, true), (0, false)] {
        let mut story = Story::with(|settings| {
            settings.line_idle = Duration::from_secs(line_idle);
            settings.client.ping_interval = Duration::from_secs(1);
        });
        story.open("ann", TransportMode::Lines);
        story.connect("bob", "");
        story.say("ann", r#"{"id":1,"connect":{}}"#);
        story.received("ann");
        story.play(
            "@ 600\nann< ping\nbob< ping\nbob> {}\n@ 10999\nann< ping\nbob< ping\nbob> {}\nann> {}\n\
             @ 70999\nann< ping\nbob< ping\nbob> {}",
        );
        story.play(if ends {
            "@ 72999\nann< disconnect 4000 idle\nbob< ping"
        } else {
            "@ 72999\nann< ping\nbob< ping"
        });
    }
}
