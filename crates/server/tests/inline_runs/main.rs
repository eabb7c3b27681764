//! Inline runs of shards under loom. `src/runtime/run_lock.rs` is compiled as it is. It runs in every order of its
//! steps up to a bound (see [`all_orders`]), and with every older value that the memory model lets a load return.
//!
//! Every test fails if a message is left behind, if a thread is never woken, or if two threads run the shard at once.
//! Each of these changes of `run_lock.rs` was made by hand. It failed the tests named beside it, and mostly others too:
//!
//! | change | fails |
//! |---|---|
//! | `run_inline`: no fence, or the fence before the count | `two_inline_runs`, `the_own_thread` |
//! | `has_messages`: no fence, or the load before it | `two_inline_runs`, `the_own_thread`, `a_wake` |
//! | `spin_then_try_take`: no fence, or the fence before the store | `the_own_thread` |
//! | all fences acquire and release only | `two_inline_runs` |
//! | `enqueue`: the message is put before it is counted | all, by the assertion of `note_received` |
//! | the lock is tried before the message is counted and put | `two_inline_runs`, `the_own_thread` |
//! | `run_inline`: no recheck of the mailbox, or no wake after the last one | `two_inline_runs` |
//! | `run_inline`: the recheck before the lock is released | `two_inline_runs`, `the_own_thread` |
//! | `run_inline`: `is_wanted` is not answered, or read before the recheck | `two_inline_runs`, `the_own_thread` |
//! | `run_inline`: work that is left does not wake | `work_that_an_inline_run_leaves` |
//! | `run`: work that is left is not told | `work_that_the_own_thread_leaves` |
//! | `run`: no recheck, or before the lock is released | `two_inline_runs`, `the_own_thread`, `a_wake` |
//! | `spin_then_try_take`: `is_wanted` is not set, or no last try | `two_inline_runs`, `the_own_thread` |
//! | `wake`: under the lock, only if it is taken, without the counter, or not at all | `a_wake` |
//! | `install` or `clear` do not wait for the lock | `a_shard_begins_and_ends_once` |
//!
//! The tests do not cover the spins before a thread asks for the lock, nor that `is_wanted` is reset, which only saves
//! wakes. That the fence of `spin_then_try_take` is sequentially consistent is checked only together with the other
//! fences. Alone, the exchange of the flag hides it (`sync.rs`).

#[path = "../../src/runtime/run_lock.rs"]
#[expect(clippy::reversed_empty_ranges, reason = "the model has no spins")]
mod run_lock;
mod sync;

use std::sync::atomic::Ordering::{Acquire, Release};

use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use run_lock::RunLock;

const SENDERS_MAX: usize = 2;

/// One slot for the message of each sender: the message is there, or it is not.
type Mailbox = [AtomicBool; SENDERS_MAX];

/// How a thread sends its message.
#[derive(Clone, Copy)]
enum Way {
    /// The thread may run the shard inline.
    Inline,
    /// The thread wakes the shard's own thread.
    Wake,
}

/// What the lock protects: a shard that counts what it has served.
struct Shard {
    mailbox: Arc<Mailbox>,
    is_served: [bool; SENDERS_MAX],
    /// Whether a turn that serves a message leaves work behind. Only the next turn of the own thread does that work.
    leaves_work: bool,
    has_work: bool,
    /// loom fails if two threads touch it and neither knows of the other.
    turns: Cell<usize>,
    is_running: bool,
}

impl Shard {
    fn new(mailbox: Arc<Mailbox>, leaves_work: bool) -> Self {
        Shard {
            mailbox,
            is_served: [false; SENDERS_MAX],
            leaves_work,
            has_work: false,
            turns: Cell::new(0),
            is_running: false,
        }
    }

    /// Takes the messages out of the mailbox.
    fn serve(&mut self, lock: &RunLock<Shard>) -> usize {
        assert!(!self.is_running, "two threads run the shard");
        self.is_running = true;
        self.turns.set(self.turns.get() + 1);
        let mut served = 0;
        for (slot, is_served) in self.mailbox.iter().zip(&mut self.is_served) {
            if !*is_served && slot.load(Acquire) {
                *is_served = true;
                served += 1;
            }
        }
        if served > 0 {
            lock.note_received(served);
        }
        self.is_running = false;
        served
    }

    fn run_inline(&mut self, lock: &RunLock<Shard>) -> bool {
        let served = self.serve(lock);
        self.has_work |= self.leaves_work && served > 0;
        self.has_work
    }

    fn turn(&mut self, lock: &RunLock<Shard>) -> bool {
        self.has_work = self.serve(lock) > 0 && self.leaves_work;
        self.has_work
    }
}

/// Puts message `number` into the mailbox in one of the two ways.
fn send(lock: &RunLock<Shard>, mailbox: &Mailbox, number: usize, way: Way) {
    lock.enqueue(|| mailbox[number].store(true, Release));
    match way {
        Way::Inline => lock.run_inline(|shard| shard.run_inline(lock)),
        Way::Wake => lock.wake(),
    }
}

/// The loop of the shard's own thread, as in `shard/turn.rs`. It has no ticks and sockets, which would hide a lost
/// wake. It returns when it would sleep for ever.
fn run_own(lock: &RunLock<Shard>) {
    loop {
        let has_work = loop {
            match lock.run(|shard| shard.turn(lock)) {
                Some(has_work) => break has_work,
                None => assert!(lock.waker.wait(), "nobody wakes the own thread, which found the lock taken"),
            }
        };
        if has_work {
            thread::yield_now();
        } else if !lock.waker.wait() {
            return;
        }
    }
}

/// Runs `own` on the shard's own thread, beside threads that send one message each.
fn beside(ways: &[Way], mailbox: &Arc<Mailbox>, lock: &Arc<RunLock<Shard>>, own: impl FnOnce(&RunLock<Shard>)) {
    lock.waker.others_begin(ways.len());
    let senders = ways.iter().copied().enumerate().map(|(number, way)| {
        let (lock, mailbox) = (lock.clone(), mailbox.clone());
        thread::spawn(move || {
            send(&lock, &mailbox, number, way);
            lock.waker.another_ends();
        })
    });
    let senders: Vec<_> = senders.collect();
    own(lock);
    senders.into_iter().for_each(|sender| sender.join().expect("the sender ends"));
}

/// Tries all orders in which threads that could continue are stopped at most `stops` times. With TOUCHLINE_LONG, one
/// more stop is tried. Each further stop takes ten times as long.
fn all_orders(stops: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    let is_long = std::env::var_os("TOUCHLINE_LONG").is_some();
    model.preemption_bound = Some(stops + usize::from(is_long));
    model.max_branches = 10_000;
    model.check(run);
}

/// Senders and the shard's own thread in all orders: at the end each message was served.
fn check_messages(ways: &'static [Way], leaves_work: bool, stops: usize) {
    all_orders(stops, move || {
        let mailbox: Arc<Mailbox> = Arc::default();
        let lock = Arc::new(RunLock::new());
        lock.install(Shard::new(mailbox.clone(), leaves_work));
        beside(ways, &mailbox, &lock, run_own);
        let shard = lock.clear().expect("the shard is there");
        assert!(!shard.has_work, "work is left behind");
        assert!(shard.is_served[..ways.len()].iter().all(|is_served| *is_served), "a message is left behind");
    });
}

/// Senders and a shard that begins, has one turn and ends, in all orders.
fn check_life(ways: &'static [Way], stops: usize) {
    all_orders(stops, move || {
        let mailbox: Arc<Mailbox> = Arc::default();
        let lock = Arc::new(RunLock::new());
        let shard = Shard::new(mailbox.clone(), false);
        beside(ways, &mailbox, &lock, |lock| {
            lock.install(shard);
            while lock.run(|shard| shard.turn(lock)).is_none() {
                assert!(lock.waker.wait(), "nobody wakes the own thread, which found the lock taken");
            }
            let mut shard = lock.clear().expect("the shard is there");
            assert!(lock.clear().is_none(), "a shard ends once");
            // If another thread still ran the shard, this would detect it.
            shard.serve(lock);
        });
    });
}

#[test]
fn the_own_thread_that_finds_the_lock_taken_is_woken() {
    check_messages(&[Way::Inline], false, 3);
}

#[test]
fn work_that_an_inline_run_leaves_wakes_the_own_thread() {
    check_messages(&[Way::Inline], true, 3);
}

#[test]
fn work_that_the_own_thread_leaves_is_done() {
    check_messages(&[Way::Wake], true, 3);
}

#[test]
fn a_wake_is_not_lost() {
    check_messages(&[Way::Wake], false, 3);
}

#[test]
fn two_wakes_leave_no_message() {
    check_messages(&[Way::Wake, Way::Wake], false, 2);
}

#[test]
fn two_inline_runs_leave_no_message() {
    check_messages(&[Way::Inline, Way::Inline], false, 2);
}

#[test]
fn an_inline_run_and_a_wake_leave_no_message() {
    check_messages(&[Way::Inline, Way::Wake], false, 2);
}

#[test]
fn a_shard_begins_and_ends_once() {
    check_life(&[Way::Inline], 3);
}

#[test]
fn a_shard_begins_and_ends_once_among_two_senders() {
    check_life(&[Way::Inline, Way::Wake], 2);
}
