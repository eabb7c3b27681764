//! The JSON of backends' answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;
use touchline_protocol::Disconnect;
use touchline_protocol::data::{
    Object, checked_payload, is_plain_text, nullable, object_list, object_map, object_or_default,
};
use touchline_protocol::fact::is_name;
use touchline_protocol::notation::base64_of;
use touchline_protocol::publication::Tags;
use touchline_protocol::websocket::CLOSE_REASON_MAX;

use super::answer_shape::{NO_SECONDS, ShapeFault};
use super::call::HookKind;
use super::outcome::{
    ConnectAnswer, HookError, HookOutcome, HookResult, PublishAnswer, RefreshAnswer, SubRefreshAnswer, SubscribeAnswer,
};
use crate::base64_text::{Base64Bytes, Base64Payload};
use crate::caps::{Capabilities, Capability, CapsCache, CapsEntry};
use crate::claims::{ConnectionClaims, EntryClaim, Overrides, SubscribeOptions, labels_of};

/// The greatest length of a backend's error text, bytes. The rest is cut off.
const MESSAGE_LEN_MAX: usize = 1_024;
/// The longest time for which a subscribe answer can be cached, seconds.
const CACHE_FOR_MAX: u64 = 300;

/// Why an answer cannot be used, for logs. It contains nothing from the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// The answer is not a JSON object.
    #[error("the answer is not a JSON object")]
    NoObject,
    /// None of its members is known: a `{"detail": "forbidden"}` must not count as a permission.
    #[error("the answer has none of result, error, disconnect")]
    Foreign,
    /// A field does not have the required type.
    #[error(transparent)]
    Shape(#[from] ShapeFault),
    /// The number of an error is not in 400–1999.
    #[error("the code of the error is missing, or not 400-1999")]
    ErrorCode,
    /// The number of a disconnect is not in 4000–4999.
    #[error("the code of the disconnect is missing, or not 4000-4999")]
    DisconnectCode,
    /// A field of the result has a value that is not allowed.
    #[error("{0}")]
    Value(&'static str),
}

/// Reads the answer to a hook of this kind. `caps`: the compiled capabilities of the node.
///
/// # Errors
/// The answer cannot be used: the action fails, and nothing is permitted.
pub fn parse_answer(kind: HookKind, json: &[u8], caps: &CapsCache) -> Result<HookOutcome, AnswerFault> {
    let text = std::str::from_utf8(json).map_err(|_| AnswerFault::NoObject)?;
    let members: AnswerMembers<'_> = serde_json::from_str(text).map_err(|_| AnswerFault::NoObject)?;
    if let Some(disconnect) = members.disconnect {
        return disconnect_of(disconnect);
    }
    if let Some(error) = members.error {
        return error_of(error);
    }
    match members.result {
        Some(result) => result_of(kind, result, caps).map(HookOutcome::Result),
        None if members.has_others => Err(AnswerFault::Foreign),
        None => Ok(HookOutcome::Empty),
    }
}

/// The members of an answer; `null` counts as absent.
#[derive(Default)]
struct AnswerMembers<'a> {
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    disconnect: Option<&'a RawValue>,
    has_others: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum AnswerMember {
    Result,
    Error,
    Disconnect,
    #[serde(other)]
    Other,
}

struct AnswerMembersReader;

impl<'de: 'a, 'a> Deserialize<'de> for AnswerMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnswerMembersReader)
    }
}

impl<'de> Visitor<'de> for AnswerMembersReader {
    type Value = AnswerMembers<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnswerMembers<'de>, A::Error> {
        let mut members = AnswerMembers::default();
        while let Some(member) = map.next_key::<AnswerMember>()? {
            let field = match member {
                AnswerMember::Result => &mut members.result,
                AnswerMember::Error => &mut members.error,
                AnswerMember::Disconnect => &mut members.disconnect,
                AnswerMember::Other => {
                    map.next_value::<IgnoredAny>()?;
                    members.has_others = true;
                    continue;
                }
            };
            if field.is_some() {
                return Err(de::Error::custom("a member is there twice"));
            }
            *field = map.next_value::<Option<&RawValue>>()?;
        }
        Ok(members)
    }
}

/// Reads an object. `member`: the name of the answer's member that contains it.
fn read<T: DeserializeOwned>(member: &'static str, json: &RawValue) -> Result<T, AnswerFault> {
    // Finding the faulty field takes a second pass, which valid answers do not need.
    let is_read = serde_json::from_str::<Object<T>>(json.get()).map(|object| object.0);
    is_read.map_err(|_| ShapeFault::find::<Object<T>>(member, json).into())
}

fn error_of(json: &RawValue) -> Result<HookOutcome, AnswerFault> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct ErrorJson {
        #[serde(deserialize_with = "nullable")]
        code: u32,
        #[serde(deserialize_with = "nullable")]
        message: String,
        #[serde(deserialize_with = "nullable")]
        temporary: bool,
    }
    let ErrorJson { code, mut message, temporary } = read("error", json)?;
    if !(400..=1_999).contains(&code) {
        return Err(AnswerFault::ErrorCode);
    }
    message.truncate(message.floor_char_boundary(MESSAGE_LEN_MAX));
    Ok(HookOutcome::Error(HookError { code, message: message.into(), temporary }))
}

fn disconnect_of(json: &RawValue) -> Result<HookOutcome, AnswerFault> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct DisconnectJson {
        #[serde(deserialize_with = "nullable")]
        code: u32,
        #[serde(deserialize_with = "nullable")]
        reason: String,
    }
    let DisconnectJson { code, mut reason } = read("disconnect", json)?;
    let code = u16::try_from(code).ok().filter(|code| (4_000..=4_999).contains(code));
    reason.truncate(reason.floor_char_boundary(CLOSE_REASON_MAX));
    let code = code.ok_or(AnswerFault::DisconnectCode)?;
    Ok(HookOutcome::Disconnect(Disconnect { code, reason: reason.into() }))
}

fn result_of(kind: HookKind, json: &RawValue, caps: &CapsCache) -> Result<HookResult, AnswerFault> {
    Ok(match kind {
        HookKind::Connect => HookResult::Connect(Box::new(connect_of(read("result", json)?, caps)?)),
        HookKind::Refresh => HookResult::Refresh(refresh_of(read("result", json)?, caps)?),
        HookKind::Subscribe => HookResult::Subscribe(subscribe_of(read("result", json)?)?),
        HookKind::Publish => HookResult::Publish(Box::new(publish_of(read("result", json)?)?)),
        HookKind::Rpc => HookResult::Rpc(rpc_of(read("result", json)?)?),
        HookKind::SubRefresh => HookResult::SubRefresh(sub_refresh_of(read("result", json)?)?),
        HookKind::Conflict => HookResult::Conflict(read::<ConflictJson>("result", json)?.keep.into()),
    })
}

type Json = Option<Box<RawValue>>;

/// A payload, written as JSON or in base64. Base64 takes precedence.
fn payload(json: Json, packed: Option<Base64Payload>) -> Result<Option<Bytes>, AnswerFault> {
    let json = packed.map(|packed| packed.0).or(json);
    json.map(|json| checked_payload(&json)).transpose().map_err(|_| AnswerFault::Value("a payload nests too deep"))
}

/// Reads `meta`, which must be an object.
fn meta_of(meta: Json) -> Result<Option<Bytes>, AnswerFault> {
    let Some(meta) = payload(meta, None)? else { return Ok(None) };
    if meta.first() == Some(&b'{') && base64_of(&meta).is_none() {
        Ok(Some(meta))
    } else {
        Err(AnswerFault::Value("meta is not an object"))
    }
}

fn caps_of(entries: Vec<CapsEntry>, cache: &CapsCache) -> Result<Option<Arc<Capabilities>>, AnswerFault> {
    cache.read(entries).map_err(|fault| AnswerFault::Value(fault.cause()))
}

/// A time, Unix seconds, as a whole or a decimal number. A time before 1970 has passed, and 1 says that too, because 0
/// means never. A time in milliseconds is out of range and therefore refused.
/// in milliseconds is beyond the range, and so refused.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Option::<f64>::deserialize(deserializer)?.unwrap_or_default();
    if number > f64::from(u32::MAX) {
        return Err(de::Error::custom(NO_SECONDS));
    }
    Ok(if number != 0.0 && number < 1.0 { 1 } else { number as u64 })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConnectAnswerJson {
    user: Option<String>,
    #[serde(deserialize_with = "seconds")]
    expire_at: u64,
    info: Json,
    b64info: Option<Base64Payload>,
    data: Json,
    b64data: Option<Base64Payload>,
    #[serde(deserialize_with = "nullable")]
    channels: Vec<String>,
    #[serde(deserialize_with = "object_map")]
    subs: BTreeMap<String, SubscribeOptions>,
    meta: Json,
    #[serde(deserialize_with = "object_list")]
    caps: Vec<CapsEntry>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "object_list")]
    names: Vec<EntryClaim>,
    #[serde(deserialize_with = "object_list")]
    groups: Vec<EntryClaim>,
    register: Option<BTreeMap<String, Vec<String>>>,
}

fn connect_of(json: ConnectAnswerJson, caps: &CapsCache) -> Result<ConnectAnswer, AnswerFault> {
    let user = json.user.unwrap_or_default();
    if !user.is_empty() && !is_name(&user) {
        return Err(AnswerFault::Value("user is too long or has control characters"));
    }
    let subs = json.subs;
    for options in subs.values() {
        for payload in [options.info(), options.data()].into_iter().flatten() {
            checked_payload(payload).map_err(|_| AnswerFault::Value("a payload of subs nests too deep"))?;
        }
    }
    // The info is checked here and kept in the form in which it was written.
    payload(json.info.clone(), None)?;
    let claims = ConnectionClaims {
        sub: user,
        expire_at: Some(json.expire_at),
        info: json.b64info.map(|packed| packed.0).or(json.info),
        channels: json.channels,
        subs,
        names: json.names,
        groups: json.groups,
        register: json.register.unwrap_or_default(),
        ..ConnectionClaims::default()
    };
    if let Some(info) = &claims.info {
        checked_payload(info).map_err(|_| AnswerFault::Value("info nests too deep"))?;
    }
    Ok(ConnectAnswer {
        claims,
        data: payload(json.data, json.b64data)?,
        meta: meta_of(json.meta)?,
        caps: caps_of(json.caps, caps)?,
        labels: labels_of(&json.labels.unwrap_or_default()).map_err(AnswerFault::Value)?,
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RefreshJson {
    #[serde(deserialize_with = "nullable")]
    expired: bool,
    #[serde(deserialize_with = "seconds")]
    expire_at: u64,
    info: Json,
    b64info: Option<Base64Payload>,
    meta: Json,
    caps: Option<Vec<Object<CapsEntry>>>,
}

fn refresh_of(json: RefreshJson, cache: &CapsCache) -> Result<RefreshAnswer, AnswerFault> {
    let caps = match json.caps {
        // An empty list removes what was granted; an absent list changes nothing.
        Some(caps) => Some(caps_of(caps.into_iter().map(|entry| entry.0).collect(), cache)?.unwrap_or_default()),
        None => None,
    };
    let (info, meta) = (payload(json.info, json.b64info)?, meta_of(json.meta)?);
    Ok(RefreshAnswer { expired: json.expired, expire_at: json.expire_at, info, meta, caps })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SubscribeAnswerJson {
    #[serde(deserialize_with = "seconds")]
    expire_at: u64,
    info: Json,
    b64info: Option<Base64Payload>,
    data: Json,
    b64data: Option<Base64Payload>,
    #[serde(rename = "override", deserialize_with = "object_or_default")]
    overrides: Overrides,
    #[serde(deserialize_with = "nullable")]
    allow: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    cache_for: u64,
    #[serde(deserialize_with = "nullable")]
    cache_scope: String,
}

fn subscribe_of(json: SubscribeAnswerJson) -> Result<SubscribeAnswer, AnswerFault> {
    let is_for_channel = match json.cache_scope.as_str() {
        "" | "user" => false,
        "channel" => true,
        _ => return Err(AnswerFault::Value("cache_scope is neither user nor channel")),
    };
    Ok(SubscribeAnswer {
        expire_at: json.expire_at,
        info: payload(json.info, json.b64info)?,
        data: payload(json.data, json.b64data)?,
        overrides: json.overrides,
        allow: Capability::read(&json.allow)
            .ok_or(AnswerFault::Value("allow has a word other than sub, pub, prs, hst"))?,
        cache_for: json.cache_for.min(CACHE_FOR_MAX),
        is_for_channel,
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PublishJson {
    data: Json,
    b64data: Option<Base64Bytes>,
    #[serde(deserialize_with = "nullable")]
    skip_publish: bool,
    #[serde(deserialize_with = "nullable")]
    skip_history: bool,
    tags: Option<Tags>,
    #[serde(deserialize_with = "nullable")]
    idempotency_key: String,
    #[serde(deserialize_with = "nullable")]
    version: u64,
    #[serde(deserialize_with = "nullable")]
    version_epoch: String,
}

fn publish_of(json: PublishJson) -> Result<PublishAnswer, AnswerFault> {
    if !is_plain_text(&json.idempotency_key) || !is_plain_text(&json.version_epoch) {
        return Err(AnswerFault::Value("idempotency_key or version_epoch has control characters"));
    }
    Ok(PublishAnswer {
        // Here the plain form takes precedence, as in Centrifugo.
        data: payload(json.data.or(json.b64data.map(|packed| packed.0)), None)?,
        skip_publish: json.skip_publish,
        skip_history: json.skip_history,
        tags: json.tags.unwrap_or_default(),
        idempotency_key: json.idempotency_key.into(),
        version: json.version,
        version_epoch: json.version_epoch.into(),
    })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RpcJson {
    data: Json,
    b64data: Option<Base64Payload>,
}

fn rpc_of(json: RpcJson) -> Result<Option<Bytes>, AnswerFault> {
    payload(json.data, json.b64data)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ConflictJson {
    #[serde(deserialize_with = "nullable")]
    keep: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SubRefreshJson {
    #[serde(deserialize_with = "nullable")]
    expired: bool,
    #[serde(deserialize_with = "seconds")]
    expire_at: u64,
    info: Json,
    b64info: Option<Base64Payload>,
}

fn sub_refresh_of(json: SubRefreshJson) -> Result<SubRefreshAnswer, AnswerFault> {
    let info = payload(json.info, json.b64info)?;
    Ok(SubRefreshAnswer { expired: json.expired, expire_at: json.expire_at, info })
}
