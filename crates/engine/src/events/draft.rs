//! An event, from its fields to the bytes that every receiver gets: one CloudEvent as JSON.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::encode::{self, ObjectWriter};

use super::kind::EventKind;
use super::timestamp::rfc3339;

/// The greatest size of one event, bytes.
pub const EVENT_SIZE_MAX: usize = 16 * 1_024;
/// The bytes that are kept of each text if an event is too large even without its optional data. Clients may report
/// texts of any length about themselves.
pub const EVENT_TEXT_SIZE_MAX: usize = 256;
/// The greatest size of the id of an event, and also of its key and of its subject, bytes, so that an event always
/// fits. The code that makes the draft shortens texts that clients choose.
pub const EVENT_ID_SIZE_MAX: usize = 384;

/// A value of the data of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum EventValue {
    /// A text; an empty one is omitted. If the event is too large, [`EVENT_TEXT_SIZE_MAX`] bytes of it are kept.
    Text(Box<str>),
    /// A number. It is written even if it is zero.
    Number(u64),
    /// A time, Unix milliseconds.
    Time(u64),
    /// Any JSON value.
    Json(Bytes),
    /// JSON that is omitted if the event is too large.
    Optional(Bytes),
    /// Not written itself. It marks that some of the data was omitted before.
    Truncated,
}

impl EventValue {
    /// The memory that the value takes, bytes.
    fn size(&self) -> usize {
        match self {
            EventValue::Text(text) => text.len(),
            EventValue::Json(json) | EventValue::Optional(json) => json.len(),
            EventValue::Number(_) | EventValue::Time(_) | EventValue::Truncated => 0,
        }
    }
}

/// An event before it is written.
#[derive(Debug, Clone)]
pub struct EventDraft {
    /// What the event reports.
    pub kind: EventKind,
    /// The event's id, unique within its source; a repetition has the same id. The id, the subject and the key have at
    /// most [`EVENT_ID_SIZE_MAX`] bytes.
    pub id: String,
    /// What the event is about: a user, a channel, a name.
    pub subject: String,
    /// The key of the event's lane. Events with the same key stay in order.
    pub key: String,
    /// When the event was created, Unix milliseconds.
    pub time_ms: u64,
    /// The number of the change for its key; `None` = changes of this key are not numbered.
    pub generation: Option<u64>,
    /// Which node or cluster the event belongs to.
    pub origin: EventOrigin,
    /// The fields of the event's data, in order.
    pub fields: Vec<(&'static str, EventValue)>,
}

/// Which node or cluster an event belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventOrigin {
    /// The cluster, no matter which node reports the event.
    Cluster,
    /// This node, in its present life.
    Node,
    /// Another node with this id, which can no longer report the event itself.
    Elsewhere(Arc<str>),
}

/// How much of an event is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventForm {
    /// The event with all its data.
    Whole,
    /// The event without its optional data.
    Plain,
    /// The event without its optional data and with shortened texts.
    Short,
}

/// The sources of events, as CloudEvents name them.
#[derive(Debug, Clone)]
pub struct EventSources {
    /// The source of what all nodes count together.
    pub cluster: Arc<str>,
    /// The source of what happens on this node, in its present life.
    pub node: Arc<str>,
}

impl EventSources {
    /// The sources of a node. `node`: its id, which it uses in this life only.
    pub fn new(cluster: &str, node: &str) -> Self {
        let cluster: Arc<str> = format!("/touchline/{}", encoded(cluster)).into();
        EventSources { node: of_node(&cluster, node), cluster }
    }

    fn of(&self, origin: &EventOrigin) -> Arc<str> {
        match origin {
            EventOrigin::Cluster => Arc::clone(&self.cluster),
            EventOrigin::Node => Arc::clone(&self.node),
            EventOrigin::Elsewhere(node) => of_node(&self.cluster, node),
        }
    }
}

/// The source of what happens on a node. A node gets a new id with each start, so each source has one incarnation.
fn of_node(cluster: &str, node: &str) -> Arc<str> {
    format!("{cluster}/{}/1", encoded(node)).into()
}

/// Encodes a text as a path segment (RFC 3986), because `source` is a URI reference.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// An event as it is sent. Its bytes never change, no matter in which batch and how many times it is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenEvent {
    /// What the event reports.
    pub kind: EventKind,
    /// The `source` of the CloudEvent.
    pub source: Arc<str>,
    /// The event's id, unique within its source.
    pub id: Box<str>,
    /// The key of the event's lane. Events with the same key stay in order.
    pub key: Box<str>,
    /// When the event was created, Unix milliseconds.
    pub time_ms: u64,
    /// The time since which the reported fact holds, Unix milliseconds. A `state.reset` may report that something has
    /// been wrong for a long time; 0 = since the beginning.
    pub since_ms: u64,
    /// The event, a JSON object of at most [`EVENT_SIZE_MAX`] bytes.
    pub body: Bytes,
}

impl WrittenEvent {
    /// The memory that the event takes, bytes.
    pub fn size(&self) -> usize {
        self.body.len() + self.id.len() + self.key.len() + size_of::<WrittenEvent>()
    }

    /// The lane of the event's key, of `lanes` lanes.
    pub fn lane(&self, lanes: usize) -> usize {
        lane_of(&self.key, lanes)
    }
}

/// The place of a key, at most `i64::MAX`, from which its lane follows. It is the same on all nodes and in all
/// versions, because databases store lanes.
pub fn place_of(key: &str) -> u64 {
    // FNV-1a (Fowler, Noll, Vo).
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of this hash are worse than the high bits. Databases have no larger numbers.
    (hash ^ hash >> 32) & i64::MAX as u64
}

/// The lane of a key, of `lanes` lanes.
fn lane_of(key: &str, lanes: usize) -> usize {
    (place_of(key) % lanes.max(1) as u64) as usize
}

impl EventDraft {
    /// Writes the event. If it is too large, its optional data is omitted, then its texts are shortened. `None` = it is
    /// still too large, because its id, its key or its subject exceed their limits.
    pub fn write(&self, sources: &EventSources) -> Option<WrittenEvent> {
        let source = sources.of(&self.origin);
        let forms = [EventForm::Whole, EventForm::Plain, EventForm::Short];
        let body = forms.into_iter().map(|form| self.json(&source, form)).find(|body| body.len() <= EVENT_SIZE_MAX);
        body.map(|body| WrittenEvent {
            kind: self.kind,
            source,
            id: self.id.as_str().into(),
            key: self.key.as_str().into(),
            time_ms: self.time_ms,
            since_ms: self.since_ms(),
            body: body.into(),
        })
    }

    /// The draft in a form that may wait. If it has more than `size_max` bytes of data, its optional data is removed,
    /// and [`EVENT_TEXT_SIZE_MAX`] bytes of each text are kept.
    pub fn kept(mut self, size_max: usize) -> Self {
        if self.fields.iter().map(|(_, value)| value.size()).sum::<usize>() <= size_max {
            return self;
        }
        let count = self.fields.len();
        self.fields.retain(|(_, value)| !matches!(value, EventValue::Optional(_)));
        let mut is_truncated = self.fields.len() < count;
        for (_, value) in &mut self.fields {
            if let EventValue::Text(text) = value
                && text.len() > EVENT_TEXT_SIZE_MAX
            {
                *text = text[..text.floor_char_boundary(EVENT_TEXT_SIZE_MAX)].into();
                is_truncated = true;
            }
        }
        if is_truncated {
            self.fields.push(("truncated", EventValue::Truncated));
        }
        self
    }

    fn since_ms(&self) -> u64 {
        let since = self.fields.iter().find_map(|(name, value)| match value {
            EventValue::Time(unix_ms) if *name == "since" => Some(*unix_ms),
            _ => None,
        });
        if self.kind == EventKind::StateReset { since.unwrap_or_default() } else { self.time_ms }
    }

    fn json(&self, source: &str, form: EventForm) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let mut event = ObjectWriter::open(&mut out);
        event.text("specversion", "1.0").text("id", &self.id).text("source", source);
        event.text("type", self.kind.cloud_type()).text("subject", &self.subject);
        event.text("time", &rfc3339(self.time_ms)).text("partitionkey", &self.key);
        if let Some(generation) = self.generation {
            event.text("generation", &generation.to_string());
        }
        let mut data = ObjectWriter::open(event.key("data"));
        let mut is_truncated = false;
        for (name, value) in &self.fields {
            match value {
                EventValue::Text(text) if form == EventForm::Short && text.len() > EVENT_TEXT_SIZE_MAX => {
                    data.text(name, &text[..text.floor_char_boundary(EVENT_TEXT_SIZE_MAX)]);
                    is_truncated = true;
                }
                EventValue::Text(text) => drop(data.text(name, text)),
                EventValue::Number(number) => encode::number(data.key(name), *number),
                EventValue::Time(unix_ms) => drop(data.text(name, &rfc3339(*unix_ms))),
                EventValue::Json(json) => drop(data.raw(name, Some(json))),
                EventValue::Optional(json) if form == EventForm::Whole => drop(data.raw(name, Some(json))),
                EventValue::Optional(_) | EventValue::Truncated => is_truncated = true,
            }
        }
        data.flag("truncated", is_truncated);
        data.close();
        event.close();
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn draft(meta: usize) -> EventDraft {
        EventDraft {
            kind: EventKind::UserOnline,
            id: "user:42:7".into(),
            subject: "42".into(),
            key: "user:42".into(),
            time_ms: 1_795_359_600_123,
            generation: Some(7),
            origin: EventOrigin::Cluster,
            fields: vec![
                ("user", EventValue::Text("42".into())),
                ("reason", EventValue::Text("normal".into())),
                ("meta", EventValue::Optional(format!("\"{}\"", "m".repeat(meta)).into())),
            ],
        }
    }

    #[test]
    fn an_event_is_what_the_format_says() {
        let sources = EventSources::new("prod", "n");
        let mut plain = draft(0);
        plain.fields.pop();
        let written = plain.write(&sources).expect("it is small");
        // This is the first event of the batch with which the signature is checked.
        let expected = concat!(
            r#"{"specversion":"1.0","id":"user:42:7","source":"/touchline/prod","#,
            r#""type":"io.touchline.user.online","subject":"42","time":"2026-11-22T15:00:00.123Z","#,
            r#""partitionkey":"user:42","generation":"7","data":{"user":"42","reason":"normal"}}"#
        );
        assert_eq!(written.body, expected);
    }

    #[test]
    fn what_is_too_large_goes_without_its_meta_first() {
        let sources = EventSources::new("a b/c", "n");
        assert_eq!(&*sources.node, "/touchline/a%20b%2Fc/n/1");
        let large = draft(EVENT_SIZE_MAX).write(&sources).expect("the rest fits");
        assert!(large.body.ends_with(br#""reason":"normal","truncated":true}}"#), "{large:?}");
        let mut endless = draft(1);
        endless.subject = "x".repeat(EVENT_SIZE_MAX);
        assert_eq!(endless.write(&sources), None);
    }

    #[test]
    fn a_draft_that_waits_is_cut_once_it_is_too_large() {
        let sources = EventSources::new("c", "n");
        let mut long = draft(10);
        long.fields.push(("name", EventValue::Text("é".repeat(EVENT_TEXT_SIZE_MAX).into())));
        let whole = long.clone().kept(1_000).write(&sources).expect("it is small");
        assert_eq!(whole, long.write(&sources).expect("it is small"), "it may be as large as that");
        let cut = long.kept(100).write(&sources).expect("it is small");
        let json: serde_json::Value = serde_json::from_slice(&cut.body).expect("JSON");
        assert_eq!(
            (json["data"]["name"].as_str().map(str::len), &json["data"]["meta"]),
            (Some(256), &serde_json::Value::Null)
        );
        assert_eq!(json["data"]["truncated"], true);
        let plain = draft(0).kept(0).write(&sources).expect("it is small");
        assert!(plain.body.ends_with(br#""reason":"normal","truncated":true}}"#), "{plain:?}");
    }

    #[test]
    fn a_reset_goes_back_to_what_it_says() {
        let since_ms = |kind, fields| {
            let reset = EventDraft { kind, fields, ..draft(0) };
            reset.write(&EventSources::new("c", "n")).expect("it is small").since_ms
        };
        assert_eq!(since_ms(EventKind::StateReset, vec![("since", EventValue::Time(7))]), 7);
        assert_eq!(since_ms(EventKind::StateReset, Vec::new()), 0);
        assert_eq!(since_ms(EventKind::Connected, Vec::new()), 1_795_359_600_123);
    }

    /// A text of any characters; many of them take six bytes of JSON each.
    fn hostile(size_max: usize) -> impl Strategy<Value = String> {
        let character = prop_oneof![Just('\u{1}'), Just('"'), Just('\u{1f600}'), any::<char>()];
        (prop::collection::vec(character, 1..20), 0..=size_max).prop_map(|(some, size)| {
            let text: String = some.iter().cycle().take(size).collect();
            text[..text.floor_char_boundary(size)].to_owned()
        })
    }

    proptest! {
        #[test]
        fn any_event_is_valid_json_within_its_size(
            id in hostile(EVENT_ID_SIZE_MAX - 1),
            subject in hostile(EVENT_ID_SIZE_MAX), key in hostile(EVENT_ID_SIZE_MAX),
            texts in prop::collection::vec(hostile(40_000), 4), meta in 0..20_000_usize,
        ) {
            let mut draft = draft(meta);
            (draft.id, draft.subject, draft.key) = (format!("i{id}"), subject, key);
            let names = ["name", "version", "client", "reason_of_client"];
            let lengths: Vec<usize> = texts.iter().map(String::len).collect();
            draft.fields.extend(names.into_iter().zip(texts).map(|(name, text)| (name, EventValue::Text(text.into()))));
            let written = draft.write(&EventSources::new("c", "n")).expect("its texts are short");
            prop_assert!(written.body.len() <= EVENT_SIZE_MAX);
            let json: serde_json::Value = serde_json::from_slice(&written.body).expect("JSON");
            prop_assert_eq!(json["id"].as_str(), Some(draft.id.as_str()));
            let has_meta = !json["data"]["meta"].is_null();
            let is_whole = |(name, length): (&&str, &usize)| json["data"][name].as_str().map_or(0, str::len) == *length;
            let is_all = has_meta && names.iter().zip(&lengths).all(is_whole);
            prop_assert_eq!(json["data"]["truncated"].as_bool(), (!is_all).then_some(true));
            let is_there = |(name, length): (&&str, &usize)| *length == 0 || json["data"][name].is_string();
            prop_assert!(names.iter().zip(&lengths).all(is_there));
        }

        #[test]
        fn a_key_has_one_lane(key in ".{0,40}", lanes in 1..64_usize) {
            prop_assert!(lane_of(&key, lanes) < lanes);
        }
    }
}
