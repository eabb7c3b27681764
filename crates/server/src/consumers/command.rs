//! What a row or a message asks for: a method of the server API and its payload. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use touchline_config::PublicationDataSettings;

use crate::api::OperationCall;
use crate::traces::TRACEPARENT;

/// The methods that are carried out, which are those of Centrifugo.
const METHODS: [&str; 7] = [PUBLISH, BROADCAST, "subscribe", "unsubscribe", "disconnect", "history_remove", "refresh"];
const PUBLISH: &str = "publish";
const BROADCAST: &str = "broadcast";
const HISTORY_REMOVE: &str = "history_remove";
/// The most that is told of a method, or of what is wrong with a payload, bytes.
const SHOWN_MAX: usize = 200;

/// What a command has an order with: it begins when all before it that has one of its channels is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommandScope {
    /// These channels. None = the command names no channel that can be read, so it will be refused.
    Channels(Vec<String>),
    /// Everything: it names a user in all channels.
    Everything,
}

/// An operation whose idempotency key may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AskedCall {
    operation: &'static str,
    /// Its fields, as they were written.
    pub(super) params: Bytes,
    key: KeyState,
    scope: CommandScope,
    /// The connections that it is for, as one text.
    targets: String,
    /// The `traceparent` of the message.
    parent: Option<Box<str>>,
}

/// Whether an operation has an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// It has one of its own, or takes none.
    Set,
    /// It has no such field.
    Absent,
    /// Its field is empty.
    Empty,
}

impl AskedCall {
    /// The name of the operation.
    pub(super) fn operation(&self) -> &'static str {
        self.operation
    }

    /// What it has an order with.
    pub(super) fn scope(&self) -> &CommandScope {
        &self.scope
    }

    /// Whether its repetition could undo what was carried out behind it: no idempotency key keeps it away.
    pub(super) fn undoes(&self) -> bool {
        !matches!(self.operation, PUBLISH | BROADCAST)
    }

    /// What it changes, each as a text. A command that [undoes](AskedCall::undoes) must not be repeated behind a later
    /// one that changes the same.
    pub(super) fn changes(&self) -> Vec<String> {
        let channels = match &self.scope {
            CommandScope::Channels(channels) => channels.as_slice(),
            CommandScope::Everything => &[],
        };
        if matches!(self.operation, PUBLISH | BROADCAST | HISTORY_REMOVE) {
            return channels.iter().map(|channel| format!("channel {channel}")).collect();
        }
        // One that was never carried out is made good by a later one of its kind for the same connections alone.
        let kind = if self.operation == "unsubscribe" { "subscribe" } else { self.operation };
        let of = |channel: &str| format!("{kind} {} {channel}", self.targets);
        if channels.is_empty() { vec![of("")] } else { channels.iter().map(|channel| of(channel)).collect() }
    }

    /// The operation with this idempotency key, unless it has its own or takes none.
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

/// What a row or a message asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AskedCommand {
    /// A publication into this channel: what comes before it in other channels does not matter.
    Publish {
        /// The channel; empty = none is named, which the operation refuses.
        channel: String,
        /// The operation.
        call: AskedCall,
    },
    /// Something else. What is behind it in its scope begins when it is done.
    Other(AskedCall),
    /// Nothing that is carried out here. The text says why.
    Nothing(String),
    /// It can't be read. The text says why.
    Unreadable(String),
}

impl AskedCommand {
    /// The same as a part of what the header field `traceparent` names, if there is one.
    pub(super) fn traced_by(mut self, headers: &[(String, String)]) -> AskedCommand {
        if let AskedCommand::Publish { call, .. } | AskedCommand::Other(call) = &mut self {
            let parent = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT));
            call.parent = parent.map(|(_, value)| value.as_str().into());
        }
        self
    }

    /// Reads a method and its payload.
    pub(super) fn read(method: &str, payload: &str) -> AskedCommand {
        let Some(operation) = METHODS.into_iter().find(|known| *known == method) else {
            let shown = &method[..method.floor_char_boundary(SHOWN_MAX)];
            return AskedCommand::Nothing(format!("no consumer carries out the method {shown:?}"));
        };
        AskedCommand::of(operation, payload)
            .unwrap_or_else(|error| unreadable("the payload is not a JSON object", &error))
    }

    /// Reads a message that holds the method and the payload.
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
    /// When it is not an object, nor a text that holds one.
    fn of(operation: &'static str, payload: &str) -> Result<AskedCommand, serde_json::Error> {
        /// The fields that matter here.
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
            /// A null counts as written.
            #[serde(borrow, default, deserialize_with = "written")]
            idempotency_key: Option<&'a RawValue>,
        }
        let mut payload: Cow<'_, str> = payload.trim().into();
        // Debezium hands JSON over as a text.
        if payload.starts_with('"') {
            payload = serde_json::from_str::<String>(&payload)?.trim().to_owned().into();
        }
        if !payload.starts_with('{') {
            // Serde would take a list for the fields in their order. The text of this error says what was found.
            serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(&payload)?;
        }
        let fields: Fields<'_> = serde_json::from_str(&payload)?;
        let channel = text_of(fields.channel);
        let key = match fields.idempotency_key.map(RawValue::get) {
            _ if !matches!(operation, PUBLISH | BROADCAST) => KeyState::Set,
            None => KeyState::Absent,
            Some("null" | "\"\"") => KeyState::Empty,
            // One that is no text stays, for the operation to refuse.
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

    /// Reads a message whose payload is the data of a publication, with the rest in headers.
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
        // As bytes, whatever they look like: the format of the channel says what they must be.
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

/// The text in a field; empty = it is not there, or is not text.
fn text_of(field: Option<&RawValue>) -> String {
    let text = field.and_then(|field| serde_json::from_str::<Option<String>>(field.get()).ok());
    text.flatten().unwrap_or_default()
}

/// Reads a field as it is written, also one that is null.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// What can't be read, and why. The text of the error may repeat what was found.
fn unreadable(what: &str, error: &serde_json::Error) -> AskedCommand {
    let error = error.to_string();
    AskedCommand::Unreadable(format!("{what}: {}", &error[..error.floor_char_boundary(SHOWN_MAX)]))
}

/// The tags in headers whose names begin so.
fn tags(prefix: &str, headers: &[(String, String)]) -> BTreeMap<String, String> {
    let tag = |(name, value): &(String, String)| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        let is_tag = !prefix.is_empty() && start.eq_ignore_ascii_case(prefix) && !rest.is_empty();
        is_tag.then(|| (rest.to_owned(), value.clone()))
    };
    headers.iter().filter_map(tag).collect()
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
fn with_key_in_place(object: &[u8], key: &str) -> Result<Bytes, serde_json::Error> {
    let mut fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(object)?;
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
