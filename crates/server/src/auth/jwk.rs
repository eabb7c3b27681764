//! A JSON Web Key Set (RFC 7517): the keys in it that verify signatures, by their `kid`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::base64_text::decode_base64;

use super::key::VerificationKey;

/// Keys in a set.
const SET_KEYS_MAX: usize = 100;
/// Longest `kid`, bytes.
const KID_MAX: usize = 1_024;

/// The keys of a set.
#[derive(Default)]
pub(super) struct ParsedSet {
    keys: HashMap<Box<str>, Vec<Arc<VerificationKey>>>,
    /// Keys that were passed over, because they are for something else, or cannot be read.
    pub(super) skipped: usize,
}

#[derive(Deserialize)]
struct JwkSet<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// A key as a set has it. Fields that are not named here are passed over.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Jwk {
    kty: String,
    kid: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: String,
    x: String,
    y: String,
    n: String,
    e: String,
}

impl ParsedSet {
    /// The keys with this `kid`; empty = there is none.
    pub(super) fn find(&self, kid: &str) -> &[Arc<VerificationKey>] {
        self.keys.get(kid).map_or(&[], Vec::as_slice)
    }

    /// The number of keys that verify signatures.
    pub(super) fn len(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }
}

/// Reads a set. One key that cannot be read does not spoil the others.
///
/// # Errors
/// What is wrong with the whole. A set without a single key is a fault of its endpoint: no issuer means to have none.
pub(super) fn parse_set(json: &[u8]) -> Result<ParsedSet, &'static str> {
    let set: JwkSet<'_> = serde_json::from_slice(json).map_err(|_| "the answer is not a JSON Web Key Set")?;
    if set.keys.len() > SET_KEYS_MAX {
        return Err("the set has more than 100 keys");
    }
    let mut parsed = ParsedSet::default();
    for json in set.keys {
        match serde_json::from_str::<Jwk>(json.get()).ok().and_then(read) {
            Some((kid, key)) => parsed.keys.entry(kid.into()).or_default().push(Arc::new(key)),
            None => parsed.skipped += 1,
        }
    }
    if parsed.keys.is_empty() { Err("the set has no key that verifies signatures") } else { Ok(parsed) }
}

/// The key and its `kid`; None = it verifies no signatures, or cannot be read.
fn read(jwk: Jwk) -> Option<(String, VerificationKey)> {
    let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig");
    let may_verify = jwk.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|of| of == "verify"));
    if !is_for_signatures || !may_verify || jwk.kid.is_empty() || jwk.kid.len() > KID_MAX {
        return None;
    }
    let bytes = |text: &str| decode_base64(text).filter(|bytes| !bytes.is_empty());
    let key = match jwk.kty.as_str() {
        "RSA" => VerificationKey::rsa_parts(&bytes(&jwk.n)?, &bytes(&jwk.e)?),
        "EC" => {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            VerificationKey::elliptic_point(&jwk.crv, &[&[4], x.as_slice(), y.as_slice()].concat())
        }
        "OKP" if jwk.crv == "Ed25519" => VerificationKey::edwards_point(&bytes(&jwk.x)?),
        // Secrets (`oct`) in a set that everybody can read prove nothing.
        _ => return None,
    };
    let key = key.ok()?;
    let key = match &jwk.alg {
        Some(alg) => key.restricted_to(alg)?,
        None => key,
    };
    Some((jwk.kid, key))
}
