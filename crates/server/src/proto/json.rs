//! Messages of gRPC as JSON: fields of the type `bytes` hold JSON, and a field that is empty is absent.

use bytes::Bytes;
use serde::de::Deserializer;
use serde::ser::{Error as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Whether a field has its default: then the JSON is without it.
pub(crate) fn is_absent<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// Writes `bytes` as the JSON that they hold.
///
/// # Errors
/// When they hold none.
pub(crate) fn write<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    let json: &RawValue = serde_json::from_slice(bytes).map_err(|_| S::Error::custom("bytes without JSON"))?;
    json.serialize(serializer)
}

/// Reads a JSON value as `bytes` that hold it.
///
/// # Errors
/// When it is no JSON.
pub(crate) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let json = Box::<RawValue>::deserialize(deserializer)?;
    Ok(Box::<str>::from(json).into_boxed_bytes().into_vec().into())
}
