//! Verifies JSON Web Tokens (RFC 7519) and the key of the server API.

use std::sync::OnceLock;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, EcdsaVerificationAlgorithm,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RsaParameters,
};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use touchline_engine::base64_text::decode_base64;
use touchline_engine::claims::connection_claims;
use touchline_engine::{ClientSettings, ConnectionClaims, SubscriptionClaims, TokenError, TokenSettings, Verifier};
use x509_cert::der::Decode;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoOwned};

use crate::start_error::StartError;

/// Clocks of token makers may be this far ahead, seconds: `nbf` is often the very second of making.
const LEEWAY_S: u64 = 5;

/// The algorithms of elliptic curves, by the object identifier of the curve (RFC 5480 section 2.1.1.1).
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const P521: &str = "1.3.132.0.35";

/// A key that verifies signatures.
enum VerificationKey {
    Library(Box<(Validation, DecodingKey)>),
    /// ES512, which the library does not know.
    P521(ParsedPublicKey),
}

impl VerificationKey {
    fn of(algorithms: &[Algorithm], key: DecodingKey) -> Self {
        VerificationKey::Library(Box::new((validation(algorithms), key)))
    }

    /// A public key of RSA, in PEM.
    ///
    /// # Errors
    /// What is wrong with it: a signature by it could never be verified.
    fn rsa(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of RSA in PEM, found something else";
        let key = DecodingKey::from_rsa_pem(pem).map_err(|_| NONE)?;
        let der = key.try_get_as_bytes().map_err(|_| NONE)?;
        let bits = RsaParameters::public_modulus_len(der).map_err(|_| NONE)?;
        let rules = &RSA_PKCS1_2048_8192_SHA256;
        if !(rules.min_modulus_len()..=rules.max_modulus_len()).contains(&bits) {
            return Err("a key of RSA must have 2,048 to 8,192 bits");
        }
        Ok(VerificationKey::of(&[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512], key))
    }

    /// A public key of an elliptic curve, in PEM.
    ///
    /// # Errors
    /// What is wrong with it: it is not one of a curve that tokens are signed with, or not a point of its curve.
    fn elliptic(pem: &[u8]) -> Result<Self, &'static str> {
        const NONE: &str = "expected a public key of an elliptic curve in PEM, found something else";
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| NONE)?;
        let info = SubjectPublicKeyInfoOwned::from_der(&der).map_err(|_| NONE)?;
        let curve: ObjectIdentifier = info.algorithm.parameters.and_then(|curve| curve.decode_as().ok()).ok_or(NONE)?;
        let point = info.subject_public_key.as_bytes().ok_or(NONE)?;
        let parse = |algorithm: &'static EcdsaVerificationAlgorithm| {
            ParsedPublicKey::new(algorithm, point).map_err(|_| "the point of the key is not on its curve")
        };
        let library = |algorithm| {
            DecodingKey::from_ec_pem(pem).map(|key| VerificationKey::of(&[algorithm], key)).map_err(|_| NONE)
        };
        match curve.to_string().as_str() {
            P256 => parse(&ECDSA_P256_SHA256_FIXED).and_then(|_| library(Algorithm::ES256)),
            P384 => parse(&ECDSA_P384_SHA384_FIXED).and_then(|_| library(Algorithm::ES384)),
            P521 => parse(&ECDSA_P521_SHA512_FIXED).map(VerificationKey::P521),
            _ => Err("the curve of the key is none of P-256, P-384 and P-521"),
        }
    }

    /// Whether it is a shared secret.
    fn is_secret(&self) -> bool {
        matches!(self, VerificationKey::Library(known) if known.0.algorithms.contains(&Algorithm::HS256))
    }

    /// The claims of a token that this key has signed.
    ///
    /// # Errors
    /// Why the key has not signed it.
    fn claims(&self, token: &str) -> Result<Box<RawValue>, Unsigned> {
        #[derive(Deserialize)]
        struct Head {
            alg: String,
        }
        match self {
            VerificationKey::Library(known) => match jsonwebtoken::decode::<Box<RawValue>>(token, &known.1, &known.0) {
                Ok(good) => Ok(good.claims),
                Err(error) => Err(match error.kind() {
                    ErrorKind::InvalidAlgorithm => Unsigned::OtherAlgorithm,
                    ErrorKind::InvalidSignature => Unsigned::OtherKey,
                    _ => Unsigned::NoToken,
                }),
            },
            VerificationKey::P521(key) => {
                let (signed, signature) = token.rsplit_once('.').ok_or(Unsigned::NoToken)?;
                let (head, claims) = signed.split_once('.').ok_or(Unsigned::NoToken)?;
                let read = |part: &str| decode_base64(part).ok_or(Unsigned::NoToken);
                let head: Head = serde_json::from_slice(&read(head)?).map_err(|_| Unsigned::NoToken)?;
                if head.alg != "ES512" {
                    return Err(Unsigned::OtherAlgorithm);
                }
                key.verify_sig(signed.as_bytes(), &read(signature)?).map_err(|_| Unsigned::OtherKey)?;
                serde_json::from_slice(&read(claims)?).map_err(|_| Unsigned::NoToken)
            }
        }
    }
}

/// Why a key has not signed a token.
enum Unsigned {
    NoToken,
    OtherAlgorithm,
    OtherKey,
}

/// The keys of one kind of token.
struct Keys {
    keys: Vec<VerificationKey>,
    audience: String,
    issuer: String,
    /// The header of the first verified token, as it was sent: a signer gives the same to all its tokens, so they are
    /// not parsed for `crit` again.
    plain_header: OnceLock<Box<str>>,
}

/// The claims that decide whether a token is valid now, for this server.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RegisteredClaims {
    exp: Option<f64>,
    nbf: Option<f64>,
    aud: Option<Value>,
    iss: Option<String>,
}

impl Keys {
    /// # Errors
    /// [`StartError::Key`], when no token could be verified by a configured key.
    fn new(section: &'static str, settings: &TokenSettings) -> Result<Self, StartError> {
        use Algorithm::{HS256, HS384, HS512};
        let unusable = |name: &'static str| move |reason: &'static str| StartError::Key { section, name, reason };
        let mut keys = Vec::new();
        if !settings.hmac_secret_key.is_empty() {
            let key = DecodingKey::from_secret(settings.hmac_secret_key.as_bytes());
            keys.push(VerificationKey::of(&[HS256, HS384, HS512], key));
        }
        if !settings.rsa_public_key.is_empty() {
            keys.push(VerificationKey::rsa(settings.rsa_public_key.as_bytes()).map_err(unusable("rsa_public_key"))?);
        }
        if !settings.ecdsa_public_key.is_empty() {
            keys.push(
                VerificationKey::elliptic(settings.ecdsa_public_key.as_bytes())
                    .map_err(unusable("ecdsa_public_key"))?,
            );
        }
        Ok(Keys {
            keys,
            audience: settings.audience.clone(),
            issuer: settings.issuer.clone(),
            plain_header: OnceLock::new(),
        })
    }

    fn verify<T: DeserializeOwned>(&self, token: &str, now_s: u64) -> Result<T, TokenError> {
        let header = token.split_once('.').map_or(token, |(header, _)| header);
        let is_plain = self.plain_header.get().is_some_and(|known| **known == *header);
        if !is_plain && has_critical(header)? {
            return Err(TokenError::Invalid("the header of the token has crit, and no extension is known"));
        }
        let json = self.signed(token)?;
        if !is_plain {
            self.plain_header.get_or_init(|| header.into());
        }
        let registered: RegisteredClaims = serde_json::from_str(json.get())
            .map_err(|_| TokenError::Invalid("exp or nbf of the token is not a number, or iss not text"))?;
        let now = now_s as f64;
        if registered.exp.is_some_and(|exp| exp <= now) {
            return Err(TokenError::Expired);
        }
        if registered.nbf.is_some_and(|nbf| nbf > now + LEEWAY_S as f64) {
            return Err(TokenError::Invalid("nbf of the token is in the future"));
        }
        if !self.audience.is_empty() && !registered.aud.is_some_and(|aud| names(&aud, &self.audience)) {
            return Err(TokenError::Invalid("aud of the token does not name the configured audience"));
        }
        if !self.issuer.is_empty() && registered.iss.as_deref() != Some(&self.issuer) {
            return Err(TokenError::Invalid("iss of the token is not the configured issuer"));
        }
        serde_json::from_str(json.get()).map_err(|_| TokenError::Invalid(misshapen(&json)))
    }

    /// The claims, if one of the keys has signed them.
    fn signed(&self, token: &str) -> Result<Box<RawValue>, TokenError> {
        let mut cause = if self.keys.is_empty() {
            "no key for tokens is configured"
        } else {
            "alg of the token fits no configured key"
        };
        for key in &self.keys {
            match key.claims(token) {
                Ok(claims) => return Ok(claims),
                Err(Unsigned::OtherAlgorithm) => {}
                Err(Unsigned::OtherKey) => {
                    cause = if key.is_secret() {
                        "the signature of the token does not match the configured key \
                         (a secret is used as text, not as base64)"
                    } else {
                        "the signature of the token does not match the configured key"
                    };
                }
                Err(Unsigned::NoToken) => cause = NO_TOKEN,
            }
        }
        Err(TokenError::Invalid(cause))
    }
}

const NO_TOKEN: &str = "what was sent as a token is not a JWT signed by HS, RS or ES";

/// What is wrong with claims that have another shape than they should.
fn misshapen(claims: &RawValue) -> &'static str {
    match serde_json::from_str::<Value>(claims.get()) {
        Ok(claims) if claims["sub"].is_number() => "sub of the token is a number: write the user's id as text",
        Ok(claims) if !claims["sub"].is_string() && !claims["sub"].is_null() => "sub of the token is not text",
        _ => "a claim of the token has another type than it must have",
    }
}

/// Whether the header of a token names extensions that must be understood (`crit`): this server knows none, so the
/// token is refused (RFC 7515, 4.1.11).
///
/// # Errors
/// [`TokenError::Invalid`] when there is no header.
fn has_critical(header: &str) -> Result<bool, TokenError> {
    /// Present, whatever its value.
    #[derive(Default)]
    struct Present(bool);
    impl<'de> Deserialize<'de> for Present {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(deserializer).map(|_| Present(true))
        }
    }
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        crit: Present,
    }
    let head = decode_base64(header).ok_or(TokenError::Invalid(NO_TOKEN))?;
    let head: Head = serde_json::from_slice(&head).map_err(|_| TokenError::Invalid(NO_TOKEN))?;
    Ok(head.crit.0)
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

fn names(aud: &Value, wanted: &str) -> bool {
    match aud {
        Value::String(one) => one == wanted,
        Value::Array(many) => many.iter().any(|one| one == wanted),
        _ => false,
    }
}

/// Whether tokens can be verified by the configured keys.
///
/// # Errors
/// [`StartError::Key`], when no token could be verified by a configured key.
pub fn check_token_keys(settings: &ClientSettings) -> Result<(), StartError> {
    TokenVerifier::new(settings).map(drop)
}

/// Verifies connection and subscription tokens by the configured keys.
pub(crate) struct TokenVerifier {
    connection: Keys,
    subscription: Keys,
}

impl TokenVerifier {
    /// # Errors
    /// [`StartError::Key`], when no token could be verified by a configured key.
    pub(crate) fn new(settings: &ClientSettings) -> Result<Self, StartError> {
        let connection = || Keys::new("client.token", &settings.token);
        let own = &settings.subscription_token;
        let subscription =
            if own.enabled { Keys::new("client.subscription_token", &own.keys())? } else { connection()? };
        Ok(TokenVerifier { connection: connection()?, subscription })
    }
}

impl Verifier for TokenVerifier {
    fn connection(&self, token: &str, now_s: u64) -> Result<ConnectionClaims, TokenError> {
        self.connection.verify(token, now_s)
    }

    fn subscription(&self, token: &str, now_s: u64) -> Result<SubscriptionClaims, TokenError> {
        self.subscription.verify(token, now_s)
    }
}

/// Tells whether a server with these settings would accept a token at a time (Unix seconds), as a connection token or
/// as a subscription token.
///
/// Returns the user that the token names.
///
/// # Errors
/// Why it would not; the text contains no part of the token or of a key.
pub fn check_token(
    client: &ClientSettings,
    token: &str,
    is_subscription: bool,
    now_s: u64,
) -> Result<String, TokenError> {
    let verifier = TokenVerifier::new(client)
        .map_err(|_| TokenError::Invalid("no token can be verified by a configured public key"))?;
    if is_subscription {
        verifier.subscription(token, now_s).map(|claims| claims.sub)
    } else {
        connection_claims(&verifier, token, now_s).map(|claims| claims.sub)
    }
}

/// Compares secrets in a time that does not depend on where they differ.
pub(crate) fn is_same_secret(shown: &[u8], secret: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(shown, secret).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
    use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    fn verifier() -> TokenVerifier {
        let token = TokenSettings { hmac_secret_key: "secret".into(), audience: "fans".into(), ..Default::default() };
        TokenVerifier::new(&ClientSettings { token, ..Default::default() }).expect("keys are good")
    }

    fn base64_url(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        let sextet = |bits: &[u8]| {
            let text = format!("{:0<6}", String::from_utf8_lossy(bits));
            LETTERS[usize::from_str_radix(&text, 2).expect("bits")] as char
        };
        bits.as_bytes().chunks(6).map(sextet).collect()
    }

    fn token(algorithm: Algorithm, secret: &str, claims: &Value) -> String {
        encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret.as_bytes())).expect("claims are JSON")
    }

    fn public_pem(der: &[u8]) -> String {
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    fn with_key(pem: String) -> Result<TokenVerifier, StartError> {
        let token = TokenSettings { ecdsa_public_key: pem, ..Default::default() };
        TokenVerifier::new(&ClientSettings { token, ..Default::default() })
    }

    #[test]
    fn tokens_of_the_largest_curve_are_verified() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).expect("the system has randomness");
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("a key has a form");
        let verifier = with_key(public_pem(der.as_ref())).expect("the curve is known");
        let sign = |algorithm: &str| {
            let head = base64_url(json!({"alg": algorithm}).to_string().as_bytes());
            let signed = format!("{head}.{}", base64_url(json!({"sub": "u"}).to_string().as_bytes()));
            let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("keys sign");
            format!("{signed}.{}", base64_url(signature.as_ref()))
        };
        assert_eq!(verifier.connection(&sign("ES512"), 50).map(|claims| claims.sub), Ok("u".into()));
        assert!(matches!(verifier.connection(&sign("ES384"), 50), Err(TokenError::Invalid(_))));
        let (good, other) = (sign("ES512"), sign("ES512"));
        let mixed = format!(
            "{}.{}",
            &good[..good.rfind('.').unwrap_or(0)],
            &other[other.rfind('.').unwrap_or(0) + 1..other.len() - 4]
        );
        assert!(matches!(verifier.connection(&mixed, 50), Err(TokenError::Invalid(_))));
    }

    #[test]
    fn a_key_of_a_curve_that_signs_no_tokens_is_refused() {
        // secp256k1, of `openssl ecparam -name secp256k1 -genkey | openssl ec -pubout`.
        let unknown = "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIj\
            JCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==";
        assert!(with_key(format!("-----BEGIN PUBLIC KEY-----\n{unknown}\n-----END PUBLIC KEY-----\n")).is_err());
        assert!(with_key("nonsense".into()).is_err());
    }

    #[test]
    fn a_key_that_can_verify_nothing_is_refused_by_its_name() {
        // Made by `openssl genrsa 1024 | openssl rsa -pubout`.
        let short = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQC475bVStBPOB4qqQYikiVCUWOTLDk1JTOMx66KzZF0yhG8UkCAdWNBFD2Z//\
            BkcqrzkngcI2pc8krlufu57L+ytq+FsFfh+sIvrlH/hZazW9BwULLjqBFvo+XkeKanRPanqcpJlYqWO\
            gDVgISuTkyiMq5NUaYX4B4rXchi0TsGcwIDAQAB";
        let short = format!("-----BEGIN PUBLIC KEY-----\n{short}\n-----END PUBLIC KEY-----\n");
        let long = RsaKeyPair::generate(KeySize::Rsa2048).expect("the system has randomness");
        let der: PublicKeyX509Der<'_> = long.public_key().as_der().expect("a key has a form");
        let long = public_pem(der.as_ref());
        // The identifier of the curve (RFC 5480), and an uncompressed point that is not on it.
        let no_point = |identifier: &str, coordinates: usize| {
            let identifier = (0..identifier.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&identifier[at..at + 2], 16).expect("hexadecimal"));
            public_pem(&identifier.chain([4]).chain(std::iter::repeat_n(1, coordinates)).collect::<Vec<_>>())
        };
        let p256 = no_point("3059301306072a8648ce3d020106082a8648ce3d030107034200", 64);
        let p521 = no_point("30819b301006072a8648ce3d020106052b8104002303818600", 132);
        for (rsa, ecdsa, expected) in [
            (long.as_str(), "", None),
            (short.as_str(), "", Some("client.token.rsa_public_key: a key of RSA must have")),
            (p256.as_str(), "", Some("client.token.rsa_public_key: expected a public key of RSA")),
            ("", long.as_str(), Some("client.token.ecdsa_public_key: expected a public key of an elliptic curve")),
            ("", p256.as_str(), Some("client.token.ecdsa_public_key: the point")),
            ("", p521.as_str(), Some("client.token.ecdsa_public_key: the point")),
        ] {
            let token =
                TokenSettings { rsa_public_key: rsa.into(), ecdsa_public_key: ecdsa.into(), ..Default::default() };
            let found =
                check_token_keys(&ClientSettings { token, ..Default::default() }).err().map(|error| error.to_string());
            match (&found, expected) {
                (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{found}"),
                _ => assert_eq!(found.as_deref(), expected),
            }
        }
    }

    #[test]
    fn only_who_has_a_secret_is_told_how_secrets_are_written() {
        let pair = EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).expect("the system has randomness");
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("a key has a form");
        let parts = [json!({"alg": "ES512"}), json!({"sub": "u"})].map(|part| base64_url(part.to_string().as_bytes()));
        let of_curve = format!("{}.{}.{}", parts[0], parts[1], base64_url(&[1; 132]));
        let of_curve = with_key(public_pem(der.as_ref())).expect("the key is good").connection(&of_curve, 50).err();
        let of_secret = verifier().connection(&token(Algorithm::HS256, "guess", &json!({"sub": "u"})), 50).err();
        for (error, has_hint) in [(of_curve, false), (of_secret, true)] {
            let Some(TokenError::Invalid(cause)) = error else { panic!("{error:?}") };
            assert!(cause.starts_with("the signature of the token does not match"), "{cause}");
            assert_eq!(cause.contains("base64"), has_hint, "{cause}");
        }
    }

    #[test]
    fn a_token_is_good_only_if_everything_about_it_is() {
        let good = json!({"sub": "u", "aud": ["x", "fans"], "exp": 100});
        let with = |key: &str, value: Value| {
            let mut claims = good.clone();
            claims[key] = value;
            claims
        };
        let hs = |claims: &Value| token(Algorithm::HS256, "secret", claims);
        let with_head = |head: &Value| {
            let claims = hs(&good).split('.').nth(1).unwrap_or_default().to_owned();
            let signed = format!("{}.{claims}", base64_url(head.to_string().as_bytes()));
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"secret");
            format!("{signed}.{}", base64_url(aws_lc_rs::hmac::sign(&key, signed.as_bytes()).as_ref()))
        };
        let none = format!("eyJhbGciOiJub25lIn0.{}.", hs(&good).split('.').nth(1).unwrap_or_default());
        let cases = [
            ("good", hs(&good), Ok("u")),
            ("another algorithm of the same key", token(Algorithm::HS512, "secret", &good), Ok("u")),
            ("a fraction of a second", hs(&with("exp", json!(100.5))), Ok("u")),
            ("expired", hs(&with("exp", json!(50))), Err("Expired")),
            ("not yet", hs(&with("nbf", json!(56))), Err("nbf")),
            ("within leeway", hs(&with("nbf", json!(55))), Ok("u")),
            ("other audience", hs(&with("aud", json!("press"))), Err("aud")),
            ("other secret", token(Algorithm::HS256, "guess", &good), Err("signature")),
            ("alg none", none, Err("not a JWT")),
            (
                "an extension that must be understood",
                with_head(&json!({"alg": "HS256", "crit": ["exp"], "exp": 1})),
                Err("crit"),
            ),
            ("of no extensions", with_head(&json!({"alg": "HS256", "crit": []})), Err("crit")),
            ("and of nothing", with_head(&json!({"alg": "HS256", "crit": null})), Err("crit")),
            (
                "an extension that need not be",
                with_head(&json!({"alg": "HS256", "typ": "JWT", "b64": true, "Crit": ["exp"]})),
                Ok("u"),
            ),
            ("no token", "abc".into(), Err("not a JWT")),
            ("wrong type", hs(&with("sub", json!(7))), Err("a number")),
        ];
        // A verifier that has verified a token knows its header.
        let experienced = || {
            let verifier = verifier();
            assert!(verifier.connection(&hs(&good), 50).is_ok());
            verifier
        };
        for (name, token, expected) in cases {
            for verifier in [verifier(), experienced()] {
                let found = verifier.connection(&token, 50).map(|claims| claims.sub);
                let found = found.as_deref().map_err(|error| match error {
                    TokenError::Expired => "Expired",
                    TokenError::Invalid(cause) => *cause,
                });
                match expected {
                    Ok(sub) => assert_eq!(found, Ok(sub), "{name}"),
                    Err(cause) => assert!(found.is_err_and(|found| found.contains(cause)), "{name}: {found:?}"),
                }
            }
        }
    }
}
