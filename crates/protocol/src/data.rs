//! Payloads: JSON values that travel through the server as they are.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::Error;

/// Deepest nesting of a payload: JSON readers of clients give up somewhere behind it.
pub const DEPTH_MAX: usize = 128;

/// Takes a payload over: line breaks become spaces, because a message is one line, and the nesting is checked.
///
/// Inside a JSON string a line break can't stand raw, so only white space between tokens is touched.
///
/// # Errors
/// 107 when it nests deeper than [`DEPTH_MAX`].
pub fn take(value: &RawValue) -> Result<Bytes, Error> {
    let text = value.get().as_bytes();
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut has_breaks = false;
    for &byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(Error::BAD_REQUEST);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'\n' | b'\r' => has_breaks = true,
            _ => {}
        }
    }
    if !has_breaks {
        return Ok(Bytes::copy_from_slice(text));
    }
    let flat = text.iter().map(|&b| if b == b'\n' || b == b'\r' { b' ' } else { b });
    Ok(flat.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> Result<Bytes, Error> {
        take(&RawValue::from_string(text.to_owned()).expect("the case is JSON"))
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        assert_eq!(taken("{\n\"a\":\r\n\"b\\n\"}").as_deref(), Ok(b"{ \"a\":  \"b\\n\"}".as_slice()));
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!("\"{}\"", "[".repeat(1_000));
        assert!(taken(&text).is_ok());
    }

    #[test]
    fn a_payload_nests_so_deep_and_no_deeper() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(taken(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(taken(&nested(DEPTH_MAX + 1)), Err(Error::BAD_REQUEST));
    }
}
