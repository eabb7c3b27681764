//! The parts of a token (RFC 7515, section 7.1). Nothing in it is verified yet.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::fault::{NO_TOKEN, TokenFault, TokenStage};

/// The name of the algorithm of P-521.
const ES512: &str = "ES512";

/// The algorithm with which a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureAlgorithm {
    /// An algorithm of the library.
    Library(Algorithm),
    /// ECDSA with P-521, which the library does not support.
    Es512,
}

impl SignatureAlgorithm {
    /// Returns the algorithm of this name; None = no key verifies it.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            ES512 => Some(SignatureAlgorithm::Es512),
            // The name in RFC 9864 for what RFC 8037 calls EdDSA.
            "Ed25519" => Some(SignatureAlgorithm::Library(Algorithm::EdDSA)),
            _ => name.parse().ok().map(SignatureAlgorithm::Library),
        }
    }
}

/// The contents of a token's header.
pub(super) struct TokenHeader {
    pub(super) algorithm: SignatureAlgorithm,
    /// The name of the key; None = the header does not name one.
    pub(super) kid: Option<String>,
}

/// The fields of a header that matter. `crit` counts as present with any value, even `null`.
#[derive(Deserialize)]
struct HeaderFields {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl TokenHeader {
    /// Reads the header of a token.
    ///
    /// # Errors
    /// When the text is not a header, or names an algorithm that no key verifies. Also when it names extensions that
    /// must be understood (`crit`), because this server supports none (RFC 7515, 4.1.11).
    pub(super) fn read(text: &str) -> Result<Self, TokenFault> {
        let invalid = |cause| TokenFault::invalid(TokenStage::Format, cause);
        let json = decode_object(text)?;
        let fields: HeaderFields = serde_json::from_slice(&json).map_err(|_| invalid(NO_TOKEN))?;
        if fields.crit {
            return Err(invalid("the header of the token has crit, and this server supports no extension"));
        }
        let algorithm = SignatureAlgorithm::of_name(&fields.alg)
            .ok_or(invalid("alg of the token is none of HS, RS, PS, ES (256, 384, 512) and EdDSA"))?;
        Ok(TokenHeader { algorithm, kid: fields.kid.filter(|kid| !kid.is_empty()) })
    }
}

/// A token and its three parts.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// The whole token as text.
    pub(super) text: &'a str,
    /// The header, in base64.
    pub(super) header: &'a str,
    claims: &'a str,
    /// The signature, in base64.
    pub(super) signature: &'a str,
}

impl<'a> Token<'a> {
    /// Splits a text into the parts of a token.
    ///
    /// # Errors
    /// When the text does not have three parts.
    pub(super) fn split(text: &'a str) -> Result<Self, TokenFault> {
        let mut parts = text.split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(header), Some(claims), Some(signature), None) => Ok(Token { text, header, claims, signature }),
            _ => Err(TokenFault::invalid(TokenStage::Format, NO_TOKEN)),
        }
    }

    /// Returns the bytes that the signature is made of.
    pub(super) fn signed(&self) -> &'a [u8] {
        &self.text.as_bytes()[..self.header.len() + 1 + self.claims.len()]
    }

    /// Returns the claims: text that begins like a JSON object.
    ///
    /// # Errors
    /// When the claims are something else.
    pub(super) fn claims(&self) -> Result<String, TokenFault> {
        String::from_utf8(decode_object(self.claims)?).map_err(|_| TokenFault::invalid(TokenStage::Format, NO_TOKEN))
    }
}

/// Decodes a part of a token (RFC 7515, section 2: the alphabet of URLs without padding); None = the part is not
/// base64.
pub(super) fn decode_part(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

/// Returns the bytes of a part that is a JSON object. A list is refused, because it would be read as the fields of a
/// structure.
fn decode_object(part: &str) -> Result<Vec<u8>, TokenFault> {
    let bytes = decode_part(part).filter(|bytes| bytes.trim_ascii_start().first() == Some(&b'{'));
    bytes.ok_or(TokenFault::invalid(TokenStage::Format, NO_TOKEN))
}
