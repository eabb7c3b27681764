//! The claims of tokens. The server verifies tokens, which needs cryptography. This crate decides what follows from
//! their claims.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use touchline_protocol::data::{is_plain_text, nullable, object, object_list, object_map, object_or_default};
use touchline_protocol::fact::is_name;

use crate::bans::ShownToken;
use crate::base64_text::Base64Payload;
use crate::caps::CapsEntry;

/// The greatest number of labels of a connection.
const LABELS_MAX: usize = 32;
/// The greatest size of a connection's label keys and texts together, bytes.
const LABELS_SIZE_MAX: usize = 4_096;

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token's `exp` has passed: the client should get a new token.
    #[error("token expired")]
    Expired,
    /// Bad signature, algorithm, audience, issuer or shape, or not valid yet. The fixed text says which, for logs.
    #[error("token invalid: {0}")]
    Invalid(&'static str),
    /// The token cannot be verified yet: the key that it needs is being loaded, or its source fails. The fixed text
    /// says which, for logs. The same token may be accepted in a moment.
    #[error("token not verified: {0}")]
    Unavailable(&'static str),
}

/// Verifies tokens. The time is an argument, so a verifier is a function of its input.
pub trait Verifier {
    /// Verifies a connection token.
    ///
    /// # Errors
    /// See [`TokenError`].
    fn connection(&self, token: &str, now_s: u64) -> Result<ConnectionClaims, TokenError>;

    /// Verifies a subscription token.
    ///
    /// # Errors
    /// See [`TokenError`].
    fn subscription(&self, token: &str, now_s: u64) -> Result<SubscriptionClaims, TokenError>;
}

/// Verifies a connection token, and checks that it is not a subscription token.
///
/// # Errors
/// See [`TokenError`]. [`TokenError::Invalid`] also for a subscription token (permission for one channel must not give
/// a connection), and for a user or a token id that no ban could name.
pub fn connection_claims(verifier: &dyn Verifier, token: &str, now_s: u64) -> Result<ConnectionClaims, TokenError> {
    let claims = verifier.connection(token, now_s)?;
    let is_for_a_channel = claims.channel.as_ref().is_some_and(|channel| !channel.is_empty());
    if is_for_a_channel {
        return Err(TokenError::Invalid("a subscription token was sent where a connection token is needed"));
    }
    if !claims.sub.is_empty() && !is_name(&claims.sub) {
        return Err(TokenError::Invalid("sub of the token is too long or has control characters"));
    }
    check_id(claims.jti.as_deref())?;
    Ok(claims)
}

/// Verifies a subscription token.
///
/// # Errors
/// See [`TokenError`]. [`TokenError::Invalid`] also for a token id that no ban could name.
pub fn subscription_claims(verifier: &dyn Verifier, token: &str, now_s: u64) -> Result<SubscriptionClaims, TokenError> {
    let claims = verifier.subscription(token, now_s)?;
    check_id(claims.jti.as_deref())?;
    Ok(claims)
}

fn check_id(jti: Option<&str>) -> Result<(), TokenError> {
    match jti.unwrap_or_default() {
        jti if jti.is_empty() || is_name(jti) => Ok(()),
        _ => Err(TokenError::Invalid("jti of the token is too long or has control characters")),
    }
}

/// Claims of a connection token. The verifier checks `aud`, `iss` and `nbf`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConnectionClaims {
    /// The id of the user; empty = anonymous.
    pub sub: String,
    /// The channel of a subscription token; a connection token must not have one.
    pub channel: Option<String>,
    /// When the token expires, Unix seconds.
    #[serde(deserialize_with = "seconds")]
    pub exp: Option<u64>,
    /// When the connection expires, Unix seconds, if not at `exp`; 0 = never.
    #[serde(deserialize_with = "seconds")]
    pub expire_at: Option<u64>,
    /// The info that other clients see as `conn_info`.
    pub info: Option<Box<RawValue>>,
    /// The same info in base64.
    pub b64info: Option<Base64Payload>,
    /// The channels that the connection is subscribed to.
    #[serde(deserialize_with = "null_or")]
    pub channels: Vec<String>,
    /// The channels that the connection is subscribed to, with options.
    #[serde(deserialize_with = "object_map")]
    pub subs: BTreeMap<String, SubscribeOptions>,
    /// The `meta` for hooks, a JSON object.
    pub meta: Option<Box<RawValue>>,
    /// What the client may do in channels in addition to what their namespaces allow.
    #[serde(deserialize_with = "object_list")]
    pub caps: Vec<CapsEntry>,
    /// The labels of the connection, for hooks.
    #[serde(deserialize_with = "null_or")]
    pub labels: BTreeMap<String, String>,
    /// The names that are registered for the connection.
    #[serde(deserialize_with = "object_list")]
    pub names: Vec<EntryClaim>,
    /// The groups that the connection joins.
    #[serde(deserialize_with = "object_list")]
    pub groups: Vec<EntryClaim>,
    /// The names that the client may register itself: patterns, by scope.
    #[serde(deserialize_with = "null_or")]
    pub register: BTreeMap<String, Vec<String>>,
    /// The id of the token, by which it can be revoked.
    #[serde(deserialize_with = "id")]
    pub jti: Option<String>,
    /// When the token was issued, Unix seconds.
    #[serde(deserialize_with = "issued")]
    pub iat: Option<u64>,
}

impl ConnectionClaims {
    /// The claims that bans are checked against.
    pub fn shown(&self) -> ShownToken<'_> {
        ShownToken { jti: self.jti.as_deref(), iat_s: self.iat }
    }
}

/// A name or a group in a connection token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct EntryClaim {
    /// The scope of the name or group.
    #[serde(deserialize_with = "nullable")]
    pub scope: String,
    /// The name or the group.
    #[serde(alias = "group", deserialize_with = "nullable")]
    pub name: String,
    /// The metadata of the name or membership.
    pub meta: Option<Box<RawValue>>,
}

/// Claims of a subscription token.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscriptionClaims {
    /// The id of the user. It must be the user of the connection.
    pub sub: String,
    /// The channel that the token is for.
    pub channel: String,
    /// The client id, in tokens for one connection; empty = any connection of the user.
    pub client: String,
    /// When the token expires, Unix seconds.
    #[serde(deserialize_with = "seconds")]
    pub exp: Option<u64>,
    /// When the subscription expires, Unix seconds, if not at `exp`; 0 = never.
    #[serde(deserialize_with = "seconds")]
    pub expire_at: Option<u64>,
    /// The info that other clients see as `chan_info`.
    pub info: Option<Box<RawValue>>,
    /// The same info in base64.
    pub b64info: Option<Base64Payload>,
    /// Options that differ from those of the namespace.
    #[serde(rename = "override", deserialize_with = "object_or_default")]
    pub overrides: Overrides,
    /// What the client may do in the channel in addition to what its namespace allows: `pub`, `hst`, `prs`.
    #[serde(deserialize_with = "null_or")]
    pub allow: Vec<String>,
    /// The id of the token, by which it can be revoked.
    #[serde(deserialize_with = "id")]
    pub jti: Option<String>,
    /// When the token was issued, Unix seconds.
    #[serde(deserialize_with = "issued")]
    pub iat: Option<u64>,
}

impl SubscriptionClaims {
    /// The claims that bans are checked against.
    pub fn shown(&self) -> ShownToken<'_> {
        ShownToken { jti: self.jti.as_deref(), iat_s: self.iat }
    }
}

/// The options of one server-side subscription.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscribeOptions {
    /// The info that other clients see as `chan_info`.
    pub info: Option<Box<RawValue>>,
    /// The same info in base64.
    pub b64info: Option<Base64Payload>,
    /// The data that the client gets in the subscribe result.
    pub data: Option<Box<RawValue>>,
    /// The same data in base64.
    pub b64data: Option<Base64Payload>,
    /// Options that differ from those of the namespace.
    #[serde(rename = "override", deserialize_with = "object_or_default")]
    pub overrides: Overrides,
}

impl SubscribeOptions {
    /// The info, in whichever form it was written.
    pub(crate) fn info(&self) -> Option<&RawValue> {
        self.info.as_deref().or(self.b64info.as_ref().map(|packed| &*packed.0))
    }

    /// The data for the client, in whichever form it was written.
    pub(crate) fn data(&self) -> Option<&RawValue> {
        self.data.as_deref().or(self.b64data.as_ref().map(|packed| &*packed.0))
    }
}

/// Options of one subscription that differ from those of its namespace.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Overrides {
    /// Whether the client takes part in presence.
    #[serde(deserialize_with = "object")]
    pub presence: Option<BoolValue>,
    /// Whether other subscribers get join and leave events for the client.
    #[serde(deserialize_with = "object")]
    pub join_leave: Option<BoolValue>,
    /// Whether the client gets join and leave events for others.
    #[serde(deserialize_with = "object")]
    pub force_push_join_leave: Option<BoolValue>,
    /// Whether the subscription has a position.
    #[serde(deserialize_with = "object")]
    pub force_positioning: Option<BoolValue>,
    /// Whether the subscription can be recovered.
    #[serde(deserialize_with = "object")]
    pub force_recovery: Option<BoolValue>,
}

/// A boolean option that may be absent; the server API writes it as `{"value": true}`.
#[derive(Debug, Default, Clone, Copy, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BoolValue {
    /// The value of the option.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<bool>")]
    pub value: bool,
}

/// Labels of a connection as a JSON object; `None` = there are none.
///
/// # Errors
/// A fixed text: there are too many labels, they are too long, or they have control characters.
pub(crate) fn labels_of(labels: &BTreeMap<String, String>) -> Result<Option<Bytes>, &'static str> {
    if labels.is_empty() {
        return Ok(None);
    }
    if !labels.iter().all(|(name, text)| is_plain_text(name) && is_plain_text(text)) {
        return Err("labels have control characters");
    }
    let size: usize = labels.iter().map(|(key, text)| key.len() + text.len()).sum();
    if labels.len() > LABELS_MAX || size > LABELS_SIZE_MAX {
        return Err("there are more than 32 labels, or they are longer than 4,096 bytes");
    }
    serde_json::to_vec(labels).map(|json| Some(json.into())).map_err(|_| "labels cannot be written as JSON")
}

/// When a connection or subscription expires: `expire_at` if it is given (0 = never), otherwise `exp`.
pub fn expiry(exp: Option<u64>, expire_at: Option<u64>) -> Option<u64> {
    match expire_at {
        Some(0) => None,
        Some(at) => Some(at),
        None => exp.filter(|at| *at > 0),
    }
}

/// Reads a value or `null`, which counts as absent.
fn null_or<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads seconds as a whole or a decimal number, because some libraries write `exp` with a fraction.
fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<f64>::deserialize(deserializer)?;
    // The cast saturates at the end of the range. Only zero has a special meaning: a fraction of a second, or a time
    // before 1970, has passed.
    Ok(number.map(|seconds| if seconds == 0.0 { 0 } else { (seconds as u64).max(1) }))
}

/// A claim that only bans use. If it has the wrong type, the token is accepted nevertheless.
#[derive(Deserialize)]
#[serde(untagged)]
enum LooseClaim {
    Text(String),
    Number(serde_json::Number),
    Other(IgnoredAny),
}

/// Reads the id of a token. A number counts as its decimal text.
fn id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match LooseClaim::deserialize(deserializer)? {
        LooseClaim::Text(text) => Some(text),
        LooseClaim::Number(number) => Some(number.to_string()),
        LooseClaim::Other(_) => None,
    })
}

/// Reads when a token was issued. A value that is not a number counts as absent.
fn issued<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match LooseClaim::deserialize(deserializer)? {
        // The cast saturates.
        LooseClaim::Number(number) => number.as_f64().map(|seconds| seconds as u64),
        LooseClaim::Text(_) | LooseClaim::Other(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_any_type_are_read_where_only_bans_look_at_them() {
        let read = |jti: &str, iat: &str| {
            let claims = format!(r#"{{"sub":"ann","jti":{jti},"iat":{iat}}}"#);
            let of_connection: ConnectionClaims = serde_json::from_str(&claims).expect("it is read");
            let of_channel: SubscriptionClaims = serde_json::from_str(&claims).expect("it is read");
            assert_eq!(of_connection.shown(), of_channel.shown());
            (of_connection.jti, of_connection.iat)
        };
        assert_eq!(read(r#""7f""#, "17"), (Some("7f".into()), Some(17)));
        assert_eq!(read("7", "17.9"), (Some("7".into()), Some(17)));
        assert_eq!(read("null", r#""2026-01-01""#), (None, None));
        assert_eq!(read("[7]", "-5"), (None, Some(0)));
    }

    #[test]
    fn null_says_no_more_than_absence() {
        for claim in ["channels", "subs", "caps", "labels", "names", "groups", "register", "info", "meta", "exp"] {
            let claims: ConnectionClaims =
                serde_json::from_str(&format!(r#"{{"sub":"ann","{claim}":null}}"#)).expect(claim);
            assert_eq!(claims.sub, "ann");
        }
        let claims: SubscriptionClaims = serde_json::from_str(r#"{"allow":null,"override":null}"#).expect("it is read");
        assert!(claims.allow.is_empty());
    }

    #[test]
    fn labels_are_plain_texts() {
        let labels = |name: &str, text: &str| labels_of(&BTreeMap::from([(name.to_owned(), text.to_owned())]));
        assert_eq!(labels("tier", "gold é"), Ok(Some(r#"{"tier":"gold é"}"#.into())));
        for (name, text) in [("tier", "a\nb"), ("ti\0er", "gold"), ("tier", "\u{85}")] {
            assert!(labels(name, text).is_err(), "{name:?} {text:?}");
        }
    }

    #[test]
    fn a_connection_ends_when_its_token_says() {
        assert_eq!(expiry(None, None), None);
        assert_eq!(expiry(Some(5), None), Some(5));
        assert_eq!(expiry(Some(5), Some(9)), Some(9));
        assert_eq!(expiry(Some(5), Some(0)), None);
        for (written, expected) in
            [("0", None), ("-0.0", None), ("-1", Some(1)), ("0.5", Some(1)), ("1e300", Some(u64::MAX))]
        {
            let claims: ConnectionClaims =
                serde_json::from_str(&format!(r#"{{"expire_at":{written}}}"#)).expect("JSON");
            assert_eq!(expiry(claims.exp, claims.expire_at), expected, "{written}");
        }
    }
}
