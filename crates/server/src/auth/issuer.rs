//! An issuer of tokens: its keys, written in the configuration or fetched, and what its tokens must say.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_config::ClientTlsSettings;
use touchline_engine::TokenSettings;
use touchline_engine::base64_text::decode_base64;

use super::fault::{NO_TOKEN, TokenFault, TokenStage};
use super::key::{Unsigned, VerificationKey};
use super::key_set::{EndpointRow, KeySet, KeySets, Lookup};
use super::rules::{ClaimRules, RegisteredClaims};
use super::template;
use crate::start_error::StartError;
use crate::tls::read_pem;

/// An issuer.
pub(super) struct Issuer {
    pub(super) keys: KeySource,
    pub(super) rules: ClaimRules,
}

/// Where its keys are.
pub(super) enum KeySource {
    /// In the configuration.
    Written(Vec<VerificationKey>),
    /// At an endpoint.
    Fetched(FetchedSource),
}

/// The sets of an endpoint: one, or one for each of the addresses that it stands for.
pub(super) struct FetchedSource {
    /// The groups whose values choose the set.
    groups: Vec<String>,
    sets: HashMap<Vec<String>, Arc<KeySet>>,
}

/// Where the settings of an issuer are.
pub(super) struct IssuerPlace<'a> {
    /// Their section.
    pub(super) section: &'a str,
    /// The key of the endpoint.
    pub(super) endpoint: &'static str,
    /// The section of `tls`.
    pub(super) tls_section: &'a str,
    pub(super) tls: &'a ClientTlsSettings,
}

impl Issuer {
    /// The issuer of these settings.
    ///
    /// # Errors
    /// When no token could be verified by a key of theirs.
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
        let rules = ClaimRules::of(settings)
            .map_err(|name| unusable(name, "cannot be used as a pattern of the whole text (a comment in it?)"))?;
        let keys = if settings.jwks_public_endpoint.is_empty() {
            KeySource::Written(written_keys(settings, place.section)?)
        } else {
            KeySource::Fetched(FetchedSource::new(settings, place, sets)?)
        };
        Ok(Issuer { keys, rules })
    }

    /// The claims, if a key of the issuer has signed them.
    pub(super) fn signed(&self, token: &str, now_s: u64) -> Result<Box<RawValue>, TokenFault> {
        match &self.keys {
            KeySource::Written(keys) => signed_by_written(keys, token, now_s),
            KeySource::Fetched(source) => source.signed(token, &self.rules),
        }
    }
}

/// The keys that are written in settings.
///
/// # Errors
/// The key that cannot be read, or can verify nothing.
fn written_keys(settings: &TokenSettings, section: &str) -> Result<Vec<VerificationKey>, StartError> {
    let mut keys = Vec::new();
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

fn signed_by_written(keys: &[VerificationKey], token: &str, now_s: u64) -> Result<Box<RawValue>, TokenFault> {
    let mut fault = if keys.is_empty() {
        TokenFault::invalid(TokenStage::Key, "no key for tokens is configured")
    } else {
        TokenFault::invalid(TokenStage::Algorithm, "alg of the token fits no configured key")
    };
    for key in keys.iter().filter(|key| key.counts_at(now_s)) {
        match key.claims(token) {
            Ok(claims) => return Ok(claims),
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
            Err(Unsigned::NoToken) => fault = TokenFault::invalid(TokenStage::Format, NO_TOKEN),
        }
    }
    Err(fault)
}

/// The part of a token's header that names its key.
#[derive(Deserialize)]
struct KeyHeader<'a> {
    #[serde(borrow, default)]
    kid: Cow<'a, str>,
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

    fn signed(&self, token: &str, rules: &ClaimRules) -> Result<Box<RawValue>, TokenFault> {
        let no_token = TokenFault::invalid(TokenStage::Format, NO_TOKEN);
        let head = token.split_once('.').and_then(|(head, _)| decode_base64(head)).ok_or(no_token)?;
        let head: KeyHeader<'_> = serde_json::from_slice(&head).map_err(|_| no_token)?;
        if head.kid.is_empty() {
            return Err(TokenFault::invalid(TokenStage::Key, "the header of the token has no kid"));
        }
        let keys = match self.set_of(token, rules)?.find(&head.kid) {
            Lookup::Known(keys) => keys,
            Lookup::Missing => {
                let cause = "no key of the token's issuer has the kid of the token";
                return Err(TokenFault::invalid(TokenStage::Key, cause));
            }
            Lookup::Unavailable(cause) => return Err(TokenFault::unavailable(cause)),
        };
        let mut fault = TokenFault::invalid(TokenStage::Algorithm, "alg of the token does not fit the key of its kid");
        for key in keys {
            match key.claims(token) {
                Ok(claims) => return Ok(claims),
                Err(Unsigned::OtherAlgorithm) => {}
                Err(Unsigned::OtherKey) => {
                    let cause = "the signature of the token does not match the key of its kid";
                    fault = TokenFault::invalid(TokenStage::Signature, cause);
                }
                Err(Unsigned::NoToken) => fault = no_token,
            }
        }
        Err(fault)
    }

    /// The set of the keys of a token. Where there are several, the claims choose it, before anybody knows who has
    /// signed them: then only the key of that set counts.
    fn set_of(&self, token: &str, rules: &ClaimRules) -> Result<&Arc<KeySet>, TokenFault> {
        let none = TokenFault::invalid(TokenStage::Issuer, "iss or aud of the token names no endpoint of keys");
        if self.groups.is_empty() {
            return self.sets.get(&[][..]).ok_or(none);
        }
        let claims = RegisteredClaims::of_unverified(token)?;
        rules.check_names(&claims)?;
        let value = |name: &String| rules.group(name, &claims);
        let values = self.groups.iter().map(value).collect::<Option<Vec<_>>>();
        values.and_then(|values| self.sets.get(&values)).ok_or(none)
    }
}
