//! Requests of the server API that cannot be read.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;
use touchline_protocol::Error;

use super::operation::{Operation, OperationError};
use super::params::object;

/// The most bytes of the text about an unexpected value. The text is limited because it may repeat the request.
const TOLD_MAX: usize = 200;

/// A request that is not JSON, or does not have the shape of its operation.
#[derive(Debug)]
pub(crate) struct MalformedRequest {
    cause: serde_json::Error,
    /// The field that has the wrong type; None = no single field has.
    pub(crate) field: Option<&'static str>,
}

impl MalformedRequest {
    /// Finds what is wrong with the parameters of an operation.
    pub(super) fn of<O: Operation>(params: &[u8], cause: serde_json::Error) -> Self {
        let is_bad = |name: &str, value: &RawValue| {
            let alone = serde_json::to_vec(&BTreeMap::from([(name, value)]));
            alone.is_ok_and(|alone| object::<O::Request<'_>>(&alone).is_err())
        };
        // Every field may be absent, so each can be read alone.
        let members: BTreeMap<&str, &RawValue> = serde_json::from_slice(params).unwrap_or_default();
        let bad =
            O::request_fields().into_iter().find(|name| members.get(name).is_some_and(|value| is_bad(name, value)));
        MalformedRequest { cause, field: bad }
    }
}

impl From<serde_json::Error> for MalformedRequest {
    fn from(cause: serde_json::Error) -> Self {
        MalformedRequest { cause, field: None }
    }
}

impl From<MalformedRequest> for OperationError {
    fn from(malformed: MalformedRequest) -> Self {
        let detail = Some(malformed.to_string().into());
        OperationError { field: malformed.field, detail, ..Error::BAD_REQUEST.into() }
    }
}

impl fmt::Display for MalformedRequest {
    /// Writes what was found and expected, with line and column. In a batch these count within the parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.cause.to_string();
        let place = text.rfind(" at line ").unwrap_or(text.len());
        let (what, place) = text.split_at(place);
        let told = &what[..what.floor_char_boundary(TOLD_MAX)];
        write!(f, "{told}{}{place}", if told.len() < what.len() { "…" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::operations::publish::PublishOperation;

    fn malformed(params: &str) -> MalformedRequest {
        let cause = object::<<PublishOperation as Operation>::Request<'_>>(params.as_bytes()).err();
        MalformedRequest::of::<PublishOperation>(params.as_bytes(), cause.expect("it is malformed"))
    }

    #[test]
    fn the_field_of_another_type_is_named_and_its_place() {
        let found = malformed("{\"data\":1,\n\"channel\":7}");
        assert_eq!(found.field, Some("channel"));
        assert_eq!(found.to_string(), "invalid type: integer `7`, expected a string at line 2 column 11");
        for (params, field) in [
            ("{\"channel\":\"a\",\"tags\":{\"a\":1}}", Some("tags")),
            ("{\"channel\":\"a\",\"version\":-1}", Some("version")),
            ("{\"channel\":\"a\"", None),
            ("[]", None),
            ("7", None),
            ("{\"channel\":\"a\",\"channel\":\"b\"}", None),
        ] {
            assert_eq!(malformed(params).field, field, "{params}");
        }
    }

    #[test]
    fn what_is_told_of_a_request_is_short() {
        let long = "é".repeat(10_000);
        let text = malformed(&format!("{{\"version\":\"{long}\"}}")).to_string();
        assert!(text.len() < 300 && text.contains("…") && text.contains(" at line 1 column "), "{text}");
    }
}
