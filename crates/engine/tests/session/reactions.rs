//! Reactions of a client: which clients may react, which number a refusal has, and what is counted.

use touchline_engine::reactions::{OpenReactions, ReactionRefusal, RoundId, RoundProgress};

use crate::story::{Settings, Story};
use crate::tokens::calm;

fn node(settings: &mut Settings) {
    calm(settings);
    settings.namespace("crowd", |options| {
        options.allow_subscribe_for_client = true;
        options.reactions = vec!["applause".into(), "boo".into()];
        options.reactions_rate = 2;
    });
    settings.namespace("quiet", |options| options.allow_subscribe_for_client = true);
}

fn ann() -> Story {
    let mut story = Story::with(node);
    story.connect("ann", "{'sub':'ann'}");
    for channel in ["crowd:a", "crowd:b", "quiet:a"] {
        assert_eq!(story.code("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#)), 0);
    }
    story
}

fn add(story: &mut Story, data: &str) -> u64 {
    story.code("ann", &format!(r#"{{"id":3,"rpc":{{"method":"reactions.add","data":{data}}}}}"#))
}

/// Sends a reaction that gets no reply. Returns whether the client is still connected.
fn send(story: &mut Story, data: &str) -> bool {
    story.say("ann", &format!(r#"{{"send":{{"data":{data}}}}}"#));
    story.received("ann").is_empty()
}

fn counts(story: &mut Story) -> Vec<(String, Vec<u64>)> {
    let mut counted: Vec<_> = story
        .reactions
        .take()
        .into_iter()
        .map(|counted| (counted.channel.to_string(), counted.counts.to_vec()))
        .collect();
    counted.sort();
    counted
}

#[test]
fn only_subscribers_react_and_only_with_what_is_open() {
    let mut story = ann();
    for (data, code) in [
        (r#"{"channel":"crowd:a","option":"boo"}"#, 0),
        (r#"{"channel":"crowd:a","option":"applause","n":3}"#, 0),
        (r#"{"channel":"crowd:c","option":"boo"}"#, 103),
        (r#"{"channel":"quiet:a","option":"boo"}"#, 108),
        (r#"{"channel":"crowd:a","option":"yes"}"#, 107),
        (r#"{"channel":"crowd:a","option":"boo","n":11}"#, 107),
        (r#"{"channel":"crowd:a"}"#, 107),
        ("[]", 107),
        ("null", 107),
    ] {
        assert_eq!(add(&mut story, data), code, "{data}");
    }
    assert_eq!(counts(&mut story), [("crowd:a".to_owned(), vec![3, 1])]);
    let (accepted, refused) = story.reactions.take_figures();
    let of = |why: ReactionRefusal| refused[why as usize];
    assert_eq!((accepted, of(ReactionRefusal::Invalid)), (4, 5));
    assert_eq!((of(ReactionRefusal::NotSubscribed), of(ReactionRefusal::NotOpen)), (1, 1));
}

#[test]
fn the_rate_is_that_of_the_connection_whatever_the_channel() {
    let mut story = ann();
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"boo","n":8}"#), 0);
    assert_eq!(add(&mut story, r#"{"channel":"crowd:b","option":"boo","n":3}"#), 111);
    assert_eq!(add(&mut story, r#"{"channel":"crowd:b","option":"boo","n":2}"#), 0);
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"boo"}"#), 111);
    assert_eq!(counts(&mut story), [("crowd:a".to_owned(), vec![0, 8]), ("crowd:b".to_owned(), vec![0, 2])]);
}

#[test]
fn what_is_sent_is_counted_or_refused_without_an_answer() {
    let mut story = ann();
    assert!(send(&mut story, r#"{"method":"reactions.add","data":{"channel":"crowd:a","option":"boo","n":2}}"#));
    assert!(send(&mut story, r#"{"method":"reactions.add","data":{"channel":"crowd:a","option":"none"}}"#));
    assert_eq!(counts(&mut story), [("crowd:a".to_owned(), vec![0, 2])]);
    assert!(!send(&mut story, r#"{"method":"other","data":{}}"#), "nothing else can be sent");
}

#[test]
fn what_the_server_api_has_opened_counts_in_its_round() {
    let mut story = ann();
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"boo"}"#), 0);
    let round = RoundId { opened_ms: 5, opener: "n".into() };
    let mut open = OpenReactions {
        round: round.clone(),
        options: ["yes".into()].into(),
        rate: 100,
        closes_at_ms: story.now_ms + 1_000,
        is_closed: false,
    };
    let mut before = Vec::new();
    story.reactions.set_open("crowd:a".into(), Some(open.clone()), &mut before);
    assert_eq!(before[0].round, RoundId::default(), "it stays in its round");
    assert_eq!((before.len(), &before[1].round, before[1].progress), (2, &round, RoundProgress::Begun));
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"boo"}"#), 107);
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"yes"}"#), 0);
    assert_eq!(story.reactions.take()[0].round, round);
    story.now_ms += 1_000;
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"yes"}"#), 4016, "its time is over");
    (open.closes_at_ms, open.is_closed) = (0, true);
    story.reactions.set_open("crowd:a".into(), Some(open), &mut before);
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"yes"}"#), 4016);
    story.reactions.set_open("crowd:a".into(), None, &mut before);
    assert_eq!(add(&mut story, r#"{"channel":"crowd:a","option":"boo"}"#), 0, "what the namespace says");
}

#[test]
fn a_shard_counts_so_many_channels_at_a_time() {
    let mut story = ann();
    for number in 0..11 {
        let channel = format!("crowd:{number}");
        assert_eq!(story.code("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#)), 0);
        story.now_ms += 10_000;
        let expected = if number < 10 { 0 } else { 106 };
        let round = RoundId { opened_ms: 1, opener: "n".into() };
        let options = ["yes".into()].into();
        let open = OpenReactions { round, options, rate: 1_000, closes_at_ms: 0, is_closed: false };
        story.reactions.set_open(channel.as_str().into(), Some(open), &mut Vec::new());
        assert_eq!(add(&mut story, &format!(r#"{{"channel":"{channel}","option":"yes"}}"#)), expected, "{channel}");
    }
}
