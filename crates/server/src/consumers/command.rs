//! What a row or a message asks for: a method of the server API and its payload. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_config::PublicationDataSettings;

use crate::api::OperationCall;

/// The methods that are carried out, which are those of Centrifugo.
const METHODS: [&str; 7] = [PUBLISH, BROADCAST, "subscribe", "unsubscribe", "disconnect", "history_remove", "refresh"];
const PUBLISH: &str = "publish";
const BROADCAST: &str = "broadcast";
/// The most that a log shows of a method, bytes.
const METHOD_SHOWN_MAX: usize = 64;

/// What a row or a message asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// A publication into this channel: what comes before it in other channels does not matter.
    Publish {
        /// The channel; empty = none is named, which the operation refuses.
        channel: String,
        /// The operation.
        call: OperationCall,
    },
    /// Something else: it begins when all before it is done, and all behind it begins when it is done.
    Other(OperationCall),
    /// Nothing that is carried out here. The text says why.
    Nothing(String),
    /// It can't be read. The text says why.
    Unreadable(String),
}

impl Asked {
    /// Reads a method and its payload. `key`: the idempotency key of a publication that has none.
    pub(super) fn read(method: &str, payload: &str, key: &str) -> Asked {
        let Some(operation) = METHODS.into_iter().find(|known| *known == method) else {
            let shown = &method[..method.floor_char_boundary(METHOD_SHOWN_MAX)];
            return Asked::Nothing(format!("no consumer carries out the method {shown:?}"));
        };
        match Asked::of(operation, payload, key) {
            Ok(asked) => asked,
            Err(error) => Asked::Unreadable(format!("the payload is not a JSON object: {error}")),
        }
    }

    /// Reads a message that holds the method and the payload.
    pub(super) fn read_envelope(text: &str, key: &str) -> Asked {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
            #[serde(borrow, default)]
            payload: Option<&'a RawValue>,
        }
        match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(Envelope { method, payload }) => Asked::read(&method, payload.map_or("{}", RawValue::get), key),
            Err(error) => Asked::Unreadable(format!("the message is not an object with method and payload: {error}")),
        }
    }

    /// Reads the payload of a known method.
    ///
    /// # Errors
    /// When it is not an object, nor a text that holds one.
    fn of(operation: &'static str, payload: &str, key: &str) -> Result<Asked, serde_json::Error> {
        /// The fields that matter here.
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, default)]
            channel: Option<&'a RawValue>,
            #[serde(borrow, default)]
            idempotency_key: Option<&'a RawValue>,
        }
        let mut payload: Cow<'_, str> = payload.trim().into();
        // Debezium hands JSON over as a text.
        if payload.starts_with('"') {
            payload = serde_json::from_str::<String>(&payload)?.trim().to_owned().into();
        }
        if !payload.starts_with('{') {
            // The text of the error says what was found.
            serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(&payload)?;
        }
        let fields: Fields<'_> = serde_json::from_str(&payload)?;
        let text = |value: Option<&RawValue>| {
            let value = value.and_then(|value| serde_json::from_str::<Option<String>>(value.get()).ok());
            value.flatten().unwrap_or_default()
        };
        let is_publication = matches!(operation, PUBLISH | BROADCAST);
        // A key that is no text stays, for the operation to refuse.
        let has_key = fields.idempotency_key.is_some_and(|key| !matches!(key.get(), "null" | "\"\""));
        let channel = text(fields.channel);
        let params = match fields.idempotency_key {
            _ if !is_publication || has_key => Bytes::from(payload.into_owned()),
            None => with_key_before(&payload, key),
            Some(_) => with_key_in_place(&payload, key)?,
        };
        let call = OperationCall { operation, params };
        Ok(if operation == PUBLISH { Asked::Publish { channel, call } } else { Asked::Other(call) })
    }

    /// Reads a message whose payload is the data of a publication. `header`: the value of a header by its name in small
    /// letters; `headers`: all of them.
    pub(super) fn of_data(
        mode: &PublicationDataSettings,
        headers: &[(String, String)],
        data: &str,
        key: &str,
    ) -> Asked {
        let header = |name: &str| {
            let found = headers.iter().find(|(known, _)| !name.is_empty() && known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let Some(channels) = header(&mode.channels_header) else {
            return Asked::Nothing(format!("the header {} names no channel", mode.channels_header));
        };
        let Ok(data) = serde_json::from_str::<&RawValue>(data) else {
            return Asked::Unreadable("the payload is not JSON, which data of a publication must be".to_owned());
        };
        let version = match header(&mode.version_header).map(str::parse::<u64>) {
            None => 0,
            Some(Ok(version)) => version,
            Some(Err(_)) => return Asked::Unreadable(format!("the header {} is not a number", mode.version_header)),
        };
        if header(&mode.delta_header).is_some_and(|text| !is_go_bool(text)) {
            return Asked::Unreadable(format!("the header {} is neither true nor false", mode.delta_header));
        }
        let prefix = &mode.tags_header_prefix;
        let tag = |(name, value): &(String, String)| {
            let (start, rest) = name.split_at_checked(prefix.len())?;
            let is_tag = !prefix.is_empty() && start.eq_ignore_ascii_case(prefix) && !rest.is_empty();
            is_tag.then(|| (rest.to_owned(), value.clone()))
        };
        let tags: BTreeMap<String, String> = headers.iter().filter_map(tag).collect();
        let key = header(&mode.idempotency_key_header).unwrap_or(key);
        let mut channels: Vec<&str> = channels.split(',').collect();
        let target = if channels.len() == 1 { serde_json::json!(channels[0]) } else { serde_json::json!(channels) };
        let operation = if channels.len() == 1 { PUBLISH } else { BROADCAST };
        let target_name = if channels.len() == 1 { "channel" } else { "channels" };
        let rest = serde_json::json!({
            target_name: target,
            "idempotency_key": key,
            "version": version,
            "version_epoch": header(&mode.version_epoch_header).unwrap_or_default(),
            "tags": tags,
        })
        .to_string();
        // The data stays as it was written: digits of numbers too.
        let params = Bytes::from(format!("{{\"data\":{},{}", data.get(), &rest[1..]));
        let call = OperationCall { operation, params };
        match channels.pop() {
            Some(channel) if channels.is_empty() => Asked::Publish { channel: channel.to_owned(), call },
            _ => Asked::Other(call),
        }
    }
}

/// The object with an idempotency key before its other fields.
fn with_key_before(object: &str, key: &str) -> Bytes {
    let key = serde_json::json!(key);
    let rest = object[1..].trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    Bytes::from(format!("{{\"idempotency_key\":{key}{comma}{rest}"))
}

/// The object with an idempotency key in the place of its own, which is empty.
///
/// # Errors
/// When it is not an object.
fn with_key_in_place(object: &str, key: &str) -> Result<Bytes, serde_json::Error> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object)?;
    let key = serde_json::value::to_raw_value(key)?;
    fields.insert("idempotency_key".into(), &key);
    Ok(serde_json::to_vec(&fields)?.into())
}

/// Whether Go reads a text as a truth value.
fn is_go_bool(text: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(asked: &Asked) -> serde_json::Value {
        match asked {
            Asked::Publish { call, .. } | Asked::Other(call) => {
                serde_json::from_slice(&call.params).expect("parameters are JSON")
            }
            Asked::Nothing(why) | Asked::Unreadable(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_publication_gets_a_key_unless_it_has_one() {
        for (payload, key) in [
            (r#"{"channel":"a","data":1}"#, "k"),
            (r#"{"channel":"a","data":1,"idempotency_key":null}"#, "k"),
            (r#"{"channel":"a","data":1,"idempotency_key":""}"#, "k"),
            (r#"{"channel":"a","data":1,"idempotency_key":"own"}"#, "own"),
            (r#" { "channel" : "a" , "data" : 1 } "#, "k"),
            (r#""{\"channel\":\"a\",\"data\":1}""#, "k"),
        ] {
            let asked = Asked::read("publish", payload, "k");
            assert!(matches!(&asked, Asked::Publish { channel, .. } if channel == "a"), "{payload}");
            let expected = serde_json::json!({ "channel": "a", "data": 1, "idempotency_key": key });
            assert_eq!(params(&asked), expected, "{payload}");
        }
        let Asked::Other(call) = Asked::read("unsubscribe", r#"{"user":"1"}"#, "k") else { panic!("it is a command") };
        assert_eq!((call.operation, &call.params[..]), ("unsubscribe", &br#"{"user":"1"}"#[..]));
        assert_eq!(params(&Asked::read("publish", "{}", "k")), serde_json::json!({ "idempotency_key": "k" }));
        assert_eq!(
            params(&Asked::read("broadcast", r#"{"channels":[]}"#, "k")),
            serde_json::json!({ "channels": [], "idempotency_key": "k" })
        );
    }

    #[test]
    fn what_is_not_carried_out_and_what_cannot_be_read_are_told_apart() {
        assert!(matches!(Asked::read("rpc", "{}", "k"), Asked::Nothing(_)));
        assert!(matches!(Asked::read("info", "junk", "k"), Asked::Nothing(_)));
        for payload in ["", "junk", "7", "[]", "null", "\"junk\"", "\"7\"", "{", "{\"channel\":1,\"channel\":2}"] {
            assert!(matches!(Asked::read("publish", payload, "k"), Asked::Unreadable(_)), "{payload}");
        }
        for message in ["", "7", "{}", r#"{"method":7}"#, r#"{"payload":{}}"#] {
            assert!(matches!(Asked::read_envelope(message, "k"), Asked::Unreadable(_)), "{message}");
        }
        let asked = Asked::read_envelope(r#"{"method":"publish","payload":{"channel":"a"},"more":1}"#, "k");
        assert_eq!(params(&asked), serde_json::json!({ "channel": "a", "idempotency_key": "k" }));
    }

    #[test]
    fn headers_make_a_publication_of_data() {
        let mode = PublicationDataSettings::default();
        let of = |headers: &[(&str, &str)], data: &str| {
            let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Asked::of_data(&mode, &headers, data, "k")
        };
        let asked = of(
            &[
                ("Centrifugo-Channels", "a"),
                ("centrifugo-tag-Sport", "chess"),
                ("centrifugo-tag-", "none"),
                ("centrifugo-version", "7"),
                ("centrifugo-version-epoch", "e"),
                ("centrifugo-delta", "T"),
            ],
            "1.50",
        );
        let Asked::Publish { channel, call } = &asked else { panic!("it is a publication") };
        assert_eq!(channel, "a");
        assert!(call.params.starts_with(br#"{"data":1.50,"#), "digits stay");
        assert_eq!(params(&asked)["tags"], serde_json::json!({ "Sport": "chess" }));
        assert_eq!((&params(&asked)["version"], &params(&asked)["version_epoch"]), (&7.into(), &"e".into()));
        assert_eq!(params(&asked)["idempotency_key"], "k");
        let several = of(&[("centrifugo-channels", "a, b"), ("centrifugo-idempotency-key", "own")], "{}");
        assert_eq!(params(&several)["channels"], serde_json::json!(["a", " b"]), "nothing is trimmed");
        assert_eq!(params(&several)["idempotency_key"], "own");
        assert!(matches!(of(&[], "1"), Asked::Nothing(_)));
        assert!(matches!(of(&[("centrifugo-channels", "")], "1"), Asked::Nothing(_)));
        for (name, value) in [("centrifugo-version", "-1"), ("centrifugo-delta", "yes")] {
            assert!(matches!(of(&[("centrifugo-channels", "a"), (name, value)], "1"), Asked::Unreadable(_)));
        }
        assert!(matches!(of(&[("centrifugo-channels", "a")], "junk"), Asked::Unreadable(_)));
    }
}
