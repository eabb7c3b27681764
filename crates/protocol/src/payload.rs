//! Payloads as clients and backends send them, JSON or bytes, and the formats that namespaces demand.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::code::Error;
use crate::data::checked_payload;
use crate::notation::{base64_of, decode_base64, notation, spelled};

/// The format of the publications in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataFormat {
    /// Any JSON value.
    #[default]
    Json,
    /// A JSON object.
    JsonObject,
    /// Any bytes. If a publisher sends JSON, its text is taken as the bytes.
    Binary,
}

impl DataFormat {
    /// Converts a payload to this format. As a result, publications in channels of the format `binary` are always the
    /// notation of bytes, and publications in other channels never are.
    ///
    /// # Errors
    /// Error 107 if the payload does not have the format.
    pub fn check(self, payload: Bytes) -> Result<Bytes, Error> {
        match (self, base64_of(&payload)) {
            (DataFormat::Binary, Some(_)) => Ok(payload),
            (DataFormat::Binary, None) => Ok(notation(&payload)),
            (DataFormat::Json, None) => Ok(payload),
            (DataFormat::JsonObject, None) if payload.first() == Some(&b'{') => Ok(payload),
            (DataFormat::JsonObject, None) => Err(Error::BAD_REQUEST),
            (DataFormat::Json | DataFormat::JsonObject, Some(base64)) => {
                let bytes = decode_base64(base64).ok_or(Error::BAD_REQUEST)?;
                let json = RawPayload::Bytes(&bytes).json()?;
                // The notation of a notation is refused.
                if base64_of(&json).is_some() { Err(Error::BAD_REQUEST) } else { self.check(json) }
            }
        }
    }

    /// Converts a publication's payload to the format of its channel.
    ///
    /// # Errors
    /// Error 107 if the payload does not have the format.
    pub fn payload(self, given: RawPayload<'_>) -> Result<Bytes, Error> {
        match (self, given) {
            (DataFormat::Binary, RawPayload::Bytes(bytes)) => Ok(notation(bytes)),
            (DataFormat::Json | DataFormat::JsonObject, given @ RawPayload::Bytes(_)) => self.check(given.json()?),
            (DataFormat::Binary, RawPayload::Json(json)) => {
                Ok(spelled(json.get()).unwrap_or_else(|| notation(json.get().as_bytes())))
            }
            (DataFormat::Json | DataFormat::JsonObject, RawPayload::Json(json)) => self.check(checked_payload(json)?),
        }
    }
}

/// A payload as a client or backend sent it.
#[derive(Clone, Copy)]
pub enum RawPayload<'a> {
    /// A JSON value.
    Json(&'a RawValue),
    /// Bytes, which may be the text of a JSON value.
    Bytes(&'a [u8]),
}

impl<'a> RawPayload<'a> {
    /// Accepts any payload: JSON, JSON sent as bytes, or other bytes, which become their notation.
    ///
    /// # Errors
    /// Error 107 if JSON nests too deep.
    pub fn checked(self) -> Result<Bytes, Error> {
        match (self.value(), self) {
            (None, RawPayload::Bytes(bytes)) => Ok(notation(bytes)),
            (value, _) => checked_payload(value.ok_or(Error::BAD_REQUEST)?),
        }
    }

    /// Accepts only a JSON payload.
    ///
    /// # Errors
    /// Error 107 if the payload is not JSON, or nests too deep.
    pub fn json(self) -> Result<Bytes, Error> {
        checked_payload(self.value().ok_or(Error::BAD_REQUEST)?)
    }

    /// The text of the JSON value. `null` = the payload is bytes that are not JSON.
    pub fn text(self) -> &'a str {
        self.value().map_or("null", RawValue::get)
    }

    /// The JSON value. `None` = the payload is bytes that are not JSON.
    pub fn value(self) -> Option<&'a RawValue> {
        match self {
            RawPayload::Json(json) => Some(json),
            RawPayload::Bytes(bytes) => serde_json::from_slice(bytes).ok(),
        }
    }
}

/// Shows JSON as JSON, whether it was sent as JSON or as bytes.
impl fmt::Debug for RawPayload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value(), self) {
            (None, RawPayload::Bytes(bytes)) => write!(f, "{bytes:?}"),
            (value, _) => write!(f, "{}", value.map_or("null", RawValue::get)),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawPayload<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(RawPayload::Json)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_format_takes_what_it_says() {
        use DataFormat::{Binary, Json, JsonObject};
        fn json(text: &str) -> RawPayload<'_> {
            RawPayload::Json(serde_json::from_str(text).expect("the case is JSON"))
        }
        let cases = [
            (Json, json("1"), Some("1")),
            (Json, json(r#"{"$b64":"MQ=="}"#), Some("1")),
            (Json, json(r#"{"$b64":"/w=="}"#), None),
            // The notation of the notation of the byte 0.
            (Json, json(r#"{"$b64":"eyIkYjY0IjoiQUE9PSJ9"}"#), None),
            (Json, RawPayload::Bytes(b"[1]"), Some("[1]")),
            (Json, RawPayload::Bytes(b"\xff"), None),
            (Json, RawPayload::Bytes(b""), None),
            (JsonObject, json("{}"), Some("{}")),
            (JsonObject, json("[]"), None),
            (JsonObject, json(r#"{"$b64":"e30="}"#), Some("{}")),
            (JsonObject, json(r#"{"$b64":"MQ=="}"#), None),
            (JsonObject, RawPayload::Bytes(b"{}"), Some("{}")),
            (JsonObject, RawPayload::Bytes(b"1"), None),
            (Binary, json("1"), Some(r#"{"$b64":"MQ=="}"#)),
            (Binary, json("[\n]"), Some(r#"{"$b64":"Wwpd"}"#)),
            (Binary, json(r#"{"$b64":"A"}"#), Some(r#"{"$b64":"eyIkYjY0IjoiQSJ9"}"#)),
            (Json, json(r#"{"$b64":"A"}"#), Some(r#"{"$b64":"A"}"#)),
            (Binary, json(r#"{"$b64":"/w"}"#), Some(r#"{"$b64":"/w=="}"#)),
            (Binary, RawPayload::Bytes(b"1"), Some(r#"{"$b64":"MQ=="}"#)),
            (Binary, RawPayload::Bytes(b""), Some(r#"{"$b64":""}"#)),
        ];
        for (format, given, expected) in cases {
            let payload = format.payload(given);
            assert_eq!(payload.ok().as_deref(), expected.map(str::as_bytes), "{format:?} {given:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_published_as_their_notation(bytes: Vec<u8>) {
            prop_assert_eq!(DataFormat::Binary.payload(RawPayload::Bytes(&bytes)), Ok(notation(&bytes)));
        }

        #[test]
        fn a_client_of_protobuf_gets_what_another_has_given(bytes: Vec<u8>) {
            let payload = RawPayload::Bytes(&bytes).checked();
            // For JSON, line breaks between tokens and surrounding space are not preserved.
            if serde_json::from_slice::<&RawValue>(&bytes).is_err() {
                let payload = payload.expect("bytes do not nest");
                prop_assert_eq!(crate::notation::bytes_of(&payload), bytes.as_slice());
            }
        }
    }
}
