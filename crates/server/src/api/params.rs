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
    /// The channel that the operation is about.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    pub(super) channel: String,
}

impl OneChannelRequest {
    /// Returns the channel in the form of [`Operation::channels`](super::operation::Operation::channels).
    pub(super) fn named(&self) -> NamedChannels<'_> {
        NamedChannels::One(&self.channel)
    }
}

/// Reads a JSON object of this shape. Serde alone would also accept a list with the fields of the struct in their
/// order.
///
/// # Errors
/// When the JSON is not an object of this shape.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    if json.trim_ascii_start().first() == Some(&b'[') {
        return Err(serde_json::Error::custom("expected an object, found a list"));
    }
    // UTF-8 is checked once. Otherwise each text and each payload would be checked on its own.
    let text = std::str::from_utf8(json).map_err(|_| serde_json::Error::custom("expected UTF-8"))?;
    serde_json::from_str(text)
}

/// Reads a field in which `null` means that the field is absent.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Allows `null` for every field of a request's schema that is not required; `null` means that the field is absent.
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

/// Returns the schema of a required payload: any JSON value but `null`, which would mean that it is absent.
pub(super) fn any_json(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["array", "boolean", "number", "object", "string"] })
}

/// Returns the options of a channel. `field`: the field that contains the name of the channel.
///
/// # Errors
/// 107 for a name that is not valid for a channel, 102 for an unknown namespace.
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

/// Refuses texts with control characters. A database cannot store NUL, and these texts may be stored. `field`: the
/// field that contains the texts.
///
/// # Errors
/// 107 if a text contains one.
pub(super) fn plain<T: AsRef<str>>(
    field: &'static str,
    texts: impl IntoIterator<Item = T>,
) -> Result<(), OperationError> {
    let are_plain = texts.into_iter().all(|text| is_plain_text(text.as_ref()));
    if are_plain { Ok(()) } else { Err(OperationError::bad(field)) }
}

/// Returns a payload that is given as JSON, or as base64 of JSON or of other bytes. `names`: the names of both fields.
///
/// # Errors
/// 107 if the payload is neither, or is nested too deeply.
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
