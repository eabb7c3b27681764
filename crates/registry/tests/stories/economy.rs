//! How often nodes ask and answer: a bad link must not cause a storm of requests and snapshots.

use touchline_registry::{ConflictPolicyKind, ReplicaSettings, ReplicaTiming};

use crate::wire::{Body, Life, claim, record};
use crate::{BIRTH, START_MS, Story, claims, heartbeat, id};

const LIFE: Life = (START_MS, BIRTH);

fn want(to: &str, life: Life, first: u64) -> Body {
    Body::Want { to: to.into(), life, first, nonce: 9 }
}

/// The number of snapshots that *here* has sent since the last call.
fn snapshots(story: &mut Story) -> usize {
    story.said().into_iter().filter(|(_, body)| matches!(body, Body::Snapshot { .. })).count()
}

#[test]
fn what_is_missing_is_asked_for_once_in_a_while() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    for (at_ms, asked) in [(0, 1), (1, 0), (299, 0), (300, 1), (301, 0), (599, 0), (600, 1)] {
        story.now_ms = START_MS + at_ms;
        story.hear("there", claims(3, &["c"]));
        story.hear("there", heartbeat(3));
        assert_eq!(story.wanted().len(), asked, "after {at_ms} ms");
    }
    assert_eq!(story.here.counters().gaps, 1 + 3, "the first was for its snapshot");
    // The missing operations arrive and others are missing, which causes another request.
    story.hear("there", claims(1, &["a", "b", "c"]));
    story.hear("there", claims(5, &["e"]));
    assert_eq!(story.wanted(), [(4, 0)]);
}

#[test]
fn a_snapshot_is_asked_for_again_only_when_no_piece_comes() {
    let mut story = Story::new(&ReplicaSettings::default());
    story.hear("there", heartbeat(5));
    let nonce = story.wanted()[0].1;
    let piece = |part| Body::Snapshot { last: 5, doubt: 0, nonce, part, parts: 9, operations: Vec::new() };
    for (at_ms, part) in [(250, 0), (500, 1), (750, 2)] {
        story.now_ms = START_MS + at_ms;
        story.hear("there", piece(part));
        story.now_ms += 249;
        story.hear("there", claims(6, &["a"]));
        assert_eq!(story.wanted(), []);
    }
    story.now_ms = START_MS + 750 + 300;
    story.hear("there", heartbeat(6));
    assert_eq!(story.wanted(), [(0, nonce)], "with the same number: the pieces that are here still count");
}

#[test]
fn a_node_gets_one_snapshot_in_an_interval() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.register(1, "bike");
    story.said();
    for (at_ms, sent) in [(0, 1), (1, 0), (999, 0), (1_000, 1), (1_001, 0), (2_000, 1)] {
        story.now_ms = START_MS + at_ms;
        story.hear("there", want("here", LIFE, 0));
        assert_eq!(snapshots(&mut story), sent, "after {at_ms} ms");
    }
    assert_eq!(story.here.counters().snapshots_sent, 3);
    story.hear("also", want("here", LIFE, 0));
    assert_eq!(snapshots(&mut story), 1, "each node has an interval of its own");
}

#[test]
fn only_questions_to_this_life_are_answered() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.register(1, "bike");
    story.said();
    let (order, birth) = LIFE;
    for (to, life) in
        [("also", LIFE), ("here", (order - 1, birth)), ("here", (order + 1, birth)), ("here", (order, birth + 1))]
    {
        story.hear("there", want(to, life, 0));
        story.hear("there", want(to, life, 1));
        assert_eq!(story.said(), [], "{to} {life:?}");
    }
    story.hear("there", want("here", LIFE, 0));
    assert_eq!(snapshots(&mut story), 1);
}

#[test]
fn commands_of_one_moment_travel_together() {
    let mut story = Story::following(&ReplicaSettings { message_max: 1_000, ..ReplicaSettings::default() }, &[], 0);
    (0..100).for_each(|number| story.register(1, &format!("name-{number:04}")));
    let mut next = 1;
    let messages = story.messages();
    for (to, message) in &messages {
        let Body::Delta { first, count, .. } = message.body else { panic!("{message:?}") };
        let length = message.write().len();
        assert_eq!((to, first), (&None, next));
        assert!(length <= 1_000 && (length > 700 || next + count == 101), "{length} bytes");
        next += count;
    }
    assert_eq!(next, 101);
    story.here.flush();
    assert_eq!(story.messages(), [], "nothing is said twice");
}

/// A day of requests, losses and silences, with the clock set ahead by an hour in the middle. Every interval lasts as
/// long as before.
#[test]
fn a_clock_that_is_set_ahead_changes_no_interval() {
    let day = |set_at: Option<usize>| {
        let timing = ReplicaTiming {
            heartbeat_ms: 1_700,
            retry_ms: 900,
            snapshot_interval_ms: 1_300,
            ..ReplicaTiming::default()
        };
        let mut story = Story::following(
            &ReplicaSettings { timing, policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() },
            &[],
            0,
        );
        story.register(1, "bike");
        let mut told = Vec::new();
        for step in 0..260 {
            story.now_ms += 100;
            if set_at == Some(step) {
                story.here.clock_set(3_600_000);
                story.now_ms += 3_600_000;
            }
            match step {
                // The backend is asked about this name, and does not answer.
                65 => {
                    let rival = claim(0, &record(id(200), (START_MS << 16) + (1 << 40), 0, "bike", ""));
                    story.hear("there", Body::Delta { first: 1, count: 1, operations: rival });
                }
                0..70 => story.hear("there", claims(3, &["c"])),
                // The node is silent until it is purged.
                70..150 => {}
                // This node is purged itself after a standstill. It checks its connections, in vain.
                150 => {
                    story.stand_still(2_600);
                    let life = story.life();
                    story.hear_of("there", (2, 2), Body::Outdated { to: "here".into(), past: life, known: life });
                }
                151..258 => {}
                _ => story.hear_of("there", (3, 3), heartbeat(0)),
            }
            if step < 70 {
                story.hear("there", want("here", LIFE, 0));
            }
            story.here.tick(story.now_ms);
            let kinds: Vec<_> =
                story.messages().into_iter().map(|(_, message)| std::mem::discriminant(&message.body)).collect();
            let seen = story.here.counters();
            told.push((step, kinds, story.probes, story.nodes.clone(), seen.reincarnations, seen.hooks_failed));
        }
        told
    };
    let expected = day(None);
    assert_eq!(
        expected.last().map(|(_, _, probes, nodes, lives, silent)| (*probes, nodes.len(), *lives, *silent)),
        Some((1, 2, 1, 1))
    );
    for step in 0..260 {
        assert_eq!(day(Some(step)), expected, "set at step {step}");
    }
}
