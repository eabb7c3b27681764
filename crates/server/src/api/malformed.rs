//! Requests of the server API that cannot be read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde_json::value::RawValue;
use touchline_protocol::Error;

use super::operation::{Operation, OperationError};
use super::params::object;

/// The most bytes of the text about an unexpected value. The text is limited because it may repeat the request.
const TOLD_MAX: usize = 200;

/// The types of Rust in the texts of serde, and their names in JSON.
const TYPES: [(&str, &str); 8] = [
    ("i64", "a whole number"),
    ("u64", "a whole number from 0"),
    ("u32", "a whole number from 0"),
    ("usize", "a whole number from 0"),
    ("f64", "a number"),
    ("a sequence", "a list"),
    ("a map", "an object"),
    ("a boolean", "true or false"),
];

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
        let is_other = cause.is_syntax() && !params.starts_with(b"{");
        let example = || serde_json::Error::custom(format!("expected a JSON object such as {}", O::EXAMPLE));
        MalformedRequest { cause: if is_other { example() } else { cause }, field: bad }
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
        OperationError { field: malformed.field, detail, repeats_value: true, ..Error::BAD_REQUEST.into() }
    }
}

impl fmt::Display for MalformedRequest {
    /// Writes what was found and expected, with line and column. In a batch these count within the parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.cause.to_string();
        let place = text.rfind(" at line ").unwrap_or(text.len());
        let (what, place) = text.split_at(place);
        let told = &what[..what.floor_char_boundary(TOLD_MAX)];
        let (found, expected) = told.rsplit_once(", expected ").unwrap_or((told, ""));
        let expected = TYPES.iter().find(|(of_rust, _)| *of_rust == expected).map(|(_, words)| words);
        let told = &*expected.map_or(Cow::Borrowed(told), |words| format!("{found}, expected {words}").into());
        write!(f, "{told}{}{place}", if what.len() > TOLD_MAX { "…" } else { "" })
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
        let text = malformed("{\"version\":\"x\"}").to_string();
        assert!(text.contains(r#"string "x", expected a whole number from 0 at line 1"#), "{text}");
        let text = malformed("channel=a").to_string();
        assert!(text.starts_with(r#"expected a JSON object such as {"channel""#), "{text}");
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
