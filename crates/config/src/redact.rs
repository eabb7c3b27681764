//! Keys in PEM that were written where they do not belong: whatever is said of a configuration, they are not shown.

use std::borrow::Cow;

/// What PEM begins with (RFC 7468).
const BEGIN: &str = "-----BEGIN ";
/// The same in base64, from any of its bytes on that is the first of three.
const PACKED: &str = "LS0tLS1CRUdJTi";
/// What is shown in its place.
const HIDDEN: &str = "(PEM, not shown)";

/// The text up to the first PEM in it, or base64 of PEM. Our own texts name the head of a public key, which is no
/// secret.
pub fn redact(text: &str) -> Cow<'_, str> {
    let begins = text
        .match_indices(BEGIN)
        .map(|(at, _)| at)
        .find(|at| !text[at + BEGIN.len()..].starts_with("PUBLIC KEY-----\" …"));
    match [begins, text.find(PACKED)].into_iter().flatten().min() {
        Some(at) => Cow::Owned(format!("{}{HIDDEN}", &text[..at])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_is_cut_off_and_all_else_stays() {
        for (text, expected) in [
            ("a.b: expected text, found \"x\"", "a.b: expected text, found \"x\""),
            ("a.b: \"-----BEGIN PRIVATE KEY-----\\nMIIE\" is no address", "a.b: \"(PEM, not shown)"),
            ("a.b: LS0tLS1CRUdJTiBQUklWQVRF is no address", "a.b: (PEM, not shown)"),
            ("expected PEM (\"-----BEGIN PUBLIC KEY-----\" …)", "expected PEM (\"-----BEGIN PUBLIC KEY-----\" …)"),
        ] {
            assert_eq!(redact(text), expected);
        }
    }
}
