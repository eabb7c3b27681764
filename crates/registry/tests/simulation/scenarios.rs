//! Single scenarios that a registry must survive.

use touchline_registry::{
    ConflictPolicyKind, EntryChange, HashSeed, Limits, Output, OwnerId, Reason, RegisterRefusal, Registered, Replica,
    ReplicaSettings, Stamp,
};

use crate::cluster::{Cluster, id};

#[test]
fn a_name_is_seen_everywhere_until_it_is_given_up() {
    let mut cluster = Cluster::new(3, &ReplicaSettings::default());
    cluster.register(0, 1, "bike").expect("free");
    cluster.deliver();
    for node in 0..3 {
        assert_eq!(cluster.owner(node, "bike"), Some(id(1)));
    }
    cluster.replicas[0].unregister(id(1), "bike").expect("owned");
    cluster.deliver();
    for node in 0..3 {
        assert_eq!(cluster.owner(node, "bike"), None);
        assert_eq!(cluster.changes(node), [EntryChange::Registered, EntryChange::Unregistered]);
    }
    assert_eq!(cluster.replicas[0].unregister(id(1), "bike"), Err(RegisterRefusal::Undefined));
}

#[test]
fn the_same_owner_again_replaces_the_metadata_and_another_is_refused() {
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    cluster.register(0, 1, "bike").expect("free");
    let again = cluster.replicas[0].register(id(1), "bike", b"red", false, cluster.now_ms);
    assert!(matches!(again, Ok(Registered::Updated(_))));
    cluster.deliver();
    for (node, owner) in [(0, 2), (1, 3)] {
        let refused = cluster.register(node, owner, "bike");
        assert!(
            matches!(refused, Err(RegisterRefusal::Taken(entry)) if entry.owner() == id(1) && entry.meta() == b"red")
        );
    }
    cluster.deliver();
    for node in 0..2 {
        assert_eq!(cluster.changes(node), [EntryChange::Registered, EntryChange::Updated]);
        assert_eq!(cluster.owner(node, "bike"), Some(id(1)));
    }
    assert_eq!(
        cluster.replicas[1].unregister(id(1), "bike"),
        Err(RegisterRefusal::Undefined),
        "only its own node can take it away"
    );
}

#[test]
fn metadata_is_replaced_only_as_it_was_seen() {
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    let Ok(Registered::New(entry)) = cluster.register(0, 1, "bike") else { panic!("free") };
    let updated =
        cluster.replicas[0].update_meta(id(1), "bike", b"1", Some((entry.stamp(), 0))).expect("nobody was faster");
    assert_eq!((updated.stamp(), updated.revision()), (entry.stamp(), 1));
    let late = cluster.replicas[0].update_meta(id(1), "bike", b"2", Some((entry.stamp(), 0)));
    assert!(matches!(late, Err(RegisterRefusal::Changed(seen)) if seen == updated));
    cluster.deliver();
    assert_eq!(cluster.replicas[1].lookup("bike").map(|entry| entry.meta().to_vec()), Some(b"1".to_vec()));
}

#[test]
fn a_closed_owner_leaves_nothing_anywhere_and_one_event_for_each() {
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    for number in 0..50 {
        cluster.register(0, 1, &format!("name-{number}")).expect("free");
    }
    cluster.register(0, 2, "other").expect("free");
    cluster.deliver();
    cluster.events.iter_mut().for_each(Vec::clear);
    let before = cluster.messages;
    cluster.replicas[0].close(id(1));
    cluster.deliver();
    assert_eq!(cluster.messages - before, 1, "one operation says it all");
    for node in 0..2 {
        assert_eq!(cluster.changes(node), [EntryChange::Unregistered; 50]);
        assert!(cluster.events[node].iter().all(|event| event.reason == Reason::Closed));
        assert_eq!(cluster.owner(node, "other"), Some(id(2)));
        assert_eq!(cluster.replicas[node].owners(), 1);
    }
}

#[test]
fn who_joins_late_has_everything_while_registrations_go_on() {
    let mut cluster =
        Cluster::new(3, &ReplicaSettings { message_max: 4_096, log_max: 16_384, ..ReplicaSettings::default() });
    let before = [1, 2].map(|node: usize| cluster.replicas[node].counters().snapshots_installed);
    cluster.cut = vec![(0, 1), (0, 2)];
    for number in 0..20_000_u32 {
        let owner = OwnerId((u128::from(number) + 1).to_le_bytes());
        cluster.replicas[0].register(owner, &format!("name-{number}"), b"", false, cluster.now_ms).expect("free");
    }
    cluster.pass(10_000);
    cluster.cut.clear();
    for number in 20_000..22_000_u32 {
        let owner = OwnerId((u128::from(number) + 1).to_le_bytes());
        cluster.replicas[0].register(owner, &format!("name-{number}"), b"", false, cluster.now_ms).expect("free");
        if number % 100 == 0 {
            cluster.pass(100);
        }
    }
    cluster.settle();
    for node in 1..3_usize {
        assert_eq!(cluster.replicas[node].view().names(), 22_000);
        assert_eq!(cluster.changes(node), [EntryChange::Registered; 22_000], "none missing, none double");
        let installed = cluster.replicas[node].counters().snapshots_installed - before[node - 1];
        assert_eq!(installed, 2, "one of each other node: the first had purged both");
    }
}

#[test]
fn a_node_that_leaves_or_falls_silent_is_purged_and_comes_back_with_what_lives() {
    for says_goodbye in [true, false] {
        let mut cluster = Cluster::new(3, &ReplicaSettings::default());
        cluster.register(2, 1, "stays").expect("free");
        cluster.register(2, 2, "dies").expect("free");
        cluster.settle();
        if says_goodbye {
            cluster.replicas[2].goodbye();
            cluster.deliver();
        } else {
            cluster.cut = vec![(0, 2), (1, 2)];
            cluster.pass(6_000);
        }
        assert_eq!((cluster.owner(0, "stays"), cluster.owner(1, "dies")), (None, None));
        assert!(cluster.events[0].iter().rev().take(2).all(|event| event.reason == Reason::NodeDown));
        cluster.replicas[2].close(id(2));
        cluster.cut.clear();
        cluster.settle();
        assert_eq!((cluster.owner(0, "stays"), cluster.owner(1, "dies")), (Some(id(1)), None));
    }
}

#[test]
fn nothing_is_left_of_an_earlier_life_even_if_its_words_come_late() {
    for clock_back_ms in [0, 3_600_000] {
        let mut cluster = Cluster::new(2, &ReplicaSettings::default());
        cluster.register(1, 1, "old").expect("free");
        cluster.replicas[1].flush();
        let old_words: Vec<_> = cluster.replicas[1]
            .outputs()
            .filter_map(|o| if let Output::Send { message, .. } = o { Some(message) } else { None })
            .collect();
        for words in &old_words {
            cluster.replicas[0].receive(words, cluster.now_ms);
        }
        assert_eq!(cluster.owner(0, "old"), Some(id(1)));
        cluster.replicas[1] = Replica::new(
            "node-1",
            99,
            ReplicaSettings::default(),
            HashSeed::repeatable(7),
            cluster.now_ms - clock_back_ms,
        );
        cluster.settle();
        cluster.register(1, 2, "new").expect("free");
        cluster.settle();
        for words in &old_words {
            cluster.replicas[0].receive(words, cluster.now_ms);
        }
        cluster.settle();
        assert_eq!((cluster.owner(0, "old"), cluster.owner(0, "new")), (None, Some(id(2))));
    }
}

#[test]
fn two_who_register_at_once_end_with_one_owner_ten_thousand_times() {
    for (policy, winner) in
        [(ConflictPolicyKind::Newest, 2), (ConflictPolicyKind::Oldest, 1), (ConflictPolicyKind::Reject, 1)]
    {
        let mut cluster = Cluster::new(3, &ReplicaSettings { policy, ..ReplicaSettings::default() });
        for round in 0..10_000 / 3 {
            let name = format!("name-{round}");
            cluster.register(0, 1, &name).ok();
            cluster.register(1, 2, &name).expect("it has not heard of the other");
            cluster.deliver();
            let all: Vec<_> = (0..3).map(|node| cluster.owner(node, &name)).collect();
            assert_eq!(all, [Some(id(winner)); 3]);
            let loser = 3 - winner;
            let word = cluster.lost.pop().expect("the loser is told");
            assert_eq!((word.1, &*word.2, word.3), (id(loser), &*name, Reason::Conflict));
            assert!(cluster.lost.is_empty(), "once");
            cluster.replicas[usize::from(winner) - 1].unregister(id(winner), &name).expect("owned");
        }
    }
}

#[test]
fn a_name_is_taken_over_only_where_the_newest_stays() {
    for policy in
        [ConflictPolicyKind::Newest, ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject, ConflictPolicyKind::Hook]
    {
        let mut cluster = Cluster::new(2, &ReplicaSettings { policy, ..ReplicaSettings::default() });
        cluster.register(0, 1, "phone").expect("free");
        cluster.deliver();
        let taken = cluster.replicas[1].register(id(2), "phone", b"", true, cluster.now_ms);
        cluster.deliver();
        let is_newest = policy == ConflictPolicyKind::Newest;
        assert_eq!(taken.is_ok(), is_newest);
        let owner = if is_newest { 2 } else { 1 };
        assert_eq!([cluster.owner(0, "phone"), cluster.owner(1, "phone")], [Some(id(owner)); 2]);
        assert_eq!(cluster.lost.len(), usize::from(is_newest));
    }
}

#[test]
fn a_split_heals_by_the_policy_in_any_part_of_it() {
    let mut cluster = Cluster::new(4, &ReplicaSettings::default());
    cluster.cut = vec![(0, 2), (0, 3), (1, 2), (1, 3)];
    cluster.pass(6_000);
    cluster.register(0, 1, "both").expect("free on this side");
    cluster.register(2, 2, "both").expect("free on that side");
    cluster.register(1, 3, "left").expect("free");
    cluster.register(3, 4, "right").expect("free");
    cluster.pass(6_000);
    assert_eq!([cluster.owner(1, "both"), cluster.owner(3, "both")], [Some(id(1)), Some(id(2))]);
    assert_eq!(cluster.owner(0, "right"), None);
    cluster.cut.clear();
    cluster.settle();
    for node in 0..4 {
        let all = ["both", "left", "right"].map(|name| cluster.owner(node, name));
        assert_eq!(all, [2, 3, 4].map(|owner| Some(id(owner))));
    }
    assert_eq!(cluster.lost.len(), 1);
}

#[test]
fn in_a_partial_split_everybody_holds_what_it_can_see() {
    let mut cluster = Cluster::new(3, &ReplicaSettings::default());
    cluster.cut = vec![(0, 2)];
    for node in 0..3_usize {
        cluster.register(node, node as u8 + 1, &format!("of-{node}")).expect("free");
    }
    cluster.pass(8_000);
    let seen = |cluster: &Cluster, node| {
        (0..3).filter(|i| cluster.owner(node, &format!("of-{i}")).is_some()).collect::<Vec<_>>()
    };
    assert_eq!([seen(&cluster, 0), seen(&cluster, 1), seen(&cluster, 2)], [vec![0, 1], vec![0, 1, 2], vec![1, 2]]);
    cluster.cut.clear();
    cluster.settle();
    assert_eq!([seen(&cluster, 0), seen(&cluster, 2)], [vec![0, 1, 2], vec![0, 1, 2]]);
}

/// The same number, but other bytes: a character is flipped in one operation of each kind.
#[test]
fn a_digest_finds_what_numbers_cannot() {
    type Act = fn(&mut Replica);
    let acts: [(&str, Act); 9] = [
        ("a claim", |replica| drop(replica.register(id(1), "flips", b"", false, 1).expect("free"))),
        ("a claim's metadata", |replica| drop(replica.register(id(1), "new", b"flips", false, 1).expect("free"))),
        ("new metadata", |replica| drop(replica.update_meta(id(9), "flips-9", b"new", None).expect("owned"))),
        ("an end of a claim", |replica| replica.unregister(id(9), "flips-9").expect("owned")),
        ("a membership", |replica| assert_eq!(replica.join(id(1), "flips", b"", 1), Ok(true))),
        ("a membership's metadata", |replica| assert_eq!(replica.join(id(1), "new", b"flips", 1), Ok(true))),
        ("a member's new metadata", |replica| assert_eq!(replica.join(id(8), "flips-8", b"new", 1), Ok(false))),
        ("an end of a membership", |replica| replica.leave(id(8), "flips-8").expect("a member")),
        ("an owner's end", |replica| replica.close(owner_that_flips())),
    ];
    for (what, act) in acts {
        let mut cluster = Cluster::new(2, &ReplicaSettings::default());
        cluster.register(0, 9, "flips-9").expect("free");
        cluster.replicas[0].join(id(8), "flips-8", b"", 1).expect("within limits");
        cluster.replicas[0].join(owner_that_flips(), "stays", b"", 1).expect("within limits");
        cluster.settle();
        act(&mut cluster.replicas[0]);
        cluster.replicas[0].flush();
        for output in cluster.replicas[0].outputs().collect::<Vec<_>>() {
            let Output::Send { message, .. } = output else { continue };
            let mut broken = message.to_vec();
            let at = broken.windows(5).position(|w| w == b"flips").expect("it is said");
            broken[at] = b'F';
            cluster.replicas[1].receive(&broken, cluster.now_ms);
        }
        assert_ne!(cluster.entries(0), cluster.entries(1), "{what}");
        cluster.settle();
        assert_eq!(cluster.entries(0), cluster.entries(1), "{what}");
        assert_eq!(cluster.replicas[1].counters().digests_wrong, 1, "{what}");
    }
}

fn owner_that_flips() -> OwnerId {
    OwnerId(*b"flips-----------")
}

#[test]
fn a_clock_an_hour_ahead_does_not_own_a_name_for_ever() {
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    let ahead_ms = cluster.now_ms + 3_600_000;
    cluster.replicas[0].register(id(1), "phone", b"", false, ahead_ms).expect("free");
    cluster.deliver();
    assert!(cluster.replicas[1].counters().drifted > 0, "it is counted");
    cluster.replicas[1].register(id(2), "phone", b"", true, cluster.now_ms).expect("who comes later is later");
    cluster.deliver();
    assert_eq!([cluster.owner(0, "phone"), cluster.owner(1, "phone")], [Some(id(2)); 2]);
    let Ok(Registered::New(entry)) = cluster.register(1, 2, "else") else { panic!("free") };
    assert!(entry.stamp() < Stamp(ahead_ms << 16), "and its own clock did not follow");
}

#[test]
fn a_group_has_each_member_once_with_its_metadata() {
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    assert_eq!(cluster.replicas[0].join(id(1), "room", b"a", 1), Ok(true));
    assert_eq!(cluster.replicas[0].join(id(1), "room", b"b", 2), Ok(false));
    assert_eq!(cluster.replicas[1].join(id(2), "room", b"c", 3), Ok(true));
    cluster.deliver();
    for node in 0..2 {
        let mut members: Vec<_> =
            cluster.replicas[node].members("room").map(|e| (e.owner(), e.meta().to_vec())).collect();
        members.sort();
        assert_eq!(members, [(id(1), b"b".to_vec()), (id(2), b"c".to_vec())]);
    }
    assert!(cluster.replicas[0].is_member(id(1), "room") && !cluster.replicas[0].is_member(id(2), "room"));
    assert_eq!(cluster.replicas[0].leave(id(2), "room"), Err(RegisterRefusal::Undefined));
    cluster.replicas[0].leave(id(1), "room").expect("a member");
    cluster.replicas[1].close(id(2));
    cluster.deliver();
    assert_eq!((cluster.replicas[0].member_count("room"), cluster.replicas[1].view().groups()), (0, 0));
}

#[test]
fn a_slow_or_failing_backend_falls_back_to_the_newest() {
    for (answer, owner) in [(Some(Some(true)), 1), (Some(Some(false)), 2), (Some(None), 2), (None, 2)] {
        let mut cluster =
            Cluster::new(3, &ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() });
        cluster.register(0, 1, "name").expect("free");
        cluster.register(1, 2, "name").expect("not heard of the other");
        cluster.deliver();
        assert_eq!(cluster.owner(2, "name"), Some(id(2)), "until it is decided, the newest");
        let questions = std::mem::take(&mut cluster.questions);
        assert_eq!(questions.len(), 1, "one authority asks, once");
        assert_eq!(questions[0].0, 0);
        if let Some(answer) = answer {
            cluster.replicas[0].resolve("name", answer, cluster.now_ms);
        }
        cluster.settle();
        let all: Vec<_> = (0..3).map(|node| cluster.owner(node, "name")).collect();
        assert_eq!(all, [Some(id(owner)); 3]);
        assert_eq!(cluster.lost.iter().map(|lost| lost.1).collect::<Vec<_>>(), [id(3 - owner)]);
        assert_eq!(cluster.replicas[0].counters().hooks_failed, u64::from(answer.flatten().is_none()));
    }
}

#[test]
fn what_the_backend_decided_is_not_asked_again() {
    // The claim that the backend decided for is older, and the decision was made behind a split. A third node has
    // claimed the name meanwhile.
    let mut cluster =
        Cluster::new(3, &ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() });
    cluster.cut = vec![(0, 2), (1, 2)];
    cluster.pass(6_000);
    cluster.register(0, 1, "name").expect("free");
    cluster.register(1, 2, "name").expect("not heard of the other");
    cluster.deliver();
    cluster.replicas[0].resolve("name", Some(true), cluster.now_ms);
    cluster.deliver();
    cluster.now_ms += 1_000;
    cluster.register(2, 3, "name").expect("free on this side");
    cluster.questions.clear();
    cluster.cut.clear();
    cluster.settle();
    assert_eq!([0, 1, 2].map(|node| cluster.owner(node, "name")), [Some(id(1)); 3], "though it is not the newest");
    assert_eq!((cluster.questions.len(), cluster.lost.len()), (0, 2));
    assert_eq!(cluster.lost.last().map(|lost| (lost.0, lost.1)), Some((2, id(3))));
}

#[test]
fn a_claim_that_others_had_purged_loses_without_a_question() {
    let mut cluster =
        Cluster::new(2, &ReplicaSettings { policy: ConflictPolicyKind::Hook, ..ReplicaSettings::default() });
    cluster.register(0, 1, "name").expect("free");
    cluster.settle();
    cluster.cut = vec![(0, 1)];
    cluster.replicas[1].gone("node-0", cluster.now_ms);
    cluster.register(1, 2, "name").expect("free: its node is said to be dead");
    cluster.deliver();
    cluster.cut.clear();
    cluster.settle();
    assert_eq!([0, 1].map(|node| cluster.owner(node, "name")), [Some(id(2)); 2]);
    assert_eq!((cluster.questions.len(), cluster.lost.len()), (0, 1));
}

#[test]
fn each_command_reaches_the_others_by_itself() {
    type Act = fn(&mut Replica, u64);
    let acts: [Act; 9] = [
        |replica, now_ms| drop(replica.register(id(1), "bike", b"red", false, now_ms).expect("free")),
        |replica, now_ms| drop(replica.register(id(1), "bike", b"blue", false, now_ms).expect("its own")),
        |replica, _| drop(replica.update_meta(id(1), "bike", b"", None).expect("owned")),
        |replica, _| replica.unregister(id(1), "bike").expect("owned"),
        |replica, now_ms| assert_eq!(replica.join(id(1), "crew", b"", now_ms), Ok(true)),
        |replica, now_ms| assert_eq!(replica.join(id(1), "crew", b"tired", now_ms), Ok(false)),
        |replica, now_ms| assert_eq!(replica.join(id(2), "crew", b"", now_ms), Ok(true)),
        |replica, _| replica.leave(id(1), "crew").expect("a member"),
        |replica, _| replica.close(id(2)),
    ];
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    let before = cluster.replicas[1].counters();
    for (number, act) in acts.into_iter().enumerate() {
        let sent = cluster.messages;
        act(&mut cluster.replicas[0], cluster.now_ms);
        assert_ne!(cluster.entries(0), cluster.entries(1), "command {number}");
        cluster.deliver();
        assert_eq!(cluster.entries(0), cluster.entries(1), "command {number}");
        assert_eq!(cluster.messages - sent, 1, "command {number}");
    }
    cluster.settle();
    assert_eq!(cluster.replicas[1].counters(), before, "nothing was missing or healed");
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let limits = Limits { key_max: 4, meta_max: 2, entries_of_owner_max: 2 };
    let mut cluster = Cluster::new(2, &ReplicaSettings { limits, ..ReplicaSettings::default() });
    let replica = &mut cluster.replicas[0];
    for (name, meta) in [("", ""), ("12345", ""), ("1", "123")] {
        assert_eq!(replica.register(id(1), name, meta.as_bytes(), false, 1), Err(RegisterRefusal::TooLong));
        assert_eq!(replica.join(id(1), name, meta.as_bytes(), 1), Err(RegisterRefusal::TooLong));
    }
    replica.register(id(1), "a", b"", false, 1).expect("within limits");
    replica.join(id(1), "b", b"", 1).expect("within limits");
    assert_eq!(replica.register(id(1), "c", b"", false, 1), Err(RegisterRefusal::TooMany));
    assert_eq!(replica.join(id(1), "c", b"", 1), Err(RegisterRefusal::TooMany));
    for message in [&b""[..], b"\x02\x01", b"\x01\x09", &[1, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255]] {
        replica.receive(message, 1);
    }
    assert_eq!(replica.counters().malformed, 4);
    assert_eq!((replica.local_entries(), replica.nodes().count()), (2, 1));
}

#[test]
fn the_dead_entry_of_a_loser_does_not_come_back_with_a_late_snapshot() {
    let mut cluster = Cluster::new(3, &ReplicaSettings { log_max: 0, ..ReplicaSettings::default() });
    cluster.cut = vec![(1, 2)];
    cluster.pass(6_000);
    cluster.register(1, 1, "name").expect("free");
    // Node 2 is seen by node 1 again and is sent a snapshot, which stays in transit.
    cluster.replicas[1].flush();
    let _ = cluster.replicas[1].outputs().count();
    let mut want = Vec::new();
    cluster.now_ms += 2_000;
    cluster.replicas[1].tick(cluster.now_ms);
    for output in cluster.replicas[1].outputs().collect::<Vec<_>>() {
        let Output::Send { message, .. } = output else { continue };
        cluster.replicas[2].receive(&message, cluster.now_ms);
    }
    want.extend(
        cluster.replicas[2]
            .outputs()
            .filter_map(|o| if let Output::Send { message, .. } = o { Some(message) } else { None }),
    );
    want.iter().for_each(|message| cluster.replicas[1].receive(message, cluster.now_ms));
    let late: Vec<_> = cluster.replicas[1]
        .outputs()
        .filter_map(|o| if let Output::Send { message, .. } = o { Some(message) } else { None })
        .collect();
    // Meanwhile the winner appears, the loser gives up its claim, and the winner leaves again.
    cluster.cut.clear();
    cluster.now_ms += 100;
    cluster.register(0, 2, "name").expect("not heard of the other");
    cluster.settle();
    assert_eq!(cluster.owner(2, "name"), Some(id(2)));
    cluster.replicas[0].unregister(id(2), "name").expect("owned");
    cluster.settle();
    late.iter().for_each(|message| cluster.replicas[2].receive(message, cluster.now_ms));
    assert_eq!(cluster.owner(2, "name"), None, "the snapshot is true only up to its number");
    cluster.settle();
    assert_eq!([0, 1, 2].map(|node| cluster.owner(node, "name")), [None; 3]);
}

#[test]
fn who_comes_back_while_its_node_is_suspected_keeps_its_name() {
    for policy in [ConflictPolicyKind::Newest, ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject] {
        let mut cluster = Cluster::new(3, &ReplicaSettings { policy, ..ReplicaSettings::default() });
        cluster.register(1, 1, "phone").expect("free");
        cluster.deliver();
        let now_ms = cluster.now_ms;
        cluster.replicas[0].suspect("node-1", true, now_ms);
        assert!(cluster.replicas[0].is_suspected("node-1") && !cluster.replicas[0].is_suspected("node-2"));
        cluster.replicas[0].register(id(2), "phone", b"", true, now_ms).expect("its node may be dead");
        // The node was only late.
        cluster.replicas[0].suspect("node-1", false, now_ms);
        assert!(!cluster.replicas[0].is_suspected("node-1"));
        cluster.settle();
        assert_eq!([0, 1, 2].map(|node| cluster.owner(node, "phone")), [Some(id(2)); 3], "{policy:?}");
        assert_eq!(cluster.lost.iter().map(|lost| lost.1).collect::<Vec<_>>(), [id(1)]);
    }
}

#[test]
fn a_clock_that_is_set_ahead_is_no_standstill() {
    let mut cluster =
        Cluster::new(2, &ReplicaSettings { policy: ConflictPolicyKind::Reject, ..ReplicaSettings::default() });
    cluster.register(0, 1, "name").expect("free");
    cluster.settle();
    cluster.events.iter_mut().for_each(Vec::clear);
    cluster.now_ms += 3_600_000;
    cluster.replicas.iter_mut().for_each(|replica| replica.clock_set(3_600_000));
    cluster.settle();
    for node in 0..2 {
        assert_eq!((cluster.changes(node).len(), cluster.replicas[node].counters().reincarnations), (0, 0));
        assert_eq!(cluster.owner(node, "name"), Some(id(1)));
    }
}

#[test]
fn what_is_said_again_is_no_change() {
    let mut cluster = Cluster::new(2, &ReplicaSettings::default());
    let now_ms = cluster.now_ms;
    for _ in 0..5 {
        cluster.replicas[0].register(id(1), "name", b"meta", false, now_ms).expect("its own");
        cluster.replicas[0].update_meta(id(1), "name", b"meta", None).expect("its own");
        cluster.replicas[0].join(id(1), "group", b"meta", now_ms).expect("a member");
        cluster.deliver();
    }
    for node in 0..2 {
        assert_eq!(cluster.changes(node), [EntryChange::Registered, EntryChange::Joined]);
    }
    assert_eq!(cluster.replicas[1].lookup("name").map(|entry| entry.revision()), Some(0));
}
