//! The seed of hash tables is an argument. A node uses a secret seed. A simulator uses a known one, so that the same
//! seed gives the same run in every process.

use std::fmt;
use std::hash::BuildHasher;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use siphasher::sip::SipHasher13;

/// The second half of every repeatable seed.
static KNOWN: SharedSeed = SharedSeed::from_u64(0x746f_7563_686c_696e);

/// The seed of a node's hash tables.
///
/// Clients choose the names of channels, owners and filters. A client that knows the seed can choose thousands of names
/// that fall into one bucket. So a node's seed is random and secret.
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
    /// Creates the seed of a node from random numbers that must stay secret. It leaks 48 bytes, so a process should
    /// create only one.
    pub fn new(random: [u64; 4]) -> Self {
        let [start, shared, sip, more] = random;
        // The half that foldhash calls shared must be secret too. If it is known, each name whose last eight bytes
        // equal a part of it has the same hash. The other bytes of the name and the first half do not matter.
        let shared = Box::leak(Box::new(SharedSeed::from_u64(shared)));
        HashSeed { fold: FoldState { start, shared }, sip: SipState { keys: (sip, more) } }
    }

    /// Creates a repeatable seed for tests and simulators: the same number gives the same hashes in every process. Do
    /// not use it for keys that other people choose.
    pub fn repeatable(number: u64) -> Self {
        let start = number ^ 0x9e37_79b9_7f4a_7c15;
        HashSeed { fold: FoldState { start, shared: &KNOWN }, sip: SipState { keys: (start, number) } }
    }

    /// The seed for foldhash, for tables whose lookups are on the hot path.
    pub fn fold(self) -> FoldState {
        self.fold
    }

    /// The seed for SipHash 1-3, for tables where timing many lookups must not reveal the seed.
    pub fn sip(self) -> SipState {
        self.sip
    }
}

/// A seed of [foldhash](foldhash::fast): fast, and safe as long as attackers do not know the seed and cannot find it
/// out.
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

/// The keys of SipHash 1-3, which the standard library's maps use too.
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

// A seed is a secret, so no Debug output shows it.

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

    /// With a known second half, names that differ only in their first eight bytes had the same hash. A node's seed
    /// must prevent this attack.
    #[test]
    fn names_that_flood_a_known_seed_do_not_flood_a_secret_one() {
        // Half of the product is zero if the last eight bytes of a name equal this part of the known seed.
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
