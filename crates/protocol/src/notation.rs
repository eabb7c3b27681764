//! The notation of bytes in JSON.
//!
//! Inside a node, in its stores, and between nodes, a payload is a JSON value on one line. Bytes are a JSON value too:
//! `{"$b64":"AAEC"}`, the *notation* of bytes. A client that uses Protobuf sends and receives the bytes themselves;
//! JSON shows the notation. So a store, a subject or a frame does not have to record which of the two a payload is.
//!
//! Each notation has exactly one spelling: the standard alphabet, with padding, without white space. Any other spelling
//! is normalized where a payload enters ([`crate::data::checked_payload`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::value::RawValue;

/// The JSON member that holds the bytes.
const MEMBER: &str = "\"$b64\"";
const BEGIN: &[u8] = b"{\"$b64\":\"";
const END: &[u8] = b"\"}";

/// The padding is removed before decoding. Bits after the last byte are ignored, as in most decoders of other
/// languages.
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::RequireNone)
    .with_decode_allow_trailing_bits(true);
const STANDARD_DECODER: GeneralPurpose = GeneralPurpose::new(&STANDARD, CONFIG);
const URL_SAFE_DECODER: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, CONFIG);

/// Decodes base64 with or without padding, in the standard alphabet (RFC 4648, section 4) or the URL alphabet (section
/// 5). Returns `None` if the text is not valid or mixes the alphabets.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text);
    if digits.len() < text.len() && !text.len().is_multiple_of(4) || digits.ends_with('=') {
        return None;
    }
    let text = digits;
    let decoder = if text.contains(['-', '_']) { URL_SAFE_DECODER } else { STANDARD_DECODER };
    decoder.decode(text).ok()
}

/// Encodes bytes in their notation: JSON, a third longer than the bytes.
pub fn notation(bytes: &[u8]) -> Bytes {
    let size = base64::encoded_len(bytes.len(), true).unwrap_or_default();
    let mut json = vec![0; BEGIN.len() + size];
    json[..BEGIN.len()].copy_from_slice(BEGIN);
    // The slice has exactly the computed length, so the encoding cannot fail.
    let _ = base64::engine::general_purpose::STANDARD.encode_slice(bytes, &mut json[BEGIN.len()..]);
    json.extend_from_slice(END);
    json.into()
}

/// The base64 text of a payload that is the notation of bytes. `None` = the payload is another JSON value.
pub fn base64_of(payload: &[u8]) -> Option<&str> {
    let text = payload.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let is_base64 = text.len().is_multiple_of(4)
        && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    std::str::from_utf8(text).ok().filter(|_| is_base64)
}

/// A payload as bytes: the bytes of its notation, or its JSON text.
pub fn bytes_of(payload: &[u8]) -> Cow<'_, [u8]> {
    match base64_of(payload).and_then(decode_base64) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(payload),
    }
}

/// Normalizes a JSON value that is a notation in any spelling. `None` = the value is not a notation.
pub(crate) fn spelled(json: &str) -> Option<Bytes> {
    // Almost no payload passes this check. A name may be spelled with escapes.
    let is_likely = |rest: &str| rest.starts_with(MEMBER) || rest.starts_with("\"\\") || rest.starts_with("\"$");
    if !json.strip_prefix('{').is_some_and(|rest| is_likely(rest.trim_ascii_start())) {
        return None;
    }
    // If a member occurs twice, the last one counts, as in most JSON parsers.
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
    let base64 = members.get("$b64").filter(|_| members.len() == 1)?;
    decode_base64(&serde_json::from_str::<String>(base64.get()).ok()?).map(|bytes| notation(&bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::data::checked_payload;

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        let cases: &[(&str, Option<&[u8]>)] = &[
            ("", Some(b"")),
            ("Zg==", Some(b"f")),
            ("Zg", Some(b"f")),
            ("Zh", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("Zm9vYg", Some(b"foob")),
            ("+/8=", Some(b"\xfb\xff")),
            ("-_8", Some(b"\xfb\xff")),
            ("+_8", None),
            ("Z", None),
            ("Zm9v!", None),
            ("Zm9v\n", None),
            ("Z=g", None),
            ("Zg=", None),
            ("====", None),
            ("Zm9v====", None),
        ];
        for (text, expected) in cases {
            assert_eq!(decode_base64(text).as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn a_notation_has_one_spelling() {
        let taken = |text: &str| checked_payload(&RawValue::from_string(text.to_owned()).expect("the case is JSON"));
        for text in [
            r#"{"$b64":"AP8="}"#,
            r#"{ "$b64" : "AP8" }"#,
            r#"{"$b64":"AP8"}"#,
            "{\n\"$b64\":\"\\u0041P8=\"}",
            r#"{"\u0024b64":"AP8="}"#,
            r#"{"$\u0062\u0036\u0034":"AP8="}"#,
            r#"{"$b64":"AAEC","$b64":"AP8="}"#,
        ] {
            assert_eq!(taken(text).as_deref(), Ok(br#"{"$b64":"AP8="}"#.as_slice()), "{text}");
        }
        for text in [
            r#"{"$b64":"%"}"#,
            r#"{"$b64":"AP8=","a":1}"#,
            r#"{"a":1,"$b64":"AP8="}"#,
            r#"{"$b64":1}"#,
            r#"{"$B64":"AP8="}"#,
            r#"["$b64"]"#,
            r#""{\"$b64\":\"AP8=\"}""#,
        ] {
            let payload = taken(text).expect("it does not nest deep");
            assert_eq!(payload, text.as_bytes());
            assert_eq!(
                (base64_of(&payload).and_then(decode_base64), bytes_of(&payload)),
                (None, text.as_bytes().into())
            );
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back_from_their_notation(bytes: Vec<u8>) {
            let notation = notation(&bytes);
            prop_assert_eq!(bytes_of(&notation), bytes.as_slice());
            let value: &RawValue = serde_json::from_slice(&notation).expect("a notation is JSON");
            prop_assert_eq!(checked_payload(value), Ok(notation));
        }

        #[test]
        fn what_either_alphabet_encodes_is_decoded(bytes: Vec<u8>) {
            use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
            for encoder in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
                prop_assert_eq!(decode_base64(&encoder.encode(&bytes)), Some(bytes.clone()));
            }
        }
    }
}
