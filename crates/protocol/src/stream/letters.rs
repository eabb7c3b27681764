//! Forty bits as eight letters: the text of epochs and of runs.

/// Letters of forty bits.
pub(super) const LENGTH: usize = 8;

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyzABCDEF";

/// The letters of the lowest 40 bits, the lowest five first.
pub(super) fn letters(bits: u64) -> [u8; LENGTH] {
    std::array::from_fn(|index| LETTERS[(bits >> (index * 5)) as usize & 31])
}

/// The bits of letters; a byte that is not one of them counts as `a`.
pub(super) fn bits(letters: &[u8]) -> u64 {
    let value = |letter: &u8| LETTERS.iter().position(|known| known == letter).unwrap_or_default() as u64;
    letters.iter().rev().fold(0, |bits, letter| bits << 5 | value(letter))
}
