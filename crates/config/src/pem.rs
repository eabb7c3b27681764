//! Values that are PEM, base64 of PEM, or the path of a file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The marker that every text in PEM contains (RFC 7468).
const BEGIN: &str = "-----BEGIN ";

/// Whether a value is PEM or the base64 of PEM. Otherwise the value is a path.
pub fn is_inline_pem(value: &str) -> bool {
    inline_pem(value).is_some()
}

/// The PEM in a value, decoded if the value is base64. `None` = the value is a path.
pub fn inline_pem(value: &str) -> Option<Vec<u8>> {
    if value.contains(BEGIN) {
        return Some(value.as_bytes().to_vec());
    }
    let packed: String = value.split_whitespace().collect();
    let decoded = STANDARD.decode(packed).ok()?;
    std::str::from_utf8(&decoded).is_ok_and(|text| text.contains(BEGIN)).then_some(decoded)
}
