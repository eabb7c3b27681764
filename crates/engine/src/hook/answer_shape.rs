//! Which field of an answer has the wrong type, for logs: the field, the expected type, and the type that was found.
//! The value itself is never shown.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;
use serde_json::value::RawValue;

/// The fault of a time that is out of range.
pub(super) const NO_SECONDS: &str = "expected Unix seconds of at most 4294967295, found a later time (milliseconds?)";
/// The greatest length of a field's path that is shown, bytes.
const PATH_SHOWN_MAX: usize = 128;

/// A field of an answer that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct ShapeFault {
    /// The path of the field, starting with the member of the answer.
    path: String,
    /// What is wrong with it.
    fault: String,
}

impl ShapeFault {
    /// The first fault in JSON that cannot be read as `T`. `member`: the name of the answer's member that contains it.
    pub(super) fn find<T: DeserializeOwned>(member: &'static str, json: &RawValue) -> Self {
        let read: Result<T, _> = serde_path_to_error::deserialize(&mut Deserializer::from_str(json.get()));
        let Err(error) = read else { return ShapeFault { path: member.into(), fault: UNUSABLE.into() } };
        let path = error.path().to_string();
        let mut path = if path == "." { member.to_owned() } else { format!("{member}.{path}") };
        path.truncate(path.floor_char_boundary(PATH_SHOWN_MAX));
        let text = error.inner().to_string();
        let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
        ShapeFault { path, fault: fault_of(text) }
    }
}

/// The text for a fault that has no better description.
const UNUSABLE: &str = "it has a value that it cannot have";

/// Rewrites a serde error text without the value that it quotes.
fn fault_of(text: &str) -> String {
    if text == NO_SECONDS {
        return text.into();
    }
    // A value may contain such words itself; those of serde are the last ones.
    let (Some(found), Some((_, expected))) = (text.strip_prefix("invalid type: "), text.rsplit_once(", expected "))
    else {
        return UNUSABLE.into();
    };
    let found = match found.split([' ', ',']).next().unwrap_or_default() {
        "string" => "text",
        "integer" | "floating" => "a number",
        "boolean" => "true or false",
        "sequence" => "a list",
        "map" => "an object",
        "null" => "null",
        _ => "something else",
    };
    let expected = match expected {
        "a string" | "str" => "text",
        "u32" | "u64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    format!("expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_cites_no_value() {
        for (text, fault) in [
            ("invalid type: integer `56`, expected a string", "expected text, found a number"),
            (r#"invalid type: string "x, expected y at line 1", expected u32"#, "expected a whole number, found text"),
            ("invalid type: floating point `1.5`, expected u64", "expected a whole number, found a number"),
            ("invalid type: sequence, expected an object", "expected an object, found a list"),
            (r#"unknown variant `secret`, expected `a`"#, UNUSABLE),
            (NO_SECONDS, NO_SECONDS),
        ] {
            assert_eq!(fault_of(text), fault, "{text}");
        }
    }
}
