//! Hides keys in PEM that were written in the wrong place, so that no finding shows them.

use std::borrow::Cow;

/// The beginning of PEM (RFC 7468).
const BEGIN: &str = "-----BEGIN ";
/// The same in base64, where PEM begins at a multiple of three bytes of the encoded text.
const PACKED: &str = "LS0tLS1CRUdJTi";
/// The text that replaces PEM.
const HIDDEN: &str = "(PEM, not shown)";

/// The text up to the first PEM or base64 of PEM in it. Texts of the server that quote the first line of a public key
/// stay, because that line is not a secret.
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
