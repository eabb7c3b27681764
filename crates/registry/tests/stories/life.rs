//! Nodes that fall silent, stand still, are purged and begin a new life.

use touchline_registry::{
    ConflictPolicyKind, EntryChange, Reason, RegisterRefusal, Registered, ReplicaSettings, ReplicaTiming,
};

use crate::wire::{Body, Life, Message, TRUST, claim, record};
use crate::{BIRTH, OTHER_LIFE, START_MS, Story, claims, heartbeat, id};

const LIFE: Life = (START_MS, BIRTH);

/// The message of other nodes about a purged life of *here*.
fn outdated(past: Life, known: Life) -> Body {
    Body::Outdated { to: "here".into(), past, known }
}

/// *there* is alive. If `ours` is given, it has the entries of that life of *here*.
fn beat(story: &mut Story, last: u64, ours: Option<Life>) {
    let lives = ours.map(|life| ("here".to_owned(), life)).into_iter().collect();
    story.hear("there", Body::Heartbeat { last, digest: 0, entries: 0, limits: (255, 4_096), lives });
}

#[test]
fn a_node_that_is_not_followed_for_the_timeout_is_purged() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.hear("there", claims(1, &["bike"]));
    let silent_since_ms = story.now_ms;
    // The node is heard, but something of it is always missing.
    for _ in 0..59 {
        story.pass(100);
        story.hear("there", heartbeat(9));
    }
    story.pass(99);
    assert!(story.sees_there());
    story.pass(1);
    assert_eq!((story.sees_there(), story.now_ms - silent_since_ms), (false, 6_000));
    assert_eq!(story.changes().last(), Some(&(EntryChange::Unregistered, "bike".to_owned(), Reason::NodeDown)));
    assert_eq!(story.nodes, [("there".to_owned(), true), ("there".to_owned(), false)]);
    // This life of the node does not return.
    story.hear("there", heartbeat(9));
    assert_eq!(
        story.said(),
        [(Some("there".to_owned()), Body::Outdated { to: "there".into(), past: OTHER_LIFE, known: OTHER_LIFE })]
    );
}

#[test]
fn who_says_something_that_is_not_known_is_not_late() {
    for says in [|at| claims(at, &["a"]), heartbeat] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        for number in 1..100 {
            story.pass(100);
            story.hear("there", says(if matches!(says(1), Body::Delta { .. }) { number } else { 0 }));
        }
        assert!(story.sees_there());
    }
}

#[test]
fn a_node_that_stood_still_gives_the_others_their_time_again() {
    for (stood_ms, is_given) in [(2_500, false), (2_501, true)] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.pass(3_600);
        story.stand_still(stood_ms);
        assert_eq!(story.sees_there(), is_given, "{stood_ms}");
        if is_given {
            story.pass(5_999);
            assert!(story.sees_there());
            story.pass(1);
            assert!(!story.sees_there());
        }
    }
}

#[test]
fn a_node_that_stood_still_asks_and_answers_at_once() {
    for (stood_ms, is_given) in [(2_500, false), (2_501, true)] {
        let timing = ReplicaTiming { retry_ms: 10_000, snapshot_interval_ms: 10_000, ..ReplicaTiming::default() };
        let mut story = Story::following(&ReplicaSettings { timing, ..ReplicaSettings::default() }, &[], 0);
        let want = || Body::Want { to: "here".into(), life: LIFE, first: 0, nonce: 9 };
        for expected in [2, if is_given { 2 } else { 0 }] {
            story.hear("there", heartbeat(1));
            story.hear("there", want());
            assert_eq!(story.said().len(), expected, "a question and a snapshot");
            story.stand_still(stood_ms);
            story.said();
        }
    }
}

#[test]
fn a_node_that_stood_still_gives_the_backend_its_time_again() {
    let mut story =
        Story::following(&ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() }, &[], 0);
    story.register(1, "bike");
    let later = claim(0, &record(id(200), (START_MS + 1) << 16, 0, "bike", ""));
    story.hear("there", Body::Delta { first: 1, count: 1, operations: later });
    story.said();
    assert_eq!(story.questions, ["bike"]);
    story.pass(900);
    story.stand_still(2_501);
    beat(&mut story, 0, None);
    story.pass(999);
    assert_eq!((story.here.counters().hooks_failed, story.lost.len()), (0, 0));
    story.pass(1);
    story.said();
    assert_eq!((story.here.counters().hooks_failed, &*story.lost), (1, &["bike".to_owned()][..]));
}

#[test]
fn while_the_backend_is_asked_the_name_is_still_its_owners() {
    let mut story =
        Story::following(&ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() }, &[], 0);
    story.register(1, "bike");
    let later = claim(3, &record(id(200), (START_MS + 1) << 16, 0, "bike", ""));
    // The ranks are equal, so nothing has been decided yet.
    let equal = claim(0, &record(id(200), (START_MS + 1) << 16, 0, "bike", ""));
    story.hear("there", Body::Delta { first: 1, count: 1, operations: equal });
    story.said();
    assert_eq!(
        (story.questions.len(), story.lost.len(), story.here.lookup("bike").map(|entry| entry.owner())),
        (1, 0, Some(id(200)))
    );
    assert_eq!(story.here.may_register(id(1), "bike", b"new", false), Ok(false));
    let updated = story.here.register(id(1), "bike", b"new", false, START_MS);
    assert!(matches!(updated, Ok(Registered::Updated(entry)) if entry.meta() == b"new" && entry.owner() == id(1)));
    let refused = story.here.may_register(id(2), "bike", b"", false);
    assert!(matches!(refused, Err(RegisterRefusal::Taken(entry)) if entry.owner() == id(200)));
    // Elsewhere the backend has decided for the other claim, three times by now, so there is no question left.
    story.hear("there", Body::Delta { first: 2, count: 1, operations: later });
    story.said();
    assert_eq!((story.questions.len(), &*story.lost), (1, &["bike".to_owned()][..]));
    story.here.resolve("bike", Some(true), START_MS);
    assert_eq!(
        story.here.lookup("bike").map(|entry| entry.owner()),
        Some(id(200)),
        "an answer that comes too late changes nothing"
    );
}

#[test]
fn what_the_backend_decided_counts_above_what_it_decided_before() {
    let mut story =
        Story::following(&ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() }, &[], 0);
    story.register(1, "bike");
    let later = claim(0, &record(id(200), (START_MS + 1) << 16, 0, "bike", ""));
    story.hear("there", Body::Delta { first: 1, count: 1, operations: later });
    story.said();
    story.here.resolve("bike", Some(true), START_MS);
    let entry = story.here.lookup("bike").expect("its own");
    assert_eq!(entry.owner(), id(1));
    let said = story.said();
    let claimed = claim(1, &record(id(1), entry.stamp().0, 0, "bike", ""));
    assert!(matches!(&*said, [(None, Body::Delta { operations, .. })] if *operations == claimed), "{said:?}");
}

/// Afterwards its claim is doubtful, and the other claim wins. But only the other node's snapshot shows whether it
/// still has the name.
#[test]
fn a_node_that_was_away_gives_way_only_to_what_is_still_there() {
    let later = || claim(0, &record(id(200), (START_MS + 1) << 16, 0, "bike", ""));
    for (has_it_still, operations) in [(true, later()), (false, Vec::new())] {
        let mut story = Story::following(
            &ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() },
            &[],
            0,
        );
        story.register(1, "bike");
        story.hear("there", Body::Delta { first: 1, count: 1, operations: later() });
        story.stand_still(5_001);
        story.here.probed(story.now_ms);
        story.hear("there", heartbeat(2));
        let nonce = story.wanted()[0].1;
        assert_eq!((story.lost.len(), story.here.counters().conflicts_lost), (0, 0));
        story.hear("there", Body::Snapshot { last: 2, doubt: 0, nonce, part: 0, parts: 1, operations });
        story.said();
        assert_eq!((story.lost.len(), story.questions.len()), (usize::from(has_it_still), 1));
        let owner = if has_it_still { id(200) } else { id(1) };
        assert_eq!(story.here.lookup("bike").map(|entry| entry.owner()), Some(owner));
    }
}

/// Two other nodes claim one name, and have not settled it yet.
#[test]
fn what_counts_follows_suspicion_and_policy_at_once() {
    let of = |node: u8, at: u64| claim(0, &record(id(node), at << 16, 0, "bike", ""));
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.hear("also", heartbeat(0));
    let Some((_, Body::Want { nonce, .. })) = story.said().pop() else { panic!("a snapshot is asked for") };
    story.hear("also", Body::Snapshot { last: 1, doubt: 0, nonce, part: 0, parts: 1, operations: of(101, 5) });
    story.hear("there", Body::Delta { first: 1, count: 1, operations: of(200, 9) });
    let owner = |story: &Story| story.here.lookup("bike").map(|entry| entry.owner());
    assert_eq!(owner(&story), Some(id(200)), "the later one");
    for _ in 0..2 {
        story.here.suspect("there", true, START_MS);
        assert_eq!(owner(&story), Some(id(101)));
        story.here.suspect("there", false, START_MS);
        assert_eq!(owner(&story), Some(id(200)));
    }
    for (policy, expected) in [(2, 101), (0, 200), (3, 101), (1, 200)] {
        let body = heartbeat(0);
        let message = Message { node: "there".into(), life: OTHER_LIFE, clock: 1, policy, body };
        story.here.receive(&message.write(), START_MS);
        assert_eq!(owner(&story), Some(id(expected)), "policy {policy}");
    }
}

#[test]
fn a_link_that_is_there_again_gives_the_others_their_time_and_tells_them_at_once() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.pass(5_950);
    story.messages();
    story.here.joined(story.now_ms);
    story.here.tick(story.now_ms);
    assert_eq!(story.messages().len(), 1, "a heartbeat");
    story.pass(5_999);
    assert!(story.sees_there());
    story.pass(1);
    assert!(!story.sees_there());
}

#[test]
fn a_node_that_was_away_looks_at_its_connections_and_says_nothing_until_then() {
    // A standstill that is just short enough, one that is too long, and a clock that went back, so that the length is
    // unknown.
    for (by_ms, is_away) in [(5_000, false), (5_001, true), (-1, true)] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.register(1, "bike");
        story.said();
        story.now_ms = story.now_ms.saturating_add_signed(by_ms);
        story.here.wake(story.now_ms);
        story.register(1, "boat");
        story.hear("there", claims(1, &["theirs"]));
        story.pass(1_000);
        let said = story.messages();
        assert_eq!((story.probes, said.is_empty()), (usize::from(is_away), is_away), "{by_ms}");
        assert_eq!(story.here.lookup("theirs").is_some(), !is_away, "what came in meanwhile may be of long ago");
        story.here.probed(story.now_ms);
        story.here.probed(story.now_ms);
        assert_eq!(story.here.counters().reincarnations, u64::from(is_away), "once, if at all");
        let order = LIFE.0 + u64::from(is_away);
        assert_eq!(story.life(), (order, BIRTH));
        story.hear("there", Body::Want { to: "here".into(), life: (order, BIRTH), first: 0, nonce: 9 });
        let said = story.said();
        let doubts: Vec<u64> = said
            .iter()
            .filter_map(|(_, body)| if let Body::Snapshot { doubt, .. } = body { Some(*doubt) } else { None })
            .collect();
        // All earlier entries are doubtful, up to the latest.
        let latest = story.here.lookup("boat").expect("it is still its own").stamp();
        assert_eq!(doubts, [if is_away { latest.0 } else { 0 }]);
    }
}

#[test]
fn who_was_away_takes_only_new_snapshots() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.hear("there", claims(1, &["kept", "ended"]));
    story.stand_still(5_001);
    story.here.probed(story.now_ms);
    story.said();
    story.hear("there", claims(3, &["late"]));
    let wanted = story.wanted();
    assert_eq!((wanted.len(), wanted[0].0, story.here.is_settled()), (1, 0, false));
    assert!(story.here.lookup("ended").is_some() && story.here.lookup("late").is_none());
    story.changes();
    let operations = claim(0, &record(id(200), 1 << 16, 0, "kept", ""));
    story.hear("there", Body::Snapshot { last: 3, doubt: 0, nonce: wanted[0].1, part: 0, parts: 1, operations });
    assert_eq!(story.changes(), [(EntryChange::Unregistered, "ended".to_owned(), Reason::Normal)]);
    assert_eq!((story.here.is_settled(), story.nodes.len()), (true, 1), "it was in sight all the time");
}

/// What is known of a node from before a standstill may be long out of date. The table keeps what it showed, and must
/// not show more.
#[test]
fn what_is_of_long_ago_never_comes_to_count() {
    let of = |node: u8, at: u64, name: &str| claim(0, &record(id(node), at << 16, 0, name, ""));
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.hear("also", heartbeat(0));
    let follow = |story: &mut Story, operations: Vec<u8>| {
        let mut nonces = story.said().into_iter().filter_map(|(to, body)| match body {
            Body::Want { nonce, .. } if to.as_deref() == Some("also") => Some(nonce),
            _ => None,
        });
        let nonce = nonces.next_back().expect("a snapshot is asked for");
        story.hear("also", Body::Snapshot { last: 1, doubt: 0, nonce, part: 0, parts: 1, operations });
    };
    follow(&mut story, of(101, 9, "beaten"));
    story.hear(
        "there",
        Body::Delta { first: 1, count: 2, operations: [of(200, 5, "beaten"), of(200, 5, "counts")].concat() },
    );
    story.stand_still(5_001);
    story.here.probed(story.now_ms);
    story.said();
    // Meanwhile the other node has lost one name and got the other.
    story.hear("also", heartbeat(1));
    follow(&mut story, of(101, 9, "counts"));
    assert_eq!(story.here.lookup("beaten"), None, "whether the claim that was beaten is still there is not known");
    assert_eq!(story.here.lookup("counts").map(|entry| entry.owner()), Some(id(101)));
    story.hear("also", Body::Delta { first: 2, count: 1, operations: crate::wire::unclaim("counts", 0) });
    assert_eq!(story.here.lookup("counts"), None, "nor of the one that is beaten since");
}

#[test]
fn a_host_that_does_not_answer_is_not_waited_for() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.stand_still(5_001);
    story.pass(9_999);
    assert_eq!((story.messages(), story.here.counters().reincarnations), (Vec::new(), 0));
    story.here.gone("there", story.now_ms);
    assert!(story.sees_there(), "what others say is of no use until then");
    story.pass(1);
    assert_eq!((story.here.counters().reincarnations, story.probes), (1, 1));
    assert!(story.sees_there(), "it has had no chance to be heard");
    story.pass(5_999);
    assert!(story.sees_there());
    story.pass(1);
    assert!(!story.sees_there());
}

#[test]
fn who_is_purged_elsewhere_begins_a_new_life_above_all_that_is_known() {
    for (known, order) in [
        ((START_MS, BIRTH), START_MS + 1),
        ((START_MS + 500, 1), START_MS + 501),
        ((5, 5), START_MS + 1),
        ((u64::MAX, 1), u64::MAX),
    ] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.hear("there", outdated(LIFE, known));
        assert_eq!(
            (story.here.counters().reincarnations, story.probes),
            (1, 0),
            "it went on all the time: it knows its connections"
        );
        let lives: Vec<Life> = story.messages().iter().map(|(_, message)| message.life).collect();
        assert_eq!(lives, [(order, BIRTH)], "it tells at once");
        story.pass(999);
        assert_eq!(story.messages().len(), 0);
        story.pass(1);
        assert_eq!(story.messages().len(), 1);
    }
}

#[test]
fn a_word_that_is_not_of_this_life_begins_no_new_one() {
    let (order, birth) = LIFE;
    let to = |name: &str, past| Body::Outdated { to: name.into(), past, known: (order + 9, 9) };
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    for body in [
        to("also", LIFE),
        to("here", (order + 1, birth)),
        to("here", (order - 1, birth)),
        to("here", (order, birth + 1)),
    ] {
        story.hear("there", body);
    }
    assert_eq!((story.here.counters().reincarnations, story.probes, story.messages()), (0, 0, Vec::new()));
}

#[test]
fn who_is_purged_after_it_stood_still_looks_at_its_connections_first() {
    for (after_ms, looks) in [(0, true), (9_999, true), (10_000, false)] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.stand_still(2_501);
        for _ in 0..after_ms / 1_000 {
            story.pass(1_000);
            beat(&mut story, 0, None);
        }
        story.pass(after_ms % 1_000);
        story.messages();
        story.hear("there", outdated(LIFE, LIFE));
        story.messages();
        assert_eq!(
            (story.probes, story.here.counters().reincarnations),
            (usize::from(looks), u64::from(!looks)),
            "{after_ms}"
        );
        // Another node knows of a later life, which also counts, and no second check is requested.
        if looks {
            story.hear("also", outdated(LIFE, (START_MS + 700, 1)));
            story.hear("there", outdated(LIFE, (START_MS + 600, 1)));
            story.here.probed(story.now_ms);
            assert_eq!((story.life(), story.probes), ((START_MS + 701, BIRTH), 1));
            // The standstill ends with the life.
            story.hear("there", outdated((START_MS + 701, BIRTH), (1, 1)));
            assert_eq!((story.here.counters().reincarnations, story.probes), (2, 1));
        }
    }
}

#[test]
fn a_new_life_says_nothing_of_the_operations_before_it() {
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.register(1, "bike");
    story.said();
    story.register(1, "boat");
    story.hear("there", outdated(LIFE, LIFE));
    assert_eq!(story.said(), [], "the snapshot has it");
    let new = (LIFE.0 + 1, BIRTH);
    for first in [1, 2] {
        story.pass(1_000);
        beat(&mut story, 0, None);
        story.hear("there", Body::Want { to: "here".into(), life: new, first, nonce: 0 });
        let said = story.said();
        assert!(matches!(&*said, [(_, Body::Snapshot { last: 2, .. })]), "{said:?}");
    }
    story.register(1, "car");
    assert!(matches!(&*story.said(), [(None, Body::Delta { first: 3, count: 1, .. })]), "numbers go on");
}

/// What a node had before it was purged is doubtful until all other nodes have its new entries, and at least for a
/// timeout.
#[test]
fn a_node_is_trusted_again_when_all_others_have_what_it_has() {
    let new = (LIFE.0 + 1, BIRTH);
    let trusts = |story: &mut Story| {
        story.said().iter().any(|(_, body)| matches!(body, Body::Delta { operations, .. } if **operations == TRUST))
    };
    let cases = [
        (Some(new), 0, true),
        (Some(new), 3_600_000, true),
        (Some(LIFE), 0, false),
        (Some((new.0, 8)), 0, false),
        (None, 0, false),
    ];
    for (says, clock_set_by_ms, is_trusted) in cases {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.register(1, "bike");
        story.hear("there", outdated(LIFE, LIFE));
        story.said();
        story.here.clock_set(clock_set_by_ms);
        story.now_ms += clock_set_by_ms;
        for _ in 0..49 {
            beat(&mut story, 0, says);
            story.pass(100);
        }
        story.pass(99);
        assert!(!trusts(&mut story), "it is too early");
        story.pass(1);
        assert_eq!(trusts(&mut story), is_trusted, "{says:?}");
        // A node that confirmed it before may report otherwise now.
        beat(&mut story, 0, if is_trusted { None } else { Some(new) });
        story.pass(100);
        assert_eq!(trusts(&mut story), !is_trusted, "once");
    }
    // A node without names has no doubtful entries.
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.hear("there", outdated(LIFE, LIFE));
    for _ in 0..100 {
        beat(&mut story, 0, Some(new));
        story.pass(100);
    }
    assert_eq!(story.said(), []);
}

#[test]
fn a_node_in_sight_whose_entries_are_missing_delays_trust() {
    let new = (LIFE.0 + 1, BIRTH);
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.register(1, "bike");
    story.hear("there", outdated(LIFE, LIFE));
    let lives = vec![("here".to_owned(), new)];
    for _ in 0..55 {
        beat(&mut story, 0, Some(new));
        story.hear(
            "also",
            Body::Heartbeat { last: 0, digest: 0, entries: 0, limits: (255, 4_096), lives: lives.clone() },
        );
        story.pass(100);
    }
    let before = story.said();
    assert!(!before.iter().any(|(_, body)| matches!(body, Body::Delta { .. })));
    let nonce = before
        .iter()
        .filter_map(|(_, body)| if let Body::Want { nonce, .. } = body { Some(*nonce) } else { None })
        .next_back();
    story.hear(
        "also",
        Body::Snapshot { last: 0, doubt: 0, nonce: nonce.expect("asked"), part: 0, parts: 1, operations: Vec::new() },
    );
    story.pass(100);
    assert_eq!(story.said(), [(None, Body::Delta { first: 2, count: 1, operations: TRUST.to_vec() })]);
}

#[test]
fn a_name_that_is_contested_delays_trust() {
    let new = (LIFE.0 + 1, BIRTH);
    let mut story =
        Story::following(&ReplicaSettings { policy: ConflictPolicyKind::Oldest, ..ReplicaSettings::default() }, &[], 0);
    story.register(1, "bike");
    story.here.suspect("there", true, story.now_ms);
    story.hear("there", outdated(LIFE, LIFE));
    story.said();
    let rival = claim(0, &record(id(200), (START_MS - 9) << 16, 0, "bike", ""));
    story.hear("there", Body::Delta { first: 1, count: 1, operations: rival });
    assert_eq!(
        story.here.lookup("bike").map(|entry| entry.owner()),
        Some(id(200)),
        "of two doubtful claims the policy decides"
    );
    for _ in 0..60 {
        beat(&mut story, 0, Some(new));
        story.pass(100);
    }
    assert_eq!((story.said(), story.lost.len()), (Vec::new(), 0), "nobody gives way to a suspected node");
    // Its rival withdraws, and the name is then its own without a doubt.
    story.hear("there", Body::Delta { first: 2, count: 1, operations: crate::wire::unclaim("bike", 2) });
    story.pass(100);
    assert!(matches!(&*story.said(), [(None, Body::Delta { operations, .. })] if **operations == TRUST));
}

#[test]
fn a_later_life_of_a_node_takes_the_place_of_the_one_before() {
    // The same process, which other nodes had purged: its entries stay until its snapshot. Another process: it has no
    // entries.
    for (life, is_same) in [((2, 1), true), ((2, 2), false)] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.hear("there", claims(1, &["bike"]));
        story.said();
        story.hear_of("there", life, heartbeat(1));
        let said = story.said();
        assert_eq!(story.here.lookup("bike").is_some(), is_same);
        assert_eq!((story.sees_there(), story.here.is_settled()), (is_same, false));
        assert_eq!(story.here.counters().purges, u64::from(!is_same));
        assert!(matches!(&*said, [(_, Body::Want { first: 0, life: asked, .. })] if *asked == life), "{said:?}");
        // The previous life is over.
        story.hear("there", claims(2, &["late"]));
        assert_eq!(
            story.said(),
            [(
                Some("there".to_owned()),
                Body::Outdated { to: "there".into(), past: OTHER_LIFE, known: if is_same { life } else { OTHER_LIFE } }
            )]
        );
    }
}

#[test]
fn a_farewell_counts_for_its_life_and_those_before() {
    for (life, is_gone) in [((0, 9), false), ((1, 0), false), (OTHER_LIFE, true), ((1, 2), true)] {
        let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
        story.hear_of("there", life, Body::Goodbye);
        assert_eq!(story.sees_there(), !is_gone, "{life:?}");
        // The same holds for late messages of that life.
        story.said();
        story.hear_of("there", life, heartbeat(0));
        assert_eq!(story.said().len(), 1);
    }
    let mut story = Story::following(&ReplicaSettings::default(), &[], 0);
    story.register(1, "bike");
    story.here.goodbye();
    let said = story.said();
    assert!(matches!(&*said, [(None, Body::Delta { .. }), (None, Body::Goodbye)]), "{said:?}");
}
