//! What a log backend keeps of a publication, and what nodes pass to each other in a channel's subject: a format, a
//! kind, a head, an object.
//!
//! | byte | |
//! |---|---|
//! | 0 | format: [`FORMAT`]. A higher one is not read: the bytes after it may mean anything. |
//! | 1 | kind: `P`, a publication; `C`, a channel's history was removed |
//! | 2, 3 | length of the head, little-endian |
//! | 4 … | head: eight bytes, then fields that this version does not know, which are left where they are |
//! | … | `P`: the publication as a JSON object, with all its fields, known or not |
//!
//! The eight bytes are little-endian: of `P` when it was published, Unix milliseconds; of `C` the last offset that is
//! removed.

use touchline_protocol::stream::Offset;

/// The format that this version writes, and the highest that it reads.
pub(super) const FORMAT: u8 = 1;

const PUBLICATION: u8 = b'P';
const CLEAR: u8 = b'C';
/// Bytes of the head that this version knows.
const KNOWN: u16 = 8;
/// Where the head begins.
const BEGIN: usize = 4;

/// The content of a payload.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    /// A publication: its time in Unix milliseconds, and its JSON object.
    Publication(u64, &'a [u8]),
    /// The history was removed up to an offset.
    Clear(Offset),
}

/// A payload that cannot be read: its format is newer than this version, or it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// Its first byte: the format, if it is not damaged; 0 = it is empty.
    pub format: u8,
}

/// The head of a publication's payload.
pub(super) fn begin(time_ms: u64, object_length: usize) -> Vec<u8> {
    head(PUBLICATION, time_ms, object_length)
}

/// The payload that says that the history was removed up to an offset.
pub(super) fn clear(until: Offset) -> Vec<u8> {
    head(CLEAR, until.0, 0)
}

fn head(kind: u8, number: u64, more: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(BEGIN + usize::from(KNOWN) + more);
    payload.extend_from_slice(&[FORMAT, kind]);
    payload.extend_from_slice(&KNOWN.to_le_bytes());
    payload.extend_from_slice(&number.to_le_bytes());
    payload
}

/// Reads a payload.
///
/// # Errors
/// See [`Unreadable`].
pub(super) fn read(payload: &[u8]) -> Result<Payload<'_>, Unreadable> {
    let unreadable = Unreadable { format: payload.first().copied().unwrap_or_default() };
    let Some(([FORMAT, kind, low, high], rest)) = payload.split_first_chunk::<BEGIN>() else { return Err(unreadable) };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    let (head, object) = rest.split_at_checked(length).ok_or(unreadable)?;
    let (number, _) = head.split_first_chunk::<{ KNOWN as usize }>().ok_or(unreadable)?;
    let number = u64::from_le_bytes(*number);
    match *kind {
        PUBLICATION if object.starts_with(b"{") => Ok(Payload::Publication(number, object)),
        CLEAR => Ok(Payload::Clear(Offset(number))),
        _ => Err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What version 0.1 writes. Later versions must read it as it stands here.
    const PUBLICATION_1: &[u8] =
        b"\x01P\x08\x00\x15\xcd\x5b\x07\x00\x00\x00\x00{\"data\":{\"n\":1},\"tags\":{\"a\":\"b\"}}";
    const CLEAR_1: &[u8] = b"\x01C\x08\x00\x2a\x00\x00\x00\x00\x00\x00\x00";

    #[test]
    fn the_first_format_is_written_and_read_as_it_was() {
        let object = br#"{"data":{"n":1},"tags":{"a":"b"}}"#;
        assert_eq!(read(PUBLICATION_1), Ok(Payload::Publication(123_456_789, object)));
        assert_eq!(read(CLEAR_1), Ok(Payload::Clear(Offset(42))));
        assert_eq!([&begin(123_456_789, object.len())[..], object].concat(), PUBLICATION_1);
        assert_eq!(clear(Offset(42)), CLEAR_1);
    }

    #[test]
    fn what_a_later_version_adds_to_the_head_is_passed_over() {
        let longer = b"\x01P\x0b\x00\x15\xcd\x5b\x07\x00\x00\x00\x00new{\"data\":1,\"new\":2}";
        assert_eq!(read(longer), Ok(Payload::Publication(123_456_789, br#"{"data":1,"new":2}"#)));
    }

    #[test]
    fn another_format_and_what_is_cut_off_are_not_read() {
        let mut newer = PUBLICATION_1.to_vec();
        newer[0] = 2;
        assert_eq!(read(&newer), Err(Unreadable { format: 2 }));
        let object = PUBLICATION_1.len() - 12;
        for length in 0..=12 {
            assert!(read(&PUBLICATION_1[..length]).is_err(), "{length} of {object} bytes");
        }
        let of_another_kind = [b"\x01X", &PUBLICATION_1[2..]].concat();
        assert!(read(&of_another_kind).is_err());
    }
}
