//! Removed entries are freed to the last byte, because nothing refers to them any more. The total is measured in
//! `tests/memory.rs`.

use std::sync::Arc;

use touchline_registry::{HashSeed, Replica, ReplicaSettings};

use crate::{START_MS, id};

/// Every entry refers to its node's name. So the number of references shows whether an entry is left anywhere.
#[test]
fn no_entry_outlives_a_registry() {
    let mut replica = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), START_MS);
    let view = replica.view();
    for number in 0..2_000 {
        replica.register(id((number % 250) as u8), &format!("name-{number}"), b"", false, START_MS).expect("free");
    }
    let node = Arc::clone(replica.lookup("name-0").expect("registered").node());
    // Some entries are replaced and some removed. A concurrent reader may still see them, so they are freed later.
    (0..2_000).step_by(3).for_each(|number| {
        let owner = id((number % 250) as u8);
        replica.update_meta(owner, &format!("name-{number}"), b"more", None).expect("owned");
    });
    (0..100).for_each(|owner| replica.close(id(owner)));
    drop(replica);
    assert!(view.lookup("name-249").is_some(), "a view shows what was there last");
    assert!(Arc::strong_count(&node) > 1);
    drop(view);
    assert_eq!(Arc::strong_count(&node), 1, "only this test holds it");
}
