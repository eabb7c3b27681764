//! Verifies JSON Web Tokens (RFC 7519) and the key of the server API.

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use touchline_engine::claims::decode_base64;
use touchline_engine::{ClientSettings, ConnectionClaims, SubscriptionClaims, TokenError, TokenSettings, Verifier};

/// Clocks of token makers may be this far ahead, seconds: `nbf` is often the very second of making.
const LEEWAY_S: u64 = 5;

/// The keys of one kind of token.
struct Keys {
    keys: Vec<(Validation, DecodingKey)>,
    audience: String,
    issuer: String,
}

/// Claims that say whether a token is good now, for us.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Registered {
    exp: Option<f64>,
    nbf: Option<f64>,
    aud: Option<Value>,
    iss: Option<String>,
}

impl Keys {
    fn new(settings: &TokenSettings) -> Result<Self, jsonwebtoken::errors::Error> {
        use Algorithm::{ES256, ES384, HS256, HS384, HS512, RS256, RS384, RS512};
        let mut keys = Vec::new();
        if !settings.hmac_secret_key.is_empty() {
            let key = DecodingKey::from_secret(settings.hmac_secret_key.as_bytes());
            keys.push((validation(&[HS256, HS384, HS512]), key));
        }
        if !settings.rsa_public_key.is_empty() {
            keys.push((validation(&[RS256, RS384, RS512]), DecodingKey::from_rsa_pem(settings.rsa_public_key.as_bytes())?));
        }
        if !settings.ecdsa_public_key.is_empty() {
            keys.push((validation(&[ES256, ES384]), DecodingKey::from_ec_pem(settings.ecdsa_public_key.as_bytes())?));
        }
        Ok(Keys { keys, audience: settings.audience.clone(), issuer: settings.issuer.clone() })
    }

    fn verify<T: DeserializeOwned>(&self, token: &str, now_s: u64) -> Result<T, TokenError> {
        if has_critical(token)? {
            return Err(TokenError::Invalid);
        }
        let good = self.keys.iter().find_map(|(rules, key)| jsonwebtoken::decode::<Box<RawValue>>(token, key, rules).ok());
        let json = good.ok_or(TokenError::Invalid)?.claims;
        let registered: Registered = serde_json::from_str(json.get()).map_err(|_| TokenError::Invalid)?;
        let now = now_s as f64;
        if registered.exp.is_some_and(|exp| exp <= now) {
            return Err(TokenError::Expired);
        }
        let is_early = registered.nbf.is_some_and(|nbf| nbf > now + LEEWAY_S as f64);
        let is_for_us = self.audience.is_empty() || registered.aud.is_some_and(|aud| names(&aud, &self.audience));
        let is_from_us = self.issuer.is_empty() || registered.iss.as_deref() == Some(&self.issuer);
        if is_early || !is_for_us || !is_from_us {
            return Err(TokenError::Invalid);
        }
        serde_json::from_str(json.get()).map_err(|_| TokenError::Invalid)
    }
}

/// Whether the header names extensions that must be understood (`crit`): we know none, so the token has to be refused (RFC 7515, 4.1.11).
///
/// # Errors
/// [`TokenError::Invalid`] when there is no header.
fn has_critical(token: &str) -> Result<bool, TokenError> {
    /// There, whatever its value.
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
    let head = token.split('.').next().and_then(decode_base64).ok_or(TokenError::Invalid)?;
    let head: Head = serde_json::from_slice(&head).map_err(|_| TokenError::Invalid)?;
    Ok(head.crit.0)
}

/// Only the signature is the library's to check: times are judged by the node's clock.
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

/// Verifies connection and subscription tokens by the configured keys.
pub(crate) struct TokenVerifier {
    connection: Keys,
    subscription: Keys,
}

impl TokenVerifier {
    /// # Errors
    /// When a configured public key is no PEM of its kind.
    pub(crate) fn new(settings: &ClientSettings) -> Result<Self, jsonwebtoken::errors::Error> {
        let own = &settings.subscription_token;
        let subscription = if own.enabled { Keys::new(&own.keys())? } else { Keys::new(&settings.token)? };
        Ok(TokenVerifier { connection: Keys::new(&settings.token)?, subscription })
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

/// Compares secrets in a time that does not tell where they differ.
pub(crate) fn is_same_secret(shown: &[u8], secret: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(shown, secret).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
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
            ("expired", hs(&with("exp", json!(50))), Err(TokenError::Expired)),
            ("not yet", hs(&with("nbf", json!(56))), Err(TokenError::Invalid)),
            ("within leeway", hs(&with("nbf", json!(55))), Ok("u")),
            ("other audience", hs(&with("aud", json!("press"))), Err(TokenError::Invalid)),
            ("other secret", token(Algorithm::HS256, "guess", &good), Err(TokenError::Invalid)),
            ("alg none", none, Err(TokenError::Invalid)),
            (
                "an extension that must be understood",
                with_head(&json!({"alg": "HS256", "crit": ["exp"], "exp": 1})),
                Err(TokenError::Invalid),
            ),
            ("of no extensions", with_head(&json!({"alg": "HS256", "crit": []})), Err(TokenError::Invalid)),
            ("and of nothing", with_head(&json!({"alg": "HS256", "crit": null})), Err(TokenError::Invalid)),
            ("an extension that need not be", with_head(&json!({"alg": "HS256", "typ": "JWT", "b64": true, "Crit": ["exp"]})), Ok("u")),
            ("no token", "abc".into(), Err(TokenError::Invalid)),
            ("wrong type", hs(&with("sub", json!(7))), Err(TokenError::Invalid)),
        ];
        for (name, token, expected) in cases {
            let found = verifier().connection(&token, 50).map(|claims| claims.sub);
            assert_eq!(found.as_deref().map_err(|e| *e), expected, "{name}");
        }
    }
}
