//! The memory cost of names, and proof that removed names cost nothing. It is measured as the resident size of this
//! process, which runs nothing else.

use touchline_registry::{HashSeed, OwnerId, Replica, ReplicaSettings};

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4_096
}

fn owner(number: u32) -> OwnerId {
    OwnerId((u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes())
}

const NAMES: u32 = 300_000;

/// Registers names of 12 bytes with 8 bytes of metadata, one for each owner. The second replica learns of them.
fn fill(here: &mut Replica, there: &mut Replica) {
    for number in 0..NAMES {
        here.register(owner(number), &format!("name-{number:07}"), b"metadata", false, 1_000).expect("free");
        if number % 1_000 == 0 {
            exchange(here, there);
        }
    }
    exchange(here, there);
    assert_eq!((here.view().names(), there.view().names()), (u64::from(NAMES), u64::from(NAMES)));
}

fn exchange(here: &mut Replica, there: &mut Replica) {
    for _ in 0..3 {
        say(here, there);
        say(there, here);
    }
}

fn say(from: &mut Replica, to: &mut Replica) {
    from.tick(1_000);
    let mut events = 0;
    for output in from.outputs() {
        match output {
            touchline_registry::Output::Send { message, .. } => to.receive(&message, 1_000),
            _ => events += 1,
        }
    }
    assert!(events < 3_000);
}

#[test]
fn a_name_costs_little_and_nothing_once_it_is_gone() {
    let mut here = Replica::new("here", 1, ReplicaSettings::default(), HashSeed::repeatable(7), 1_000);
    let mut there = Replica::new("there", 2, ReplicaSettings::default(), HashSeed::repeatable(7), 1_000);
    here.tick(1_000);
    exchange(&mut here, &mut there);
    let before = resident_bytes();
    fill(&mut here, &mut there);
    let log = ReplicaSettings::default().log_max;
    let each = (resident_bytes() - before - log) / (2 * NAMES as usize);
    // 12 bytes of name and 8 of metadata are the name's own data.
    println!("{} bytes a name on each node, besides its own 20", each - 20);
    assert!(each - 20 <= 250, "{} bytes a name", each - 20);
    for number in 0..NAMES {
        here.close(owner(number));
        if number % 1_000 == 0 {
            exchange(&mut here, &mut there);
        }
    }
    exchange(&mut here, &mut there);
    assert_eq!((here.owners(), there.owners(), there.view().names()), (0, 0, 0));
    let left = resident_bytes();
    // A million cycles with a few names at a time leave nothing behind either.
    for number in 0..1_000_000 {
        here.register(owner(number), &format!("name-{number:07}"), b"metadata", false, 1_000).expect("free");
        here.close(owner(number));
        if number % 1_000 == 0 {
            exchange(&mut here, &mut there);
        }
    }
    let grown = resident_bytes().saturating_sub(left);
    println!("{grown} bytes more after a million cycles");
    assert!(grown < 4 * 1024 * 1024, "{grown} bytes more after a million cycles");
}
