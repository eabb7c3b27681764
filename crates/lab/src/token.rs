//! Connection tokens of the clients: JSON Web Tokens signed with HMAC SHA-256 (RFC 7519, RFC 7515).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A token of a user, valid for many years. `has_id`: it has an id, and the time of its issue.
pub(crate) fn sign(secret: &str, user: usize, has_id: bool) -> String {
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let id = if has_id { format!(r#","iat":1700000000,"jti":"token-of-user-{user}""#) } else { String::new() };
    let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"user{user}","exp":4102444800{id}}}"#));
    let signed = format!("{head}.{claims}");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}
