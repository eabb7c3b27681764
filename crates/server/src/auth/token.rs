//! A token in its parts (RFC 7515, section 7.1). Nothing of it is verified yet.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::fault::{NO_TOKEN, TokenFault, TokenStage};

/// The name of the algorithm of P-521.
const ES512: &str = "ES512";

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureAlgorithm {
    /// An algorithm of the library.
    Library(Algorithm),
    /// ECDSA with P-521, which the library does not know.
    Es512,
}

impl SignatureAlgorithm {
    /// The algorithm of this name; None = no key verifies it.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            ES512 => Some(SignatureAlgorithm::Es512),
            // The name of RFC 9864 for what RFC 8037 calls EdDSA.
            "Ed25519" => Some(SignatureAlgorithm::Library(Algorithm::EdDSA)),
            _ => name.parse().ok().map(SignatureAlgorithm::Library),
        }
    }
}

/// What the header of a token says.
pub(super) struct TokenHeader {
    pub(super) algorithm: SignatureAlgorithm,
    /// The name of its key; None = it names none.
    pub(super) kid: Option<String>,
}

/// The fields of a header that count. Present is whatever stands there, `null` too.
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
    /// Reads a header.
    ///
    /// # Errors
    /// When it is none, names an algorithm that no key verifies, or extensions that must be understood (`crit`): this
    /// server knows none (RFC 7515, 4.1.11).
    pub(super) fn read(text: &str) -> Result<Self, TokenFault> {
        let invalid = |cause| TokenFault::invalid(TokenStage::Format, cause);
        let json = decode_object(text)?;
        let fields: HeaderFields = serde_json::from_slice(&json).map_err(|_| invalid(NO_TOKEN))?;
        if fields.crit {
            return Err(invalid("the header of the token has crit, and no extension is known"));
        }
        let algorithm = SignatureAlgorithm::of_name(&fields.alg)
            .ok_or(invalid("alg of the token is none of HS, RS, PS, ES (256, 384, 512) and EdDSA"))?;
        Ok(TokenHeader { algorithm, kid: fields.kid.filter(|kid| !kid.is_empty()) })
    }
}

/// A token.
#[derive(Clone, Copy)]
pub(super) struct Token<'a> {
    /// All of it.
    pub(super) text: &'a str,
    /// The header, in base64.
    pub(super) header: &'a str,
    claims: &'a str,
    /// The signature, in base64.
    pub(super) signature: &'a str,
}

impl<'a> Token<'a> {
    /// The token that a text is.
    ///
    /// # Errors
    /// When it has not three parts.
    pub(super) fn split(text: &'a str) -> Result<Self, TokenFault> {
        let mut parts = text.split('.');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(header), Some(claims), Some(signature), None) => Ok(Token { text, header, claims, signature }),
            _ => Err(TokenFault::invalid(TokenStage::Format, NO_TOKEN)),
        }
    }

    /// What the signature is of.
    pub(super) fn signed(&self) -> &'a [u8] {
        &self.text.as_bytes()[..self.header.len() + 1 + self.claims.len()]
    }

    /// The claims: text that begins as a JSON object.
    ///
    /// # Errors
    /// When they are something else.
    pub(super) fn claims(&self) -> Result<String, TokenFault> {
        String::from_utf8(decode_object(self.claims)?).map_err(|_| TokenFault::invalid(TokenStage::Format, NO_TOKEN))
    }
}

/// A part of a token (RFC 7515, section 2: the alphabet of URLs without padding); None = it is not base64.
pub(super) fn decode_part(part: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(part).ok()
}

/// The bytes of a part that is a JSON object: a list would be read as the fields of a structure.
fn decode_object(part: &str) -> Result<Vec<u8>, TokenFault> {
    let bytes = decode_part(part).filter(|bytes| bytes.trim_ascii_start().first() == Some(&b'{'));
    bytes.ok_or(TokenFault::invalid(TokenStage::Format, NO_TOKEN))
}
