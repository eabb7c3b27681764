//! A key that verifies signatures of tokens, with the algorithms that it may verify.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, EcdsaVerificationAlgorithm,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaParameters, RsaPublicKeyComponents,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::der::Decode;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoOwned};

use super::token::{SignatureAlgorithm, Token, decode_part};

/// The object identifiers of the elliptic curves (RFC 5480 section 2.1.1.1).
const P256_CURVE: &str = "1.2.840.10045.3.1.7";
const P384_CURVE: &str = "1.3.132.0.34";
const P521_CURVE: &str = "1.3.132.0.35";

/// The algorithms of RSA. A key of one family never verifies tokens of another.
const RSA: &[Algorithm] =
    &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];

/// The form of a key that verifies.
enum KeyForm {
    /// A secret, prepared for HS256, HS384 and HS512. The library would prepare it again for each token.
    Secret(Box<[hmac::Key; 3]>),
    /// A key of the library, with its algorithms.
    Library(Vec<Algorithm>, DecodingKey),
    P521(ParsedPublicKey),
}

/// A key that verifies signatures.
pub(super) struct VerificationKey {
    form: KeyForm,
    /// The last second in which the key counts, in Unix seconds; 0 = it always counts.
    until_s: u64,
}

/// Why a key has not signed a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsigned {
    /// The text is not a token.
    NoToken,
    /// The key is not for the algorithm of the token.
    OtherAlgorithm,
    /// Another key made the signature.
    OtherKey,
}

impl VerificationKey {
    fn of(algorithms: &[Algorithm], key: DecodingKey) -> Self {
        VerificationKey { form: KeyForm::Library(algorithms.to_vec(), key), until_s: 0 }
    }

    /// Makes a key from a shared secret. `until_s`: see the field.
    pub(super) fn secret(secret: &str, until_s: u64) -> Self {
        let keys = [hmac::HMAC_SHA256, hmac::HMAC_SHA384, hmac::HMAC_SHA512]
            .map(|algorithm| hmac::Key::new(algorithm, secret.as_bytes()));
        VerificationKey { form: KeyForm::Secret(Box::new(keys)), until_s }
    }

    /// Reads a public RSA key in PEM.
    ///
    /// # Errors
    /// What is wrong with the key, so that it could never verify a signature.
    pub(super) fn rsa_pem(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of RSA in PEM, found something else";
        let key = DecodingKey::from_rsa_pem(pem).map_err(|_| NONE)?;
        let der = key.try_get_as_bytes().map_err(|_| NONE)?;
        check_size(RsaParameters::public_modulus_len(der).map_err(|_| NONE)?)?;
        Ok(VerificationKey::of(RSA, key))
    }

    /// Makes a public RSA key from its modulus and its exponent, both big-endian.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub(super) fn rsa_parts(modulus: &[u8], exponent: &[u8]) -> Result<Self, &'static str> {
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let modulus = &modulus[zeros..];
        let bits = modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
        check_size(u32::try_from(bits).unwrap_or(u32::MAX))?;
        if exponent.is_empty() || exponent.len() > 8 {
            return Err("the exponent of a key of RSA must have 1 to 8 bytes");
        }
        let zeros = exponent.iter().take_while(|byte| **byte == 0).count();
        let parts = RsaPublicKeyComponents { n: modulus, e: &exponent[zeros..] };
        let der: Result<PublicKeyX509Der<'_>, _> = parts.as_der();
        der.ok()
            .and_then(|der| ParsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der.as_ref()).ok())
            .ok_or("the modulus and the exponent are not a key of RSA")?;
        Ok(VerificationKey::of(RSA, DecodingKey::from_rsa_raw_components(modulus, exponent)))
    }

    /// Reads a public key of an elliptic curve in PEM.
    ///
    /// # Errors
    /// What is wrong with the key: its curve is not one of those for tokens, or its point is not on its curve.
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

    /// Makes a public key of an elliptic curve from the curve's name and the point (SEC 1).
    ///
    /// # Errors
    /// What is wrong with the key.
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
            _ => Err("the curve of the key is not P-256, P-384 or P-521"),
        }
    }

    /// Reads a public key of Ed25519 in PEM.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub(super) fn edwards_pem(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of Ed25519 in PEM, found something else";
        let key = DecodingKey::from_ed_pem(pem).map_err(|_| NONE)?;
        VerificationKey::edwards_point(key.try_get_as_bytes().map_err(|_| NONE)?)
    }

    /// Makes a public key of Ed25519 from its point (RFC 8032).
    ///
    /// # Errors
    /// What is wrong with the key.
    pub(super) fn edwards_point(point: &[u8]) -> Result<Self, &'static str> {
        ParsedPublicKey::new(&ED25519, point).map_err(|_| "the point of the key is not one of Ed25519")?;
        Ok(VerificationKey::of(&[Algorithm::EdDSA], DecodingKey::from_ed_der(point)))
    }

    /// Limits the key to one of its algorithms; None = the key is not for that algorithm.
    pub(super) fn restricted_to(mut self, name: &str) -> Option<Self> {
        match (&mut self.form, SignatureAlgorithm::of_name(name)?) {
            (KeyForm::P521(_), SignatureAlgorithm::Es512) => {}
            (KeyForm::Library(known, _), SignatureAlgorithm::Library(named)) if known.contains(&named) => {
                *known = vec![named];
            }
            _ => return None,
        }
        Some(self)
    }

    /// Whether the key is a shared secret.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.form, KeyForm::Secret(_))
    }

    /// Whether the key counts at this time, in Unix seconds.
    pub(super) fn counts_at(&self, now_s: u64) -> bool {
        self.until_s == 0 || now_s <= self.until_s
    }

    /// Checks that this key has signed a token, with the algorithm in the token's header.
    ///
    /// # Errors
    /// Why the key has not signed the token.
    pub(super) fn verify(&self, token: &Token<'_>, algorithm: SignatureAlgorithm) -> Result<(), Unsigned> {
        let signature = || decode_part(token.signature).ok_or(Unsigned::NoToken);
        match (&self.form, algorithm) {
            (KeyForm::Secret(keys), SignatureAlgorithm::Library(named)) => {
                let key = match named {
                    Algorithm::HS256 => &keys[0],
                    Algorithm::HS384 => &keys[1],
                    Algorithm::HS512 => &keys[2],
                    _ => return Err(Unsigned::OtherAlgorithm),
                };
                hmac::verify(key, token.signed(), &signature()?).map_err(|_| Unsigned::OtherKey)
            }
            (KeyForm::Library(known, key), SignatureAlgorithm::Library(named)) if known.contains(&named) => {
                match jsonwebtoken::crypto::verify(token.signature, token.signed(), key, named) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Unsigned::OtherKey),
                    Err(_) => Err(Unsigned::NoToken),
                }
            }
            (KeyForm::P521(key), SignatureAlgorithm::Es512) => {
                key.verify_sig(token.signed(), &signature()?).map_err(|_| Unsigned::OtherKey)
            }
            _ => Err(Unsigned::OtherAlgorithm),
        }
    }
}

/// Refuses an RSA key of unsafe or needless size. `bits`: the length of the modulus.
fn check_size(bits: u32) -> Result<(), &'static str> {
    let rules = &RSA_PKCS1_2048_8192_SHA256;
    let is_good = (rules.min_modulus_len()..=rules.max_modulus_len()).contains(&bits);
    if is_good { Ok(()) } else { Err("a key of RSA must have 2,048 to 8,192 bits") }
}
