//! The cost of a command does not grow with what its owner holds already. If it did, each of these tests would take
//! minutes.

use touchline_registry::{HashSeed, Limits, Output, OwnerId, Registered, Replica, ReplicaSettings};

const NOW_MS: u64 = 1_000;
const ENTRIES: u32 = 200_000;
const ANN: OwnerId = OwnerId([1; 16]);
const BOB: OwnerId = OwnerId([2; 16]);

fn replica(node: &str, birth: u64) -> Replica {
    let limits = Limits { entries_of_owner_max: usize::MAX, ..ReplicaSettings::default().limits };
    let settings = ReplicaSettings { limits, ..ReplicaSettings::default() };
    Replica::new(node, birth, settings, HashSeed::repeatable(7), NOW_MS)
}

fn group(number: u32) -> String {
    format!("group-{number}")
}

/// Lets each replica receive what the other one sends, and drops their events.
fn exchange(one: &mut Replica, other: &mut Replica) {
    for _ in 0..4 {
        say(one, other);
        say(other, one);
    }
}

fn say(from: &mut Replica, to: &mut Replica) {
    from.tick(NOW_MS);
    for output in from.outputs() {
        if let Output::Send { message, .. } = output {
            to.receive(&message, NOW_MS);
        }
    }
}

#[test]
fn an_owner_joins_and_leaves_however_many_groups_it_is_in() {
    let (mut here, mut there) = (replica("here", 1), replica("there", 2));
    exchange(&mut here, &mut there);
    for number in 0..ENTRIES {
        assert_eq!(here.join(ANN, &group(number), b"", NOW_MS), Ok(true));
        here.join(BOB, &group(number % 8), b"", NOW_MS).expect("within limits");
        if number % 10_000 == 0 {
            exchange(&mut here, &mut there);
        }
    }
    exchange(&mut here, &mut there);
    for number in 0..ENTRIES {
        assert_eq!(here.join(ANN, &group(number), b"", NOW_MS), Ok(false));
        assert!(here.is_member(ANN, &group(number)) && there.member(ANN, &group(number)).is_some());
        assert_eq!(here.is_member(BOB, &group(number)), number < 8);
    }
    for number in 0..ENTRIES {
        assert_eq!(here.leave(ANN, &group(number)), Ok(()));
        assert!(!here.is_member(ANN, &group(number)));
        if number % 10_000 == 0 {
            exchange(&mut here, &mut there);
        }
    }
    exchange(&mut here, &mut there);
    for replica in [&here, &there] {
        assert_eq!((replica.owners(), replica.view().groups(), replica.view().members()), (1, 8, 8));
    }
}

#[test]
fn an_owner_registers_and_unregisters_however_many_names_it_has() {
    let mut here = replica("here", 1);
    for number in 0..ENTRIES {
        assert!(matches!(here.register(ANN, &group(number), b"", false, NOW_MS), Ok(Registered::New(_))));
        assert_eq!(here.join(ANN, &group(number % 100), b"", NOW_MS), Ok(number < 100));
        here.outputs().for_each(drop);
    }
    for number in 0..ENTRIES {
        assert_eq!(here.unregister(ANN, &group(number)), Ok(()));
        here.outputs().for_each(drop);
    }
    assert_eq!((here.local_entries(), here.view().names()), (100, 0));
}
