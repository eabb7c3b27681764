//! Encodes forty bits as eight letters: the text of epochs and of runs.

/// The number of letters for forty bits.
pub(super) const LENGTH: usize = 8;

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyzABCDEF";

/// Encodes the lowest 40 bits as letters, lowest five bits first.
pub(super) fn letters(bits: u64) -> [u8; LENGTH] {
    std::array::from_fn(|index| LETTERS[(bits >> (index * 5)) as usize & 31])
}

/// Decodes letters to bits. A byte that is not one of the letters counts as `a`.
pub(super) fn bits(letters: &[u8]) -> u64 {
    let value = |letter: &u8| LETTERS.iter().position(|known| known == letter).unwrap_or_default() as u64;
    letters.iter().rev().fold(0, |bits, letter| bits << 5 | value(letter))
}
