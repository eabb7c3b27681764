//! JSON Web Tokens made by hand, valid and forged.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use super::server::SECRET;

/// A token with any header, signed with HS256 and a secret.
pub(crate) fn signed(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let text = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", BASE64.encode(tag))
}

/// A token as a backend makes it.
pub(crate) fn token(claims: &Value) -> String {
    signed(&json!({"alg": "HS256", "typ": "JWT"}), claims, SECRET.as_bytes())
}

/// A token without a signature.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}.", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()))
}
