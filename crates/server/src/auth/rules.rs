//! The rules for the claims of a token, and the claims that become the user and the `meta` of a connection.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use touchline_engine::{ClaimPath, TokenError, TokenSettings};

use super::fault::{NO_TOKEN, TokenFault, TokenStage};

/// How far the clock of an issuer may be ahead, in seconds: `nbf` is often the very second of issue.
const LEEWAY_S: u64 = 5;

/// The claims that decide whether a token is valid now, for this server.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct RegisteredClaims {
    exp: Option<f64>,
    nbf: Option<f64>,
    pub(super) aud: Option<Value>,
    pub(super) iss: Option<String>,
}

impl RegisteredClaims {
    /// Reads the claims of a token, whether its signature was checked or not. Without a checked signature they only
    /// show which issuer may have signed it.
    ///
    /// # Errors
    /// When the claims are not JSON, or one of these claims has the wrong type.
    pub(super) fn read(json: &str) -> Result<Self, TokenFault> {
        serde_json::from_str(json).map_err(|error| match error.is_data() {
            true => TokenFault::invalid(TokenStage::Times, "exp or nbf of the token is not a number, or iss not text"),
            false => TokenFault::invalid(TokenStage::Format, NO_TOKEN),
        })
    }

    /// Returns the audiences of the token.
    pub(super) fn audiences(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match &self.aud {
            Some(Value::String(one)) => (Some(one.as_str()), None),
            Some(Value::Array(many)) => (None, Some(many)),
            _ => (None, None),
        };
        one.into_iter().chain(many.into_iter().flatten().filter_map(Value::as_str))
    }

    /// Checks the times of the token.
    ///
    /// # Errors
    /// When the token has expired, or is not valid yet.
    pub(super) fn check_times(&self, now_s: u64) -> Result<(), TokenFault> {
        let now = now_s as f64;
        if self.exp.is_some_and(|exp| exp <= now) {
            return Err(TokenFault { stage: TokenStage::Times, error: TokenError::Expired });
        }
        if self.nbf.is_some_and(|nbf| nbf > now + LEEWAY_S as f64) {
            return Err(TokenFault::invalid(TokenStage::Times, "nbf of the token is in the future"));
        }
        Ok(())
    }
}

/// The rules for the claims of an issuer's tokens.
#[derive(Default)]
pub(super) struct ClaimRules {
    pub(super) audience: String,
    pub(super) audience_regex: Option<Regex>,
    pub(super) issuer: String,
    pub(super) issuer_regex: Option<Regex>,
    /// The mapping of other claims; None = the user is `sub`, and `meta` and `labels` are those of the token.
    mapping: Option<ClaimMapping>,
}

/// Claims with other names that become the user, the meta and the labels.
struct ClaimMapping {
    /// The claim with the user; empty = `sub`.
    user: String,
    meta: Vec<ClaimPath>,
    labels: Vec<ClaimPath>,
}

impl ClaimRules {
    /// Reads the rules from the settings.
    ///
    /// # Errors
    /// The configuration key whose pattern cannot match whole texts.
    pub(super) fn of(settings: &TokenSettings) -> Result<Self, &'static str> {
        let whole = |pattern: &Option<Regex>, key| {
            pattern.as_ref().map(|pattern| Regex::new(&format!("^(?:{pattern})$")).map_err(|_| key)).transpose()
        };
        let paths = [&settings.meta_from_claim.0, &settings.labels_from_claim.0];
        let has_mapping = !settings.user_id_claim.is_empty() || paths.iter().any(|paths| !paths.is_empty());
        Ok(ClaimRules {
            audience: settings.audience.clone(),
            audience_regex: whole(&settings.audience_regex, "audience_regex")?,
            issuer: settings.issuer.clone(),
            issuer_regex: whole(&settings.issuer_regex, "issuer_regex")?,
            mapping: has_mapping.then(|| ClaimMapping {
                user: settings.user_id_claim.clone(),
                meta: settings.meta_from_claim.0.clone(),
                labels: settings.labels_from_claim.0.clone(),
            }),
        })
    }

    /// Whether tokens are limited to an audience.
    pub(super) fn has_audience(&self) -> bool {
        !self.audience.is_empty() || self.audience_regex.is_some()
    }

    /// Whether the claims name the issuer.
    pub(super) fn is_issuer(&self, claims: &RegisteredClaims) -> bool {
        let iss = claims.iss.as_deref();
        (self.issuer.is_empty() || iss == Some(&self.issuer))
            && self.issuer_regex.as_ref().is_none_or(|pattern| iss.is_some_and(|iss| pattern.is_match(iss)))
    }

    /// Whether the claims name the audience.
    pub(super) fn is_audience(&self, claims: &RegisteredClaims) -> bool {
        (self.audience.is_empty() || claims.audiences().any(|aud| aud == self.audience))
            && self
                .audience_regex
                .as_ref()
                .is_none_or(|pattern| claims.audiences().any(|audience| pattern.is_match(audience)))
    }

    /// Returns what a named group of the patterns matches in the claims; None = no pattern has the group, or none
    /// matches.
    pub(super) fn group(&self, name: &str, claims: &RegisteredClaims) -> Option<String> {
        let captured = |pattern: &Regex, text: &str| Some(pattern.captures(text)?.name(name)?.as_str().to_owned());
        let issuer = self.issuer_regex.as_ref().zip(claims.iss.as_deref());
        let of_issuer = issuer.and_then(|(pattern, iss)| captured(pattern, iss));
        of_issuer.or_else(|| {
            let pattern = self.audience_regex.as_ref()?;
            claims.audiences().find_map(|audience| captured(pattern, audience))
        })
    }

    /// Checks the issuer and the audience in the claims.
    ///
    /// # Errors
    /// The first claim that does not match.
    pub(super) fn check_names(&self, claims: &RegisteredClaims) -> Result<(), TokenFault> {
        if !self.is_issuer(claims) {
            let cause = "iss of the token is not the configured issuer";
            return Err(TokenFault::invalid(TokenStage::Issuer, cause));
        }
        if !self.is_audience(claims) {
            let cause = "aud of the token does not name the configured audience";
            return Err(TokenFault::invalid(TokenStage::Audience, cause));
        }
        Ok(())
    }

    /// Returns the claims in the shape that the engine expects.
    ///
    /// # Errors
    /// When the claim with the user is missing, or a claim has the wrong type.
    pub(super) fn shape<T: DeserializeOwned>(&self, json: &str) -> Result<T, TokenFault> {
        let Some(mapping) = &self.mapping else { return read(json) };
        let misshapen = |cause| TokenFault::invalid(TokenStage::Claims, cause);
        let mut claims: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(json).map_err(|_| misshapen("the claims of the token are not a JSON object"))?;
        if !mapping.user.is_empty() {
            let user = claims.get(&mapping.user).and_then(|claim| user_of(claim));
            let user = user.ok_or(misshapen("the token lacks the claim of user_id_claim, or it names no user"))?;
            let user = to_raw_value(&user).map_err(|_| misshapen("the user cannot be written as JSON"))?;
            claims.insert("sub".to_owned(), user);
        }
        map_into("meta", &mapping.meta, |value| value, &mut claims);
        map_into("labels", &mapping.labels, label, &mut claims);
        let json = to_raw_value(&claims).map_err(|_| misshapen("the claims cannot be written as JSON"))?;
        read(json.get())
    }
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, TokenFault> {
    serde_json::from_str(json).map_err(|_| TokenFault::invalid(TokenStage::Claims, misshapen(json)))
}

const OTHER_TYPE: &str = "a claim of the token, or a part of it, has another type than it must have";
/// The name of a claim, whether a value has its type, and the text about another type.
type ClaimType = (&'static str, fn(&Value) -> bool, &'static str);
/// The types of claims, and what a refusal says of another type.
const CLAIM_TYPES: [ClaimType; 11] = [
    ("channels", Value::is_array, "channels of the token is not a list of texts"),
    ("subs", Value::is_object, "subs of the token is not an object with channels as keys"),
    ("caps", Value::is_array, "caps of the token is not a list of objects"),
    ("allow", Value::is_array, "allow of the token is not a list of texts"),
    ("names", Value::is_array, "names of the token is not a list of objects"),
    ("groups", Value::is_array, "groups of the token is not a list of objects"),
    ("register", Value::is_object, "register of the token is not an object of lists"),
    ("labels", Value::is_object, "labels of the token is not an object of texts"),
    ("override", Value::is_object, "override of the token is not an object"),
    ("channel", Value::is_string, "channel of the token is not text"),
    ("expire_at", Value::is_number, "expire_at of the token is not a number"),
];

/// Says what is wrong with claims of the wrong shape.
fn misshapen(claims: &str) -> &'static str {
    match serde_json::from_str::<Value>(claims) {
        Ok(claims) if claims["sub"].is_number() => "sub of the token is a number: write the user's id as text",
        Ok(claims) if !claims["sub"].is_string() && !claims["sub"].is_null() => "sub of the token is not text",
        Ok(claims) => {
            let is_wrong =
                |name: &str, is_right: fn(&Value) -> bool| !claims[name].is_null() && !is_right(&claims[name]);
            let wrong = CLAIM_TYPES.iter().find(|(name, is_right, _)| is_wrong(name, *is_right));
            wrong.map_or(OTHER_TYPE, |(_, _, text)| text)
        }
        Err(_) => OTHER_TYPE,
    }
}

/// Returns the user that a claim names: a text that is not empty, or a number.
fn user_of(claim: &RawValue) -> Option<String> {
    match serde_json::from_str(claim.get()).ok()? {
        Value::String(user) => Some(user).filter(|user| !user.is_empty()),
        // The number stays as it was written, because it may have more digits than any type can store.
        Value::Number(_) => Some(claim.get().to_owned()),
        _ => None,
    }
}

/// Returns a claim as a label: a text unchanged, all else as JSON.
fn label(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(text),
        other => Value::String(other.to_string()),
    }
}

/// Writes claims into the claim of this name, which is an object. They replace what the token contains there.
fn map_into(name: &str, paths: &[ClaimPath], form: fn(Value) -> Value, claims: &mut BTreeMap<String, Box<RawValue>>) {
    let object = claims.get(name).map(|claim| serde_json::from_str::<Value>(claim.get()));
    let mut object = match object {
        None | Some(Ok(Value::Null)) => Map::new(),
        Some(Ok(Value::Object(object))) => object,
        // The engine refuses this claim.
        Some(_) => return,
    };
    let found: Vec<(&ClaimPath, Value)> =
        paths.iter().filter_map(|path| Some((path, at(claims, &path.value)?))).collect();
    if found.is_empty() {
        return;
    }
    object.extend(found.into_iter().map(|(path, value)| (path.key.clone(), form(value))));
    if let Ok(object) = to_raw_value(&object) {
        claims.insert(name.to_owned(), object);
    }
}

/// Returns the claim at a path with dots; None = the claim does not exist.
fn at(claims: &BTreeMap<String, Box<RawValue>>, path: &str) -> Option<Value> {
    let mut names = path.split('.');
    let claim = serde_json::from_str::<Value>(claims.get(names.next()?)?.get()).ok()?;
    names.try_fold(&claim, |value, name| value.get(name)).cloned()
}
