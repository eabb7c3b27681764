//! Base64 as clients and backends send it: with either alphabet, with or without padding.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// The padding is removed before. Bits behind the last byte are ignored, as most decoders of other languages do.
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::RequireNone)
    .with_decode_allow_trailing_bits(true);
const STANDARD_DECODER: GeneralPurpose = GeneralPurpose::new(&STANDARD, CONFIG);
const URL_SAFE_DECODER: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, CONFIG);

/// Decodes base64 with or without padding, with the standard alphabet (RFC 4648, section 4) or that for URLs (section
/// 5); `None` if the text is not valid, or mixes the alphabets.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let decoder = if text.contains(['-', '_']) { URL_SAFE_DECODER } else { STANDARD_DECODER };
    decoder.decode(text).ok()
}

/// A JSON value that arrived as base64.
#[derive(Debug)]
pub struct Base64Json(pub Box<RawValue>);

impl<'de> Deserialize<'de> for Base64Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = decode_base64(&text).ok_or_else(|| de::Error::custom("not base64"))?;
        let json = String::from_utf8(bytes).map_err(de::Error::custom)?;
        RawValue::from_string(json).map(Base64Json).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        ];
        for (text, expected) in cases {
            assert_eq!(decode_base64(text).as_deref(), *expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_either_alphabet_encodes_is_decoded(bytes: Vec<u8>) {
            use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
            for encoder in [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD] {
                prop_assert_eq!(decode_base64(&encoder.encode(&bytes)), Some(bytes.clone()));
            }
        }
    }
}
