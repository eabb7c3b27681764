//! The budget for how much the primary database may still grow. It is charged before anything is written. The module is
//! pure: the result of a look at the database is an argument.
//!
//! Between two looks, each write is charged by the most that it may take. So a burst cannot exceed the limit unnoticed.
//! A look that began after a commit includes what the commit has written, so it cancels these charges.

/// Ordinary writes leave the limit divided by this number free. Other writes, which are refused never or later, may use
/// that room.
const KEPT_PART: u64 = 16;
/// The maximum of that part, bytes.
const KEPT_MAX: u64 = 16 * 1_024 * 1_024;
/// The charges that are allowed before the first look has succeeded, bytes.
const BLIND_MAX: u64 = 1_024 * 1_024;
/// The limit is near if less than the limit divided by this number is left.
const NEAR_PART: u64 = 4;
/// Near the limit of a database that other nodes may write to, a node writes at most the limit divided by this number
/// between two looks. It then begins no further write until the next look.
const STEP_PART: u64 = 32;
/// The bounds of that amount, bytes.
const STEP_MIN: u64 = 1_024 * 1_024;
const STEP_MAX: u64 = 64 * 1_024 * 1_024;
const _: () = assert!(STEP_MIN <= STEP_MAX && BLIND_MAX <= STEP_MIN);
/// If the free room inside the files is an estimate, they may exceed the limit by its value divided by this number.
const ESTIMATE_PART: u64 = 16;
/// The maximum of that excess, bytes.
const ESTIMATE_SLACK_MAX: u64 = 64 * 1_024 * 1_024;
/// If the files are even larger, the estimated free room divided by this number is taken as certain.
const ESTIMATE_SURE_PART: u64 = 2;
/// How often each byte is written to the disk: to the log, then to the file.
const DISK_WRITES: u64 = 2;
/// After the disk was short, writes need room for the reserve divided by this number before it counts as free again.
const RESERVE_PART: u64 = 16;

/// The configured limits of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrowthLimits {
    /// `store.primary.max_size`, bytes. 0 = no limit.
    pub(crate) max_size: u64,
    /// `store.primary.disk_reserve`, bytes. 0 = no reserve.
    pub(crate) disk_reserve: u64,
}

impl GrowthLimits {
    /// Whether any limit is set.
    pub(crate) fn are_set(&self) -> bool {
        self.max_size > 0 || self.disk_reserve > 0
    }

    /// The part of the limit that ordinary writes leave free, bytes.
    fn kept(&self) -> u64 {
        (self.max_size / KEPT_PART).min(KEPT_MAX)
    }

    /// The maximum that one node writes near the limit between two looks, if other nodes may write too, bytes.
    fn step(&self) -> u64 {
        (self.max_size / STEP_PART).clamp(STEP_MIN, STEP_MAX)
    }

    /// The room with which a full database is no longer full, bytes: enough for what was refused, and for more than the
    /// next few writes, so that the state does not flicker. A write that never fits does not count as a whole.
    fn enough(&self, full: FullState) -> u64 {
        let reserve = self.disk_reserve / RESERVE_PART;
        let few = match full.cause {
            FullCause::Disk => reserve.max(self.kept() / KEPT_PART),
            FullCause::Limit => self.kept() / KEPT_PART,
        };
        few.max(full.refused.min(self.kept().max(reserve)))
    }

    /// By how much the files may exceed the limit if the free room inside them is an estimate, bytes.
    fn estimate_slack(&self) -> u64 {
        (self.max_size / ESTIMATE_PART).min(ESTIMATE_SLACK_MAX)
    }
}

/// The result of a look at a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeReading {
    /// The size of the database files, bytes.
    pub(crate) held: u64,
    /// The free room inside the files, which rows take before the files grow, bytes.
    pub(crate) reusable: u64,
    /// True if `reusable` is counted, false if it is an estimate.
    pub(crate) is_exact: bool,
    /// The free space of the file system, bytes. `None` = unknown, as for a PostgreSQL server.
    pub(crate) disk_free: Option<u64>,
    /// The part of the free space that the file takes when the log is moved into it, bytes.
    pub(crate) to_move: u64,
    /// The number of nodes that write to the database, at least 1.
    pub(crate) nodes: u64,
}

impl SizeReading {
    /// The size that counts against the limit, bytes.
    pub(crate) fn used(&self) -> u64 {
        self.held.saturating_sub(self.reusable)
    }

    /// The free space of the file system without the space that the log will take, bytes. `None` = unknown.
    pub(crate) fn disk_left(&self) -> Option<u64> {
        self.disk_free.map(|free| free.saturating_sub(self.to_move))
    }
}

/// What happens to a write when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrowthClass {
    /// It is done, because it makes the database smaller or must not be refused.
    Always,
    /// It is small and replaces existing data, so it may use the room that ordinary writes leave free.
    Small,
    /// It is refused.
    Ordinary,
}

/// The cost of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrowthCharge {
    pub(crate) class: GrowthClass,
    /// The most by which the write may enlarge the database, bytes.
    pub(crate) bytes: u64,
}

/// Why a write is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FullCause {
    /// The database has reached its size limit.
    Limit,
    /// The file system has too little free space.
    Disk,
}

/// The growth budget of one node.
#[derive(Debug)]
pub(crate) struct GrowthBudget {
    limits: GrowthLimits,
    /// The result of the last look. `None` = no look has succeeded yet.
    reading: Option<SizeReading>,
    /// Charges of committed writes that no look has included, bytes.
    settled: u64,
    /// The part of `settled` that the look in progress includes, bytes.
    in_look: u64,
    /// Charges of writes that are not committed yet, bytes.
    pending: u64,
    /// Why an ordinary write was refused. `None` = none was, or there is room again for the next few writes.
    full: Option<FullState>,
}

/// The state of a database that refuses ordinary writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FullState {
    /// The cause of the last refusal.
    cause: FullCause,
    /// The largest write that was refused, bytes.
    refused: u64,
}

impl GrowthBudget {
    pub(crate) fn new(limits: GrowthLimits) -> Self {
        GrowthBudget { limits, reading: None, settled: 0, in_look: 0, pending: 0, full: None }
    }

    /// Charges a write before it is made.
    ///
    /// # Errors
    /// The cause of the refusal. The write must not be made, and nothing is charged.
    pub(crate) fn charge(&mut self, charge: GrowthCharge) -> Result<(), FullCause> {
        if charge.class != GrowthClass::Always {
            let (room, cause) = self.room(charge.class);
            let is_full = charge.bytes > room;
            if is_full && charge.class == GrowthClass::Ordinary {
                let refused = self.full.map_or(0, |full| full.refused).max(charge.bytes);
                self.full = Some(FullState { cause, refused });
            }
            // A used-up step ends with the next look, so it does not mean that the database is full.
            if is_full || self.charged() >= self.step_to(charge.class) {
                return Err(cause);
            }
        }
        self.pending = self.pending.saturating_add(charge.bytes);
        Ok(())
    }

    /// The bytes that writes of a class may still take, and the cause that limits them.
    pub(crate) fn room(&self, class: GrowthClass) -> (u64, FullCause) {
        let (most, cause) = self.allowance(class);
        (most.saturating_sub(self.charged()), cause)
    }

    /// The charges that the last look does not include, bytes.
    fn charged(&self) -> u64 {
        self.settled.saturating_add(self.pending)
    }

    /// The charges at which no further write begins before the next look, bytes. Other nodes also write, and have seen
    /// the same room. A write that exceeds this amount is made, however large, so that none is refused for its size
    /// while there is room.
    fn step_to(&self, class: GrowthClass) -> u64 {
        let Some(reading) = &self.reading else { return u64::MAX };
        if reading.is_exact || self.limits.max_size == 0 {
            return u64::MAX;
        }
        let share = self.allowance(class).0.div_ceil(reading.nodes.max(1));
        let far = share.saturating_sub(self.limits.max_size / NEAR_PART);
        share.min(self.limits.step()).max(far)
    }

    /// The bytes that writes of a class may take in total after the last look, and the cause that limits them.
    fn allowance(&self, class: GrowthClass) -> (u64, FullCause) {
        let GrowthLimits { max_size, disk_reserve } = self.limits;
        let Some(reading) = &self.reading else {
            return (if self.limits.max_size > 0 { BLIND_MAX } else { u64::MAX }, FullCause::Limit);
        };
        let mut room = u64::MAX;
        if max_size > 0 {
            let most = match class {
                GrowthClass::Ordinary => max_size - self.limits.kept(),
                GrowthClass::Small | GrowthClass::Always => max_size,
            };
            room = most.saturating_sub(reading.used());
            if !reading.is_exact {
                let files = max_size.saturating_add(self.limits.estimate_slack()).saturating_sub(reading.held);
                // Larger files do not shrink when rows are removed, so only the certain part of the room inside them is
                // used.
                room = room.min(files.max(reading.reusable / ESTIMATE_SURE_PART));
            }
        }
        match reading.disk_left().filter(|_| disk_reserve > 0) {
            Some(left) if left.saturating_sub(disk_reserve) / DISK_WRITES < room => {
                (left.saturating_sub(disk_reserve) / DISK_WRITES, FullCause::Disk)
            }
            _ => (room, FullCause::Limit),
        }
    }

    /// Whether the disk has so little free space that the log beside the file must be kept short.
    pub(crate) fn is_disk_near(&self) -> bool {
        let reserve = self.limits.disk_reserve;
        let left = self.reading.as_ref().and_then(SizeReading::disk_left);
        reserve > 0 && left.is_some_and(|left| left < reserve.saturating_mul(2))
    }

    /// The pending charges are committed.
    pub(crate) fn settle(&mut self) {
        self.settled = self.settled.saturating_add(std::mem::take(&mut self.pending));
    }

    /// The pending charges were not written.
    pub(crate) fn give_back(&mut self) {
        self.pending = 0;
    }

    /// A look begins; it includes everything that is committed now. Returns the charges of the writes since the
    /// previous look, bytes.
    pub(crate) fn begin_look(&mut self) -> u64 {
        self.in_look = self.settled;
        self.in_look
    }

    /// Records a write that could not be refused.
    pub(crate) fn spend(&mut self, bytes: u64) {
        self.settled = self.settled.saturating_add(bytes);
    }

    /// A look has ended with this result.
    pub(crate) fn end_look(&mut self, reading: SizeReading) {
        self.settled -= std::mem::take(&mut self.in_look).min(self.settled);
        self.reading = Some(reading);
        if self.full.is_some_and(|full| self.room(GrowthClass::Ordinary).0 > self.limits.enough(full)) {
            self.full = None;
        }
    }

    /// Whether the charges since the last look have used at least half of the room.
    pub(crate) fn needs_look(&self) -> bool {
        self.settled > 0
            && self.settled >= self.allowance(GrowthClass::Ordinary).0.min(self.step_to(GrowthClass::Ordinary)) / 2
    }

    /// The result of the last look. `None` = no look has succeeded yet.
    pub(crate) fn reading(&self) -> Option<&SizeReading> {
        self.reading.as_ref()
    }

    /// Why ordinary writes are refused. `None` = they are accepted.
    pub(crate) fn full(&self) -> Option<FullCause> {
        self.full.map(|full| full.cause)
    }

    /// Whether the files take more than three quarters of the limit, so that the room inside them is worth a look.
    pub(crate) fn is_near(&self) -> bool {
        let max_size = self.limits.max_size;
        max_size > 0 && self.reading.is_some_and(|reading| reading.held > max_size / 4 * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1_024 * 1_024;

    fn ordinary(bytes: u64) -> GrowthCharge {
        GrowthCharge { class: GrowthClass::Ordinary, bytes }
    }

    fn budget(max_size: u64, disk_reserve: u64) -> GrowthBudget {
        GrowthBudget::new(GrowthLimits { max_size, disk_reserve })
    }

    fn file(held: u64, reusable: u64, disk_free: Option<u64>) -> SizeReading {
        SizeReading { held, reusable, is_exact: true, disk_free, to_move: 0, nodes: 1 }
    }

    fn tables(held: u64, reusable: u64, nodes: u64) -> SizeReading {
        SizeReading { is_exact: false, nodes, ..file(held, reusable, None) }
    }

    #[test]
    fn ordinary_writes_leave_room_for_those_that_are_not_refused() {
        let mut budget = budget(160 * MIB, 0);
        budget.end_look(file(140 * MIB, 0, None));
        assert_eq!(budget.charge(ordinary(10 * MIB)), Ok(()), "a sixteenth is kept");
        assert_eq!(budget.charge(ordinary(1)), Err(FullCause::Limit));
        assert_eq!(budget.full(), Some(FullCause::Limit));
        assert_eq!(budget.charge(GrowthCharge { class: GrowthClass::Small, bytes: 10 * MIB }), Ok(()));
        assert_eq!(budget.charge(GrowthCharge { class: GrowthClass::Small, bytes: 1 }), Err(FullCause::Limit));
        assert_eq!(budget.charge(GrowthCharge { class: GrowthClass::Always, bytes: MIB }), Ok(()));
        budget.settle();
        budget.begin_look();
        budget.end_look(file(161 * MIB, 100 * MIB, None));
        assert_eq!((budget.full(), budget.room(GrowthClass::Ordinary).0), (None, 89 * MIB), "free pages count");
    }

    #[test]
    fn a_disk_with_little_room_refuses_before_the_limit() {
        let mut budget = budget(1_000 * MIB, 64 * MIB);
        budget.end_look(file(10 * MIB, 0, Some(66 * MIB)));
        assert_eq!(budget.charge(ordinary(MIB)), Ok(()));
        assert_eq!(budget.charge(ordinary(1)), Err(FullCause::Disk));
        budget.give_back();
        budget.end_look(file(10 * MIB, 0, Some(100 * MIB)));
        assert_eq!((budget.charge(ordinary(MIB)), budget.full()), (Ok(()), None));
        let log = SizeReading { to_move: 35 * MIB, ..file(10 * MIB, 0, Some(100 * MIB)) };
        budget.give_back();
        budget.end_look(log);
        assert_eq!(budget.charge(ordinary(MIB)), Err(FullCause::Disk), "what the log is moved to is not free");
        let mut unlimited = GrowthBudget::new(GrowthLimits { max_size: 0, disk_reserve: 0 });
        unlimited.end_look(file(10 * MIB, 0, Some(0)));
        assert_eq!(unlimited.charge(ordinary(1_000 * MIB)), Ok(()));
    }

    #[test]
    fn a_database_is_full_until_what_was_refused_has_room() {
        let mut budget = budget(160 * MIB, 0);
        budget.end_look(file(145 * MIB, 0, None));
        assert_eq!(budget.charge(ordinary(6 * MIB)), Err(FullCause::Limit));
        budget.end_look(file(145 * MIB, 0, None));
        assert_eq!((budget.room(GrowthClass::Ordinary).0, budget.full()), (5 * MIB, Some(FullCause::Limit)));
        budget.end_look(file(143 * MIB, 0, None));
        assert_eq!(budget.full(), None);
        budget.end_look(file(147 * MIB, 0, None));
        assert_eq!(budget.full(), None, "a look refuses nothing");
        assert_eq!(budget.charge(ordinary(1_000 * MIB)), Err(FullCause::Limit));
        budget.end_look(file(100 * MIB, 0, None));
        assert_eq!(budget.full(), None, "a write that never fits does not keep the database full");
    }

    #[test]
    fn a_look_ends_the_charges_that_it_has_seen_and_no_others() {
        let mut budget = budget(320 * MIB, 0);
        assert_eq!(budget.charge(ordinary(2 * MIB)), Err(FullCause::Limit), "little is written unseen");
        budget.end_look(file(200 * MIB, 0, None));
        assert_eq!(budget.charge(ordinary(60 * MIB)), Ok(()));
        budget.settle();
        assert!(budget.needs_look());
        assert_eq!(budget.begin_look(), 60 * MIB);
        assert_eq!(budget.charge(ordinary(20 * MIB)), Ok(()));
        budget.settle();
        budget.end_look(file(225 * MIB, 0, None));
        assert_eq!(budget.room(GrowthClass::Ordinary).0, (320 - 16 - 225 - 20) * MIB);
    }

    /// A model of the nodes that write to one database.
    struct World {
        limits: GrowthLimits,
        nodes: Vec<GrowthBudget>,
        /// The result of the look in progress, for each node.
        looks: Vec<Option<SizeReading>>,
        held: u64,
        free: u64,
    }

    impl World {
        fn reading(&self, random: &mut fastrand::Rng) -> SizeReading {
            // The room inside the files is known roughly, or not at all, as by a node of another version.
            let reusable = self.free / 100 * random.u64(0..=130);
            SizeReading {
                held: self.held,
                reusable: reusable.min(self.held),
                is_exact: false,
                disk_free: None,
                to_move: 0,
                nodes: self.nodes.len() as u64,
            }
        }

        fn step(&mut self, random: &mut fastrand::Rng) {
            let node = random.usize(0..self.nodes.len());
            match random.u32(0..100) {
                0..70 => {
                    let bytes = random.u64(1..=MIB / 2);
                    if self.nodes[node].charge(ordinary(bytes)).is_ok() {
                        // The charge is the most that a write takes.
                        let taken = random.u64(0..=bytes);
                        let inside = taken.min(self.free);
                        (self.free, self.held) = (self.free - inside, self.held + taken - inside);
                        self.nodes[node].settle();
                    }
                }
                70..80 if self.looks[node].is_none() => {
                    self.nodes[node].begin_look();
                    self.looks[node] = Some(self.reading(random));
                }
                80..95 => {
                    if let Some(reading) = self.looks[node].take() {
                        self.nodes[node].end_look(reading);
                    }
                }
                95..98 => self.free += random.u64(0..=(self.held - self.free) / 8),
                98 if self.nodes.len() < 4 => {
                    self.nodes.push(GrowthBudget::new(self.limits));
                    self.looks.push(None);
                }
                // A node that starts again does not know its charges.
                _ => {
                    self.nodes[node] = GrowthBudget::new(self.limits);
                    self.looks[node] = None;
                }
            }
        }
    }

    #[test]
    fn the_files_never_pass_the_limit_by_more_than_the_slack() {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = GrowthLimits { max_size: random.u64(16..400) * MIB, disk_reserve: 0 };
            let nodes = (0..random.usize(1..=3)).map(|_| GrowthBudget::new(limits)).collect::<Vec<_>>();
            let mut world = World { limits, looks: vec![None; nodes.len()], nodes, held: MIB, free: 0 };
            let mut starts = 0;
            for _ in 0..4_000 {
                let before = world.nodes.iter().filter(|node| node.reading().is_none()).count();
                world.step(&mut random);
                let after = world.nodes.iter().filter(|node| node.reading().is_none()).count();
                starts += u64::from(after > before);
                let steps = world.nodes.len() as u64 * 2 * limits.step();
                // Each start may write a little before its first look.
                let slack = limits.estimate_slack() + steps + starts * BLIND_MAX;
                assert!(world.held <= limits.max_size + slack, "seed {seed}: {} of {limits:?}", world.held);
            }
        }
    }

    #[test]
    fn no_write_is_refused_for_its_size_while_there_is_room() {
        for seed in 0..400 {
            let mut random = fastrand::Rng::with_seed(seed);
            let max_size = random.u64(16..4_000) * MIB;
            let mut budget = budget(max_size, 0);
            budget.end_look(tables(random.u64(0..max_size / 8 * 7), 0, random.u64(1..=8)));
            // Other nodes have written a little since the look.
            let _ = budget.charge(ordinary(random.u64(0..MIB / 64)));
            let room = budget.room(GrowthClass::Ordinary).0;
            assert_eq!(budget.charge(ordinary(room)), Ok(()), "seed {seed}: all that is left, at once");
            assert!(budget.charge(ordinary(1)).is_err(), "seed {seed}");
        }
    }

    #[test]
    fn a_flood_far_from_the_limit_waits_for_no_look() {
        let mut budget = budget(64 * MIB, 0);
        budget.end_look(tables(4 * MIB, 0, 1));
        let mut made = 0;
        while budget.charge(ordinary(MIB / 4)).is_ok() {
            budget.settle();
            made += 1;
        }
        assert!(made >= 4 * 40, "{made} quarters of 1 MiB of the 56 that are left");
        assert_eq!(budget.full(), None, "it is the step that is taken, not the limit");
        assert!(budget.needs_look());
        budget.begin_look();
        budget.end_look(tables(44 * MIB, 0, 1));
        assert_eq!(budget.charge(ordinary(MIB / 4)), Ok(()));
    }

    #[test]
    fn files_beyond_the_limit_take_rows_where_rows_were_removed() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let max_size = random.u64(16..4_000) * MIB;
            let mut budget = budget(max_size, 0);
            let held = max_size / 100 * random.u64(107..300);
            budget.end_look(tables(held, 0, 1));
            assert_eq!(budget.charge(ordinary(1)), Err(FullCause::Limit));
            // The counted size is below what ordinary writes leave free.
            let used = max_size / 100 * random.u64(1..90);
            budget.end_look(tables(held, held - used, 1));
            assert_eq!((budget.full(), budget.charge(ordinary(1))), (None, Ok(())), "seed {seed}");
            assert!(budget.room(GrowthClass::Ordinary).0 <= (held - used) / 2, "seed {seed}: an estimate is not sure");
        }
    }

    #[test]
    fn a_short_disk_does_not_flicker() {
        let mut budget = budget(0, 64 * MIB);
        let mut changes = 0;
        for n in 0..1_000 {
            let before = budget.full();
            // A small amount is written and deleted.
            budget.end_look(file(10 * MIB, 0, Some(64 * MIB + n % 7 * MIB / 2)));
            let _ = budget.charge(ordinary(2 * MIB));
            budget.give_back();
            changes += u32::from(before != budget.full());
        }
        assert_eq!(changes, 1, "it is full once");
        budget.end_look(file(10 * MIB, 0, Some(80 * MIB)));
        assert_eq!(budget.full(), None);
    }

    #[test]
    fn what_is_removed_makes_room_again() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut budget = budget(random.u64(8..200) * MIB, 0);
            let (mut pages, mut free) = (MIB, 0);
            let mut write = |budget: &mut GrowthBudget, free: &mut u64| {
                budget.begin_look();
                budget.end_look(file(pages, *free, None));
                let bytes = random.u64(1..=MIB / 4);
                let is_made = budget.charge(ordinary(bytes)).is_ok();
                if is_made {
                    let inside = bytes.min(*free);
                    (*free, pages) = (*free - inside, pages + bytes - inside);
                    budget.settle();
                }
                (is_made, pages)
            };
            let max_size = budget.limits.max_size;
            while write(&mut budget, &mut free).0 {}
            assert!(budget.full().is_some());
            // Smaller writes may still fit.
            for _ in 0..20 {
                write(&mut budget, &mut free);
            }
            free += MIB;
            let (is_made, pages) = write(&mut budget, &mut free);
            assert!(is_made && pages <= max_size, "seed {seed}");
        }
    }
}
