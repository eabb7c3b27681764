//! A hash that is the same on all nodes, whatever their versions: FNV-1a (RFC 9923). It ends with the finish of
//! SplitMix64 (Steele, Lea, Flood 2014) so that all of its bits differ.

use std::hash::{Hash, Hasher};

/// The current value of the hash.
struct StableHasher(u64);

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The hash of a value. A client that chooses the value can choose the hash, so it is never the key of a hash table.
pub fn stable_hash(value: &impl Hash) -> u64 {
    let mut hasher = StableHasher(0xcbf2_9ce4_8422_2325);
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_what_it_is() {
        assert_eq!(stable_hash(&("match:42", 7_u64)), stable_hash(&("match:42", 7_u64)));
        assert_ne!(stable_hash(&("match:42", 7_u64)), stable_hash(&("match:42", 8_u64)));
        assert_eq!(stable_hash(&1_u8), 12_254_457_192_590_784_505);
    }
}
