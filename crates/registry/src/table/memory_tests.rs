//! The memory of entries that are gone comes back although other entries stay.

use super::state::{SELF, Table};
use crate::clock::Stamp;
use crate::entry::Entry;
use crate::event::Reason;
use crate::hash_seed::HashSeed;
use crate::owners::OwnerId;
use crate::settings::ConflictPolicyKind;

const ENTRIES: u32 = 200_000;
const ANN: OwnerId = OwnerId([1; 16]);
const BOB: OwnerId = OwnerId([2; 16]);
/// What each of the tables may keep: the entries for which it keeps memory in any case, or two pieces of a slab.
const KEPT: usize = 2 * 4_096;

fn table() -> Table {
    Table::new(ConflictPolicyKind::Newest, Some(|meta| Some(meta)), "here", HashSeed::repeatable(7))
}

fn entry(table: &Table, authority: u32, owner: OwnerId, number: u32) -> Entry {
    let text = number.to_string();
    Entry::new(table.node(authority), owner, Stamp(1), 0, &text, text.as_bytes())
}

fn put(table: &mut Table, authority: u32, owner: OwnerId, number: u32) {
    let entry = entry(table, authority, owner, number);
    table.put_claim(authority, entry.clone(), 0, Reason::Normal);
    table.put_member(authority, entry, Reason::Normal);
    table.events.clear();
}

/// The number of entries for which the tables have memory.
fn capacities(table: &Table) -> [usize; 3] {
    [table.names.capacity(), table.groups.capacity(), table.owners.capacity()]
}

#[test]
fn the_memory_of_an_owner_that_is_gone_comes_back_though_others_stay() {
    let mut table = table();
    for round in 0..3 {
        put(&mut table, SELF, BOB, round);
        (10..ENTRIES).for_each(|number| put(&mut table, SELF, ANN, number));
        put(&mut table, SELF, BOB, ENTRIES + round);
        let [names, groups, _] = capacities(&table);
        assert!(names >= 2 * ENTRIES as usize && groups >= 5 * ENTRIES as usize, "{names} {groups}");
        assert!(table.drop_owner(SELF, ANN, Reason::Closed));
        table.events.clear();
        let [names, groups, _] = capacities(&table);
        assert!(names <= 2 * KEPT && groups <= 6 * KEPT, "{names} {groups}");
        assert_eq!(table.entries_of(BOB), 4 * (round as usize + 1));
    }
    for number in [0, 1, 2, ENTRIES, ENTRIES + 1, ENTRIES + 2] {
        assert!(table.lookup(&number.to_string()).is_some());
        assert!(table.find_member(SELF, &number.to_string(), BOB).is_some());
    }
}

#[test]
fn the_memory_of_a_node_that_is_gone_comes_back_though_others_stay() {
    let mut table = table();
    let there = table.add_authority("there");
    let owner = |number: u32| OwnerId((u128::from(number) << 64).to_le_bytes());
    put(&mut table, SELF, BOB, 0);
    (1..ENTRIES).for_each(|number| put(&mut table, there, owner(number), number));
    put(&mut table, SELF, BOB, ENTRIES);
    assert!(capacities(&table)[2] >= 2 * ENTRIES as usize);
    table.remove_authority(there, Reason::NodeDown);
    let [names, groups, owners] = capacities(&table);
    assert!(names <= 2 * KEPT && groups <= 6 * KEPT && owners <= 2 * KEPT, "{names} {groups} {owners}");
    assert_eq!((table.entries_of(BOB), table.owner_count()), (4, 1));
}
