//! Payloads: JSON values that pass through the server unchanged.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::code::Error;
use crate::notation::spelled;

/// The deepest allowed nesting of a payload. JSON parsers of clients fail somewhere beyond this depth.
pub const DEPTH_MAX: usize = 128;

/// A value that is read only from a JSON object. Serde by itself also accepts a list as the fields of a struct, in
/// order.
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

/// Reads a field in which `null` means absence. An absent field gets the default value of its type.
///
/// # Errors
/// Fails if the field holds a value of another type.
pub fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a field that holds an [`Object`]. `null` means absence (`None`).
///
/// # Errors
/// Fails if the field holds a value of another type.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|object| object.0))
}

/// Reads a field that holds an [`Object`]. `null` means the default value of its type.
///
/// # Errors
/// Fails if the field holds a value of another type.
pub fn object_or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(object(deserializer)?.unwrap_or_default())
}

/// Reads a list of objects. `null` is an empty list.
///
/// # Errors
/// Fails if the field is not a list, or an entry is not an object. A derived type by itself would accept a list as an
/// object.
pub fn object_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Option::<Vec<Object<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(list.into_iter().map(|object| object.0).collect())
}

/// Reads a map from names to objects. `null` is an empty map.
///
/// # Errors
/// Fails if the field is not an object, or a value in it is not an object.
pub fn object_map<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let map = Option::<BTreeMap<String, Object<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(map.into_iter().map(|(name, object)| (name, object.0)).collect())
}

/// Accepts a payload. Line breaks become spaces because a message is one line, and the nesting is checked. The notation
/// of bytes is normalized to its one spelling ([`crate::notation`]).
///
/// A JSON string cannot contain a raw line break, so only white space between tokens is changed.
///
/// # Errors
/// Error 107 if the payload nests deeper than [`DEPTH_MAX`].
pub fn checked_payload(value: &RawValue) -> Result<Bytes, Error> {
    if let Some(notation) = spelled(value.get()) {
        return Ok(notation);
    }
    let text = value.get().as_bytes();
    if text.len() > DEPTH_MAX && brackets(text) > DEPTH_MAX && depth(text) > DEPTH_MAX {
        return Err(Error::BAD_REQUEST);
    }
    if memchr::memchr2(b'\n', b'\r', text).is_none() {
        return Ok(Bytes::copy_from_slice(text));
    }
    Ok(text.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect())
}

/// Counts opening brackets, including those in strings. Most payloads have fewer brackets than the allowed depth, and
/// counting costs a hundredth of tracking the nesting.
fn brackets(text: &[u8]) -> usize {
    // A piece is so short that its sum fits into a byte, so the compiler vectorizes the loop.
    let pieces = text.chunks(128);
    pieces.map(|piece| usize::from(piece.iter().map(|byte| u8::from(matches!(byte, b'{' | b'['))).sum::<u8>())).sum()
}

/// Whether a text has no control characters (C0 with NUL, DEL, C1: U+0000–U+001F, U+007F–U+009F).
///
/// Names, keys and users must pass this check: databases cannot store NUL, and a line break in a name forges log lines.
/// An empty text passes.
pub fn is_plain_text(text: &str) -> bool {
    // Almost every name is ASCII, which this one pass handles; the compiler vectorizes it.
    text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || !text.chars().any(char::is_control)
}

/// The nesting depth of a JSON text.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    fn taken(text: &str) -> Result<Bytes, Error> {
        checked_payload(&RawValue::from_string(text.to_owned()).expect("the case is JSON"))
    }

    #[test]
    fn an_object_is_an_object_or_absent() {
        #[derive(Deserialize)]
        struct Holder {
            #[serde(default, deserialize_with = "object_or_default")]
            held: Held,
        }
        #[derive(Deserialize, Default)]
        struct Held {
            value: u32,
        }
        let read = |text| serde_json::from_str(text).ok().map(|holder: Holder| holder.held.value);
        for (text, value) in [
            (r#"{"held":{"value":7}}"#, Some(7)),
            (r#"{"held":null}"#, Some(0)),
            ("{}", Some(0)),
            (r#"{"held":[7]}"#, None),
            (r#"{"held":7}"#, None),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        assert_eq!(taken("{\n\"a\":\r\n\"b\\n\"}").as_deref(), Ok(b"{ \"a\":  \"b\\n\"}".as_slice()));
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        for inside in ["[".repeat(1_000), "[\\\"".repeat(1_000), "\\\\".repeat(3)] {
            assert!(taken(&format!("[\"{inside}\"]")).is_ok(), "{inside}");
        }
        assert!(taken(&format!("[{}1]", "[1],".repeat(1_000))).is_ok(), "many, but not deep");
    }

    #[test]
    fn control_characters_are_no_plain_text() {
        for code in 0..0x3000 {
            let Some(char) = char::from_u32(code) else { continue };
            let is_control = code < 0x20 || (0x7f..=0x9f).contains(&code);
            for text in [format!("{char}"), format!("a{char}b"), format!("é{char}日")] {
                assert_eq!(is_plain_text(&text), !is_control, "U+{code:04X}");
            }
        }
        assert!(is_plain_text("") && is_plain_text("日本:чат😀#1,2"));
    }

    #[test]
    fn a_payload_nests_so_deep_and_no_deeper() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(taken(&nested(DEPTH_MAX)).is_ok());
        assert!(taken(&format!("[{},[]]", nested(DEPTH_MAX - 1))).is_ok(), "one bracket more, but no deeper");
        assert_eq!(taken(&nested(DEPTH_MAX + 1)), Err(Error::BAD_REQUEST));
    }
}
