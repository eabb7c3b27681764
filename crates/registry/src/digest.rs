//! A digest of an authority's entries that does not depend on their order: the sum of a hash of each entry.
//!
//! Hand-written: nodes of different versions compare digests, and the hashes of `ahash` and `foldhash` may change with
//! a version.

use crate::entry::Entry;

/// Hashes bytes in the same way on every machine. It takes eight bytes at a time and folds them by a wide
/// multiplication (as wyhash does; Wang Yi, 2019).
fn fold(state: u64, bytes: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = state ^ (bytes.len() as u64).wrapping_mul(K);
    for piece in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        let wide = u128::from(state ^ u64::from_le_bytes(word)) * u128::from(0xa076_1d64_78bd_642f_u64);
        state = (wide as u64) ^ ((wide >> 64) as u64) ^ K;
    }
    state
}

/// The hash of a claim of a name.
pub(crate) fn claim(entry: &Entry, rank: u8) -> u64 {
    fold(u64::from(rank), entry.bytes())
}

/// The hash of a membership in a group.
pub(crate) fn member(entry: &Entry) -> u64 {
    fold(u64::MAX, entry.bytes())
}
