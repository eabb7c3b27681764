//! gRPC messages as JSON. Fields of the type `bytes` contain payloads, and an empty field is left out.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::Deserializer;
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use touchline_protocol::notation::{bytes_of, notation};
use touchline_protocol::payload::RawPayload;

/// Whether a field has its default value; then it is left out of the JSON.
pub(crate) fn is_absent<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// Writes `bytes` as the JSON value that they contain, or in the JSON notation for bytes.
///
/// # Errors
/// The errors of the serializer.
pub(crate) fn write<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    if let Some(json) = RawPayload::Bytes(bytes).value() {
        return json.serialize(serializer);
    }
    let notation = notation(bytes);
    let json: &RawValue = serde_json::from_slice(&notation).map_err(S::Error::custom)?;
    json.serialize(serializer)
}

/// Reads a JSON value as `bytes` that contain it, or decodes the JSON notation for bytes.
///
/// # Errors
/// When the value is not JSON.
pub(crate) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let json = Box::<RawValue>::deserialize(deserializer)?;
    let text = Bytes::from(Box::<str>::from(json).into_boxed_bytes().into_vec());
    Ok(match bytes_of(&text) {
        Cow::Owned(bytes) => bytes.into(),
        Cow::Borrowed(_) => text,
    })
}
