//! The only codec of a stored publication. Log backends store this form, and nodes send it to each other in a channel's
//! subject. A payload consists of a format, a kind, a head and an object.
//!
//! | byte | |
//! |---|---|
//! | 0 | format: 1, or 2 for bytes. A format above [`FORMAT`] is not read: the bytes after it may mean anything. |
//! | 1 | kind: `P`, a publication; `C`, a channel's history was removed |
//! | 2, 3 | length of the head, little-endian |
//! | 4 … | head: eight bytes, then the exclusion if there is one, and fields that this version does not know |
//! | … | `P`: the publication as a JSON object, with all its fields, known or not |
//!
//! If the data is bytes, the object contains its [notation](crate::notation). A version that reads only format 1 would
//! send the notation to clients as if it were JSON.
//!
//! The first eight bytes of the head are little-endian. For `P` they say when it was published, Unix milliseconds. For
//! `C` they are the last removed offset. After them, a field has a kind, its length in two bytes, and its contents. The
//! kinds `c` and `u` are a client id and a user that do not get the publication while it is delivered ([`Exclusion`]).
//!
//! ```
//! use touchline_protocol::stored::{StoredPayload, decode, encode_publication};
//!
//! let payload = encode_publication(1_700_000_000_000, 10, |out| out.extend_from_slice(b"{\"data\":1}"));
//! let publication = StoredPayload::Publication { time_ms: 1_700_000_000_000, object: b"{\"data\":1}" };
//! assert_eq!(decode(&payload), Ok(publication));
//! ```

use std::fmt;

use crate::publication::Exclusion;
use crate::stream::Offset;

/// The highest format that this version writes and reads.
pub const FORMAT: u8 = 2;

/// The format that every version can read.
const FIRST_FORMAT: u8 = 1;

const PUBLICATION: u8 = b'P';
const CLEAR: u8 = b'C';
/// The length of the head's part that this version knows, in bytes.
const KNOWN: u16 = 8;
/// The index at which the head begins.
const BEGIN: usize = 4;

/// The content of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredPayload<'a> {
    /// A publication of the channel.
    Publication {
        /// When it was published, Unix milliseconds.
        time_ms: u64,
        /// The publication as a JSON object, without a position. It begins with `{`; the rest is not checked.
        object: &'a [u8],
    },
    /// The history was removed up to this offset.
    Clear(Offset),
}

/// The error for a payload whose format is newer than this version, or that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable {
    /// The first byte of the payload, which is the format unless the payload is damaged. 0 = the payload is empty.
    pub format: u8,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unreadable { format } = self;
        if *format > FORMAT {
            return write!(
                f,
                "a stored publication has format {format}, and this program reads formats up to {FORMAT}: run the \
                 newer program"
            );
        }
        f.write_str("a stored publication is damaged: its head does not fit its bytes")
    }
}

impl std::error::Error for Unreadable {}

/// Encodes a publication that was published at `time_ms`, Unix milliseconds. `write` appends its JSON object, which has
/// approximately `object_size` bytes.
pub fn encode_publication(time_ms: u64, object_size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    complete(begin(PUBLICATION, time_ms, &[], object_size), write)
}

/// Encodes a publication like [`encode_publication`], with the client or user that does not get it.
pub fn encode_excluding(
    exclusion: &Exclusion,
    time_ms: u64,
    object_size: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    complete(begin(PUBLICATION, time_ms, &exclusion.head(), object_size), write)
}

/// Appends the publication to a head, and sets the format.
fn complete(mut payload: Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let head = payload.len();
    write(&mut payload);
    // The JSON object that this crate writes begins with the payload.
    if payload[head..].starts_with(b"{\"data\":{\"$b64\":\"") {
        payload[0] = FORMAT;
    }
    payload
}

/// Encodes that the history was removed up to this offset.
pub fn encode_clear(until: Offset) -> Vec<u8> {
    begin(CLEAR, until.0, &[], 0)
}

fn begin(kind: u8, number: u64, fields: &[u8], more: usize) -> Vec<u8> {
    let length = KNOWN.saturating_add(u16::try_from(fields.len()).unwrap_or_default());
    let mut payload = Vec::with_capacity(BEGIN + usize::from(length) + more);
    payload.extend_from_slice(&[FIRST_FORMAT, kind]);
    payload.extend_from_slice(&length.to_le_bytes());
    payload.extend_from_slice(&number.to_le_bytes());
    payload.extend_from_slice(&fields[..usize::from(length - KNOWN)]);
    payload
}

/// The exclusion of a payload that can be decoded. `None` = all subscribers get the publication.
pub fn exclusion(payload: &[u8]) -> Option<Box<Exclusion>> {
    let (head, rest) = payload.split_first_chunk::<BEGIN>()?;
    let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
    if length <= usize::from(KNOWN) {
        return None;
    }
    Exclusion::of_head(rest.get(usize::from(KNOWN)..length)?).map(Box::new)
}

/// Decodes a payload.
///
/// # Errors
/// [`Unreadable`] if the format is newer than [`FORMAT`], or the payload is damaged.
pub fn decode(payload: &[u8]) -> Result<StoredPayload<'_>, Unreadable> {
    let unreadable = Unreadable { format: payload.first().copied().unwrap_or_default() };
    let Some(([FIRST_FORMAT..=FORMAT, kind, low, high], rest)) = payload.split_first_chunk::<BEGIN>() else {
        return Err(unreadable);
    };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    let (head, object) = rest.split_at_checked(length).ok_or(unreadable)?;
    let (number, _) = head.split_first_chunk::<{ KNOWN as usize }>().ok_or(unreadable)?;
    let number = u64::from_le_bytes(*number);
    match *kind {
        PUBLICATION if object.starts_with(b"{") => Ok(StoredPayload::Publication { time_ms: number, object }),
        CLEAR => Ok(StoredPayload::Clear(Offset(number))),
        _ => Err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload that version 0.1 writes. Later versions must be able to read exactly these bytes.
    const PUBLICATION_1: &[u8] =
        b"\x01P\x08\x00\x15\xcd\x5b\x07\x00\x00\x00\x00{\"data\":{\"n\":1},\"tags\":{\"a\":\"b\"}}";
    const CLEAR_1: &[u8] = b"\x01C\x08\x00\x2a\x00\x00\x00\x00\x00\x00\x00";

    #[test]
    fn bytes_have_a_format_of_their_own_and_everything_else_the_first() {
        for (object, format) in [
            (r#"{"data":{"$b64":"AA=="}}"#, 2),
            (r#"{"data":"{\"$b64\":\"AA==\"}"}"#, 1),
            (r#"{"data":{"a":{"$b64":"AA=="}}}"#, 1),
        ] {
            let payload = encode_publication(5, 0, |out| out.extend_from_slice(object.as_bytes()));
            assert_eq!(payload[0], format, "{object}");
            let read = StoredPayload::Publication { time_ms: 5, object: object.as_bytes() };
            assert_eq!(decode(&payload), Ok(read));
        }
    }

    #[test]
    fn the_first_format_is_written_and_read_as_it_was() {
        let object = br#"{"data":{"n":1},"tags":{"a":"b"}}"#;
        assert_eq!(decode(PUBLICATION_1), Ok(StoredPayload::Publication { time_ms: 123_456_789, object }));
        assert_eq!(decode(CLEAR_1), Ok(StoredPayload::Clear(Offset(42))));
        let encoded = encode_publication(123_456_789, object.len(), |out| out.extend_from_slice(object));
        assert_eq!(encoded, PUBLICATION_1);
        assert_eq!(encode_clear(Offset(42)), CLEAR_1);
    }

    #[test]
    fn what_a_later_version_adds_to_the_head_is_passed_over() {
        let longer = b"\x01P\x0b\x00\x15\xcd\x5b\x07\x00\x00\x00\x00new{\"data\":1,\"new\":2}";
        let object = br#"{"data":1,"new":2}"#;
        assert_eq!(decode(longer), Ok(StoredPayload::Publication { time_ms: 123_456_789, object }));
    }

    #[test]
    fn who_is_left_out_stands_in_the_head_and_earlier_versions_pass_over_it() {
        let left_out = Exclusion::of("c", "ann").expect("somebody");
        let payload = encode_excluding(&left_out, 123_456_789, 10, |out| out.extend_from_slice(b"{\"data\":1}"));
        let expected = b"\x01P\x12\x00\x15\xcd\x5b\x07\x00\x00\x00\x00c\x01\x00cu\x03\x00ann{\"data\":1}";
        assert_eq!(payload, expected);
        let object = br#"{"data":1}"#;
        assert_eq!(decode(&payload), Ok(StoredPayload::Publication { time_ms: 123_456_789, object }));
        assert_eq!(exclusion(&payload).as_deref(), Some(&left_out));
        assert_eq!(exclusion(PUBLICATION_1), None);
        assert!((0..payload.len()).all(|length| exclusion(&payload[..length]).is_none_or(|_| length >= 22)));
    }

    #[test]
    fn another_format_and_what_is_cut_off_are_not_read() {
        let mut newer = PUBLICATION_1.to_vec();
        newer[0] = FORMAT + 1;
        assert_eq!(decode(&newer), Err(Unreadable { format: FORMAT + 1 }));
        assert!(Unreadable { format: FORMAT + 1 }.to_string().contains("format 3"));
        assert!(Unreadable { format: 1 }.to_string().contains("damaged"));
        let object = PUBLICATION_1.len() - 12;
        for length in 0..=12 {
            assert!(decode(&PUBLICATION_1[..length]).is_err(), "{length} of {object} bytes");
        }
        let of_another_kind = [b"\x01X", &PUBLICATION_1[2..]].concat();
        assert!(decode(&of_another_kind).is_err());
    }
}
