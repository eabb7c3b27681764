//! Listings in pages while names, groups and members change: everything that exists all the time is listed exactly
//! once.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use touchline_registry::{HashSeed, Limits, Output, OwnerId, Replica, ReplicaSettings};

use crate::START_MS;

/// The number of slots that one page examines; it must not delay other work.
const PAGE_MAX: usize = 1_024;

fn owner(number: u32) -> OwnerId {
    OwnerId(u128::from(number).to_le_bytes())
}

/// The kind of entries that are listed.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Names,
    Groups,
    Members,
}

/// Every third entry is of another kind, so that a listing must select.
fn is_chosen(number: u32) -> bool {
    !number.is_multiple_of(3)
}

impl Kind {
    fn add(self, replica: &mut Replica, number: u32) {
        let prefix = if is_chosen(number) { "chosen" } else { "other" };
        let key = format!("{prefix}-{number}");
        match self {
            Kind::Names => drop(replica.register(owner(number), &key, b"", false, START_MS).expect("free")),
            Kind::Groups => drop(replica.join(owner(number), &key, b"", START_MS).expect("within limits")),
            Kind::Members => drop(replica.join(owner(number), prefix, b"", START_MS).expect("within limits")),
        }
    }

    fn page(self, replica: &Replica, cursor: u32, limit: usize) -> (Vec<u32>, Option<u32>) {
        let number = |key: &str| key.trim_start_matches("chosen-").parse::<u32>().expect("a chosen one");
        let of_owner = |owner: OwnerId| u128::from_le_bytes(owner.0) as u32;
        match self {
            Kind::Names => {
                let (page, next) = replica.names("chosen-", cursor, limit);
                (page.iter().map(|entry| number(entry.key())).collect(), next)
            }
            Kind::Groups => {
                let (page, next) = replica.groups("chosen-", cursor, limit);
                assert!(page.iter().all(|(_, members)| *members == 1));
                (page.iter().map(|(key, _)| number(key)).collect(), next)
            }
            Kind::Members => {
                let (page, next) = replica.member_page("chosen", cursor, limit);
                (page.iter().map(|entry| of_owner(entry.owner())).collect(), next)
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Listing {
    kind: Kind,
    /// How many entries exist at first, and which of them are removed before the listing begins.
    size: u32,
    gone: BTreeSet<u32>,
    limit: usize,
    /// The entries that are added and removed before each page.
    changes: Vec<Vec<(u32, bool)>>,
}

fn listing() -> impl Strategy<Value = Listing> {
    let kinds = prop_oneof![Just(Kind::Names), Just(Kind::Groups), Just(Kind::Members)];
    let limits = prop_oneof![1..50_usize, 900..1_200_usize, Just(usize::MAX)];
    // Sizes near the number of slots in a page, and larger ones.
    let sizes = prop_oneof![0..50_u32, 1_000..1_100_u32, 2_000..2_100_u32, 0..5_000_u32];
    let gone = prop::collection::btree_set(0..5_000_u32, 0..500);
    let changes = prop::collection::vec(prop::collection::vec((0..6_000_u32, any::<bool>()), 0..20), 1..5);
    (kinds, sizes, gone, limits, changes).prop_map(|(kind, size, gone, limit, changes)| Listing {
        kind,
        size,
        gone,
        limit,
        changes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_is_there_all_the_time_is_listed_once(Listing { kind, size, gone, limit, changes } in listing()) {
        let mut replica = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), START_MS);
        let mut present: BTreeSet<u32> = (0..size).collect();
        (0..size).for_each(|number| kind.add(&mut replica, number));
        for number in gone {
            replica.close(owner(number));
            present.remove(&number);
        }
        replica.outputs().count();
        let mut stayed: BTreeSet<u32> = present.iter().copied().filter(|number| is_chosen(*number)).collect();
        let mut seen: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut cursor, mut changes) = (0, changes.iter().cycle());
        loop {
            let (page, next) = kind.page(&replica, cursor, limit);
            prop_assert!(page.len() <= limit);
            let whole = matches!(kind, Kind::Members) && cursor == 0 && next.is_none();
            prop_assert!(page.len() <= PAGE_MAX || whole, "a page is short work");
            for number in page {
                prop_assert!(present.contains(&number), "{number} is not there");
                *seen.entry(number).or_default() += 1;
            }
            let Some(next) = next else { break };
            prop_assert!(next > cursor, "it comes to an end");
            cursor = next;
            for (number, comes) in changes.next().into_iter().flatten().copied() {
                if comes && present.insert(number) {
                    kind.add(&mut replica, number);
                } else if !comes {
                    replica.close(owner(number));
                    present.remove(&number);
                    stayed.remove(&number);
                }
            }
        }
        for number in stayed {
            prop_assert_eq!(seen.get(&number), Some(&1), "{} was there all the time", number);
        }
    }
}

#[test]
fn a_group_that_fits_into_a_page_is_one() {
    let mut replica = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), START_MS);
    (0..10).for_each(|number| drop(replica.join(owner(number), "group", b"", START_MS)));
    assert_eq!(replica.member_page("group", 0, 10).1, None);
    let (first, next) = replica.member_page("group", 0, 9);
    assert_eq!((first.len(), next.is_some()), (9, true));
    assert_eq!(replica.member_page("group", next.unwrap_or_default(), 10).0.len(), 1);
    assert_eq!(replica.member_page("nobody's", 0, 10), (Vec::new(), None));
}

#[test]
fn a_listing_ends_with_the_last_page_that_can_have_anything() {
    for kind in [Kind::Names, Kind::Groups, Kind::Members] {
        for (size, pages) in [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (2_048, 2), (2_049, 3)] {
            let mut replica = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), START_MS);
            (0..size).for_each(|number| kind.add(&mut replica, number));
            let mut cursor = Some(0);
            let listed = std::iter::from_fn(|| {
                let (page, next) = kind.page(&replica, cursor?, 1_024);
                cursor = next;
                Some(page.len())
            });
            let listed: Vec<usize> = listed.collect();
            let all = (0..size).filter(|number| is_chosen(*number)).count();
            // Members that fit into one page are found by their group.
            let expected = if matches!(kind, Kind::Members) && all <= 1_024 { 1 } else { pages };
            assert_eq!((listed.iter().sum::<usize>(), listed.len()), (all, expected), "{kind:?} {size}");
        }
    }
}

/// A change of names between two steps of a walk.
#[derive(Debug, Clone)]
enum NameChange {
    /// A client registers a name, or takes it over.
    Take(u32, u32),
    /// The owner releases the name.
    Free(u32),
    /// Another node claims the name, or withdraws its claim.
    Claim(u32),
    Withdraw(u32),
}

fn name_change() -> impl Strategy<Value = NameChange> {
    prop_oneof![
        3 => (0..60_u32, 0..5_u32).prop_map(|(name, who)| NameChange::Take(name, who)),
        2 => (0..60_u32).prop_map(NameChange::Free),
        2 => (0..60_u32).prop_map(NameChange::Claim),
        1 => (0..60_u32).prop_map(NameChange::Withdraw),
    ]
}

/// Two replicas of a scope, and the names that one of them has at each moment.
struct NamePair {
    replicas: [Replica; 2],
    now_ms: u64,
}

impl NamePair {
    fn new() -> Self {
        let make = |node: &str, birth| {
            let settings = ReplicaSettings {
                limits: Limits { entries_of_owner_max: 1_000, ..Limits::default() },
                ..ReplicaSettings::default()
            };
            Replica::new(node, birth, settings, HashSeed::repeatable(7), START_MS)
        };
        let mut pair = NamePair { replicas: [make("a", 1), make("b", 2)], now_ms: START_MS };
        pair.replicas.iter_mut().for_each(|replica| replica.joined(START_MS));
        pair.exchange();
        pair
    }

    /// Delivers all messages.
    fn exchange(&mut self) {
        for _ in 0..8 {
            for from in [0, 1] {
                self.replicas[from].flush();
                let sent: Vec<_> = self.replicas[from].outputs().collect();
                for output in sent {
                    if let Output::Send { message, .. } = output {
                        self.replicas[1 - from].receive(&message, self.now_ms);
                    }
                }
            }
        }
    }

    fn change(&mut self, change: &NameChange) {
        self.now_ms += 1;
        let now_ms = self.now_ms;
        let (side, name) = match change {
            NameChange::Take(name, _) | NameChange::Free(name) => (0, name),
            NameChange::Claim(name) | NameChange::Withdraw(name) => (1, name),
        };
        let key = format!("{name:02}");
        let replica = &mut self.replicas[side];
        match change {
            NameChange::Take(_, who) => drop(replica.register(owner(*who), &key, b"", true, now_ms)),
            NameChange::Claim(_) => drop(replica.register(owner(100), &key, b"", true, now_ms)),
            NameChange::Free(_) | NameChange::Withdraw(_) => {
                let holder = replica.lookup(&key).map(|entry| entry.owner());
                holder.into_iter().for_each(|holder| drop(replica.unregister(holder, &key)));
            }
        }
        self.exchange();
    }

    fn names(&self) -> BTreeSet<String> {
        (0..60).map(|name| format!("{name:02}")).filter(|name| self.replicas[0].lookup(name).is_some()).collect()
    }
}

proptest! {
    #[test]
    fn a_walk_over_all_names_meets_what_stays_with_its_latest_owner(
        before in prop::collection::vec(name_change(), 0..120),
        between in prop::collection::vec(prop::collection::vec(name_change(), 0..12), 1..20),
        most in 1..12_usize,
    ) {
        let mut pair = NamePair::new();
        before.iter().for_each(|change| pair.change(change));
        let mut stayed = pair.names();
        let mut met: BTreeMap<String, OwnerId> = BTreeMap::new();
        let mut between = between.iter();
        pair.replicas[0].begin_name_walk();
        loop {
            let mut looked_at = 0;
            let has_more = pair.replicas[0].walk_names(most, |entry| {
                looked_at += 1;
                met.insert(entry.key().to_owned(), entry.owner());
            });
            prop_assert!(looked_at <= most);
            if !has_more {
                break;
            }
            for change in between.next().into_iter().flatten() {
                pair.change(change);
                stayed = stayed.intersection(&pair.names()).cloned().collect();
            }
        }
        for name in stayed {
            let present = pair.replicas[0].lookup(&name).map(|entry| entry.owner());
            prop_assert_eq!(met.get(&name).copied(), present, "{} was there all the time", name);
        }
    }
}
