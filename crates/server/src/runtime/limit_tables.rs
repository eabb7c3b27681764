//! The rates of users and addresses on this node: tables that all shards share. They have several parts, with a lock
//! each. They are used only if a rate is switched on.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use touchline_engine::limit::{
    AddressKey, BucketLevels, CommandCharge, CommandRules, DueTable, EscalationRules, FailedConnectRules, LimitLayer,
    LimitOutcome, LimitVerdict, LimitedCommand, RateLimitSettings, SharedLimits, Sharer,
};
use touchline_lock::Lock;
use touchline_registry::HashSeed;

use super::limit_metrics::{LimitCause, LimitMetrics, TableSizes};
use super::refusals::RefusalLog;
use crate::net::admission::address_of;

/// Why a user or an address is refused for a while, for the log.
const ESCALATED: &str = "client.rate_limit.escalation: too many commands above a rate";
const FAILED: &str = "client.rate_limit.failed_connect: too many failed connects";

/// How many parts a large table has, so that shards rarely wait for each other.
const STRIPES: usize = 64;
/// A table of fewer entries has one part, because each part forgets the oldest of its own entries.
const STRIPED_FROM: usize = 64 * STRIPES;

/// A table in several parts, each with its own lock.
struct Striped<V> {
    seed: HashSeed,
    stripes: Vec<Lock<DueTable<V>>>,
}

impl<V: Default> Striped<V> {
    fn new(entries_max: usize, seed: HashSeed) -> Self {
        let stripes = if entries_max < STRIPED_FROM { 1 } else { STRIPES };
        let part = || Lock::new(DueTable::new(entries_max / stripes, seed));
        Striped { seed, stripes: std::iter::repeat_with(part).take(stripes).collect() }
    }

    /// Calls `act` with the part of the table that contains a key.
    fn with<T>(&self, key: u128, act: impl FnOnce(&mut DueTable<V>) -> T) -> T {
        // This is not the hash of the part's own table, so that each part uses all of its buckets.
        let stripe = self.seed.sip().hash_one(key) as usize % self.stripes.len();
        act(&mut self.stripes[stripe].lock())
    }

    /// Adds up a number over all parts.
    fn sum(&self, count: impl Fn(&DueTable<V>) -> usize) -> usize {
        self.stripes.iter().map(|stripe| count(&stripe.lock())).sum()
    }
}

/// What the tables remember of a user or an address.
#[derive(Debug, Default)]
struct SharerState {
    levels: BucketLevels,
    /// Connects about which a backend has not decided yet.
    under_way: u32,
    /// When the node accepts new connections again, in nanoseconds of the node's clock.
    refused_until_ns: u64,
}

impl SharerState {
    /// The time from which nothing is lost if this entry is forgotten, in nanoseconds of the node's clock.
    fn useless_at_ns(&self) -> u64 {
        if self.under_way > 0 { u64::MAX } else { self.levels.full_at_ns().max(self.refused_until_ns) }
    }

    /// Refuses new connections until this time. Returns whether they were accepted before.
    fn refuse(&mut self, until_ns: u64, now_ns: u64) -> bool {
        let is_new = self.refused_until_ns <= now_ns;
        self.refused_until_ns = until_ns.max(self.refused_until_ns);
        is_new
    }
}

/// The rates of users and addresses, and which of them are refused for a while.
pub(crate) struct LimitTables {
    seed: HashSeed,
    user_rules: Option<CommandRules>,
    address_rules: Option<CommandRules>,
    failed_connects: Option<FailedConnectRules>,
    escalation: Option<EscalationRules>,
    users: Striped<SharerState>,
    addresses: Striped<SharerState>,
    pub(crate) metrics: Arc<LimitMetrics>,
    log: RefusalLog,
    /// How far ahead of time a connect may take its tokens, in nanoseconds.
    patience_ns: u64,
}

impl LimitTables {
    /// Makes empty tables. `seed`: secret, since clients choose the keys. `metrics`: they keep what was counted before.
    pub(crate) fn new(settings: &RateLimitSettings, seed: HashSeed, metrics: Arc<LimitMetrics>) -> Self {
        LimitTables {
            seed,
            user_rules: CommandRules::of_shared(&settings.user_command),
            address_rules: CommandRules::of_shared(&settings.address_command),
            escalation: EscalationRules::of(&settings.escalation),
            failed_connects: FailedConnectRules::of(&settings.failed_connect),
            users: Striped::new(settings.users_max_entries, seed),
            addresses: Striped::new(settings.addresses_max_entries, seed),
            metrics,
            log: RefusalLog::default(),
            patience_ns: settings.patience_ns(),
        }
    }

    /// Returns the table that contains a user or an address, and its key. A user's name may be long, so its key is a
    /// hash of 16 bytes. The seed is secret, so nobody can find two users with the same key.
    fn place_of(&self, sharer: Sharer<'_>) -> (&Striped<SharerState>, u128) {
        match sharer {
            Sharer::User(user) => {
                let half = |number: u8| u128::from(self.seed.sip().hash_one((number, user)));
                (&self.users, half(0) << 64 | half(1))
            }
            Sharer::Address(address) => (&self.addresses, address.0),
        }
    }

    fn rules_of(&self, sharer: Sharer<'_>) -> Option<&CommandRules> {
        match sharer {
            Sharer::User(_) => self.user_rules.as_ref(),
            Sharer::Address(_) => self.address_rules.as_ref(),
        }
    }

    fn change<T>(&self, sharer: Sharer<'_>, now_ns: u64, change: impl FnOnce(&mut SharerState) -> T) -> T {
        let (table, key) = self.place_of(sharer);
        table.with(key, |part| {
            part.change(key, now_ns, |state| {
                let outcome = change(state);
                (outcome, state.useless_at_ns())
            })
        })
    }

    fn look<T>(&self, sharer: Sharer<'_>, look: impl FnOnce(&SharerState) -> T) -> Option<T> {
        let (table, key) = self.place_of(sharer);
        table.with(key, |part| part.get(key).map(look))
    }

    /// The number of entries in the tables at this time. `now_ns`: nanoseconds of the node's clock.
    pub(crate) fn sizes(&self, now_ns: u64) -> TableSizes {
        let refused =
            |part: &DueTable<SharerState>| part.values().filter(|state| state.refused_until_ns > now_ns).count();
        TableSizes {
            users: self.users.sum(DueTable::len),
            addresses: self.addresses.sum(DueTable::len),
            refused_users: self.users.sum(refused),
            refused_addresses: self.addresses.sum(refused),
        }
    }

    /// Whether new connections of an address can be refused early: the address is refused for a while, or its next
    /// connect would be above its rate. Each refusal is counted.
    pub(crate) fn is_unwelcome(&self, address: AddressKey, now_ns: u64) -> bool {
        let sharer = Sharer::Address(address);
        if self.is_refused(sharer, now_ns) {
            return true;
        }
        let Some(rules) = &self.address_rules else { return false };
        let connect = LimitedCommand::Connect;
        let charge =
            CommandCharge { command: connect, detail: "", now_ns, patience_ns: self.patience_ns, is_over: false };
        let is_above = self.look(sharer, |state| rules.would_refuse(&state.levels, &charge)).unwrap_or(false);
        if is_above {
            self.count_command(LimitLayer::Address, connect, LimitOutcome::Refused);
        }
        is_above
    }

    /// Logs that a user or an address is refused from now on.
    fn log_start(&self, sharer: Sharer<'_>, cause: &'static str, for_ns: u64, now_ns: u64) {
        let Some(silent) = self.log.admits(cause, "", now_ns / 1_000_000) else { return };
        let (user, address) = match sharer {
            Sharer::User(user) => (Some(tracing::field::debug(user.to_owned())), None),
            Sharer::Address(key) => (None, Some(tracing::field::display(address_of(key)))),
        };
        let refused_for = tracing::field::debug(Duration::from_nanos(for_ns));
        tracing::warn!(user, address, refused_for, silent, "refused from now on: {cause}");
    }
}

impl SharedLimits for LimitTables {
    fn charge(&self, sharer: Sharer<'_>, charge: &CommandCharge<'_>) -> LimitVerdict {
        let Some(rules) = self.rules_of(sharer) else { return LimitVerdict::Allowed(0) };
        self.change(sharer, charge.now_ns, |state| rules.charge(&mut state.levels, charge))
    }

    fn give_back(&self, sharer: Sharer<'_>, charge: &CommandCharge<'_>) {
        if let Some(rules) = self.rules_of(sharer) {
            self.change(sharer, charge.now_ns, |state| rules.give_back(&mut state.levels, charge));
        }
    }

    fn note_refusal(&self, sharer: Sharer<'_>, now_ns: u64) -> bool {
        let Some(rules) = &self.escalation else { return false };
        let until_ns = now_ns.saturating_add(rules.refused_for_ns);
        let outcome = self.change(sharer, now_ns, |state| {
            let is_one_too_many = rules.note_refusal(&mut state.levels, now_ns);
            is_one_too_many.then(|| state.refuse(until_ns, now_ns))
        });
        if outcome == Some(true) {
            self.metrics.note_cause(LimitCause::Escalation);
            self.log_start(sharer, ESCALATED, rules.refused_for_ns, now_ns);
        }
        outcome.is_some()
    }

    fn is_refused(&self, sharer: Sharer<'_>, now_ns: u64) -> bool {
        if self.escalation.is_none() && self.failed_connects.is_none() {
            return false;
        }
        let is_refused = self.look(sharer, |state| state.refused_until_ns > now_ns).unwrap_or(false);
        if is_refused {
            self.metrics.refused_connects[usize::from(matches!(sharer, Sharer::Address(_)))].add_shared(1);
        }
        is_refused
    }

    fn begin_attempt(&self, address: AddressKey, now_ns: u64) -> bool {
        let Some(rules) = &self.failed_connects else { return true };
        self.change(Sharer::Address(address), now_ns, |state| {
            let may_try = rules.may_try(&state.levels, state.under_way, now_ns);
            state.under_way += u32::from(may_try);
            may_try
        })
    }

    fn end_attempt(&self, address: AddressKey, now_ns: u64) {
        self.change(Sharer::Address(address), now_ns, |state| state.under_way = state.under_way.saturating_sub(1));
    }

    fn note_failed_connect(&self, address: AddressKey, now_ns: u64) {
        let Some(rules) = &self.failed_connects else { return };
        let until_ns = now_ns.saturating_add(rules.refused_for_ns);
        let is_refused_now = self.change(Sharer::Address(address), now_ns, |state| {
            rules.note_failure(&mut state.levels, now_ns) && state.refuse(until_ns, now_ns)
        });
        if is_refused_now {
            self.metrics.note_cause(LimitCause::FailedConnects);
            self.log_start(Sharer::Address(address), FAILED, rules.refused_for_ns, now_ns);
        }
    }

    fn count_command(&self, layer: LimitLayer, command: LimitedCommand, outcome: LimitOutcome) {
        self.metrics.commands[layer as usize][command as usize][outcome as usize].add_shared(1);
    }

    fn count_error(&self, outcome: LimitOutcome) {
        match outcome {
            LimitOutcome::Refused => self.metrics.note_cause(LimitCause::Errors),
            LimitOutcome::Slowed | LimitOutcome::Allowed => self.metrics.allowed_errors.add_shared(1),
        }
    }

    fn count_escalation(&self) {
        self.metrics.note_cause(LimitCause::Escalation);
    }
}

#[cfg(test)]
mod tests {
    use touchline_engine::limit::{RateBucket, RateBuckets};

    use super::*;

    fn one(rate: u32) -> RateBuckets {
        RateBuckets(vec![RateBucket { interval: Duration::from_secs(3_600), rate }])
    }

    fn tables(entries_max: usize) -> LimitTables {
        let mut settings = RateLimitSettings {
            users_max_entries: entries_max,
            addresses_max_entries: entries_max,
            ..RateLimitSettings::default()
        };
        for section in [&mut settings.user_command, &mut settings.address_command] {
            section.commands.enabled = true;
            section.commands.publish.enabled = true;
            section.commands.publish.buckets = one(3);
        }
        settings.failed_connect.enabled = true;
        settings.failed_connect.buckets = one(3);
        settings.escalation.enabled = true;
        LimitTables::new(&settings, HashSeed::new([1, 2, 3, 4]), Arc::default())
    }

    fn publish(now_ns: u64) -> CommandCharge<'static> {
        CommandCharge { command: LimitedCommand::Publish, detail: "", now_ns, patience_ns: 0, is_over: false }
    }

    fn address(key: u128) -> Sharer<'static> {
        Sharer::Address(AddressKey(key))
    }

    #[test]
    fn ten_times_as_many_keys_take_no_more_room() {
        for entries_max in [1, 100, 4_096] {
            let tables = tables(entries_max);
            for key in 0..10 * entries_max as u128 {
                let user = key.to_string();
                for sharer in [Sharer::User(&user), address(key)] {
                    assert_eq!(tables.charge(sharer, &publish(1)), LimitVerdict::Allowed(0));
                    tables.note_refusal(sharer, 1);
                }
                tables.note_failed_connect(AddressKey(key), 1);
            }
            let sizes = tables.sizes(1);
            for size in [sizes.users, sizes.addresses] {
                assert!(size <= entries_max && size > entries_max / 2, "{sizes:?} of {entries_max}");
            }
        }
    }

    #[test]
    fn somebody_whose_buckets_are_full_takes_no_room() {
        let tables = tables(10);
        for key in 0..5 {
            let history = CommandCharge { command: LimitedCommand::History, ..publish(1) };
            assert_eq!(tables.charge(address(key), &history), LimitVerdict::Allowed(0));
            assert!(!tables.is_refused(address(key), 1) && !tables.is_unwelcome(AddressKey(key), 1));
            assert!(tables.begin_attempt(AddressKey(key), 1));
            tables.end_attempt(AddressKey(key), 1);
            tables.charge(address(key), &publish(1));
            tables.give_back(address(key), &publish(1));
        }
        assert_eq!(tables.sizes(1).addresses, 0);
    }

    #[test]
    fn the_one_of_whom_least_is_left_is_forgotten_first() {
        let tables = tables(10);
        (0..3).for_each(|_| assert_eq!(tables.charge(Sharer::User("busy"), &publish(1)), LimitVerdict::Allowed(0)));
        for key in 0..100_u32 {
            assert_eq!(tables.charge(Sharer::User(&key.to_string()), &publish(1)), LimitVerdict::Allowed(0));
        }
        assert_eq!(tables.charge(Sharer::User("busy"), &publish(1)), LimitVerdict::Refused);
    }

    #[test]
    fn an_address_with_too_many_failures_is_refused_for_a_while() {
        let (tables, now_ns) = (tables(10), 5);
        for _ in 0..3 {
            tables.note_failed_connect(AddressKey(7), now_ns);
        }
        assert!(!tables.is_refused(address(7), now_ns));
        for _ in 0..9 {
            tables.note_failed_connect(AddressKey(7), now_ns);
        }
        assert!(tables.is_refused(address(7), now_ns) && !tables.is_refused(address(8), now_ns));
        assert_eq!(tables.metrics.causes()[LimitCause::FailedConnects as usize], 1, "one address was refused");
        let later_ns = now_ns + 60_000_000_000;
        assert!(tables.is_refused(address(7), later_ns - 1) && !tables.is_refused(address(7), later_ns));
        assert_eq!((tables.sizes(now_ns).refused_addresses, tables.sizes(later_ns).refused_addresses), (1, 0));
    }

    #[test]
    fn who_goes_on_is_refused_and_nobody_else() {
        let tables = tables(10);
        let seconds = |s: u64| s * 1_000_000_000;
        let refused_at = (0..60).find(|s| tables.note_refusal(Sharer::User("ann"), seconds(*s)));
        let now_ns = seconds(refused_at.expect("one is too many"));
        assert!(tables.is_refused(Sharer::User("ann"), now_ns) && !tables.is_refused(Sharer::User("bob"), now_ns));
        assert_eq!(tables.sizes(now_ns).refused_addresses, 0);
    }

    #[test]
    fn users_have_keys_of_their_own() {
        let tables = tables(10);
        let key_of = |user| tables.place_of(Sharer::User(user)).1;
        assert_ne!(key_of("ann"), key_of("bob"));
        assert_ne!(key_of("ann") >> 64, key_of("ann") & u128::from(u64::MAX), "both halves count");
    }

    #[test]
    fn many_threads_never_take_more_than_the_rate() {
        let tables = tables(10);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if tables.charge(Sharer::User("ann"), &publish(1)) == LimitVerdict::Allowed(0) {
                            taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 3);
    }
}
