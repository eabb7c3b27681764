//! Unpredictable random numbers. Ids of clients take them from the system in blocks, so that a connect rarely costs
//! more than copying a few bytes. The hash tables of this process take their seed from them.

use std::sync::OnceLock;

use aws_lc_rs::rand;
use touchline_registry::HashSeed;

/// The seed of the hash tables of all nodes of this process.
static HASH_SEED: OnceLock<HashSeed> = OnceLock::new();

/// The secret random seed of the hash tables of this process. It must be secret, since clients choose the keys. None =
/// the system has no random numbers.
pub(crate) fn hash_seed() -> Option<HashSeed> {
    if let Some(seed) = HASH_SEED.get() {
        return Some(*seed);
    }
    let numbers = random_numbers()?;
    Some(*HASH_SEED.get_or_init(|| HashSeed::new(numbers)))
}

/// Takes four random numbers from the system; None = it has none.
fn random_numbers() -> Option<[u64; 4]> {
    let mut numbers = [[0; 8]; 4];
    rand::fill(numbers.as_flattened_mut()).ok()?;
    Some(numbers.map(u64::from_ne_bytes))
}

/// How many bytes are taken from the system at once.
const BLOCK: usize = 4_096;

/// A block of random bytes for client ids.
pub(crate) struct ClientIdRandom {
    block: Box<[u8]>,
    /// How many bytes of the block have been used.
    used: usize,
}

impl ClientIdRandom {
    /// Makes an empty block. The first call of [`ClientIdRandom::bytes`] fills it.
    pub(crate) fn new() -> Self {
        ClientIdRandom { block: vec![0; BLOCK].into(), used: BLOCK }
    }

    /// Takes random bytes; None = the system has none.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        const { assert!(N <= BLOCK) };
        if BLOCK - self.used < N {
            rand::fill(&mut self.block).ok()?;
            self.used = 0;
        }
        let (given, _) = self.block[self.used..].split_first_chunk_mut::<N>()?;
        self.used += N;
        // Used bytes do not stay in memory.
        Some(std::mem::replace(given, [0; N]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn no_bytes_are_given_twice_over_many_blocks() {
        let mut random = ClientIdRandom::new();
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            let bytes: [u8; 10] = random.bytes().expect("the system has random numbers");
            assert!(seen.insert(bytes));
        }
        // Each bit is set about half of the time; 600 is twelve standard deviations.
        for bit in 0..80 {
            let set = seen.iter().filter(|bytes| bytes[bit / 8] >> (bit % 8) & 1 == 1).count();
            assert!((4_400..=5_600).contains(&set), "bit {bit} is set {set} times");
        }
    }

    #[test]
    fn a_process_has_one_seed_of_hashes_that_no_other_has() {
        let hashes = || hash_seed().map(|seed| (seed.fold().hash_one("news"), seed.sip().hash_one("news")));
        let (fold, sip) = hashes().expect("the system has random numbers");
        assert_eq!(hashes(), Some((fold, sip)));
        let no_numbers = HashSeed::new([0; 4]);
        assert_ne!((fold, sip), (no_numbers.fold().hash_one("news"), no_numbers.sip().hash_one("news")));
        let numbers = || random_numbers().expect("the system has random numbers");
        let drawn: HashSet<u64> = numbers().into_iter().chain(numbers()).collect();
        assert_eq!(drawn.len(), 8, "a number was drawn twice");
    }
}
