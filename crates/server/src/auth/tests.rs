//! Tokens of every algorithm, and everything that can be wrong with them.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use touchline_engine::{ClientSettings, TokenError, TokenSettings, Verifier};

use super::*;
use crate::start_error::StartError;

fn verifier() -> TokenVerifier {
    let token = TokenSettings { hmac_secret_key: "secret".into(), audience: "fans".into(), ..Default::default() };
    verifier_of(token).expect("keys are good")
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
    verifier_of(token)
}

fn verifier_of(token: TokenSettings) -> Result<TokenVerifier, StartError> {
    TokenVerifier::new(&ClientSettings { token, ..Default::default() }, &mut KeySets::default())
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
    for other_form in [format!("{}==", sign("ES512")), sign("ES512").replace(['-', '_'], "/")] {
        assert!(matches!(verifier.connection(&other_form, 50), Err(TokenError::Invalid(_))), "one base64 for all");
    }
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
        let token = TokenSettings { rsa_public_key: rsa.into(), ecdsa_public_key: ecdsa.into(), ..Default::default() };
        let found =
            check_token_keys(&ClientSettings { token, ..Default::default() }).err().map(|error| error.to_string());
        match (&found, expected) {
            (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{found}"),
            _ => assert_eq!(found.as_deref(), expected),
        }
    }
}

#[test]
fn a_public_key_is_no_secret() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("the system has randomness");
    let der: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("a key has a form");
    let pem = public_pem(der.as_ref());
    for secret in [pem.clone(), STANDARD.encode(&pem)] {
        for (now, before, name) in
            [(secret.as_str(), "", "hmac_secret_key"), ("a secret", secret.as_str(), "hmac_previous_secret_key")]
        {
            let token = TokenSettings {
                hmac_secret_key: now.into(),
                hmac_previous_secret_key: before.into(),
                ..Default::default()
            };
            let error = verifier_of(token).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.starts_with(&format!("client.token.{name}: is a public key")), "{error}");
        }
    }
}

#[test]
fn a_token_of_the_secret_before_is_told_that_its_time_is_over() {
    let token_of_before = token(Algorithm::HS384, "before", &json!({"sub": "u"}));
    let settings = |until_s| TokenSettings {
        hmac_secret_key: "secret".into(),
        hmac_previous_secret_key: "before".into(),
        hmac_previous_secret_key_valid_until: until_s,
        ..Default::default()
    };
    let told = |until_s| verifier_of(settings(until_s)).expect("keys are good").connection(&token_of_before, 50);
    assert!(told(0).is_ok() && told(50).is_ok());
    assert!(matches!(told(49), Err(TokenError::Invalid(cause)) if cause.contains("is over")));
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
        ("alg none", none, Err("alg of the token is none of")),
        ("a list as a header", format!("{}.{}.", base64_url(br#"["HS256"]"#), base64_url(b"{}")), Err("not a JWT")),
        ("padding", format!("{}=", hs(&good)), Err("not a JWT")),
        ("four parts", format!("{}.x", hs(&good)), Err("not a JWT")),
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
    // A verifier that has already verified a token knows its header.
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
                TokenError::Invalid(cause) | TokenError::Unavailable(cause) => *cause,
            });
            match expected {
                Ok(sub) => assert_eq!(found, Ok(sub), "{name}"),
                Err(cause) => assert!(found.is_err_and(|found| found.contains(cause)), "{name}: {found:?}"),
            }
        }
    }
}
