//! The seed of hash tables is an argument: a node takes a secret one, a simulator its own, so that the same seed gives
//! the same run in every process.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use siphasher::sip::SipHasher13;

/// The second half of the seed of all tables that can be repeated.
static KNOWN: SharedSeed = SharedSeed::from_u64(0x746f_7563_686c_696e);

/// What the hash tables of a node begin with.
///
/// Clients choose the names of channels, owners and filters. Who knows the seed can choose thousands of names that fall
/// into one bucket, so a node's seed is random, and secret.
///
/// ```
/// use std::hash::BuildHasher;
/// use touchline_registry::HashSeed;
///
/// let (one, same, other) = (HashSeed::repeatable(1), HashSeed::repeatable(1), HashSeed::repeatable(2));
/// assert_eq!(one.fold().hash_one("news"), same.fold().hash_one("news"));
/// assert_ne!(one.fold().hash_one("news"), other.fold().hash_one("news"));
/// ```
#[derive(Clone, Copy)]
pub struct HashSeed {
    fold: FoldState,
    sip: SipState,
}

impl HashSeed {
    /// The seed of a node, of random numbers that nobody else knows. It keeps 48 bytes until the process ends, so a
    /// process makes one.
    pub fn new(random: [u64; 4]) -> Self {
        let [start, shared, sip, more] = random;
        // Of foldhash, the half that it calls shared must be secret too: with a known one, each name whose last eight
        // bytes equal a part of it has the same hash, whatever its other bytes and the first half are.
        let shared = Box::leak(Box::new(SharedSeed::from_u64(shared)));
        HashSeed { fold: FoldState { start, shared }, sip: SipState { keys: (sip, more) } }
    }

    /// A seed that can be repeated, for tests and simulators: the same number gives the same hashes in every process.
    /// Not for keys that somebody else chooses.
    pub fn repeatable(number: u64) -> Self {
        let start = number ^ 0x9e37_79b9_7f4a_7c15;
        HashSeed { fold: FoldState { start, shared: &KNOWN }, sip: SipState { keys: (start, number) } }
    }

    /// Hashes by foldhash, for tables whose lookups are counted.
    pub fn fold(self) -> FoldState {
        self.fold
    }

    /// Hashes by SipHash 1-3, for tables in which it must not help to measure the time of many lookups.
    pub fn sip(self) -> SipState {
        self.sip
    }
}

/// A seed of [foldhash](foldhash::fast): fast, and safe against those who do not know it and cannot find it out.
#[derive(Clone, Copy)]
pub struct FoldState {
    start: u64,
    shared: &'static SharedSeed,
}

impl BuildHasher for FoldState {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        FoldHasher::with_seed(self.start, self.shared)
    }
}

/// The keys of SipHash 1-3, which is also the hash of the standard library's maps.
#[derive(Clone, Copy)]
pub struct SipState {
    keys: (u64, u64),
}

impl BuildHasher for SipState {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1)
    }
}

// A seed is a secret, so none of them shows what it is.

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashSeed")
    }
}

impl fmt::Debug for FoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FoldState")
    }
}

impl fmt::Debug for SipState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SipState")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, Hasher};

    use super::*;

    #[test]
    fn each_of_the_four_random_numbers_counts() {
        let hashes = |numbers: [u64; 4]| {
            let seed = HashSeed::new(numbers);
            (seed.fold().hash_one("news"), seed.sip().hash_one("news"))
        };
        let (fold, sip) = hashes([1, 2, 3, 4]);
        assert_eq!(hashes([1, 2, 3, 4]), (fold, sip), "the same numbers, the same hashes");
        for place in 0..4 {
            let mut numbers = [1, 2, 3, 4];
            numbers[place] += 100;
            let other = hashes(numbers);
            assert_eq!((other.0 == fold, other.1 == sip), (place >= 2, place < 2), "number {place}");
        }
    }

    /// With a known second half, names that differ in their first eight bytes alone had one hash: the attack that a
    /// node's seed must stop.
    #[test]
    fn names_that_flood_a_known_seed_do_not_flood_a_secret_one() {
        // Half of a product is zero where the last eight bytes of a name equal this part of the known seed.
        let part = format!("{KNOWN:?}");
        let parts: Vec<u64> = part
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .filter(|number| *number > 1 << 32)
            .collect();
        let names = |part: u64| (0..100_u64).map(move |first| [first.to_le_bytes(), part.to_le_bytes()].concat());
        let hashes = |state: FoldState, part| {
            let hash = |name: Vec<u8>| {
                let mut hasher = state.build_hasher();
                hasher.write(&name);
                hasher.finish()
            };
            names(part).map(hash).collect::<BTreeSet<u64>>().len()
        };
        let fewest = |state: FoldState| parts.iter().map(|part| hashes(state, *part)).min();
        assert_eq!(parts.len(), 6, "the parts of the known seed are seen");
        assert_eq!(fewest(HashSeed::repeatable(4711).fold()), Some(1), "a known seed is flooded");
        assert_eq!(fewest(HashSeed::new([1, 2, 3, 4]).fold()), Some(100), "a secret one is not");
    }

    #[test]
    fn no_seed_shows_what_it_is() {
        let seed = HashSeed::new([11, 22, 33, 44]);
        let shown = format!("{seed:?} {:?} {:?}", seed.fold(), seed.sip());
        assert_eq!(shown, "HashSeed FoldState SipState");
    }
}
