//! How results become JSON.

use std::borrow::Cow;
use std::marker::PhantomData;

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use touchline_protocol::{Error, ErrorEntry};

use super::operation_error::OperationError;
use crate::auth::Denied;

/// A value that can write itself as JSON: a type that serde can serialize, or JSON that is already written.
pub(crate) trait WriteJson {
    /// Appends the JSON of this value.
    fn write(&self, out: &mut Vec<u8>);
}

impl<T: Serialize> WriteJson for T {
    fn write(&self, out: &mut Vec<u8>) {
        // Writing to a Vec cannot fail, and the keys of every map in a reply are strings.
        let _ = serde_json::to_writer(out, self);
    }
}

/// JSON that the engine has written. It contains payloads, which are copied and not parsed again. `S`: the shape of the
/// JSON.
pub(crate) struct WrittenJson<S> {
    json: Bytes,
    shape: PhantomData<S>,
}

impl<S> WrittenJson<S> {
    pub(crate) fn of(json: impl Into<Bytes>) -> Self {
        WrittenJson { json: json.into(), shape: PhantomData }
    }
}

impl<S> WriteJson for WrittenJson<S> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.json);
    }
}

impl<S: JsonSchema> JsonSchema for WrittenJson<S> {
    fn schema_name() -> Cow<'static, str> {
        S::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        S::json_schema(generator)
    }
}

/// The result of an operation that returns nothing: `{}`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EmptyReply {}

/// An error of the server API.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorJson {
    /// The number of the error.
    #[schemars(with = "ErrorCode")]
    pub(super) code: u32,
    /// The text of the error; details may follow the text of the catalogue.
    pub(super) message: Cow<'static, str>,
    /// The field of the request that caused the error; absent = no single field did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(super) field: Option<&'static str>,
}

/// The number of an error, for the schema.
struct ErrorCode;

impl JsonSchema for ErrorCode {
    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let codes: Vec<_> = Error::CATALOGUE
            .iter()
            .map(|ErrorEntry { error, name, remedy }| {
                let again = if error.temporary { " It may succeed later." } else { "" };
                let text = format!("{}.{again} {remedy}", error.message);
                serde_json::json!({ "const": error.code, "title": name, "description": text })
            })
            .collect();
        json_schema!({ "type": "integer", "description": "The number of an error.", "oneOf": codes })
    }
}

impl ErrorJson {
    /// Returns the same error with a detail after its text.
    pub(crate) fn with_detail(self, detail: Option<&str>) -> Self {
        let Some(detail) = detail else { return self };
        ErrorJson { message: format!("{}: {detail}", self.message).into(), ..self }
    }
}

impl From<Error> for ErrorJson {
    fn from(error: Error) -> Self {
        ErrorJson { code: error.code, message: error.message.into(), field: None }
    }
}

impl From<OperationError> for ErrorJson {
    fn from(OperationError { error, field, denied, detail, .. }: OperationError) -> Self {
        let message = match denied {
            None => error.message.into(),
            Some((Denied::Operation, name)) => {
                format!("{}: the key may not use {name}: add it to operations of the key", error.message).into()
            }
            Some((Denied::Channel, name)) => {
                let what = "in this channel: add a pattern to channels of the key";
                format!("{}: the key may not use {name} {what}", error.message).into()
            }
        };
        ErrorJson { code: error.code, message, field }.with_detail(detail.as_deref())
    }
}
