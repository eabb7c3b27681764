//! Nodes that write at the same time in separate threads, and die within their requests.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fastrand::Rng;
use touchline_engine::events::StateKey;
use touchline_engine::ledger::{BookLimits, LedgerBook};
use touchline_registry::HashSeed;
use touchline_store::ledger::{LedgerCause, LedgerWrite};
use touchline_testkit::comes;

use super::desk::{Desk, Scribe, Told};
use super::real::Real;
use crate::stage::on_postgres;

const KEYS: u64 = 60;

/// What all living processes hold at the end.
type Truth = Mutex<BTreeMap<StateKey, u32>>;

fn key(number: u64) -> StateKey {
    let name = format!("k{number}");
    if number.is_multiple_of(2) { StateKey::Channel((*name).into()) } else { StateKey::User(name.into()) }
}

/// The lives of one node. Each life holds and releases keys, and ends in the middle of a request, except the last one.
fn process(real: &Real, thread: u64, truth: &Truth, is_over: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut random = Rng::with_seed(thread);
    for birth in 0.. {
        let ledger = real.ledger(&format!("n{thread}-{birth}"));
        let mut book =
            LedgerBook::<String, String>::new(BookLimits { batch: 10, waiting: 100 }, HashSeed::repeatable(thread));
        let is_last = is_over.load(Relaxed);
        let mut life = 0;
        for step in 0..40 {
            for _ in 0..random.u64(..20) {
                let key = key(random.u64(..KEYS));
                if random.u8(..6) == 0 {
                    book.hold(key);
                } else {
                    book.release(&key);
                }
            }
            let work = async {
                if !book.is_in() {
                    life = ledger.enter(LedgerCause::NodeDown).await.expect("the database works").incarnation;
                    book.enter();
                }
                while let Some(batch) = book.next_batch() {
                    match ledger.write(life, &Scribe::batch(&batch)).await.expect("the database works") {
                        LedgerWrite::Written => book.written(),
                        LedgerWrite::Lapsed => return book.lapse(),
                    }
                }
                while ledger.sweep().await.expect("the database works").has_more {}
            };
            // The last step of every process except the last one ends at a random moment within it.
            let patience = if step == 39 && !is_last { random.u64(..8) } else { 60_000 };
            let _ = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(patience), work).await });
        }
        if is_last {
            while !book.is_settled() {
                runtime.block_on(async {
                    if !book.is_in() {
                        life = ledger.enter(LedgerCause::NodeDown).await.expect("the database works").incarnation;
                        book.enter();
                    }
                    let Some(batch) = book.next_batch() else { return };
                    match ledger.write(life, &Scribe::batch(&batch)).await.expect("the database works") {
                        LedgerWrite::Written => book.written(),
                        LedgerWrite::Lapsed => book.lapse(),
                    }
                });
            }
            let mut truth = truth.lock().expect("no thread panics while it holds the lock");
            (0..KEYS).map(key).filter(|key| book.holds(key)).for_each(|key| *truth.entry(key).or_default() += 1);
            return;
        }
    }
}

#[test]
fn nodes_that_write_at_once_tell_each_change_once() {
    on_postgres("crowd", |url, _| {
        let mut real = Real::open(url);
        let (truth, is_over) = (Truth::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (real, truth, is_over) = (&real, &truth, &is_over);
                scope.spawn(move || process(real, thread, truth, is_over));
            }
            comes(Duration::from_secs(8), || {
                real.advance_shared(200);
                false
            });
            is_over.store(true, Relaxed);
        });
        // The dead lives are over, and the last ones continue, because their leases are the newest.
        let truth = truth.into_inner().expect("no thread has panicked");
        real.execute(
            "UPDATE touchline.event_node SET lease_until_ms = CASE WHEN incarnation IN (SELECT max(incarnation) \
             FROM touchline.event_node GROUP BY split_part(node, '-', 1)) THEN 1000000000000 ELSE 0 END",
        );
        real.start("sweeper");
        real.sweep("sweeper");
        real.advance(100_000);
        real.sweep("sweeper");
        let mut told = BTreeMap::<StateKey, Vec<u64>>::new();
        for event in real.told() {
            if let Told::Key { key, generation, .. } = event {
                told.entry(key).or_default().push(generation);
            }
        }
        let changes: usize = told.values().map(Vec::len).sum();
        assert!(changes > KEYS as usize, "{changes} changes were told");
        for number in 0..KEYS {
            let key = key(number);
            let generations = told.get(&key).cloned().unwrap_or_default();
            assert_eq!(generations, (1..=generations.len() as u64).collect::<Vec<_>>(), "{key:?}");
            assert_eq!(generations.len() % 2 == 1, truth.contains_key(&key), "{key:?}");
        }
    });
}
