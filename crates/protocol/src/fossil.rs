//! Deltas in Fossil's format (fossil-scm.org, "Delta Format"). A delta describes how to build a text from an earlier
//! one.
//!
//! Copies begin and end between characters. The delta between two UTF-8 texts is therefore UTF-8 itself and fits into a
//! JSON string.
//!
//! Hand-written: `fossil-delta` works on bytes, so its copies may begin within a character.

/// The length of a source block for lookups, in bytes.
const BLOCK: usize = 16;
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// Creates the delta that turns `source` into `target`.
pub(crate) fn create(source: &[u8], target: &[u8]) -> Vec<u8> {
    let mut delta = Vec::with_capacity(64);
    number(&mut delta, target.len() as u32);
    delta.push(b'\n');
    let blocks = Blocks::of(source);
    // The target before `done` is already in the delta. From `done` to `at` it has no match.
    let (mut done, mut at) = (0, 0);
    while at + BLOCK <= target.len() {
        let Some(copy) = blocks.longest(source, target, done, at) else {
            at += 1;
            continue;
        };
        insert(&mut delta, &target[done..copy.to]);
        number(&mut delta, copy.length as u32);
        delta.push(b'@');
        number(&mut delta, copy.from as u32);
        delta.push(b',');
        done = copy.to + copy.length;
        at = done;
    }
    insert(&mut delta, &target[done..]);
    number(&mut delta, checksum(target));
    delta.push(b';');
    delta
}

struct Copy {
    from: usize,
    to: usize,
    length: usize,
}

/// An index of the source's blocks by their content.
struct Blocks {
    /// The index of a block plus one; 0 = no block. The length is a power of two.
    table: Vec<u32>,
}

impl Blocks {
    fn of(source: &[u8]) -> Self {
        let count = source.len() / BLOCK;
        let mut table = vec![0; (count * 2).next_power_of_two().max(2)];
        // Back to front, so that a lookup finds the first of several equal blocks.
        for index in (0..count).rev() {
            let place = place(&source[index * BLOCK..][..BLOCK], table.len());
            table[place] = index as u32 + 1;
        }
        Blocks { table }
    }

    /// Finds the longest copy that covers the block of the target at `at` and does not begin before `done`.
    fn longest(&self, source: &[u8], target: &[u8], done: usize, at: usize) -> Option<Copy> {
        let block = &target[at..at + BLOCK];
        let index = self.table[place(block, self.table.len())].checked_sub(1)? as usize;
        let from = index * BLOCK;
        if &source[from..from + BLOCK] != block {
            return None;
        }
        let back = (1..=from.min(at - done)).take_while(|back| source[from - back] == target[at - back]).count();
        let on = source[from..].iter().zip(&target[at..]).take_while(|(a, b)| a == b).count();
        let (mut start, mut end) = (at - back, at + on);
        while start < end && is_inside(target, start) {
            start += 1;
        }
        while end > start && is_inside(target, end) {
            end -= 1;
        }
        // `start` may be before or after `at`; the source position moves along. Text always has a character boundary at
        // `at` and one after it. Other bytes may have none, and the loop must still advance.
        (end > at).then(|| Copy { from: from + start - at, to: start, length: end - start })
    }
}

/// Whether a position is within a UTF-8 character.
fn is_inside(text: &[u8], position: usize) -> bool {
    text.get(position).is_some_and(|byte| byte & 0xc0 == 0x80)
}

fn place(block: &[u8], size: usize) -> usize {
    let half = |at: usize| block.get(at..at + 8).and_then(|half| half.try_into().ok()).map_or(0, u64::from_le_bytes);
    let mixed = (half(0) ^ half(8).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (size - 1)
}

fn insert(delta: &mut Vec<u8>, text: &[u8]) {
    if !text.is_empty() {
        number(delta, text.len() as u32);
        delta.push(b':');
        delta.extend_from_slice(text);
    }
}

fn number(delta: &mut Vec<u8>, value: u32) {
    let digits = (32 - value.leading_zeros()).div_ceil(6).max(1);
    delta.extend((0..digits).rev().map(|digit| DIGITS[(value >> (digit * 6)) as usize & 63]));
}

/// The sum of the text's big-endian 32-bit words. The last word is padded with zeros.
fn checksum(text: &[u8]) -> u32 {
    let (words, rest) = text.as_chunks::<4>();
    let sum = words.iter().fold(0u32, |sum, word| sum.wrapping_add(u32::from_be_bytes(*word)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum.wrapping_add(u32::from_be_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Applies a delta as Fossil's documentation describes it.
    fn apply(source: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
        let mut rest = delta;
        let mut next = |out: &mut Vec<u8>| -> Option<u8> {
            let digits = rest.iter().take_while(|byte| DIGITS.contains(byte)).count();
            let (text, behind) = rest.split_at(digits);
            let value = text
                .iter()
                .fold(0u64, |value, digit| value << 6 | DIGITS.iter().position(|d| d == digit).unwrap_or(0) as u64);
            let (kind, behind) = behind.split_first()?;
            rest = behind;
            match kind {
                b':' => {
                    let (text, behind) = rest.split_at_checked(value as usize)?;
                    out.extend_from_slice(text);
                    rest = behind;
                }
                b'@' => {
                    let digits = rest.iter().take_while(|byte| DIGITS.contains(byte)).count();
                    let (text, behind) = rest.split_at(digits);
                    let from =
                        text.iter().fold(0, |v, digit| v << 6 | DIGITS.iter().position(|d| d == digit).unwrap_or(0));
                    rest = behind.strip_prefix(b",")?;
                    out.extend_from_slice(source.get(from..from + value as usize)?);
                }
                b';' => return (value == u64::from(checksum(out))).then_some(b';'),
                _ => {}
            }
            Some(*kind)
        };
        let mut out = Vec::new();
        loop {
            match next(&mut out)? {
                b';' => return Some(out),
                _ => continue,
            }
        }
    }

    proptest! {
        /// Some of the characters share their first bytes (é è, 本 末), and some their last byte (é ũ). So the equal
        /// parts of both texts may begin and end within a character.
        #[test]
        fn a_delta_makes_the_target_of_the_source(
            source in "[a-déèũ本末]{0,300}",
            edits in prop::collection::vec((0usize..300, "[a-zéèũ本末]{0,9}", 0usize..20), 0..6),
        ) {
            let mut target: Vec<char> = source.chars().collect();
            for (at, new, removed) in edits {
                let at = at.min(target.len());
                let end = (at + removed).min(target.len());
                target.splice(at..end, new.chars());
            }
            let target: String = target.into_iter().collect();
            let delta = create(source.as_bytes(), target.as_bytes());
            prop_assert_eq!(apply(source.as_bytes(), &delta), Some(target.into_bytes()));
            prop_assert!(std::str::from_utf8(&delta).is_ok());
        }

        #[test]
        fn any_two_texts_will_do(
            source in prop::collection::vec(any::<u8>(), 0..200),
            target in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert_eq!(apply(&source, &create(&source, &target)), Some(target));
        }
    }

    #[test]
    fn a_copy_begins_where_the_texts_begin_to_be_the_same() {
        // Another character precedes the equal block. It is also in the source, next to a place where it must not
        // match.
        for (source, target) in [
            ("0123456789abcdefghijklmnopqrstuv", "gghijklmnopqrstuv"),
            ("0123456789abcdegghijklmnopqrstuv", "xghijklmnopqrstuv"),
            ("0123456789abcdefghijklmnopqrstuv", "hghijklmnopqrstuv"),
        ] {
            let delta = create(source.as_bytes(), target.as_bytes());
            assert_eq!(apply(source.as_bytes(), &delta).as_deref(), Some(target.as_bytes()), "{target}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_come_back_too() {
        let within = |count: usize| vec![0x80u8; count];
        // The first block varies, so that it is not always in the hash slot where the second one is looked up.
        for first in (b'0'..=b'9').map(|digit| [&[digit; 13][..], b"def"].concat()) {
            for (source, target) in [
                (within(16), within(17)),
                ([&first[..], &within(16)].concat(), [&b"ef"[..], &within(16), &[0x81]].concat()),
                ([&first[..], b"g", &within(15)].concat(), [&b"fg"[..], &within(15), &[0x81]].concat()),
            ] {
                let delta = create(&source, &target);
                assert_eq!(apply(&source, &delta).as_ref(), Some(&target), "{delta:?}");
            }
        }
    }

    #[test]
    fn the_sum_is_that_of_words_and_a_filled_rest() {
        let cases: [(&[u8], u32); 4] =
            [(b"", 0), (b"abcd", 0x6162_6364), (b"abcde", 0xc662_6364), (&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2], 1)];
        for (text, sum) in cases {
            assert_eq!(checksum(text), sum, "{text:?}");
        }
    }

    #[test]
    fn a_small_change_makes_a_small_delta() {
        let state: String = (0..200).map(|n| format!("{{\"player\":{n},\"points\":{}}},", n * 7 % 50)).collect();
        let changed = state.replace("\"player\":150,\"points\":0}", "\"player\":150,\"points\":9}");
        assert_ne!(state, changed);
        let delta = create(state.as_bytes(), changed.as_bytes());
        assert!(delta.len() < 60, "{} bytes", delta.len());
    }
}
