//! Repeatable randomness, and the duration of fuzzing.

use std::time::{Duration, Instant};

/// A seeded generator of texts and mutations for fuzzing.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A random number below `end`, which must be above zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Random bytes, fewer than `end`.
    pub(crate) fn bytes_below(&mut self, end: usize) -> Vec<u8> {
        let length = self.below(end);
        self.bytes(length)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.0.u8(..)).take(length).collect()
    }

    /// A text with characters that are difficult in JSON and UTF-8.
    pub(crate) fn text(&mut self) -> String {
        const ODD: &[char] = &[
            '"', '\\', '/', '\n', '\r', '\t', '\0', '\u{7f}', '\u{2028}', 'é', '€', '😀', '\u{fffd}', '{', '}', ',',
            ':', '<',
        ];
        let length = self.below(12);
        (0..length)
            .map(|_| if self.one_in(2) { ODD[self.below(ODD.len())] } else { char::from(b'a' + self.below(26) as u8) })
            .collect()
    }

    /// Flips, inserts, removes, duplicates and cuts bytes.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes.insert(at, self.next() as u8),
                2 => drop(bytes.remove(at)),
                3 => {
                    let end = (at + 1 + self.below(16)).min(bytes.len());
                    let copy = bytes[at..end].to_vec();
                    bytes.splice(at..at, copy);
                }
                _ => bytes.truncate(at),
            }
        }
    }
}

/// Runs a case repeatedly for TOUCHLINE_FUZZ_SECONDS (default 2), from TOUCHLINE_FUZZ_SEED on. A panic reports the seed
/// of its case.
pub(crate) fn fuzz(case: impl Fn(&mut Random) + std::panic::RefUnwindSafe) {
    let variable = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let lasting = Duration::from_secs(variable("TOUCHLINE_FUZZ_SECONDS").unwrap_or(2));
    let first = variable("TOUCHLINE_FUZZ_SEED").unwrap_or(0x0070_6c61_7966);
    let (began, mut cases) = (Instant::now(), 0u64);
    while cases == 0 || began.elapsed() < lasting {
        let seed = first.wrapping_add(cases);
        if std::panic::catch_unwind(|| case(&mut Random::new(seed))).is_err() {
            panic!("run this case alone with TOUCHLINE_FUZZ_SECONDS=0 TOUCHLINE_FUZZ_SEED={seed}");
        }
        cases += 1;
    }
    println!("{cases} cases from seed {first}");
}
