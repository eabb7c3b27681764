//! When users were connected last, as far as this node holds it in memory. With a primary database, these are the times
//! that are not written yet. Without one, they are all that the node knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use touchline_lock::Lock;
use touchline_registry::spare_capacity;
use touchline_store::SeenUser;

use super::meters::{Counter, gauge};

/// How many users a node holds. If there are more, the oldest is forgotten. But if users wait to be written, the newest
/// is not noted instead.
const SEEN_USERS_MAX: usize = 100_000;

/// When users were connected last; all threads of the node share it.
#[derive(Debug)]
pub(crate) struct SeenUsers {
    /// Whether the times are written to the primary database.
    pub(crate) is_written: bool,
    table: Lock<SeenTable>,
    is_writing: AtomicBool,
    counts: SeenCounts,
}

#[derive(Debug, Default)]
struct SeenCounts {
    written: Counter,
    failed: Counter,
    dropped: Counter,
}

impl SeenUsers {
    /// Makes an empty table. `is_written`: whether the times are written to the primary database.
    pub(crate) fn new(is_written: bool) -> Self {
        SeenUsers {
            is_written,
            table: Lock::new(SeenTable::new(SEEN_USERS_MAX, !is_written)),
            is_writing: AtomicBool::new(false),
            counts: SeenCounts::default(),
        }
    }

    /// Notes that users are or were connected at a time, in Unix seconds.
    pub(crate) fn note<'u>(&self, users: impl IntoIterator<Item = &'u str>, now_s: u64) {
        let mut table = self.table.lock();
        let dropped = users.into_iter().filter(|user| SeenUser::is_kept(user) && !table.note(user, now_s)).count();
        drop(table);
        self.counts.dropped.add_shared(dropped as u64);
    }

    /// Whether so few users wait to be written that users that stay connected may be noted. Half of the room is
    /// reserved for users that disconnect.
    pub(crate) fn has_room_for_staying(&self) -> bool {
        self.table.lock().by_user.len() < SEEN_USERS_MAX / 2
    }

    /// When users were connected last, in Unix seconds, in the order of `users`. None = this node does not hold it.
    pub(crate) fn held(&self, users: &[Box<str>]) -> Vec<Option<u64>> {
        let table = self.table.lock();
        users.iter().map(|user| table.by_user.get(&**user).map(|(_, seen_s)| *seen_s)).collect()
    }

    /// Begins to write the oldest entries, at most `rows_max`. None = nothing waits, or a write is under way. The
    /// caller must call [`Self::end_write`] afterwards.
    pub(crate) fn begin_write(&self, rows_max: usize) -> Option<Vec<SeenUser>> {
        let rows = self.table.lock().oldest(rows_max);
        (!rows.is_empty() && !self.is_writing.swap(true, Ordering::AcqRel)).then_some(rows)
    }

    /// Ends a write. Entries that could not be written wait for the next write.
    pub(crate) fn end_write(&self, rows: &[SeenUser], is_done: bool) {
        if is_done {
            self.table.lock().remove(rows);
            self.counts.written.add_shared(rows.len() as u64);
        } else {
            self.counts.failed.add_shared(1);
        }
        self.is_writing.store(false, Ordering::Release);
    }

    /// Forgets when a user was connected last. Returns whether this node held it. A write that is under way may still
    /// write it.
    pub(crate) fn forget(&self, user: &str) -> bool {
        self.table.lock().take(user)
    }

    /// Forgets some of the users that were not seen after a time, in Unix seconds.
    pub(crate) fn expire(&self, after_s: u64) {
        self.table.lock().expire(after_s);
    }
}

/// Users in the order in which they were noted, as a pure data structure.
#[derive(Debug)]
struct SeenTable {
    users_max: usize,
    /// If the table is full: whether the oldest user is forgotten; else a new user is refused.
    forgets: bool,
    by_user: HashMap<Arc<str>, (u64, u64)>,
    /// The users by their place, which is the number of their last note.
    in_order: BTreeMap<u64, Arc<str>>,
    notes: u64,
}

/// How many users that were not seen for long are forgotten in one step.
const EXPIRED_IN_STEP: usize = 512;

impl SeenTable {
    fn new(users_max: usize, forgets: bool) -> Self {
        SeenTable { users_max, forgets, by_user: HashMap::new(), in_order: BTreeMap::new(), notes: 0 }
    }

    /// Notes a user. Returns false if the time of a user is lost by it.
    fn note(&mut self, user: &str, now_s: u64) -> bool {
        self.notes += 1;
        if let Some((place, seen_s)) = self.by_user.get_mut(user) {
            let before = std::mem::replace(place, self.notes);
            *seen_s = now_s.max(*seen_s);
            if let Some(user) = self.in_order.remove(&before) {
                self.in_order.insert(self.notes, user);
            }
            return true;
        }
        let is_full = self.by_user.len() >= self.users_max;
        if is_full && !self.forgets {
            return false;
        }
        if is_full && let Some((_, oldest)) = self.in_order.pop_first() {
            self.by_user.remove(&oldest);
        }
        let user: Arc<str> = user.into();
        self.by_user.insert(Arc::clone(&user), (self.notes, now_s));
        self.in_order.insert(self.notes, user);
        !is_full
    }

    fn oldest(&self, rows_max: usize) -> Vec<SeenUser> {
        let row = |user: &Arc<str>| {
            self.by_user.get(user).map(|(_, seen_s)| SeenUser { user: Arc::clone(user), seen_s: *seen_s })
        };
        self.in_order.values().take(rows_max).filter_map(row).collect()
    }

    /// Takes a user out. Returns whether it was there.
    fn take(&mut self, user: &str) -> bool {
        let taken = self.by_user.remove(user);
        taken.is_some_and(|(place, _)| self.in_order.remove(&place).is_some())
    }

    /// Takes users out, unless they were seen again later.
    fn remove(&mut self, rows: &[SeenUser]) {
        for SeenUser { user, seen_s } in rows {
            if self.by_user.get(user).is_some_and(|(_, held_s)| held_s <= seen_s)
                && let Some((place, _)) = self.by_user.remove(user)
            {
                self.in_order.remove(&place);
            }
        }
        if let Some(capacity) = spare_capacity(self.by_user.len(), self.by_user.capacity()) {
            self.by_user.shrink_to(capacity);
        }
    }

    fn expire(&mut self, after_s: u64) {
        let mut old = self.oldest(EXPIRED_IN_STEP);
        old.retain(|row| row.seen_s <= after_s);
        self.remove(&old);
    }
}

/// The metrics of [`SeenUsers`], for a scrape.
#[derive(Debug)]
pub(crate) struct SeenCollector {
    held: usize,
    written: u64,
    failed: u64,
    dropped: u64,
}

impl SeenCollector {
    /// Collects the metrics of a node's users.
    pub(crate) fn of(seen: &SeenUsers) -> Self {
        let SeenCounts { written, failed, dropped } = &seen.counts;
        let held = seen.table.lock().by_user.len();
        SeenCollector { held, written: written.get(), failed: failed.get(), dropped: dropped.get() }
    }
}

impl Collector for SeenCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Users whose last time of a connection this node holds in memory";
        gauge(&mut encoder, "user_status_held", help, self.held as u64)?;
        for (name, help, count) in [
            ("user_status_written", "Times of users written to the primary database", self.written),
            ("user_status_failures", "Writes of times of users that failed; they are repeated", self.failed),
            ("user_status_dropped", "Times of users that were forgotten or not noted for lack of room", self.dropped),
        ] {
            ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &SeenTable) -> Vec<String> {
        table.oldest(usize::MAX).iter().map(|row| format!("{} {}", row.user, row.seen_s)).collect()
    }

    #[test]
    fn of_too_many_the_oldest_goes_or_the_newest_is_refused() {
        for (forgets, expected) in [(true, ["bob 3", "eve 4"]), (false, ["cid 2", "bob 3"])] {
            let mut table = SeenTable::new(2, forgets);
            assert!(table.note("bob", 1) && table.note("cid", 2) && table.note("bob", 3));
            assert!(!table.note("eve", 4), "one is lost");
            assert_eq!(names(&table), expected);
            assert_eq!((table.by_user.len(), table.in_order.len()), (2, 2));
        }
    }

    #[test]
    fn who_is_seen_again_during_a_write_is_written_again() {
        let seen = SeenUsers::new(true);
        seen.note(["ann", "bob", "", "a\0b", &"x".repeat(256)], 5);
        let rows = seen.begin_write(10).expect("two wait");
        assert_eq!((rows.len(), seen.begin_write(10)), (2, None), "one write at a time");
        seen.note(["bob"], 6);
        seen.end_write(&rows, true);
        assert_eq!(seen.held(&["ann".into(), "bob".into(), "".into()]), [None, Some(6), None]);
        let rows = seen.begin_write(10).expect("one waits");
        seen.end_write(&rows, false);
        assert_eq!(seen.begin_write(10), Some(rows), "what failed is written again");
    }

    #[test]
    fn who_is_forgotten_is_neither_told_nor_written_again() {
        let seen = SeenUsers::new(true);
        seen.note(["ann", "bob"], 5);
        let rows = seen.begin_write(10).expect("two wait");
        assert_eq!((seen.forget("ann"), seen.forget("ann")), (true, false));
        seen.end_write(&rows, false);
        let left = seen.begin_write(10).expect("one waits");
        assert_eq!(left.iter().map(|row| &*row.user).collect::<Vec<_>>(), ["bob"]);
        assert_eq!(seen.held(&["ann".into(), "bob".into()]), [None, Some(5)]);
    }

    #[test]
    fn who_was_not_seen_for_long_is_forgotten() {
        let mut table = SeenTable::new(10, true);
        (1..=4).for_each(|at| assert!(table.note(&at.to_string(), at)));
        table.expire(2);
        assert_eq!(names(&table), ["3 3", "4 4"]);
    }
}
