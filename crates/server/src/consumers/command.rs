//! The command in a row or a message: a method of the server API and its payload. The code is pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use touchline_config::{PublicationDataSettings, nearest};

use crate::api::OperationCall;
use crate::traces::TRACEPARENT;

/// The methods that consumers carry out. They are those of Centrifugo.
const METHODS: [&str; 7] = [PUBLISH, BROADCAST, "subscribe", "unsubscribe", "disconnect", "history_remove", "refresh"];
const PUBLISH: &str = "publish";
const BROADCAST: &str = "broadcast";
const HISTORY_REMOVE: &str = "history_remove";
/// The most bytes of a method, or of a description of a bad payload, that a text shows.
const SHOWN_MAX: usize = 200;

/// What a command must be in order with. The command begins when all earlier commands that share a channel with it are
/// done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandScope {
    /// These channels. Empty = the command names no channel that can be read, so the operation will refuse it.
    Channels(Vec<String>),
    /// Every channel: the command names a user in all channels.
    Everything,
}

/// An operation that may still lack an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AskedCall {
    operation: &'static str,
    /// The fields of the operation, as they were written.
    pub(super) params: Bytes,
    key: KeyState,
    scope: CommandScope,
    /// The connections that the operation selects, as one text.
    targets: String,
    /// The `traceparent` of the message.
    parent: Option<Box<str>>,
}

/// Whether an operation has an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// The operation has a key of its own, or does not use one.
    Set,
    /// The operation has no such field.
    Absent,
    /// The field is empty.
    Empty,
}

impl AskedCall {
    /// Returns the name of the operation.
    pub(super) fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns what the operation must be in order with.
    pub(super) fn scope(&self) -> &CommandScope {
        &self.scope
    }

    /// Whether a repetition could undo later commands, because no idempotency key prevents the repetition.
    pub(super) fn undoes(&self) -> bool {
        !matches!(self.operation, PUBLISH | BROADCAST)
    }

    /// Returns what the operation changes, each as a text. A command that [undoes](AskedCall::undoes) must not be
    /// repeated after a later one with the same change.
    pub(super) fn changes(&self) -> Vec<String> {
        let channels = match &self.scope {
            CommandScope::Channels(channels) => channels.as_slice(),
            CommandScope::Everything => &[],
        };
        if matches!(self.operation, PUBLISH | BROADCAST | HISTORY_REMOVE) {
            return channels.iter().map(|channel| format!("channel {channel}")).collect();
        }
        // A later command of the same kind replaces one that was never carried out only if both select the same
        // connections.
        let kind = if self.operation == "unsubscribe" { "subscribe" } else { self.operation };
        let of = |channel: &str| format!("{kind} {} {channel}", self.targets);
        if channels.is_empty() { vec![of("")] } else { channels.iter().map(|channel| of(channel)).collect() }
    }

    /// Returns the operation with this idempotency key, unless it has its own or does not use one.
    pub(super) fn with_key(self, key: impl FnOnce() -> String) -> OperationCall {
        let AskedCall { operation, params, key: state, parent, .. } = self;
        let keyed = match state {
            KeyState::Set => None,
            KeyState::Absent => std::str::from_utf8(&params).ok().map(|object| with_key_before(object, &key())),
            KeyState::Empty => with_key_in_place(&params, &key()).ok(),
        };
        OperationCall { operation, params: keyed.unwrap_or(params), parent }
    }
}

/// The command in a row or a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AskedCommand {
    /// A publication into this channel. Earlier commands in other channels do not matter.
    Publish {
        /// The channel; empty = the command names none, and the operation refuses it.
        channel: String,
        /// The operation that publishes.
        call: AskedCall,
    },
    /// Another command. Later commands in its scope begin when it is done.
    Other(AskedCall),
    /// A command that is not carried out here. The text says why.
    Nothing(String),
    /// A command that cannot be read. The text says why.
    Unreadable(String),
}

impl AskedCommand {
    /// Returns the same command as a part of the trace that the header field `traceparent` names, if there is one.
    pub(super) fn traced_by(mut self, headers: &[(String, String)]) -> AskedCommand {
        if let AskedCommand::Publish { call, .. } | AskedCommand::Other(call) = &mut self {
            let parent = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
            call.parent = parent.map(|(_, value)| value.as_str().into());
        }
        self
    }

    /// Reads a command from a method and its payload.
    pub(super) fn read(method: &str, payload: &str) -> AskedCommand {
        let Some(operation) = METHODS.into_iter().find(|known| *known == method) else {
            let shown = &method[..method.floor_char_boundary(SHOWN_MAX)];
            let meant =
                nearest(shown, METHODS.into_iter()).map_or(String::new(), |known| format!("; did you mean {known}?"));
            return AskedCommand::Nothing(format!("no consumer carries out the method {shown:?}{meant}"));
        };
        AskedCommand::of(operation, payload)
            .unwrap_or_else(|error| unreadable("the payload is not a JSON object", &error))
    }

    /// Reads a command from a message that contains the method and the payload.
    pub(super) fn read_envelope(text: &str) -> AskedCommand {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
            #[serde(borrow, default)]
            payload: Option<&'a RawValue>,
        }
        match serde_json::from_str::<Envelope<'_>>(text) {
            Ok(Envelope { method, payload }) => AskedCommand::read(&method, payload.map_or("{}", RawValue::get)),
            Err(error) => unreadable("the message is not an object with method and payload", &error),
        }
    }

    /// Reads the payload of a known method.
    ///
    /// # Errors
    /// When the payload is neither an object nor a text that contains one.
    fn of(operation: &'static str, payload: &str) -> Result<AskedCommand, serde_json::Error> {
        /// The fields of a payload that a consumer reads.
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow, default)]
            channel: Option<&'a RawValue>,
            #[serde(borrow, default)]
            channels: Option<&'a RawValue>,
            #[serde(borrow, default)]
            user: Option<&'a RawValue>,
            #[serde(borrow, default)]
            users: Option<&'a RawValue>,
            #[serde(borrow, default)]
            client: Option<&'a RawValue>,
            #[serde(borrow, default)]
            session: Option<&'a RawValue>,
            /// A null is kept as a written value.
            #[serde(borrow, default, deserialize_with = "written")]
            idempotency_key: Option<&'a RawValue>,
        }
        let mut payload: Cow<'_, str> = payload.trim().into();
        // Debezium passes JSON as a text.
        if payload.starts_with('"') {
            payload = serde_json::from_str::<String>(&payload)?.trim().to_owned().into();
        }
        if !payload.starts_with('{') {
            // Serde would accept a list as the fields in their order. The text of this error says what was found.
            serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(&payload)?;
        }
        let fields: Fields<'_> = serde_json::from_str(&payload)?;
        let channel = text_of(fields.channel);
        let key = match fields.idempotency_key.map(RawValue::get) {
            _ if !matches!(operation, PUBLISH | BROADCAST) => KeyState::Set,
            None => KeyState::Absent,
            Some("null" | "\"\"") => KeyState::Empty,
            // A key that is not text stays, so that the operation refuses it.
            Some(_) => KeyState::Set,
        };
        let scope = match operation {
            BROADCAST => {
                let channels = fields.channels.and_then(|list| serde_json::from_str(list.get()).ok());
                CommandScope::Channels(channels.unwrap_or_default())
            }
            PUBLISH | HISTORY_REMOVE => CommandScope::Channels(vec![channel.clone()]),
            _ if channel.is_empty() => CommandScope::Everything,
            _ => CommandScope::Channels(vec![channel.clone()]),
        };
        let mut users: BTreeSet<String> =
            fields.users.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
        users.extend(Some(text_of(fields.user)).filter(|user| !user.is_empty()));
        let targets = format!("{:?}", (users, text_of(fields.client), text_of(fields.session)));
        let call =
            AskedCall { operation, params: Bytes::from(payload.into_owned()), key, scope, targets, parent: None };
        Ok(if operation == PUBLISH { AskedCommand::Publish { channel, call } } else { AskedCommand::Other(call) })
    }

    /// Reads a command from a message whose payload is the data of a publication, with the other fields in headers.
    pub(super) fn of_data(mode: &PublicationDataSettings, headers: &[(String, String)], data: &[u8]) -> AskedCommand {
        let header = |name: &str| {
            let found = headers.iter().find(|(known, _)| !name.is_empty() && known.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let Some(channels) = header(&mode.channels_header) else {
            return AskedCommand::Nothing(format!("the header {} names no channel", mode.channels_header));
        };
        let version = match header(&mode.version_header).map(str::parse::<u64>) {
            None => 0,
            Some(Ok(version)) => version,
            Some(Err(_)) => {
                return AskedCommand::Unreadable(format!("the header {} is not a number", mode.version_header));
            }
        };
        if header(&mode.delta_header).is_some_and(|text| !is_go_bool(text)) {
            return AskedCommand::Unreadable(format!("the header {} is neither true nor false", mode.delta_header));
        }
        let key = header(&mode.idempotency_key_header);
        let mut rest = serde_json::json!({
            "version": version,
            "version_epoch": header(&mode.version_epoch_header).unwrap_or_default(),
            "tags": tags(&mode.tags_header_prefix, headers),
        });
        if let Some(key) = key {
            rest["idempotency_key"] = key.into();
        }
        let channels: Vec<&str> = channels.split(',').collect();
        match channels.as_slice() {
            [channel] => rest["channel"] = (*channel).into(),
            several => rest["channels"] = several.into(),
        }
        // The data are passed as bytes, whatever they look like. The format of the channel decides what they must be.
        let data = STANDARD.encode(data);
        let params = Bytes::from(format!("{{\"data\":{{\"$b64\":\"{data}\"}},{}", &rest.to_string()[1..]));
        let key = if key.is_some() { KeyState::Set } else { KeyState::Absent };
        let scope = CommandScope::Channels(channels.iter().map(|channel| (*channel).to_owned()).collect());
        let call = |operation| AskedCall { operation, params, key, scope, targets: String::new(), parent: None };
        match channels.as_slice() {
            [channel] => AskedCommand::Publish { channel: (*channel).to_owned(), call: call(PUBLISH) },
            _ => AskedCommand::Other(call(BROADCAST)),
        }
    }
}

/// Returns the text in a field; empty = the field is absent, or is not text.
fn text_of(field: Option<&RawValue>) -> String {
    let text = field.and_then(|field| serde_json::from_str::<Option<String>>(field.get()).ok());
    text.flatten().unwrap_or_default()
}

/// Reads a field as it is written, even if it is null.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Makes an unreadable command with its reason. The text of the error may repeat what was found.
fn unreadable(what: &str, error: &serde_json::Error) -> AskedCommand {
    let error = error.to_string();
    AskedCommand::Unreadable(format!("{what}: {}", &error[..error.floor_char_boundary(SHOWN_MAX)]))
}

/// Returns the tags in the headers whose names begin with the prefix.
fn tags(prefix: &str, headers: &[(String, String)]) -> BTreeMap<String, String> {
    let tag = |(name, value): &(String, String)| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        let is_tag = !prefix.is_empty() && start.eq_ignore_ascii_case(prefix) && !rest.is_empty();
        is_tag.then(|| (rest.to_owned(), value.clone()))
    };
    headers.iter().filter_map(tag).collect()
}

/// Adds an idempotency key to an object, before its other fields.
fn with_key_before(object: &str, key: &str) -> Bytes {
    let key = serde_json::json!(key);
    let rest = object[1..].trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    Bytes::from(format!("{{\"idempotency_key\":{key}{comma}{rest}"))
}

/// Replaces the empty idempotency key of an object.
///
/// # Errors
/// When the text is not an object.
fn with_key_in_place(object: &[u8], key: &str) -> Result<Bytes, serde_json::Error> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(object)?;
    let key = serde_json::value::to_raw_value(key)?;
    fields.insert("idempotency_key".into(), &key);
    Ok(serde_json::to_vec(&fields)?.into())
}

/// Whether Go reads a text as a boolean.
fn is_go_bool(text: &str) -> bool {
    ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(asked: AskedCommand) -> serde_json::Value {
        match asked {
            AskedCommand::Publish { call, .. } | AskedCommand::Other(call) => {
                let call = call.with_key(|| "k".to_owned());
                serde_json::from_slice(&call.params).expect("parameters are JSON")
            }
            AskedCommand::Nothing(why) | AskedCommand::Unreadable(why) => panic!("{why}"),
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
            let asked = AskedCommand::read("publish", payload);
            assert!(matches!(&asked, AskedCommand::Publish { channel, .. } if channel == "a"), "{payload}");
            let expected = serde_json::json!({ "channel": "a", "data": 1, "idempotency_key": key });
            assert_eq!(params(asked), expected, "{payload}");
        }
        assert_eq!(params(AskedCommand::read("unsubscribe", r#"{"user":"1"}"#)), serde_json::json!({ "user": "1" }));
        assert_eq!(params(AskedCommand::read("publish", "{}")), serde_json::json!({ "idempotency_key": "k" }));
        let broadcast = AskedCommand::read("broadcast", r#"{"channels":[]}"#);
        assert_eq!(params(broadcast), serde_json::json!({ "channels": [], "idempotency_key": "k" }));
    }

    #[test]
    fn what_is_not_carried_out_and_what_cannot_be_read_are_told_apart() {
        assert!(matches!(AskedCommand::read("rpc", "{}"), AskedCommand::Nothing(_)));
        let AskedCommand::Nothing(why) = AskedCommand::read("publsh", "{}") else { panic!("it is not carried out") };
        assert_eq!(why, "no consumer carries out the method \"publsh\"; did you mean publish?");
        assert!(matches!(AskedCommand::read("info", "junk"), AskedCommand::Nothing(_)));
        for payload in ["", "junk", "7", "[]", "null", "\"junk\"", "\"7\"", "{", "{\"channel\":1,\"channel\":2}"] {
            assert!(matches!(AskedCommand::read("publish", payload), AskedCommand::Unreadable(_)), "{payload}");
        }
        for message in ["", "7", "{}", r#"{"method":7}"#, r#"{"payload":{}}"#] {
            assert!(matches!(AskedCommand::read_envelope(message), AskedCommand::Unreadable(_)), "{message}");
        }
        let asked = AskedCommand::read_envelope(r#"{"method":"publish","payload":{"channel":"a"},"more":1}"#);
        assert_eq!(params(asked), serde_json::json!({ "channel": "a", "idempotency_key": "k" }));
        let long = format!("\"{}\"", "é".repeat(10_000));
        for asked in
            [AskedCommand::read("publish", &long), AskedCommand::read(&long, "{}"), AskedCommand::read_envelope(&long)]
        {
            let (AskedCommand::Nothing(told) | AskedCommand::Unreadable(told)) = asked else { panic!("it is neither") };
            assert!(told.len() < 400, "{told}");
        }
    }

    #[test]
    fn headers_make_a_publication_of_data() {
        let mode = PublicationDataSettings::default();
        let of = |headers: &[(&str, &str)], data: &str| {
            let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            AskedCommand::of_data(&mode, &headers, data.as_bytes())
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
        let AskedCommand::Publish { channel, call } = &asked else { panic!("it is a publication") };
        assert_eq!(channel, "a");
        assert!(call.params.starts_with(br#"{"data":{"$b64":"MS41MA=="},"#), "digits stay");
        let fields = params(asked);
        assert_eq!(fields["tags"], serde_json::json!({ "Sport": "chess" }));
        assert_eq!((&fields["version"], &fields["version_epoch"]), (&7.into(), &"e".into()));
        assert_eq!(fields["idempotency_key"], "k");
        let several = params(of(&[("centrifugo-channels", "a, b"), ("centrifugo-idempotency-key", "own")], "{}"));
        assert_eq!(several["channels"], serde_json::json!(["a", " b"]), "nothing is trimmed");
        assert_eq!(several["idempotency_key"], "own");
        assert!(matches!(of(&[], "1"), AskedCommand::Nothing(_)));
        assert!(matches!(of(&[("centrifugo-channels", "")], "1"), AskedCommand::Nothing(_)));
        for (name, value) in [("centrifugo-version", "-1"), ("centrifugo-delta", "yes")] {
            assert!(matches!(of(&[("centrifugo-channels", "a"), (name, value)], "1"), AskedCommand::Unreadable(_)));
        }
        for (data, base64) in [("junk", "anVuaw=="), (" 1", "IDE="), ("null", "bnVsbA=="), ("", "")] {
            assert_eq!(params(of(&[("centrifugo-channels", "a")], data))["data"]["$b64"], base64, "{data}");
        }
    }
}
