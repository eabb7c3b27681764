//! A walk through a group in steps, while members join and leave.

use std::collections::BTreeSet;

use proptest::prelude::*;
use touchline_registry::{HashSeed, OwnerId, Replica, ReplicaSettings};

fn owner(number: u8) -> OwnerId {
    OwnerId([number; 16])
}

fn kind(meta: &[u8]) -> Option<&[u8]> {
    meta.split_first().filter(|(first, _)| **first > 0).map(|(_, rest)| rest)
}

#[derive(Debug, Clone)]
enum Deed {
    Join(u8, Vec<u8>),
    Leave(u8),
    Close(u8),
    Walk(usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    let meta = (0..2u8, 0..3u8).prop_map(|(counts, kind)| vec![counts, kind]);
    prop_oneof![
        4 => (0..40u8, meta).prop_map(|(who, meta)| Deed::Join(who, meta)),
        2 => (0..40u8).prop_map(Deed::Leave),
        1 => (0..40u8).prop_map(Deed::Close),
        2 => (0..6usize).prop_map(Deed::Walk),
    ]
}

proptest! {
    #[test]
    fn who_stays_is_met_once_and_counts_are_kept(
        early in prop::collection::vec(deed(), 0..60),
        late in prop::collection::vec(deed(), 0..80),
    ) {
        let mut replica = Replica::new(
            "here",
            1,
            ReplicaSettings { classify: Some(kind), ..ReplicaSettings::default() },
            HashSeed::repeatable(7),
            1_000,
        );
        let mut metas: [Option<Vec<u8>>; 40] = [const { None }; 40];
        let mut stayed = BTreeSet::new();
        let mut met = Vec::new();
        let begin = early.len();
        for (index, deed) in early.into_iter().chain(late).chain([Deed::Walk(usize::MAX)]).enumerate() {
            if index == begin {
                stayed = (0..40).filter(|who| metas[usize::from(*who)].is_some()).collect();
                replica.begin_walk("group");
                met.clear();
            }
            match deed {
                Deed::Join(who, meta) => {
                    replica.join(owner(who), "group", &meta, 1_000).expect("within limits");
                    metas[usize::from(who)] = Some(meta);
                }
                Deed::Leave(who) => {
                    let _ = replica.leave(owner(who), "group");
                    (metas[usize::from(who)], _) = (None, stayed.remove(&who));
                }
                Deed::Close(who) => {
                    replica.close(owner(who));
                    (metas[usize::from(who)], _) = (None, stayed.remove(&who));
                }
                Deed::Walk(most) => drop(replica.walk(most, |entry| met.push(entry.owner().0[0]))),
            }
            let kinds: Vec<&[u8]> = metas.iter().flatten().filter_map(|meta| kind(meta)).collect();
            let distinct = kinds.iter().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(replica.member_counts("group"), (kinds.len() as u64, distinct as u64));
        }
        prop_assert!(!replica.walk(1, |_| {}), "the walk is over");
        let once: BTreeSet<u8> = met.iter().copied().collect();
        prop_assert_eq!(once.len(), met.len(), "nobody is met twice");
        prop_assert!(stayed.is_subset(&once), "who stays is met");
    }
}

#[test]
fn a_walk_tells_whether_there_is_more_of_it() {
    let mut replica = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), 1_000);
    assert!(!replica.walk(1, |_| {}), "none was begun");
    (0..4).for_each(|who| drop(replica.join(owner(who), "group", b"", 1_000)));
    replica.begin_walk("group");
    let mut met = Vec::new();
    let mut step = |replica: &mut Replica, most| replica.walk(most, |entry| met.push(entry.owner()));
    assert!(step(&mut replica, 3));
    assert!(!step(&mut replica, 1), "that was the last");
    assert_eq!(met.len(), 4);
    replica.begin_walk("nobody's");
    assert!(!replica.walk(1, |_| {}));
}
