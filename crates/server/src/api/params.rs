//! Reads and checks the parameters of operations.

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;
use serde_json::value::RawValue;
use touchline_engine::ChannelOptions;
use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_protocol::notation::decode_base64;
use touchline_protocol::payload::RawPayload;

use super::operation::OperationError;
use crate::auth::NamedChannels;
use crate::runtime::generation::Generation;

/// A request about one channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct OneChannelRequest {
    /// The channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    pub(super) channel: String,
}

impl OneChannelRequest {
    /// The channel, as an operation names it.
    pub(super) fn named(&self) -> NamedChannels<'_> {
        NamedChannels::One(&self.channel)
    }
}

/// Reads a JSON object of this shape. Serde alone would also accept a list of the struct's fields in their order.
///
/// # Errors
/// When the JSON is not an object of this shape.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    if json.trim_ascii_start().first() == Some(&b'[') {
        return Err(serde_json::Error::custom("expected an object, found a list"));
    }
    // Checked once: else each text and each payload in it is checked for itself.
    let text = std::str::from_utf8(json).map_err(|_| serde_json::Error::custom("expected UTF-8"))?;
    serde_json::from_str(text)
}

/// Reads a field for which `null` means that it is absent.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Lets every field of a request's schema be `null`, which stands for absence, but those that are required.
pub(super) fn nullable_fields(schema: &mut Schema) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &String| required.as_array().is_some_and(|names| names.contains(&name.as_str().into()));
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
        let Some(kind) = property.get_mut("type") else { continue };
        if kind.is_string() {
            *kind = Value::Array(vec![kind.take(), "null".into()]);
        }
        if let Some(values) = property.get_mut("enum").and_then(Value::as_array_mut) {
            values.push(Value::Null);
        }
    }
}

/// The schema of a payload that must be there: any JSON value but `null`, which stands for absence.
pub(super) fn any_json(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["array", "boolean", "number", "object", "string"] })
}

/// The options of a channel. `field`: where its name stands.
///
/// # Errors
/// 107 for a name that no channel can have, 102 for an unknown namespace.
pub(super) fn channel_options<'g>(
    generation: &'g Generation,
    field: &'static str,
    channel: &str,
) -> Result<&'g ChannelOptions, OperationError> {
    generation.session.namespaces.resolve(channel).map_err(|error| match error {
        Error::BAD_REQUEST => OperationError::bad(field),
        _ => error.into(),
    })
}

/// Refuses texts with control characters: a database can't store NUL, and these texts may end in one. `field`: where
/// the texts stand.
///
/// # Errors
/// 107 when there is one.
pub(super) fn plain<T: AsRef<str>>(
    field: &'static str,
    texts: impl IntoIterator<Item = T>,
) -> Result<(), OperationError> {
    let are_plain = texts.into_iter().all(|text| is_plain_text(text.as_ref()));
    if are_plain { Ok(()) } else { Err(OperationError::bad(field)) }
}

/// A payload given as JSON, or as base64 of JSON or of other bytes. `names`: of both fields.
///
/// # Errors
/// 107 when it is neither, or nests too deep.
pub(super) fn payload(
    names: (&'static str, &'static str),
    value: Option<&RawValue>,
    base64: &str,
) -> Result<Option<Bytes>, OperationError> {
    let field = if value.is_some() { names.0 } else { names.1 };
    read_payload(value, base64).map_err(|error| OperationError { field: Some(field), ..error.into() })
}

fn read_payload(value: Option<&RawValue>, base64: &str) -> Result<Option<Bytes>, Error> {
    if let Some(value) = value {
        return touchline_protocol::data::checked_payload(value).map(Some);
    }
    if base64.is_empty() {
        return Ok(None);
    }
    let decoded = decode_base64(base64).ok_or(Error::BAD_REQUEST)?;
    RawPayload::Bytes(&decoded).checked().map(Some)
}
