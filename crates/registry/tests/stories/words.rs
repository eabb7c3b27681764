//! The messages between nodes are those of `docs/internals/replication.md`. Anything else is counted and changes
//! nothing.

use touchline_registry::{
    ConflictPolicyKind, EntryChange, HashSeed, Limits, Output, Reason, Replica, ReplicaSettings, Stamp,
};

use crate::wire::{Body, Message, TRUST, claim, close, join, leave, record, unclaim};
use crate::{BIRTH, OTHER_LIFE, START_MS, Story, claims, heartbeat, id};

const STAMP: u64 = START_MS << 16;

#[test]
fn each_command_is_said_once_as_one_operation() {
    let mut story = Story::new(&ReplicaSettings::default());
    let here = &mut story.here;
    here.register(id(1), "bike", b"red", false, START_MS).expect("free");
    here.update_meta(id(1), "bike", b"", None).expect("owned");
    here.join(id(2), "crew", b"a", START_MS).expect("within limits");
    here.join(id(3), "crew", b"", START_MS).expect("within limits");
    here.leave(id(2), "crew").expect("a member");
    here.register(id(1), "boat", b"", false, START_MS).expect("free");
    here.unregister(id(1), "boat").expect("owned");
    here.close(id(3));
    let operations = [
        claim(0, &record(id(1), STAMP, 0, "bike", "red")),
        claim(0, &record(id(1), STAMP, 1, "bike", "")),
        join(&record(id(2), STAMP + 1, 0, "crew", "a")),
        join(&record(id(3), STAMP + 2, 0, "crew", "")),
        leave("crew", id(2), 0),
        claim(0, &record(id(1), STAMP + 3, 0, "boat", "")),
        unclaim("boat", 0),
        close(id(3), 1),
    ];
    assert_eq!(story.said(), [(None, Body::Delta { first: 1, count: 8, operations: operations.concat() })]);
}

#[test]
fn each_operation_of_another_node_is_carried_out() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    let bike = |revision, meta| record(id(1), STAMP, revision, "bike", meta);
    let crew = |member, meta| record(id(member), STAMP, 0, "crew", meta);
    let (name, group) = ("bike".to_owned(), "crew".to_owned());
    let steps = [
        (claim(0, &bike(0, "red")), EntryChange::Registered, &name, Reason::Normal),
        (claim(0, &bike(1, "blue")), EntryChange::Updated, &name, Reason::Normal),
        (unclaim("bike", 2), EntryChange::Unregistered, &name, Reason::Conflict),
        (join(&crew(1, "a")), EntryChange::Joined, &group, Reason::Normal),
        (join(&crew(1, "b")), EntryChange::MemberUpdated, &group, Reason::Normal),
        (leave("crew", id(1), 0), EntryChange::Left, &group, Reason::Normal),
        (join(&crew(2, "")), EntryChange::Joined, &group, Reason::Normal),
        (close(id(2), 1), EntryChange::Left, &group, Reason::Closed),
    ];
    for (number, (operation, change, key, reason)) in (1..).zip(steps) {
        story.hear("there", Body::Delta { first: number, count: 1, operations: operation });
        assert_eq!(story.changes(), [(change, key.clone(), reason)]);
    }
    // All operations are applied, and the digest is that of a node without entries.
    story.hear("there", heartbeat(8));
    let seen = story.here.counters();
    assert_eq!((story.said(), seen.malformed, seen.digests_wrong, seen.snapshots_installed), (Vec::new(), 0, 0, 1));
}

#[test]
fn each_reason_is_told_as_it_came() {
    let texts = ["normal", "closed", "conflict", "node_up", "node_down", "taken_over"];
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    for (byte, text) in (0..).zip(texts) {
        let operations = [claim(0, &record(id(1), STAMP, 0, "bike", "")), unclaim("bike", byte)].concat();
        story.hear("there", Body::Delta { first: 1 + 2 * u64::from(byte), count: 2, operations });
        let (.., reason) = story.changes().pop().expect("it is gone");
        assert_eq!(reason.as_str(), text);
    }
    assert_eq!(story.here.counters().malformed, 0);
}

/// Nodes of different versions compare digests. Another sum for the same entries would make them send snapshots
/// forever.
#[test]
fn a_heartbeat_tells_what_the_node_has_and_the_digest_of_it_never_changes() {
    let mut story = Story::new(&ReplicaSettings::default());
    let beat = |story: &mut Story| {
        let now_ms = story.now_ms;
        story.here.joined(now_ms);
        story.here.tick(now_ms);
        let (to, message) = story.messages().pop().expect("a heartbeat");
        assert_eq!(
            (to, &*message.node, message.life, message.clock >> 16),
            (None, "here", (START_MS, BIRTH), START_MS)
        );
        message.body
    };
    let expected =
        |last, digest, entries| Body::Heartbeat { last, digest, entries, limits: (255, 4_096), lives: Vec::new() };
    assert_eq!(beat(&mut story), expected(0, 0, 0));
    story.register(1, "bike");
    assert_eq!(beat(&mut story), expected(1, 0x4ab0_f5c8_0084_361c, 1));
    story.here.join(id(1), "a group with a longer name", b"metadata", START_MS).expect("within limits");
    assert_eq!(beat(&mut story), expected(2, 0x69d6_e891_0093_d3ce, 2));
    story.here.close(id(1));
    assert_eq!(beat(&mut story), expected(3, 0, 0));
}

#[test]
fn a_heartbeat_tells_whose_entries_are_here() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    // No snapshot of this node has arrived.
    story.hear_of("also", (3, 4), heartbeat(0));
    story.messages();
    story.pass(1_000);
    let Some((_, Message { body: Body::Heartbeat { lives, .. }, .. })) = story.messages().pop() else {
        panic!("a heartbeat is due")
    };
    assert_eq!(lives, [("there".to_owned(), OTHER_LIFE)]);
}

#[test]
fn a_heartbeat_comes_when_it_is_due() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    let start_ms = story.now_ms;
    let mut beats = Vec::new();
    for _ in 0..350 {
        story.now_ms += 10;
        story.here.tick(story.now_ms);
        beats.extend(story.messages().iter().map(|_| story.now_ms - start_ms));
    }
    assert_eq!(beats, [1_000, 2_000, 3_000]);
}

#[test]
fn what_is_no_message_is_counted_and_nothing_else() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    let good =
        |node: &str, policy, body| Message { node: node.into(), life: OTHER_LIFE, clock: 1, policy, body }.write();
    let mut another_version = good("there", 0, Body::Goodbye);
    another_version[0] = 2;
    let mut no_kind = good("there", 0, Body::Goodbye);
    no_kind[1] = 7;
    let mut no_text = good("there", 0, Body::Goodbye);
    no_text[3] = 255;
    let cut = good("there", 0, heartbeat(5)).split_last().map(|(_, rest)| rest.to_vec()).expect("bytes");
    // A number of ten bytes, the last of which has more bits than are left.
    let too_great = [&[1, 5, 1, b'x'][..], &[255; 9], &[2, 1, 1, 0]].concat();
    let greatest = [&[1, 5, 1, b'x'][..], &[255; 9], &[1, 1, 1, 0]].concat();
    let words = [Vec::new(), another_version, no_kind, no_text, cut, good("there", 4, Body::Goodbye), too_great];
    for (number, words) in (1..).zip(&words) {
        story.here.receive(words, story.now_ms);
        assert_eq!(story.here.counters().malformed, number, "{words:?}");
    }
    assert!(story.sees_there() && story.messages().is_empty());
    for words in [greatest, good(&"n".repeat(255), 3, Body::Goodbye)] {
        story.here.receive(&words, story.now_ms);
    }
    assert_eq!(story.here.counters().malformed, words.len() as u64, "what is just within bounds is read");
    story.here.receive(&good(&"n".repeat(256), 0, Body::Goodbye), story.now_ms);
    assert_eq!(story.here.counters().malformed, words.len() as u64 + 1);
}

#[test]
fn a_broken_operation_is_counted_and_a_snapshot_is_asked_for() {
    let whole = claim(0, &record(id(1), STAMP, 0, "bike", ""));
    let cut = whole.split_last().map(|(_, rest)| rest.to_vec()).expect("bytes");
    let broken = [vec![7], cut, unclaim("bike", 6), leave("crew", id(1), 0).into_iter().take(9).collect(), Vec::new()];
    for operation in broken {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        let operations = [whole.clone(), operation.clone()].concat();
        story.hear("there", Body::Delta { first: 1, count: 2, operations });
        assert_eq!(story.here.counters().malformed, 1, "{operation:?}");
        assert_eq!(story.wanted().iter().map(|(first, _)| *first).collect::<Vec<_>>(), [0]);
        assert!(story.here.lookup("bike").is_some(), "what was whole counts");
    }
    // The message contains more operations than it states.
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.hear("there", Body::Delta { first: 1, count: 1, operations: [whole, unclaim("boat", 0)].concat() });
    assert_eq!((story.here.counters().malformed, story.wanted().len()), (1, 1));
}

#[test]
fn a_record_that_is_none_is_counted() {
    let not_utf8 = [&record(id(1), STAMP, 0, "", "")[..28], &[1, 0, 255]].concat();
    let too_short = record(id(1), STAMP, 0, "bike", "")[..33].to_vec();
    for bad in [not_utf8, too_short, Vec::new()] {
        for operation in [claim(0, &bad), join(&bad)] {
            let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
            story.hear("there", Body::Delta { first: 1, count: 1, operations: operation.clone() });
            assert_eq!((story.here.counters().malformed, story.changes().len()), (1, 0));
            // The same in a snapshot; the rest of the snapshot counts.
            let mut story = Story::following(
                &ReplicaSettings::default(),
                &[operation, claim(0, &record(id(1), STAMP, 0, "boat", ""))].concat(),
                2,
            );
            assert_eq!(
                (story.here.counters().malformed, story.here.view().names(), story.wanted()),
                (1, 1, Vec::new())
            );
        }
    }
    let story = Story::following(
        &ReplicaSettings::default(),
        &[&claim(0, &record(id(1), STAMP, 0, "boat", ""))[..], &[9]].concat(),
        2,
    );
    assert_eq!((story.here.counters().malformed, story.here.view().names()), (1, 1));
}

#[test]
fn its_own_words_that_come_back_are_no_news() {
    let mut story = Story::new(&ReplicaSettings::default());
    story.register(1, "bike");
    story.messages();
    story.hear_of("here", (START_MS, BIRTH), Body::Goodbye);
    story.hear_of("here", (START_MS + 1, BIRTH), claims(1, &["boat"]));
    assert_eq!((story.messages(), story.here.lookup("boat"), story.here.counters().purges), (Vec::new(), None, 0));
}

#[test]
fn nodes_with_other_options_are_told_once_and_all_follow_the_strictest() {
    let limits = Limits { key_max: 10, meta_max: 10, ..Limits::default() };
    let mut story = Story::following(
        &ReplicaSettings { policy: ConflictPolicyKind::Oldest, limits, ..ReplicaSettings::default() },
        &[],
        0,
    );
    assert_eq!(
        (story.here.counters().differences, &*story.differing),
        (1, &["there".to_owned()][..]),
        "its policy and limits are others"
    );
    assert_eq!(story.here.policy(), ConflictPolicyKind::Oldest);
    let beat = |story: &mut Story, policy, limits| {
        let body = Body::Heartbeat { last: 0, digest: 0, entries: 0, limits, lives: Vec::new() };
        let message = Message { node: "there".into(), life: OTHER_LIFE, clock: 1, policy, body };
        story.here.receive(&message.write(), story.now_ms);
        story.said();
        (story.here.policy(), story.differing.len())
    };
    let try_lengths = |story: &mut Story| {
        let fits = |key: usize, meta: usize| {
            story.here.may_register(id(1), &"k".repeat(key), &vec![b'm'; meta], false).is_ok()
        };
        ((1..12).filter(|key| fits(*key, 0)).count(), (0..12).filter(|meta| fits(1, *meta)).count() - 1)
    };
    assert_eq!(
        (beat(&mut story, 0, (255, 4_096)), try_lengths(&mut story)),
        ((ConflictPolicyKind::Oldest, 1), (10, 10)),
        "the same again"
    );
    assert_eq!((beat(&mut story, 3, (255, 9)), try_lengths(&mut story)), ((ConflictPolicyKind::Reject, 2), (10, 9)));
    assert_eq!((beat(&mut story, 3, (8, 9)), try_lengths(&mut story)), ((ConflictPolicyKind::Reject, 3), (8, 9)));
    // Its options are changed to those of this node.
    assert_eq!((beat(&mut story, 2, (10, 10)), try_lengths(&mut story)), ((ConflictPolicyKind::Oldest, 3), (10, 10)));
    assert_eq!(beat(&mut story, 3, (1, 1)), (ConflictPolicyKind::Reject, 4));
    story.hear("there", Body::Goodbye);
    assert_eq!(
        (story.here.policy(), try_lengths(&mut story)),
        (ConflictPolicyKind::Oldest, (10, 10)),
        "who is gone has no say"
    );
}

#[test]
fn a_mark_of_doubt_is_taken_away_by_its_word() {
    let mut story = Story::new(&ReplicaSettings { policy: ConflictPolicyKind::Oldest, ..ReplicaSettings::default() });
    story.hear("there", heartbeat(0));
    let nonce = story.wanted()[0].1;
    let operations = claim(0, &record(id(1), 1 << 16, 0, "bike", ""));
    // The doubtful stamp is that of the claim itself.
    story.hear("there", Body::Snapshot { last: 1, doubt: 1 << 16, nonce, part: 0, parts: 1, operations });
    story.here.register(id(2), "bike", b"", false, START_MS).expect_err("taken");
    // Another node's later claim wins against the doubtful one, and no longer wins once the first one is trusted.
    story.hear("also", heartbeat(0));
    let Some((_, Body::Want { nonce, .. })) = story.said().pop() else { panic!("a snapshot is asked for") };
    let operations = claim(0, &record(id(3), 2 << 16, 0, "bike", ""));
    story.hear("also", Body::Snapshot { last: 1, doubt: 0, nonce, part: 0, parts: 1, operations });
    assert_eq!(story.here.lookup("bike").map(|entry| (entry.owner(), entry.stamp())), Some((id(3), Stamp(2 << 16))));
    story.hear("there", Body::Delta { first: 2, count: 1, operations: TRUST.to_vec() });
    assert_eq!(story.here.lookup("bike").map(|entry| entry.owner()), Some(id(1)));
}

#[test]
fn a_life_that_is_over_is_told_so_and_only_so_many_are_remembered() {
    let mut story = Story::new(&ReplicaSettings::default());
    let name = |number: u64| format!("node-{number}");
    for number in 0..1_025 {
        story.now_ms += 1;
        story.hear_of(&name(number), (5, number), Body::Goodbye);
    }
    // The oldest of 1,025 nodes is forgotten.
    for (number, is_known) in [(1, true), (1_024, true), (0, false)] {
        story.messages();
        story.hear_of(&name(number), (5, number), heartbeat(0));
        let outdated = Body::Outdated { to: name(number), past: (5, number), known: (5, number) };
        assert_eq!(story.said().contains(&(Some(name(number)), outdated)), is_known, "{number}");
    }
}

#[test]
fn what_the_carrier_does_not_take_is_refused() {
    for node in ["n".to_owned(), "n".repeat(200)] {
        let mut here = Replica::new(&node, u64::MAX, ReplicaSettings::default(), HashSeed::repeatable(7), START_MS);
        here.set_message_max(700);
        let longest =
            (1..=255).take_while(|length| here.may_join(id(1), &"k".repeat(*length), &[0; 200]).is_ok()).last();
        let longest = longest.expect("some fit");
        // A message takes 160 bytes and the node's name, and an entry takes 48 bytes, without key and metadata.
        assert_eq!(longest, (700 - 160 - node.len() - 48 - 200).min(255));
        here.join(id(1), &"k".repeat(longest), &[0; 200], START_MS).expect("it fits");
        here.register(id(1), &"k".repeat(longest), &[0; 200], false, START_MS).expect("it fits");
        here.flush();
        let lengths: Vec<usize> = here
            .outputs()
            .filter_map(|o| if let Output::Send { message, .. } = o { Some(message.len()) } else { None })
            .collect();
        assert!(lengths.len() == 2 && lengths.iter().all(|length| (500..=700).contains(length)), "{lengths:?}");
    }
}
