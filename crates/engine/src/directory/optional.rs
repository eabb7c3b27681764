//! JSON fields that may be absent.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A value that is present; `null` counts as present.
pub(super) fn given<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
