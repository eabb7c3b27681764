//! A JSON Web Key Set (RFC 7517): its keys that verify signatures, by their `kid`.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::notation::decode_base64;

use super::key::VerificationKey;

/// The most keys in a set.
const SET_KEYS_MAX: usize = 100;
/// The most keys of a set with the same `kid`. Each of them is tried.
const KID_KEYS_MAX: usize = 4;
/// The longest `kid`, in bytes.
const KID_MAX: usize = 1_024;

/// The keys of a set, by their `kid`.
#[derive(Default)]
pub(super) struct ParsedSet {
    keys: HashMap<Box<str>, Vec<Arc<VerificationKey>>>,
    /// The number of keys that were skipped, because they have another purpose or cannot be read.
    pub(super) skipped: usize,
}

#[derive(Deserialize)]
struct JwkSet<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// A key as a set contains it. Other fields are ignored, and `null` means that a field is absent.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Jwk {
    kty: Option<String>,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl ParsedSet {
    /// Returns the keys with this `kid`; empty = the set has no such key.
    pub(super) fn find(&self, kid: &str) -> &[Arc<VerificationKey>] {
        self.keys.get(kid).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of keys that verify signatures.
    pub(super) fn len(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }
}

/// Reads a set. A key that cannot be read does not affect the others.
///
/// # Errors
/// What is wrong with the whole set. A set without a usable key is a fault of its endpoint.
pub(super) fn parse_set(json: &[u8]) -> Result<ParsedSet, &'static str> {
    let set: Option<JwkSet<'_>> = object(json);
    let set = set.ok_or("the answer is not a JSON Web Key Set")?;
    if set.keys.len() > SET_KEYS_MAX {
        return Err("the set has more than 100 keys");
    }
    let mut parsed = ParsedSet::default();
    for json in set.keys {
        let key = object(json.get().as_bytes()).and_then(read);
        let Some((kid, key)) = key else {
            parsed.skipped += 1;
            continue;
        };
        let same = parsed.keys.entry(kid.into()).or_default();
        match same.len() < KID_KEYS_MAX {
            true => same.push(Arc::new(key)),
            false => parsed.skipped += 1,
        }
    }
    if parsed.keys.is_empty() { Err("the set has no key that verifies signatures") } else { Ok(parsed) }
}

/// Reads a JSON object; None = the text is something else. Serde would read a list as the fields of a structure.
fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    (json.trim_ascii_start().first() == Some(&b'{')).then(|| serde_json::from_slice(json).ok())?
}

/// Returns the key and its `kid`; None = the key is not for signatures, or cannot be read.
fn read(jwk: Jwk) -> Option<(String, VerificationKey)> {
    let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig");
    let may_verify = jwk.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|of| of == "verify"));
    let kid = jwk.kid.filter(|kid| !kid.is_empty() && kid.len() <= KID_MAX)?;
    if !is_for_signatures || !may_verify {
        return None;
    }
    let bytes = |text: &Option<String>| decode_base64(text.as_deref()?).filter(|bytes| !bytes.is_empty());
    let curve = jwk.crv.as_deref().unwrap_or_default();
    let key = match jwk.kty.as_deref()? {
        "RSA" => VerificationKey::rsa_parts(&bytes(&jwk.n)?, &bytes(&jwk.e)?),
        "EC" => {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            VerificationKey::elliptic_point(curve, &[&[4], x.as_slice(), y.as_slice()].concat())
        }
        "OKP" if curve == "Ed25519" => VerificationKey::edwards_point(&bytes(&jwk.x)?),
        // A secret (`oct`) in a public set proves nothing.
        _ => return None,
    };
    let key = key.ok()?;
    let key = match &jwk.alg {
        Some(alg) => key.restricted_to(alg)?,
        None => key,
    };
    Some((kid, key))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A point of Ed25519 (RFC 8037, appendix A.2).
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn parsed(json: &Value) -> Result<(usize, usize), &'static str> {
        parse_set(json.to_string().as_bytes()).map(|set| (set.len(), set.skipped))
    }

    #[test]
    fn only_objects_are_sets_and_keys() {
        let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": X});
        let as_list = json!(["OKP", "b", null, null, null, "Ed25519", X, null, null, null]);
        assert_eq!(parsed(&json!({"keys": [key, as_list]})), Ok((1, 1)));
        assert!(parsed(&json!([[key]])).is_err());
    }

    #[test]
    fn null_is_absence_and_both_names_of_the_algorithm_of_ed25519_count() {
        for (alg, expected) in [(json!(null), 1), (json!("EdDSA"), 1), (json!("Ed25519"), 1), (json!("ES256"), 0)] {
            let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": X, "n": null, "use": null, "alg": alg});
            assert_eq!(parsed(&json!({"keys": [key]})).map_or(0, |(keys, _)| keys), expected, "{alg}");
        }
    }

    #[test]
    fn one_kid_has_a_few_keys_at_most() {
        let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": X});
        assert_eq!(parsed(&json!({"keys": vec![key; 100]})), Ok((KID_KEYS_MAX, 100 - KID_KEYS_MAX)));
    }

    #[test]
    fn a_key_of_rsa_that_verifies_nothing_is_passed_over() {
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let read = |modulus: &[u8], e: &str| {
            let key = json!({"kty": "RSA", "kid": "a", "n": URL_SAFE_NO_PAD.encode(modulus), "e": e});
            parsed(&json!({"keys": [key]})).is_ok()
        };
        let (odd, mut even) = ([0xC5; 256], [0xC5; 256]);
        even[255] = 0xC4;
        assert!(read(&odd, "AQAB"));
        assert!(read(&odd, "AAEAAQ"), "zeros before a number say nothing");
        for (name, modulus, e) in [("even", &even, "AQAB"), ("e = 1", &odd, "AQ"), ("an even e", &odd, "AQAA")] {
            assert!(!read(modulus, e), "{name}");
        }
    }
}
