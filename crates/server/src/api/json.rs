//! How a result becomes JSON.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use touchline_protocol::Error;

use super::operation_error::OperationError;
use crate::auth::Denied;

/// A value that writes itself as JSON: what serde can serialize, and JSON that has been written already.
pub(crate) trait WriteJson {
    /// Appends the JSON of this value.
    fn write(&self, out: &mut Vec<u8>);
}

impl<T: Serialize> WriteJson for T {
    fn write(&self, out: &mut Vec<u8>) {
        // Writing to a Vec can't fail, and the keys of every map in a reply are strings.
        let _ = serde_json::to_writer(out, self);
    }
}

/// JSON that the engine has written: it holds payloads, which are copied and not read again.
pub(crate) struct WrittenJson(pub(crate) Bytes);

impl WriteJson for WrittenJson {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// The result of an operation that has nothing to tell: `{}`.
#[derive(Serialize)]
pub(crate) struct EmptyReply {}

/// An error as the server API writes it.
#[derive(Serialize)]
pub(crate) struct ErrorJson {
    pub(super) code: u32,
    pub(super) message: Cow<'static, str>,
}

impl From<Error> for ErrorJson {
    fn from(error: Error) -> Self {
        ErrorJson { code: error.code, message: error.message.into() }
    }
}

impl From<OperationError> for ErrorJson {
    fn from(OperationError { error, denied, .. }: OperationError) -> Self {
        let message = match denied {
            None => error.message.into(),
            Some((Denied::Operation, name)) => format!("{}: the key may not use {name}", error.message).into(),
            Some((Denied::Channel, name)) => {
                format!("{}: the key may not use {name} in this channel", error.message).into()
            }
        };
        ErrorJson { code: error.code, message }
    }
}
