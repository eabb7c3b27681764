//! An issuer of tokens: its keys, configured or fetched, and the rules for the claims of its tokens.

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;
use touchline_config::{ClientTlsSettings, inline_pem};
use touchline_engine::TokenSettings;

use super::fault::{NO_TOKEN, TokenFault, TokenStage};
use super::key::{Unsigned, VerificationKey};
use super::key_set::{EndpointRow, KeySet, KeySets};
use super::rules::{ClaimRules, RegisteredClaims};
use super::template;
use super::token::{Token, TokenHeader};
use crate::start_error::StartError;
use crate::tls::read_pem;

/// An issuer with its keys and rules.
pub(super) struct Issuer {
    pub(super) keys: KeySource,
    pub(super) rules: ClaimRules,
}

/// Where the keys of an issuer come from.
pub(super) enum KeySource {
    /// The keys are in the configuration.
    Written(Vec<VerificationKey>),
    /// The keys are at an endpoint.
    Fetched(FetchedSource),
}

/// The key sets of an endpoint: one, or one for each address that the endpoint stands for.
pub(super) struct FetchedSource {
    /// The named groups whose values choose the set.
    groups: Vec<String>,
    sets: HashMap<Vec<String>, Arc<KeySet>>,
}

/// The place of an issuer's settings in the configuration.
pub(super) struct IssuerPlace<'a> {
    /// The section of the settings.
    pub(super) section: &'a str,
    /// The configuration key of the endpoint.
    pub(super) endpoint: &'static str,
    /// The section of the `tls` settings.
    pub(super) tls_section: &'a str,
    pub(super) tls: &'a ClientTlsSettings,
}

impl Issuer {
    /// Makes the issuer of these settings.
    ///
    /// # Errors
    /// When none of its keys could verify a token.
    pub(super) fn new(
        settings: &TokenSettings,
        place: &IssuerPlace<'_>,
        sets: &mut KeySets,
    ) -> Result<Self, StartError> {
        let unusable = |name: &'static str, reason: &'static str| StartError::Key {
            section: place.section.to_owned(),
            name,
            reason,
        };
        let rules = ClaimRules::of(settings).map_err(|name| {
            unusable(name, "cannot be used as a pattern for the whole text (does it contain a comment?)")
        })?;
        let keys = if settings.jwks_public_endpoint.is_empty() {
            KeySource::Written(written_keys(settings, place.section)?)
        } else {
            KeySource::Fetched(FetchedSource::new(settings, place, sets)?)
        };
        Ok(Issuer { keys, rules })
    }

    /// Checks that a key of the issuer has signed a token.
    ///
    /// # Errors
    /// Why no key has signed the token, or why this is unknown yet.
    pub(super) fn check_signature(
        &self,
        token: &Token<'_>,
        header: &TokenHeader,
        now_s: u64,
    ) -> Result<(), TokenFault> {
        match &self.keys {
            KeySource::Written(keys) => check_written(keys, token, header, now_s),
            KeySource::Fetched(source) => source.check(token, header, &self.rules),
        }
    }
}

/// Reads the keys in the settings.
///
/// # Errors
/// The key that cannot be read, or cannot verify anything.
fn written_keys(settings: &TokenSettings, section: &str) -> Result<Vec<VerificationKey>, StartError> {
    let mut keys = Vec::new();
    let secrets: [(&'static str, &str); 2] = [
        ("hmac_secret_key", &settings.hmac_secret_key),
        ("hmac_previous_secret_key", &settings.hmac_previous_secret_key),
    ];
    if let Some((name, _)) = secrets.into_iter().find(|(_, secret)| is_public(secret)) {
        let reason = "is a public key, so everybody who knows it could sign tokens: \
                      write it as rsa_public_key, ecdsa_public_key or eddsa_public_key";
        return Err(StartError::Key { section: section.to_owned(), name, reason });
    }
    if !settings.hmac_secret_key.is_empty() {
        keys.push(VerificationKey::secret(&settings.hmac_secret_key, 0));
    }
    if !settings.hmac_previous_secret_key.is_empty() {
        let until_s = settings.hmac_previous_secret_key_valid_until;
        keys.push(VerificationKey::secret(&settings.hmac_previous_secret_key, until_s));
    }
    type Read = fn(&[u8]) -> Result<VerificationKey, &'static str>;
    let public: [(&'static str, &str, Read); 3] = [
        ("rsa_public_key", &settings.rsa_public_key, VerificationKey::rsa_pem),
        ("ecdsa_public_key", &settings.ecdsa_public_key, VerificationKey::elliptic_pem),
        ("eddsa_public_key", &settings.eddsa_public_key, VerificationKey::edwards_pem),
    ];
    for (name, value, parse) in public.into_iter().filter(|(_, value, _)| !value.is_empty()) {
        let pem = read_pem(&format!("{section}.{name}"), value)?;
        let unusable = |reason: &'static str| StartError::Key { section: section.to_owned(), name, reason };
        keys.push(parse(pem.as_bytes()).map_err(unusable)?);
    }
    Ok(keys)
}

/// Whether a text is a public key or a certificate in PEM, or base64 of it.
fn is_public(secret: &str) -> bool {
    let pem = inline_pem(secret).unwrap_or_default();
    let pem = String::from_utf8_lossy(&pem);
    pem.contains("PUBLIC KEY-----") || pem.contains("-----BEGIN CERTIFICATE-----")
}

fn check_written(
    keys: &[VerificationKey],
    token: &Token<'_>,
    header: &TokenHeader,
    now_s: u64,
) -> Result<(), TokenFault> {
    let mut fault = if keys.is_empty() {
        TokenFault::invalid(TokenStage::Key, "no key for tokens is configured")
    } else {
        TokenFault::invalid(TokenStage::Algorithm, "alg of the token fits no configured key")
    };
    for key in keys {
        match key.verify(token, header.algorithm) {
            Ok(()) if key.counts_at(now_s) => return Ok(()),
            Ok(()) => {
                let cause = "the token is signed by hmac_previous_secret_key, whose time \
                             (hmac_previous_secret_key_valid_until) is over";
                return Err(TokenFault::invalid(TokenStage::Signature, cause));
            }
            Err(Unsigned::OtherAlgorithm) => {}
            Err(Unsigned::OtherKey) => {
                let cause = if key.is_secret() {
                    "the signature of the token does not match the configured key \
                     (a secret is used as text, not as base64)"
                } else {
                    "the signature of the token does not match the configured key"
                };
                fault = TokenFault::invalid(TokenStage::Signature, cause);
            }
            Err(Unsigned::NoToken) => fault = TokenFault::invalid(TokenStage::Signature, NO_TOKEN),
        }
    }
    Err(fault)
}

impl FetchedSource {
    fn new(settings: &TokenSettings, place: &IssuerPlace<'_>, sets: &mut KeySets) -> Result<Self, StartError> {
        let endpoint = &settings.jwks_public_endpoint;
        let row = EndpointRow {
            section: place.section,
            name: place.endpoint,
            tls_section: place.tls_section,
            tls: place.tls,
            may_be_plain: settings.insecure_skip_jwks_endpoint_safety_check,
        };
        let unusable =
            |reason: &'static str| StartError::Key { section: place.section.to_owned(), name: place.endpoint, reason };
        let patterns: Vec<&Regex> = [&settings.issuer_regex, &settings.audience_regex].into_iter().flatten().collect();
        let groups = template::names_of(endpoint).map_err(unusable)?;
        let addresses = template::addresses(endpoint, &groups, &patterns).map_err(unusable)?;
        let sets = addresses.into_iter().map(|(values, address)| Ok((values, sets.add(&address, &row)?)));
        Ok(FetchedSource { groups, sets: sets.collect::<Result<_, StartError>>()? })
    }

    fn check(&self, token: &Token<'_>, header: &TokenHeader, rules: &ClaimRules) -> Result<(), TokenFault> {
        let Some(kid) = header.kid.as_deref() else {
            return Err(TokenFault::invalid(TokenStage::Key, "the header of the token has no kid"));
        };
        let set = self.set_of(token, rules)?;
        let found =
            set.find(kid).ok_or(TokenFault::unavailable("the keys of the token's issuer could not be fetched yet"))?;
        let (mut fault, mut pending) = (
            TokenFault::invalid(TokenStage::Key, "no key of the token's issuer has the kid of the token"),
            "no key of the token's issuer has the kid of the token: it is asked",
        );
        for key in found.keys() {
            let (stage, cause) = match key.verify(token, header.algorithm) {
                Ok(()) => return Ok(()),
                Err(Unsigned::OtherAlgorithm) => {
                    (TokenStage::Algorithm, "alg of the token does not fit the key of its kid")
                }
                Err(Unsigned::OtherKey) => {
                    (TokenStage::Signature, "the signature of the token does not match the key of its kid")
                }
                Err(Unsigned::NoToken) => return Err(TokenFault::invalid(TokenStage::Signature, NO_TOKEN)),
            };
            fault = TokenFault::invalid(stage, cause);
            pending = "the key of the token's kid has not signed it: its issuer is asked for a newer one";
        }
        if set.was_asked_since_shown(&found, token.text) { Err(fault) } else { Err(TokenFault::unavailable(pending)) }
    }

    /// Returns the set with the key of a token. If there are several sets, the unverified claims choose one, and only a
    /// key of that set counts.
    fn set_of(&self, token: &Token<'_>, rules: &ClaimRules) -> Result<&Arc<KeySet>, TokenFault> {
        let none = TokenFault::invalid(TokenStage::Key, "iss or aud of the token names no endpoint of keys");
        if self.groups.is_empty() {
            return self.sets.get(&[][..]).ok_or(none);
        }
        let claims = RegisteredClaims::read(&token.claims()?).map_err(|fault| fault.at(TokenStage::Key))?;
        rules.check_names(&claims).map_err(|fault| fault.at(TokenStage::Key))?;
        let value = |name: &String| rules.group(name, &claims);
        let values = self.groups.iter().map(value).collect::<Option<Vec<_>>>();
        values.and_then(|values| self.sets.get(&values)).ok_or(none)
    }
}
