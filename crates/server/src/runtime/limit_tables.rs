//! The rates of users and addresses on this node: tables that all shards share, in parts with a lock each. Used only
//! where a rate is switched on.

use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use touchline_engine::limit::{
    AddressKey, BucketLevels, CommandCharge, CommandRules, EscalationRules, FailedConnectRules, LimitLayer,
    LimitOutcome, LimitVerdict, LimitedCommand, RateLimitSettings, RecentTable, SharedLimits,
};
use touchline_registry::HashSeed;

use super::limit_metrics::{LimitCause, LimitMetrics, TableSizes};

/// Parts of a large table, so that shards rarely wait for each other.
const STRIPES: usize = 64;
/// A table of fewer entries is one part: each part forgets the oldest of its own entries.
const STRIPED_FROM: usize = 64 * STRIPES;

/// A table in parts, each with a lock of its own.
struct Striped<V> {
    seed: HashSeed,
    stripes: Vec<Mutex<RecentTable<V>>>,
}

impl<V: Default> Striped<V> {
    fn new(entries_max: usize, seed: HashSeed) -> Self {
        let stripes = if entries_max < STRIPED_FROM { 1 } else { STRIPES };
        let part = || Mutex::new(RecentTable::new(entries_max / stripes, seed));
        Striped { seed, stripes: std::iter::repeat_with(part).take(stripes).collect() }
    }

    /// Does something with the part that a key is in.
    fn with<T>(&self, key: u128, act: impl FnOnce(&mut RecentTable<V>) -> T) -> T {
        // Not the hash of the part's own table, so that each part uses all of its buckets.
        let stripe = self.seed.sip().hash_one(key) as usize % self.stripes.len();
        act(&mut self.stripes[stripe].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a number up over all parts.
    fn sum(&self, count: impl Fn(&RecentTable<V>) -> usize) -> usize {
        self.stripes.iter().map(|stripe| count(&stripe.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }
}

/// Those who are refused, and until when, nanoseconds of the node's clock.
struct Refused(Striped<u64>);

impl Refused {
    fn refuse(&self, key: u128, until_ns: u64, now_ns: u64) {
        self.0.with(key, |part| {
            let known_ns = part.use_or_insert(key, |until_ns| *until_ns <= now_ns);
            *known_ns = until_ns.max(*known_ns);
        });
    }

    fn is_refused(&self, key: u128, now_ns: u64) -> bool {
        self.0.with(key, |part| part.get(key).is_some_and(|until_ns| *until_ns > now_ns))
    }

    fn at_present(&self, now_ns: u64) -> usize {
        self.0.sum(|part| part.values().filter(|until_ns| **until_ns > now_ns).count())
    }
}

/// The rates of users and addresses, and those who are refused.
pub(crate) struct LimitTables {
    seed: HashSeed,
    user_rules: Option<CommandRules>,
    address_rules: Option<CommandRules>,
    failed_connects: Option<FailedConnectRules>,
    /// The node refuses somebody for a while.
    refuses: bool,
    users: Striped<BucketLevels>,
    addresses: Striped<BucketLevels>,
    failures: Striped<BucketLevels>,
    refused_users: Refused,
    refused_addresses: Refused,
    pub(crate) metrics: Arc<LimitMetrics>,
}

impl LimitTables {
    /// Empty tables. `seed`: secret, since clients choose the keys.
    pub(crate) fn new(settings: &RateLimitSettings, seed: HashSeed) -> Self {
        let (users_max, addresses_max) = (settings.users_max_entries, settings.addresses_max_entries);
        let failed_connects = FailedConnectRules::of(&settings.failed_connect);
        LimitTables {
            seed,
            user_rules: CommandRules::of_shared(&settings.user_command),
            address_rules: CommandRules::of_shared(&settings.address_command),
            refuses: failed_connects.is_some() || EscalationRules::of(&settings.escalation).is_some(),
            failed_connects,
            users: Striped::new(users_max, seed),
            addresses: Striped::new(addresses_max, seed),
            failures: Striped::new(addresses_max, seed),
            refused_users: Refused(Striped::new(users_max, seed)),
            refused_addresses: Refused(Striped::new(addresses_max, seed)),
            metrics: Arc::default(),
        }
    }

    /// A user as a key: a name may be long, a key has 16 bytes. The seed is secret, so nobody finds two users of one
    /// key.
    fn key_of(&self, user: &str) -> u128 {
        let half = |number: u8| u128::from(self.seed.sip().hash_one((number, user)));
        half(0) << 64 | half(1)
    }

    /// What the tables hold at this time, nanoseconds of the node's clock.
    pub(crate) fn sizes(&self, now_ns: u64) -> TableSizes {
        TableSizes {
            users: self.users.sum(RecentTable::len),
            addresses: self.addresses.sum(RecentTable::len) + self.failures.sum(RecentTable::len),
            refused_users: self.refused_users.at_present(now_ns),
            refused_addresses: self.refused_addresses.at_present(now_ns),
        }
    }
}

fn charge(
    rules: Option<&CommandRules>,
    table: &Striped<BucketLevels>,
    key: u128,
    charge: &CommandCharge<'_>,
) -> LimitVerdict {
    let Some(rules) = rules else { return LimitVerdict::Allowed(0) };
    table.with(key, |part| rules.charge(part.use_or_insert(key, |levels| levels.are_full(charge.now_ns)), charge))
}

impl SharedLimits for LimitTables {
    fn charge_user(&self, user: &str, command: &CommandCharge<'_>) -> LimitVerdict {
        charge(self.user_rules.as_ref(), &self.users, self.key_of(user), command)
    }

    fn charge_address(&self, address: AddressKey, command: &CommandCharge<'_>) -> LimitVerdict {
        charge(self.address_rules.as_ref(), &self.addresses, address.0, command)
    }

    fn note_failed_connect(&self, address: AddressKey, now_ns: u64) {
        let Some(rules) = &self.failed_connects else { return };
        let verdict = self.failures.with(address.0, |part| {
            rules.rate.charge(part.use_or_insert(address.0, |levels| levels.are_full(now_ns)), now_ns)
        });
        if verdict != LimitVerdict::Allowed(0) {
            self.metrics.note_cause(LimitCause::FailedConnects);
            self.refuse_address(address, now_ns.saturating_add(rules.refused_for_ns), now_ns);
        }
    }

    fn refuse_user(&self, user: &str, until_ns: u64, now_ns: u64) {
        self.refused_users.refuse(self.key_of(user), until_ns, now_ns);
    }

    fn refuse_address(&self, address: AddressKey, until_ns: u64, now_ns: u64) {
        self.refused_addresses.refuse(address.0, until_ns, now_ns);
    }

    fn is_user_refused(&self, user: &str, now_ns: u64) -> bool {
        let is_refused = self.refuses && self.refused_users.is_refused(self.key_of(user), now_ns);
        if is_refused {
            self.metrics.refused_connects[0].add_shared(1);
        }
        is_refused
    }

    fn is_address_refused(&self, address: AddressKey, now_ns: u64) -> bool {
        let is_refused = self.refuses && self.refused_addresses.is_refused(address.0, now_ns);
        if is_refused {
            self.metrics.refused_connects[1].add_shared(1);
        }
        is_refused
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
    use std::time::Duration;

    use touchline_engine::limit::{BucketBlock, RateBucket, RateBuckets};

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
            section.commands.default = BucketBlock { enabled: true, buckets: one(3) };
        }
        settings.failed_connect.enabled = true;
        settings.failed_connect.buckets = one(3);
        settings.escalation.enabled = true;
        LimitTables::new(&settings, HashSeed::new([1, 2, 3, 4]))
    }

    fn publish(now_ns: u64) -> CommandCharge<'static> {
        CommandCharge { command: LimitedCommand::Publish, detail: "", now_ns, patience_ns: 0 }
    }

    #[test]
    fn ten_times_as_many_keys_take_no_more_room() {
        for entries_max in [1, 100, 4_096] {
            let tables = tables(entries_max);
            for key in 0..10 * entries_max as u128 {
                assert_eq!(tables.charge_user(&key.to_string(), &publish(1)), LimitVerdict::Allowed(0));
                assert_eq!(tables.charge_address(AddressKey(key), &publish(1)), LimitVerdict::Allowed(0));
                tables.note_failed_connect(AddressKey(key), 1);
                tables.refuse_user(&key.to_string(), 9, 1);
                tables.refuse_address(AddressKey(key), 9, 1);
            }
            let sizes = tables.sizes(1);
            for (size, times) in
                [(sizes.users, 1), (sizes.addresses, 2), (sizes.refused_users, 1), (sizes.refused_addresses, 1)]
            {
                assert!(size <= times * entries_max && size > times * entries_max / 2, "{sizes:?} of {entries_max}");
            }
        }
    }

    #[test]
    fn the_newest_are_remembered() {
        let tables = tables(10);
        for key in 0..100_u32 {
            (0..3)
                .for_each(|_| assert_eq!(tables.charge_user(&key.to_string(), &publish(1)), LimitVerdict::Allowed(0)));
        }
        assert_eq!(tables.charge_user("99", &publish(1)), LimitVerdict::Refused);
        assert_eq!(tables.charge_user("0", &publish(1)), LimitVerdict::Allowed(0), "it was forgotten");
    }

    #[test]
    fn an_address_with_too_many_failures_is_refused_for_a_while() {
        let (tables, address, now_ns) = (tables(10), AddressKey(7), 5);
        for _ in 0..3 {
            tables.note_failed_connect(address, now_ns);
        }
        assert!(!tables.is_address_refused(address, now_ns));
        tables.note_failed_connect(address, now_ns);
        assert!(tables.is_address_refused(address, now_ns) && !tables.is_address_refused(AddressKey(8), now_ns));
        let later_ns = now_ns + 60_000_000_000;
        assert!(tables.is_address_refused(address, later_ns - 1) && !tables.is_address_refused(address, later_ns));
        assert_eq!((tables.sizes(now_ns).refused_addresses, tables.sizes(later_ns).refused_addresses), (1, 0));
    }

    #[test]
    fn users_have_keys_of_their_own() {
        let tables = tables(10);
        assert_ne!(tables.key_of("ann"), tables.key_of("bob"));
        assert_ne!(tables.key_of("ann") >> 64, tables.key_of("ann") & u128::from(u64::MAX), "both halves count");
    }

    #[test]
    fn many_threads_never_take_more_than_the_rate() {
        let tables = tables(10);
        let taken = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if tables.charge_user("ann", &publish(1)) == LimitVerdict::Allowed(0) {
                            taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 3);
    }
}
