//! Bans: which clients may connect, which may stay, and what a client gets.

use std::sync::Arc;

use touchline_engine::bans::{Ban, BanRefusal, Bans};
use touchline_engine::hook::parse_answer;
use touchline_engine::session::TransportMode;
use touchline_protocol::fact::FactChange;
use touchline_registry::HashSeed;

use crate::story::{START_S, Story};
use crate::tokens::calm;

fn story() -> Story {
    Story::with(calm)
}

impl Story {
    fn ban(&mut self, ban: &Ban, expires_s: u64) {
        self.node.bans.change(&[FactChange::Put(ban.fact(expires_s))], self.now_ms / 1_000);
    }

    fn lift(&mut self, ban: &Ban) {
        self.node.bans.change(&[FactChange::Remove(ban.key())], self.now_ms / 1_000);
    }
}

fn user(name: &str) -> Ban {
    Ban::User(name.into())
}

fn token(uid: &str) -> Ban {
    Ban::Token(uid.into())
}

fn early(user: &str, issued_before_s: u32) -> Ban {
    Ban::TokensOfUser { user: user.into(), issued_before_s }
}

const CONNECT: &str = r#"{"id":1,"connect":{"token":"CLAIMS"}}"#;

fn connect(claims: &str) -> String {
    CONNECT.replace("CLAIMS", claims)
}

#[test]
fn bans_refuse_a_connect_for_good() {
    let mut story = story();
    story.ban(&user("ann"), 0);
    story.ban(&token("t1"), 0);
    story.ban(&token("17"), 0);
    story.ban(&early("bob", 100), 0);
    let cases = [
        ("{'sub':'ann'}", 3503),
        ("{'sub':'ann','jti':'t1','iat':1}", 3503),
        ("{'sub':'eve','jti':'t1'}", 3500),
        ("{'jti':'t1'}", 3500),
        ("{'sub':'eve','jti':17}", 3500),
        ("{'sub':'eve','jti':'t2'}", 0),
        ("{'sub':'eve','jti':['t1'],'iat':'long ago'}", 0),
        ("{'sub':'bob'}", 3500),
        ("{'sub':'bob','iat':99}", 3500),
        ("{'sub':'bob','iat':99.9}", 3500),
        ("{'sub':'bob','iat':'soon'}", 3500),
        ("{'sub':'bob','iat':100}", 0),
        ("{'sub':'bobby','iat':1}", 0),
    ];
    for (number, (claims, expected)) in cases.into_iter().enumerate() {
        let name = format!("client-{number}");
        assert_eq!(story.code(&name, &connect(claims)), expected, "{claims}");
    }
    let refused: u64 = story.node.bans.refused().map(|(_, count)| count).sum();
    assert_eq!(refused, cases.iter().filter(|(_, code)| *code != 0).count() as u64);
}

/// Every user that can connect can also be banned.
#[test]
fn what_no_ban_could_name_is_refused() {
    let mut story = story();
    let (long, longer) = ("x".repeat(1_024), "x".repeat(1_025));
    let cases = [
        (format!("{{'sub':'{long}','jti':'{long}'}}"), 0),
        (format!("{{'sub':'{longer}'}}"), 3500),
        (format!("{{'sub':'ann','jti':'{longer}'}}"), 3500),
        ("{'sub':'ann','jti':''}".to_owned(), 0),
        ("{'sub':'ann','jti':'a\u{85}b'}".to_owned(), 3500),
    ];
    for (number, (claims, expected)) in cases.into_iter().enumerate() {
        let name = format!("client-{number}");
        assert_eq!(story.code(&name, &connect(&claims)), expected, "{claims}");
    }
}

/// A time in the future would make a token younger than every ban.
#[test]
fn an_iat_that_cannot_be_counts_as_absent() {
    let mut story = story();
    story.ban(&early("ann", START_S as u32), 0);
    for (number, iat) in [START_S * 1_000, u64::from(u32::MAX), START_S + 61].into_iter().enumerate() {
        let claims = format!("{{'sub':'ann','iat':{iat}}}");
        assert_eq!(story.code(&format!("client-{number}"), &connect(&claims)), 3500, "{claims}");
    }
    let soon = format!("{{'sub':'ann','iat':{}}}", START_S + 60);
    assert_eq!(story.code("soon", &connect(&soon)), 0, "clocks differ a little");
}

#[test]
fn a_ban_ends_at_its_time() {
    let mut story = story();
    story.ban(&user("ann"), START_S + 10);
    assert_eq!(story.code("one", &connect("{'sub':'ann'}")), 3503);
    story.at(9_999);
    assert_eq!(story.code("two", &connect("{'sub':'ann'}")), 3503);
    story.at(10_000);
    assert_eq!(story.code("three", &connect("{'sub':'ann'}")), 0);
}

#[test]
fn a_client_without_a_token_is_judged_by_its_user_alone() {
    let mut story = story();
    story.ban(&early("ann", u32::MAX), 0);
    story.ban(&early("", u32::MAX), 0);
    story.open("anonymous", TransportMode::Duplex);
    assert_eq!(story.code("anonymous", r#"{"id":1,"connect":{}}"#), 0);
    story.open("ann", TransportMode::Duplex);
    story.decide("ann", |session, _| session.certify("ann".into()));
    assert_eq!(story.code("ann", r#"{"id":1,"connect":{}}"#), 0, "a certificate is no token");
    story.ban(&user("ann"), 0);
    assert!(story.decide("ann", |session, context| session.end_if_banned(context)));
    assert!(!story.decide("anonymous", |session, context| session.end_if_banned(context)));
}

#[test]
fn nobody_is_refused_for_good_while_bans_are_not_known() {
    for (is_strict, is_loaded, expected) in [(false, false, 100), (true, true, 100), (false, true, 0)] {
        let mut story = story();
        story.node.bans = Arc::new(Bans::new(HashSeed::repeatable(7), is_strict));
        if is_loaded {
            story.node.bans.replace(&[], START_S);
            story.node.bans.cut_off();
        }
        assert_eq!(story.code("ann", &connect("{'sub':'ann'}")), expected);
        story.open("listener", TransportMode::OneWay);
        let one_way = story.code("listener", r#"{"token":"{'sub':'ann'}"}"#);
        assert_eq!(one_way, if expected == 0 { 0 } else { 3004 }, "it comes back");
        let waiting = if is_loaded { BanRefusal::CutOff } else { BanRefusal::Waiting };
        let count = story.node.bans.refused().find(|(refusal, _)| *refusal == waiting).map(|(_, count)| count);
        assert_eq!(count, Some(if expected == 0 { 0 } else { 2 }));
    }
}

#[test]
fn a_token_that_prolongs_is_judged_and_counts_from_then_on() {
    let mut story = story();
    story.connect("ann", "{'sub':'ann','jti':'t1','iat':1}");
    story.ban(&token("t2"), 0);
    let refresh = |token: &str| format!(r#"{{"id":2,"refresh":{{"token":"{token}"}}}}"#);
    assert_eq!(story.code("ann", &refresh("{'sub':'ann','jti':'t3','iat':5}")), 0);
    story.ban(&token("t1"), 0);
    story.ban(&early("ann", 5), 0);
    assert!(!story.decide("ann", |session, context| session.end_if_banned(context)), "it has a newer token");
    assert_eq!(story.code("ann", &refresh("{'sub':'ann','jti':'t2','iat':9}")), 3500);
    story.connect("bob", "{'sub':'bob'}");
    story.ban(&user("bob"), 0);
    assert_eq!(story.code("bob", &refresh("{'sub':'bob'}")), 3503);
}

#[test]
fn a_refresh_waits_while_nobody_is_let_in() {
    let mut story = story();
    story.node.bans = Arc::new(Bans::new(HashSeed::repeatable(7), true));
    story.node.bans.replace(&[], START_S);
    story.connect("ann", "{'sub':'ann'}");
    story.node.bans.cut_off();
    let refresh = r#"{"id":2,"refresh":{"token":"{'sub':'ann'}"}}"#;
    assert_eq!(story.code("ann", refresh), 100);
    story.node.bans.replace(&[], START_S);
    assert_eq!(story.code("ann", refresh), 0);
}

/// A backend cannot prolong a connection in this state either: it is asked again.
#[test]
fn a_refresh_by_the_backend_waits_too() {
    let mut story = Story::with(|settings| {
        calm(settings);
        settings.client.proxy.connect.enabled = true;
        settings.client.proxy.refresh.enabled = true;
    });
    story.node.bans = Arc::new(Bans::new(HashSeed::repeatable(7), true));
    story.node.bans.replace(&[], START_S);
    story.open("ann", TransportMode::Duplex);
    story.say("ann", r#"{"id":1,"connect":{}}"#);
    let answer = |story: &mut Story, until_s: u64| {
        let kind = story.questions[0].1.request.kind();
        let json = format!(r#"{{"result":{{"user":"ann","expire_at":{until_s}}}}}"#);
        let outcome = parse_answer(kind, json.as_bytes(), &Default::default()).expect("it can be read");
        story.answer_question(0, outcome);
    };
    answer(&mut story, START_S + 10);
    story.node.bans.cut_off();
    story.at(20_000);
    answer(&mut story, START_S + 1_000);
    story.at(25_000);
    assert_eq!(story.questions.len(), 1, "it is asked again soon, because the connection was not prolonged");
    story.node.bans.replace(&[], START_S);
    answer(&mut story, START_S + 1_000);
    story.at(500_000);
    assert_eq!(story.questions.len(), 0, "it was prolonged");
    story.received("ann");
    assert_eq!(story.code("ann", r#"{"id":9,"rpc":{"method":"none"}}"#), 108, "it is served");
}

#[test]
fn a_banned_subscription_token_gives_no_subscription_and_costs_no_connection() {
    let mut story = story();
    story.connect("ann", "{'sub':'ann','iat':100}");
    story.ban(&token("s1"), 0);
    story.ban(&early("ann", 50), 0);
    let subscribe = |claims: &str| {
        let token = format!("{{'sub':'ann','channel':'room:a',{claims}}}");
        format!(r#"{{"id":2,"subscribe":{{"channel":"room:a","token":"{token}"}}}}"#)
    };
    assert_eq!(story.code("ann", &subscribe("'jti':'s1','iat':90")), 103);
    assert_eq!(story.code("ann", &subscribe("'jti':'s2','iat':49")), 103);
    assert_eq!(story.code("ann", &subscribe("'jti':'s2'")), 103, "without iat it is older than every time");
    assert_eq!(story.code("ann", &subscribe("'jti':'s2','iat':90")), 0);
    let refresh = |claims: &str| subscribe(claims).replace("\"subscribe\"", "\"sub_refresh\"");
    assert_eq!(story.code("ann", &refresh("'jti':'s1','iat':90")), 103);
    assert_eq!(story.code("ann", &refresh("'jti':'s3','iat':90")), 0);
    assert_eq!(story.session("ann").subscription_count(), 1);
}

#[test]
fn a_blocked_client_does_not_subscribe_before_its_connection_is_found() {
    let mut story = story();
    story.connect("ann", "{'sub':'ann'}");
    story.ban(&user("ann"), 0);
    assert_eq!(story.code("ann", r#"{"id":2,"subscribe":{"channel":"open"}}"#), 3503);
    let ended: Vec<u64> = story.node.bans.ended().map(|(_, count)| count).collect();
    assert_eq!(ended, [1, 0, 0]);
}

#[test]
fn a_ban_that_comes_while_a_client_connects_is_not_missed() {
    let mut story = story();
    story.is_slow = true;
    story.say("ann", &connect("{'sub':'ann','channels':['room:a']}"));
    story.say("bob", &connect("{'sub':'bob','channels':['room:a']}"));
    story.ban(&user("ann"), 0);
    while story.under_way() > 0 {
        story.arrive();
    }
    assert_eq!(story.received("ann"), ["disconnect 3503 force disconnect"]);
    let received = story.received("bob");
    assert!(received[0].starts_with(r#"{"id":1,"connect":{"client":"#), "{received:?}");
}

#[test]
fn a_ban_that_is_lifted_lets_the_client_in_again() {
    let mut story = story();
    story.ban(&user("ann"), 0);
    story.lift(&user("ann"));
    assert_eq!(story.code("ann", &connect("{'sub':'ann'}")), 0);
}
