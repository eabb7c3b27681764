//! The number of different users, without their ids. It is exact up to 128 users. Above, it is HyperLogLog (Flajolet,
//! Fusy, Gandouet, Meunier 2007) with 2,048 registers, whose standard error is 2.3 %. Sketches of shards, nodes and
//! minutes can be united.
//!
//! Hand-written (`hyperloglogplus` was considered): sketches are stored and sent, so their bytes must not change with a
//! library.

use std::collections::BTreeSet;

/// The maximum number of users that are counted exactly.
const FEW: usize = 128;
/// The number of hash bits that choose a register.
const BITS: u32 = 11;
const REGISTERS: usize = 1 << BITS;
// Exact counting takes no more memory than the registers.
const _: () = assert!(FEW * size_of::<u64>() <= REGISTERS);

/// A set of users that can only be counted and united.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch(SketchKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum SketchKind {
    /// The hashes of all users.
    Few(BTreeSet<u64>),
    /// The longest run of zeros that each register has seen, plus one.
    Many(Box<[u8]>),
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch(SketchKind::Few(BTreeSet::new()))
    }
}

/// The hash of a user, which is the same on every node at any time: FNV-1a, mixed by the finisher of SplitMix64.
pub fn hash(user: &[u8]) -> u64 {
    let fnv = user
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let z = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Sketch {
    /// Adds a user by its [`hash`].
    pub fn add(&mut self, hash: u64) {
        match &mut self.0 {
            SketchKind::Few(hashes) => {
                hashes.insert(hash);
                if hashes.len() > FEW {
                    let hashes = std::mem::take(hashes);
                    self.0 = SketchKind::Many(vec![0; REGISTERS].into());
                    hashes.into_iter().for_each(|hash| self.add(hash));
                }
            }
            SketchKind::Many(registers) => {
                let register = &mut registers[(hash >> (64 - BITS)) as usize];
                // The bit after the hash always ends the run.
                let run = (hash << BITS | 1 << (BITS - 1)).leading_zeros() as u8 + 1;
                *register = run.max(*register);
            }
        }
    }

    /// Adds all users of another sketch.
    pub fn unite(&mut self, other: &Sketch) {
        match (&mut self.0, &other.0) {
            (_, SketchKind::Few(hashes)) => hashes.iter().for_each(|hash| self.add(*hash)),
            (SketchKind::Many(mine), SketchKind::Many(theirs)) => {
                mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = *theirs.max(mine))
            }
            (SketchKind::Few(hashes), SketchKind::Many(theirs)) => {
                let hashes = std::mem::take(hashes);
                self.0 = SketchKind::Many(theirs.clone());
                hashes.into_iter().for_each(|hash| self.add(hash));
            }
        }
    }

    /// The number of different users: exact up to 128.
    pub fn count(&self) -> u64 {
        let registers = match &self.0 {
            SketchKind::Few(hashes) => return hashes.len() as u64,
            SketchKind::Many(registers) => registers,
        };
        let all = REGISTERS as f64;
        let sum: f64 = registers.iter().map(|run| 2f64.powi(-i32::from(*run))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / all) * all * all / sum;
        let empty = registers.iter().filter(|run| **run == 0).count() as f64;
        // With few users, registers stay empty, and the number of empty ones is the better estimate.
        let estimate = if raw <= 2.5 * all && empty > 0.0 { all * (all / empty).ln() } else { raw };
        estimate.round() as u64
    }

    /// The stored form: a byte 0 and hashes of eight bytes each, little-endian; or a byte 1 and the registers.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            SketchKind::Few(hashes) => {
                std::iter::once(0).chain(hashes.iter().flat_map(|hash| hash.to_le_bytes())).collect()
            }
            SketchKind::Many(registers) => std::iter::once(1).chain(registers.iter().copied()).collect(),
        }
    }

    /// Reads the output of [`Sketch::to_bytes`]. Any other bytes give an empty sketch.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match bytes.split_first() {
            Some((1, registers)) if registers.len() == REGISTERS => Sketch(SketchKind::Many(registers.into())),
            Some((0, hashes)) => {
                let (hashes, _) = hashes.as_chunks::<8>();
                let mut sketch = Sketch::default();
                hashes.iter().for_each(|hash| sketch.add(u64::from_le_bytes(*hash)));
                sketch
            }
            _ => Sketch::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(users: std::ops::Range<u64>) -> Sketch {
        let mut sketch = Sketch::default();
        users.for_each(|user| sketch.add(hash(format!("user-{user}").as_bytes())));
        sketch
    }

    fn is_near(count: u64, truth: u64) -> bool {
        count.abs_diff(truth) as f64 <= truth as f64 * 0.08
    }

    #[test]
    fn few_are_exact_and_many_are_near() {
        for n in [0, 1, 2, 127, 128] {
            assert_eq!(of(0..n).count(), n);
        }
        for n in [129, 200, 1_000, 3_000, 5_000, 6_000, 10_000, 100_000, 1_000_000] {
            assert!(is_near(of(0..n).count(), n), "{n}: {}", of(0..n).count());
        }
    }

    #[test]
    fn a_union_is_the_sketch_of_all_however_it_came_about() {
        for (a, b) in
            [(0..10, 5..20), (0..100, 50..150), (0..100, 0..1_000), (0..1_000, 990..1_010), (0..5_000, 4_000..9_000)]
        {
            let whole = of(a.start..b.end.max(a.end));
            let (mut one, mut two) = (of(a.clone()), of(b.clone()));
            one.unite(&two);
            two.unite(&of(a));
            assert_eq!((&one, &two), (&whole, &whole));
        }
    }

    #[test]
    fn it_comes_back_from_its_bytes_and_nonsense_is_empty() {
        for n in [0, 3, 128, 129, 10_000] {
            assert_eq!(Sketch::from_bytes(&of(0..n).to_bytes()), of(0..n));
        }
        for nonsense in [&b""[..], b"\x01short", b"\x02", b"\x00odd"] {
            assert_eq!(Sketch::from_bytes(nonsense), Sketch::default());
        }
    }
}
