//! The memory that remains in use after a mass change, by the resident size of this process, which runs nothing else.
//! The allocator keeps some of the freed memory for later. But closing must not take more memory than holding, and the
//! use must not grow from round to round.

use touchline_engine::directory::{Directory, DirectoryEffect, DirectoryRequest, Requester, ScopeId, ScopeOptions};
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

const NOW: u64 = 1_000_000;
const NAMES: usize = 300_000;
const LOG: usize = 1024 * 1024;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number of pages") * 4_096
}

/// Does what the registry actor does after a batch. Returns the number of bytes that watchers get.
fn end_batch(directory: &mut Directory<()>) -> usize {
    directory.flush();
    directory.effects().map(|act| if let DirectoryEffect::PublishChanges(_, json) = act { json.len() } else { 0 }).sum()
}

#[test]
fn names_that_all_go_at_once_leave_nothing_behind_though_the_scope_is_watched() {
    let options = ScopeOptions {
        name: "devices".into(),
        client_entries_limit: NAMES,
        allow_watch_for_client: true,
        watch_log_size: LOG,
        ..ScopeOptions::default()
    };
    let mut directory =
        Directory::<()>::new("here", &[options], &ReplicaTiming::default(), 7, HashSeed::repeatable(7), false, NOW);
    let requester = Requester { owner: OwnerId([7; 16]), user: "ann".into(), is_backend: false };
    let before = resident_bytes();
    let (mut held, mut left) = (Vec::new(), Vec::new());
    for cycle in 0..4u64 {
        let now_ms = NOW + cycle * 100_000;
        for number in 0..NAMES {
            let name = format!("name-{number:07}").into();
            directory.execute(
                &requester,
                DirectoryRequest::Register { scope: ScopeId(0), name, meta: "1".into(), take_over: false },
                None,
                now_ms,
            );
            if number % 1_000 == 0 {
                end_batch(&mut directory);
            }
        }
        end_batch(&mut directory);
        let full = resident_bytes() - before;
        directory.execute(&requester, DirectoryRequest::Close, None, now_ms + 50_000);
        let told = end_batch(&mut directory);
        directory.tick(now_ms + 50_050);
        assert!(told < 200, "watchers are told in one word: {told} bytes");
        let after = resident_bytes().saturating_sub(before);
        println!("cycle {cycle}: {} MB with {NAMES} names, {} MB after them", full >> 20, after >> 20);
        held.push(full);
        left.push(after);
    }
    assert!(left[3] <= left[1] + 4 * 1024 * 1024, "it adds up: {left:?} bytes");
    assert!(left[3] <= held[0] + held[0] / 2, "closing costs {left:?} bytes, holding {held:?}");
}
