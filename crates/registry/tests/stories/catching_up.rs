//! A node gets what it lacks from the other's log, or as a snapshot if the log does not reach back far enough.

use std::collections::BTreeSet;

use touchline_registry::{EntryChange, HashSeed, Reason, Replica, ReplicaSettings};

use crate::wire::{Body, claim, record, unclaim};
use crate::{Story, claims, heartbeat, id};

/// A node that has sent `batches` messages of one claim each, all of the same size. Also returns that size.
fn talkative(settings: &ReplicaSettings, batches: u64) -> Story {
    let mut story = Story::following(settings, &[], 0);
    for number in 1..=batches {
        story.register(1, &format!("name-{number:04}"));
        story.here.flush();
    }
    assert_eq!(story.said().len() as u64, batches);
    story
}

fn size_of_a_claim() -> usize {
    claim(0, &record(id(1), 0, 0, "name-0001", "")).len()
}

/// The numbers of the operations in the answer. `None` = the answer was a snapshot.
fn answered(story: &mut Story, first: u64) -> Option<Vec<u64>> {
    let before = story.here.counters().snapshots_sent;
    let (there, now_ms) = ("there".to_owned(), story.now_ms);
    // One interval later, so that a snapshot may be sent again.
    story.now_ms = now_ms + 1_000;
    story.hear("there", Body::Want { to: "here".into(), life: (crate::START_MS, crate::BIRTH), first, nonce: 9 });
    let mut numbers = Vec::new();
    for (to, body) in story.said() {
        assert_eq!(to.as_ref(), Some(&there), "only who asks is answered");
        match body {
            Body::Delta { first, count, .. } => numbers.extend(first..first + count),
            Body::Snapshot { nonce, .. } => assert_eq!((nonce, &*numbers), (9, &[][..])),
            other => panic!("{other:?}"),
        }
    }
    (story.here.counters().snapshots_sent == before).then_some(numbers)
}

#[test]
fn what_the_log_still_has_comes_from_it_and_the_rest_as_a_snapshot() {
    let settings = ReplicaSettings { log_max: 10 * size_of_a_claim(), ..ReplicaSettings::default() };
    let mut story = talkative(&settings, 30);
    assert_eq!(answered(&mut story, 30), Some(vec![30]));
    assert_eq!(answered(&mut story, 25), Some((25..=30).collect()));
    assert_eq!(answered(&mut story, 21), Some((21..=30).collect()), "ten fit into the log");
    assert_eq!(answered(&mut story, 20), None, "and no more");
    assert_eq!(answered(&mut story, 1), None);
    assert_eq!(answered(&mut story, 0), None, "a snapshot was asked for");
    assert_eq!(answered(&mut story, 31), None, "nothing has that number");
}

#[test]
fn a_gap_in_the_middle_of_a_message_is_filled_with_the_whole_of_it() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    for names in [&["a", "b", "c"][..], &["d", "e"], &["f"]] {
        names.iter().for_each(|name| story.register(1, name));
        story.here.flush();
    }
    story.said();
    assert_eq!(answered(&mut story, 3), Some(vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(answered(&mut story, 4), Some(vec![4, 5, 6]));
    assert_eq!(answered(&mut story, 6), Some(vec![6]));
    // Queued operations are sent to all nodes, and are in the answer too.
    story.register(1, "g");
    story.now_ms += 1;
    story.hear("there", Body::Want { to: "here".into(), life: (crate::START_MS, crate::BIRTH), first: 7, nonce: 9 });
    let to: Vec<_> = story.said().into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, [None, Some("there".to_owned())]);
}

#[test]
fn a_log_of_messages_that_the_carrier_takes_no_more_is_not_used() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    (0..20).for_each(|number| story.register(1, &format!("name-{number}")));
    story.here.flush();
    story.register(1, "single");
    story.said();
    assert_eq!(answered(&mut story, 5).map(|all| all.len()), Some(21));
    // The server that the node is connected to now accepts less.
    story.here.set_message_max(500);
    assert_eq!(answered(&mut story, 5), None);
    assert_eq!(answered(&mut story, 21), Some(vec![21]), "what still fits comes from the log");
}

#[test]
fn a_snapshot_comes_in_pieces_of_messages_that_the_carrier_takes() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    (0..40).for_each(|number| story.register(1, &format!("name-{number}")));
    story.said();
    story.here.set_message_max(700);
    story.now_ms += 1;
    story.hear("there", Body::Want { to: "here".into(), life: (crate::START_MS, crate::BIRTH), first: 0, nonce: 9 });
    let (mut names, mut numbers, mut total) = (0, Vec::new(), 0);
    for (to, message) in story.messages() {
        let Body::Snapshot { last, doubt, nonce, part, parts, ref operations } = message.body else { continue };
        assert_eq!((to.as_deref(), last, doubt, nonce), (Some("there"), 40, 0, 9));
        assert!(message.write().len() <= 700, "{} bytes", message.write().len());
        names += operations.windows(5).filter(|window| *window == b"name-").count();
        numbers.push(part);
        total = parts;
    }
    assert_eq!((names, &*numbers), (40, &*(0..total).collect::<Vec<_>>()));
    assert!((4..=6).contains(&total), "the messages are filled: {total}");
}

/// The number of parts of a snapshot that *here* sends.
fn pieces(story: &mut Story) -> usize {
    story.now_ms += 1_000;
    story.hear("there", Body::Want { to: "here".into(), life: (crate::START_MS, crate::BIRTH), first: 0, nonce: 9 });
    story.said().iter().filter(|(_, body)| matches!(body, Body::Snapshot { .. })).count()
}

#[test]
fn what_fits_into_one_message_is_the_same_for_news_the_log_and_snapshots() {
    let mut least = None;
    for message_max in 160..400 {
        let mut story = Story::following(&ReplicaSettings { message_max, ..ReplicaSettings::default() }, &[], 0);
        story.register(1, "name-1");
        story.register(1, "name-2");
        let messages = story.said().len();
        assert_eq!(
            (messages, pieces(&mut story)),
            if least.is_some() || messages == 1 { (1, 1) } else { (2, 2) },
            "{message_max}"
        );
        least = least.or((messages == 1).then_some(message_max));
    }
    // The log has both in one message. The carrier accepts less than that, or exactly that.
    let least = least.expect("both fit");
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.register(1, "name-1");
    story.register(1, "name-2");
    story.said();
    for (message_max, expected) in [(least, Some(vec![1, 2])), (least - 1, None)] {
        story.here.set_message_max(message_max);
        assert_eq!(answered(&mut story, 1), expected);
    }
}

#[test]
fn an_entry_that_is_longer_than_a_message_should_be_travels_alone() {
    let settings = ReplicaSettings { message_max: 10, ..ReplicaSettings::default() };
    let mut story = talkative(&settings, 5);
    assert_eq!(answered(&mut story, 3), Some(vec![3, 4, 5]));
    assert_eq!(pieces(&mut story), 5);
}

#[test]
fn a_gap_is_asked_for_by_its_number_and_what_is_known_is_skipped() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 5);
    story.hear("there", claims(6, &["a", "b"]));
    assert_eq!((story.wanted(), story.changes().len()), (Vec::new(), 2));
    story.hear("there", claims(9, &["d"]));
    assert_eq!((story.wanted(), story.here.lookup("d")), (vec![(8, 0)], None));
    // The answer begins in the middle of what is known: two claims, one of which has been withdrawn since, and new
    // operations.
    let (a, c) = (claim(0, &record(id(200), 1, 0, "a", "")), claim(0, &record(id(200), 1, 0, "c", "")));
    story.hear("there", Body::Delta { first: 8, count: 1, operations: unclaim("a", 0) });
    story.changes();
    story.hear("there", Body::Delta { first: 6, count: 4, operations: [a, c.clone(), unclaim("a", 0), c].concat() });
    assert_eq!(story.changes(), [(EntryChange::Registered, "c".to_owned(), Reason::Normal)]);
    story.hear("there", claims(9, &["x"]));
    story.hear("there", claims(3, &["x", "y"]));
    story.hear("there", Body::Delta { first: u64::MAX, count: 2, operations: Vec::new() });
    assert_eq!(story.changes(), [], "what is known all through is no news");
    assert_eq!(story.here.counters().malformed, 0);
}

#[test]
fn a_heartbeat_tells_what_is_missing() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 5);
    story.hear("there", heartbeat(4));
    story.hear("there", heartbeat(5));
    assert_eq!(story.wanted(), []);
    story.hear("there", heartbeat(6));
    assert_eq!(story.wanted(), [(6, 0)]);
}

#[test]
fn a_digest_that_differs_is_counted_and_a_snapshot_is_asked_for() {
    for (digest, entries, is_right) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 5);
        let (limits, lives) = ((255, 4_096), Vec::new());
        // A digest with an earlier number belongs to an earlier time.
        story.hear("there", Body::Heartbeat { last: 4, digest: 77, entries: 7, limits, lives: lives.clone() });
        assert_eq!((story.here.counters().digests_wrong, story.wanted().len()), (0, 0));
        story.hear("there", Body::Heartbeat { last: 5, digest, entries, limits, lives });
        let wanted: Vec<u64> = story.wanted().into_iter().map(|(first, _)| first).collect();
        let expected = if is_right { (0, &[][..]) } else { (1, &[0][..]) };
        assert_eq!((story.here.counters().digests_wrong, &*wanted), expected);
    }
}

fn snapshot(last: u64, nonce: u64, (part, parts): (u64, u64), names: &[&str]) -> Body {
    let operations: Vec<u8> = names.iter().flat_map(|name| claim(0, &record(id(200), 1, 0, name, ""))).collect();
    Body::Snapshot { last, doubt: 0, nonce, part, parts, operations }
}

#[test]
fn only_the_pieces_of_one_snapshot_make_one() {
    let mut story = Story::new(&ReplicaSettings::default());
    story.hear("there", heartbeat(5));
    let nonce = story.wanted()[0].1;
    story.hear("there", snapshot(5, nonce, (0, 2), &["early-0"]));
    // Meanwhile the node has changed, so the second answer is another snapshot.
    story.hear("there", snapshot(6, nonce, (1, 2), &["late-1"]));
    assert!(!story.sees_there(), "a half of each is none");
    story.hear("there", snapshot(5, nonce, (1, 2), &["early-1"]));
    assert!(!story.sees_there(), "the earlier one does not count any more");
    story.hear("there", snapshot(6, nonce, (1, 2), &["late-1"]));
    assert!(!story.sees_there(), "a piece that comes twice is one");
    story.hear("there", snapshot(6, nonce, (2, 2), &["no such piece"]));
    assert!(!story.sees_there());
    story.hear("there", snapshot(6, nonce, (0, 2), &["late-0"]));
    assert!(story.sees_there());
    let names = story.changes().into_iter().map(|(_, name, reason)| (name, reason)).collect::<Vec<_>>();
    assert_eq!(names, [("late-0".to_owned(), Reason::NodeUp), ("late-1".to_owned(), Reason::NodeUp)]);
    assert_eq!(story.nodes, [("there".to_owned(), true)]);
    // The next operation has the number seven.
    story.hear("there", claims(7, &["seventh"]));
    assert!(story.here.lookup("seventh").is_some());
}

#[test]
fn a_snapshot_in_another_number_of_pieces_is_another_one() {
    let mut story = Story::new(&ReplicaSettings::default());
    story.hear("there", heartbeat(5));
    let nonce = story.wanted()[0].1;
    // The carrier accepts less by now.
    story.hear("there", snapshot(5, nonce, (0, 2), &["a", "b"]));
    story.hear("there", snapshot(5, nonce, (1, 3), &["b"]));
    story.hear("there", snapshot(5, nonce, (2, 3), &["c"]));
    assert!(!story.sees_there());
    story.hear("there", snapshot(5, nonce, (0, 3), &["a"]));
    assert_eq!(story.here.view().names(), 3);
}

#[test]
fn a_number_of_pieces_that_makes_no_sense_is_refused() {
    for parts in [0, 65_537, u64::MAX] {
        let mut story = Story::new(&ReplicaSettings::default());
        story.hear("there", heartbeat(5));
        let nonce = story.wanted()[0].1;
        (0..2).for_each(|part| story.hear("there", snapshot(5, nonce, (part, parts), &["a"])));
        assert!(!story.sees_there() && story.here.lookup("a").is_none(), "{parts}");
        story.hear("there", snapshot(5, nonce, (0, 1), &["a"]));
        assert!(story.sees_there(), "a good one is still taken");
    }
    let mut story = Story::new(&ReplicaSettings::default());
    story.hear("there", heartbeat(5));
    let nonce = story.wanted()[0].1;
    (0..65_536).for_each(|part| story.hear("there", snapshot(5, nonce, (part, 65_536), &[])));
    assert!(story.sees_there(), "as many as may be");
}

#[test]
fn a_snapshot_that_nobody_asked_for_is_not_taken() {
    let mut story = Story::new(&ReplicaSettings::default());
    story.hear("there", heartbeat(5));
    let nonce = story.wanted()[0].1;
    for other in [0, nonce + 1] {
        story.hear("there", snapshot(5, other, (0, 1), &["a"]));
        assert!(!story.sees_there());
    }
    story.hear("there", snapshot(5, nonce, (0, 1), &["a"]));
    assert!(story.sees_there());
    // The snapshot counts once. A later one with the same number was in transit for long.
    story.hear("there", snapshot(6, nonce, (0, 1), &["b"]));
    assert!(story.here.lookup("b").is_none());
    // From a live node, a snapshot without a nonce is the answer to a request for operations.
    story.hear("there", snapshot(4, 0, (0, 1), &["b"]));
    assert!(story.here.lookup("b").is_none(), "it is of an earlier time");
    story.hear("there", snapshot(6, 0, (0, 1), &["b"]));
    assert_eq!((story.here.lookup("a"), story.here.lookup("b").is_some()), (None, true));
    assert_eq!(story.here.counters().snapshots_installed, 2);
}

#[test]
fn each_snapshot_that_is_asked_for_has_a_number_of_its_own() {
    for (birth, at_least) in [(crate::BIRTH, 3), (u64::MAX, 2)] {
        let here = Replica::new("here", birth, ReplicaSettings::default(), HashSeed::repeatable(7), crate::START_MS);
        let mut story = Story { here, ..Story::new(&ReplicaSettings::default()) };
        let mut nonces = BTreeSet::new();
        for node in ["there", "also", "too"] {
            story.hear(node, heartbeat(0));
            nonces.extend(
                story
                    .said()
                    .into_iter()
                    .filter_map(|(_, body)| if let Body::Want { nonce, .. } = body { Some(nonce) } else { None }),
            );
        }
        assert!(nonces.len() >= at_least && !nonces.contains(&0), "zero is no number: {nonces:?}");
    }
}
