//! An issuer of tokens: keys of every kind, its key set, and the tokens that it signs.

use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::backend::{Answer, Backend};

/// A key with its name.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pair: Pair,
}

enum Pair {
    Rsa(Box<RsaKeyPair>),
    /// The name of the algorithm, the name of the curve, and the key.
    Elliptic(&'static str, &'static str, EcdsaKeyPair),
    Edwards(Ed25519KeyPair),
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    fn of(kid: &str, pair: Pair) -> Self {
        Signer { kid: kid.to_owned(), pair }
    }

    pub(crate) fn rsa(kid: &str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("the system has randomness");
        Signer::of(kid, Pair::Rsa(Box::new(pair)))
    }

    /// A key for the curve of ES256, ES384 or ES512.
    pub(crate) fn elliptic(kid: &str, alg: &'static str) -> Self {
        let (curve, algorithm) = match alg {
            "ES256" => ("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => ("P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
            _ => ("P-521", &ECDSA_P521_SHA512_FIXED_SIGNING),
        };
        let pair = EcdsaKeyPair::generate(algorithm).expect("the system has randomness");
        Signer::of(kid, Pair::Elliptic(alg, curve, pair))
    }

    pub(crate) fn edwards(kid: &str) -> Self {
        Signer::of(kid, Pair::Edwards(Ed25519KeyPair::generate().expect("the system has randomness")))
    }

    /// The public key as it is in a key set, without `use` and `alg`.
    pub(crate) fn jwk(&self) -> Value {
        let kid = &self.kid;
        match &self.pair {
            Pair::Rsa(pair) => {
                let parts = PublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({"kty": "RSA", "kid": kid, "n": base64(&parts.n), "e": base64(&parts.e)})
            }
            Pair::Elliptic(_, curve, pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at((pair.public_key().as_ref().len() - 1) / 2);
                json!({"kty": "EC", "kid": kid, "crv": curve, "x": base64(x), "y": base64(y)})
            }
            Pair::Edwards(pair) => {
                json!({"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": base64(pair.public_key())})
            }
        }
    }

    /// The algorithms that the key can sign with.
    pub(crate) fn algorithms(&self) -> Vec<&'static str> {
        match &self.pair {
            Pair::Rsa(_) => vec!["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
            Pair::Elliptic(alg, ..) => vec![alg],
            Pair::Edwards(_) => vec!["EdDSA"],
        }
    }

    /// A token signed by the first algorithm of the key.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_by(self.algorithms()[0], claims)
    }

    /// A token signed by an algorithm of the key.
    pub(crate) fn token_by(&self, alg: &str, claims: &Value) -> String {
        self.token_with(&json!({"alg": alg, "kid": self.kid, "typ": "JWT"}), alg, claims)
    }

    /// A token with this header, signed by an algorithm of the key.
    pub(crate) fn token_with(&self, header: &Value, alg: &str, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match alg {
                    "RS256" => &RSA_PKCS1_SHA256,
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    _ => &RSA_PSS_SHA512,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, signed.as_bytes(), &mut signature).expect("keys sign");
                signature
            }
            Pair::Elliptic(.., pair) => pair.sign(&random, signed.as_bytes()).expect("keys sign").as_ref().to_vec(),
            Pair::Edwards(pair) => pair.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", base64(signature))
    }
}

/// A token with this header, signed with a shared secret.
pub(crate) fn hmac_token(header: &Value, secret: &[u8], claims: &Value) -> String {
    let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
    format!("{signed}.{}", base64(aws_lc_rs::hmac::sign(&key, signed.as_bytes())))
}

/// An endpoint of keys whose answer can be changed.
pub(crate) struct KeyEndpoint {
    backend: Backend,
    answer: Arc<Mutex<Box<dyn Fn() -> Answer + Send>>>,
}

impl KeyEndpoint {
    /// Makes an endpoint that answers with these keys.
    pub(crate) fn with(keys: Vec<Value>) -> Self {
        let answer: Arc<Mutex<Box<dyn Fn() -> Answer + Send>>> =
            Arc::new(Mutex::new(Box::new(move || Answer::Json(json!({"keys": keys})))));
        let given = Arc::clone(&answer);
        let backend = Backend::start(move |_| (given.lock().expect("no thread panics with it"))());
        KeyEndpoint { backend, answer }
    }

    /// Sets the answer from now on.
    pub(crate) fn answer(&self, answer: impl Fn() -> Answer + Send + 'static) {
        *self.answer.lock().expect("no thread panics with it") = Box::new(answer);
    }

    /// Sets the keys that it answers with from now on.
    pub(crate) fn keys(&self, keys: Vec<Value>) {
        self.answer(move || Answer::Json(json!({"keys": keys})));
    }

    pub(crate) fn url(&self) -> String {
        self.backend.url("/keys")
    }

    /// How many requests it has received.
    pub(crate) fn fetches(&self) -> usize {
        self.backend.questions().len()
    }

    /// The paths of the requests that it has received.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.backend.questions().into_iter().map(|question| question.path).collect()
    }
}
