//! A key that verifies signatures of tokens, and which algorithms it may verify.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, EcdsaVerificationAlgorithm,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaParameters,
};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::base64_text::decode_base64;
use x509_cert::der::Decode;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoOwned};

/// The algorithms of elliptic curves, by the object identifier of the curve (RFC 5480 section 2.1.1.1).
const P256_CURVE: &str = "1.2.840.10045.3.1.7";
const P384_CURVE: &str = "1.3.132.0.34";
const P521_CURVE: &str = "1.3.132.0.35";

/// The algorithm of P-521, which the library does not know.
const ES512: &str = "ES512";

/// The algorithms of shared secrets.
const SECRET: &[Algorithm] = &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
/// The algorithms of RSA. A key of one family never verifies tokens of another.
const RSA: &[Algorithm] =
    &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

/// What verifies.
enum KeyForm {
    Library(Box<(Validation, DecodingKey)>),
    P521(ParsedPublicKey),
}

/// A key that verifies signatures.
pub(super) struct VerificationKey {
    form: KeyForm,
    /// From then on the key does not count, Unix seconds; 0 = it does for ever.
    until_s: u64,
}

/// Why a key has not signed a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsigned {
    /// It is no token.
    NoToken,
    /// The key is not for the algorithm of the token.
    OtherAlgorithm,
    /// The signature is of another key.
    OtherKey,
}

/// The part of a token's header that says how it is signed.
#[derive(Deserialize)]
struct Signing {
    alg: String,
}

impl VerificationKey {
    fn of(algorithms: &[Algorithm], key: DecodingKey) -> Self {
        VerificationKey { form: KeyForm::Library(Box::new((validation(algorithms), key))), until_s: 0 }
    }

    /// A shared secret. `until_s`: see the field.
    pub(super) fn secret(secret: &str, until_s: u64) -> Self {
        VerificationKey { until_s, ..VerificationKey::of(SECRET, DecodingKey::from_secret(secret.as_bytes())) }
    }

    /// A public key of RSA, in PEM.
    ///
    /// # Errors
    /// What is wrong with it: a signature by it could never be verified.
    pub(super) fn rsa_pem(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of RSA in PEM, found something else";
        let key = DecodingKey::from_rsa_pem(pem).map_err(|_| NONE)?;
        let der = key.try_get_as_bytes().map_err(|_| NONE)?;
        check_size(RsaParameters::public_modulus_len(der).map_err(|_| NONE)?)?;
        Ok(VerificationKey::of(RSA, key))
    }

    /// A public key of RSA, by its modulus and its exponent, big-endian.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn rsa_parts(modulus: &[u8], exponent: &[u8]) -> Result<Self, &'static str> {
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let modulus = &modulus[zeros..];
        let bits = modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
        check_size(u32::try_from(bits).unwrap_or(u32::MAX))?;
        if exponent.is_empty() || exponent.len() > 8 {
            return Err("the exponent of a key of RSA must have 1 to 8 bytes");
        }
        Ok(VerificationKey::of(RSA, DecodingKey::from_rsa_raw_components(modulus, exponent)))
    }

    /// A public key of an elliptic curve, in PEM.
    ///
    /// # Errors
    /// What is wrong with it: it is not one of a curve that tokens are signed with, or not a point of its curve.
    pub(super) fn elliptic_pem(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of an elliptic curve in PEM, found something else";
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| NONE)?;
        let info = SubjectPublicKeyInfoOwned::from_der(&der).map_err(|_| NONE)?;
        let curve: ObjectIdentifier = info.algorithm.parameters.and_then(|curve| curve.decode_as().ok()).ok_or(NONE)?;
        let point = info.subject_public_key.as_bytes().ok_or(NONE)?;
        let curve = match curve.to_string().as_str() {
            P256_CURVE => "P-256",
            P384_CURVE => "P-384",
            P521_CURVE => "P-521",
            _ => "",
        };
        VerificationKey::elliptic_point(curve, point)
    }

    /// A public key of an elliptic curve by the curve's name and its point (SEC 1).
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn elliptic_point(curve: &str, point: &[u8]) -> Result<Self, &'static str> {
        let parse = |algorithm: &'static EcdsaVerificationAlgorithm| {
            ParsedPublicKey::new(algorithm, point).map_err(|_| "the point of the key is not on its curve")
        };
        let library = |algorithm| VerificationKey::of(&[algorithm], DecodingKey::from_ec_der(point));
        match curve {
            "P-256" => parse(&ECDSA_P256_SHA256_FIXED).map(|_| library(Algorithm::ES256)),
            "P-384" => parse(&ECDSA_P384_SHA384_FIXED).map(|_| library(Algorithm::ES384)),
            "P-521" => {
                parse(&ECDSA_P521_SHA512_FIXED).map(|key| VerificationKey { form: KeyForm::P521(key), until_s: 0 })
            }
            _ => Err("the curve of the key is none of P-256, P-384 and P-521"),
        }
    }

    /// A public key of Ed25519, in PEM.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn edwards_pem(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of Ed25519 in PEM, found something else";
        let key = DecodingKey::from_ed_pem(pem).map_err(|_| NONE)?;
        VerificationKey::edwards_point(key.try_get_as_bytes().map_err(|_| NONE)?)
    }

    /// A public key of Ed25519 by its point (RFC 8032).
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn edwards_point(point: &[u8]) -> Result<Self, &'static str> {
        ParsedPublicKey::new(&ED25519, point).map_err(|_| "the point of the key is not one of Ed25519")?;
        Ok(VerificationKey::of(&[Algorithm::EdDSA], DecodingKey::from_ed_der(point)))
    }

    /// The same key for one of its algorithms only. None = it is not for that one.
    pub(super) fn restricted_to(self, alg: &str) -> Option<Self> {
        match self.form {
            KeyForm::P521(_) => (alg == ES512).then_some(self),
            KeyForm::Library(known) => {
                let (rules, key) = *known;
                let algorithm = alg.parse().ok().filter(|algorithm| rules.algorithms.contains(algorithm))?;
                Some(VerificationKey { until_s: self.until_s, ..VerificationKey::of(&[algorithm], key) })
            }
        }
    }

    /// Whether it is a shared secret.
    pub(super) fn is_secret(&self) -> bool {
        matches!(&self.form, KeyForm::Library(known) if known.0.algorithms.contains(&Algorithm::HS256))
    }

    /// Whether the time of the key is not over.
    pub(super) fn counts_at(&self, now_s: u64) -> bool {
        self.until_s == 0 || now_s <= self.until_s
    }

    /// The claims of a token that this key has signed.
    ///
    /// # Errors
    /// Why the key has not signed it.
    pub(super) fn claims(&self, token: &str) -> Result<Box<RawValue>, Unsigned> {
        match &self.form {
            KeyForm::Library(known) => match jsonwebtoken::decode::<Box<RawValue>>(token, &known.1, &known.0) {
                Ok(good) => Ok(good.claims),
                Err(error) => Err(match error.kind() {
                    ErrorKind::InvalidAlgorithm => Unsigned::OtherAlgorithm,
                    ErrorKind::InvalidSignature => Unsigned::OtherKey,
                    _ => Unsigned::NoToken,
                }),
            },
            KeyForm::P521(key) => {
                let (signed, signature) = token.rsplit_once('.').ok_or(Unsigned::NoToken)?;
                let (head, claims) = signed.split_once('.').ok_or(Unsigned::NoToken)?;
                let read = |part: &str| decode_base64(part).ok_or(Unsigned::NoToken);
                let head: Signing = serde_json::from_slice(&read(head)?).map_err(|_| Unsigned::NoToken)?;
                if head.alg != ES512 {
                    return Err(Unsigned::OtherAlgorithm);
                }
                key.verify_sig(signed.as_bytes(), &read(signature)?).map_err(|_| Unsigned::OtherKey)?;
                serde_json::from_slice(&read(claims)?).map_err(|_| Unsigned::NoToken)
            }
        }
    }
}

/// Refuses a size of RSA that is not safe, or that nobody needs. `bits`: the length of the modulus.
fn check_size(bits: u32) -> Result<(), &'static str> {
    let rules = &RSA_PKCS1_2048_8192_SHA256;
    let is_good = (rules.min_modulus_len()..=rules.max_modulus_len()).contains(&bits);
    if is_good { Ok(()) } else { Err("a key of RSA must have 2,048 to 8,192 bits") }
}

/// The library checks the signature only: the server checks times by the node's clock.
fn validation(algorithms: &[Algorithm]) -> Validation {
    let mut rules = Validation::new(algorithms[0]);
    rules.algorithms = algorithms.to_vec();
    rules.validate_exp = false;
    rules.validate_nbf = false;
    rules.validate_aud = false;
    rules.required_spec_claims.clear();
    rules
}
