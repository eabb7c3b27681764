//! A publication in all the forms in which it leaves the server. Each form is made once, when the first who needs it is
//! there.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::message::{Encoding, publication_of_json, push_of_json};
use crate::stream::Offset;
use crate::websocket::{Opcode, encode_header};
use crate::wire::Wire;
use crate::{encode, fossil};

/// Who published, joined, left or is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user; empty = anonymous.
    pub user: Box<str>,
    /// The client id, a UUID in its usual form.
    pub client: Box<str>,
    /// JSON from the connection's token.
    pub conn_info: Option<Bytes>,
    /// JSON from the subscription's token.
    pub chan_info: Option<Bytes>,
}

/// Labels of a publication, for filters.
pub type Tags = BTreeMap<String, String>;

/// What a publication says, before it has its place in a channel.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// A JSON value on one line.
    pub data: Bytes,
    /// Labels.
    pub tags: Tags,
    /// The client that published; none for the server API.
    pub info: Option<Arc<ClientInfo>>,
    /// From then on nobody is given it any more, Unix milliseconds; 0 = it does not expire.
    pub expires_ms: u64,
}

/// Where a publication stands in a channel with history.
#[derive(Debug, Clone, Copy)]
pub struct LogPosition<'a> {
    /// Its offset, from 1 on.
    pub offset: Offset,
    /// The channel's epoch.
    pub epoch: &'a str,
    /// When it was accepted, Unix milliseconds.
    pub time_ms: u64,
}

/// What of a publication a subscriber is given.
#[derive(Debug, Clone, Copy)]
pub enum Delta<'a> {
    /// The publication as it is.
    None,
    /// The same for who has asked for deltas, and has nothing yet that they could change: the payload as text.
    Whole,
    /// The change to this one, which the subscriber has; the whole payload where that is no longer.
    From(&'a Publication),
}

/// A push that many get. The commonest form is there from the start, the others are made of it.
#[derive(Debug)]
pub struct EncodedPush {
    /// A WebSocket frame with `{"push":…}` in it.
    frame: Bytes,
    head: u8,
    forms: EncodingCache,
}

/// `{"push":` and `}` are around a push.
const PUSH_WRAPPER: (usize, usize) = (8, 1);

impl EncodedPush {
    /// Frames a push whose JSON, without `{"push":…}` around it, the closure writes.
    pub fn encode(size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        // The head's length depends on the body's, so the body is written behind the longest head and the head put
        // right before it.
        const HEAD_MAX: usize = 10;
        let mut buffer = Vec::with_capacity(HEAD_MAX + 96 + size);
        buffer.resize(HEAD_MAX, 0);
        buffer.extend_from_slice(b"{\"push\":");
        write(&mut buffer);
        buffer.push(b'}');
        let mut head = Vec::with_capacity(HEAD_MAX);
        encode_header(Opcode::Text, buffer.len() - HEAD_MAX, &mut head);
        let skipped = HEAD_MAX - head.len();
        buffer[skipped..HEAD_MAX].copy_from_slice(&head);
        EncodedPush {
            frame: Bytes::from(buffer).slice(skipped..),
            head: head.len() as u8,
            forms: EncodingCache::default(),
        }
    }

    /// The whole message as JSON.
    pub fn json(&self) -> &[u8] {
        &self.frame[usize::from(self.head)..]
    }

    /// The push alone as JSON.
    fn push(&self) -> &[u8] {
        let message = self.json();
        &message[PUSH_WRAPPER.0..message.len() - PUSH_WRAPPER.1]
    }

    /// As it leaves in this form.
    pub fn framed(&self, wire: Wire) -> Bytes {
        if wire == Wire::JSON {
            return self.frame.clone();
        }
        self.forms.get(EncodingKey::Framed(wire, PushKind::Plain), || frame_push(self.push(), wire, false))
    }
}

fn frame_push(push: &[u8], wire: Wire, is_text: bool) -> Bytes {
    let mut out = Vec::with_capacity(push.len() + 32);
    match wire.encoding {
        Encoding::Push => wire.frame(push, &mut out),
        Encoding::Protobuf => wire.frame(&push_of_json(push, is_text), &mut out),
        Encoding::Json => {
            let mut message = Vec::with_capacity(push.len() + PUSH_WRAPPER.0 + PUSH_WRAPPER.1);
            message.extend_from_slice(b"{\"push\":");
            message.extend_from_slice(push);
            message.push(b'}');
            wire.frame(&message, &mut out);
        }
    }
    out.into()
}

/// Forms that have been made.
#[derive(Debug, Default)]
struct EncodingCache(Mutex<Vec<(EncodingKey, Bytes)>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EncodingKey {
    /// The whole push.
    Framed(Wire, PushKind),
    /// The push as JSON, its payload as text.
    Json(PushKind),
    /// The publication alone as Protobuf.
    Object(PushKind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PushKind {
    Plain,
    Whole,
    /// The change to a publication with this payload, by its hash.
    From(u64),
}

impl EncodingCache {
    fn get(&self, form: EncodingKey, make: impl FnOnce() -> Bytes) -> Bytes {
        let found = |forms: &Vec<(EncodingKey, Bytes)>| {
            forms.iter().find(|(made, _)| *made == form).map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = found(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return bytes;
        }
        // Two shards may make the same one at a time: better than that one waits.
        let bytes = make();
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = found(&forms) {
            return bytes;
        }
        if forms.is_empty() {
            forms.reserve_exact(1);
        }
        forms.push((form, bytes.clone()));
        bytes
    }
}

/// One event of a channel.
#[derive(Debug)]
pub struct Publication {
    /// Its offset; 0 in a channel without history.
    pub offset: Offset,
    /// From then on nobody is given it any more, Unix milliseconds; 0 = it does not expire.
    pub expires_ms: u64,
    shared: EncodedPush,
    /// Where its JSON object begins in the push.
    object: u32,
}

impl Publication {
    /// Encodes a publication of `channel`; `place` is none in a channel without history.
    pub fn encode(channel: &str, content: &Content, place: Option<LogPosition<'_>>) -> Self {
        let publication = Publication::frame(channel, place, content.data.len(), |buffer| {
            encode::publication(buffer, content, place)
        });
        Publication { expires_ms: content.expires_ms, ..publication }
    }

    fn frame(channel: &str, place: Option<LogPosition<'_>>, size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut object = 0;
        let shared = EncodedPush::encode(channel.len() + size, |buffer| {
            let start = buffer.len();
            buffer.extend_from_slice(b"{\"channel\":");
            encode::text(buffer, channel);
            buffer.extend_from_slice(b",\"pub\":");
            object = u32::try_from(buffer.len() - start).expect("a channel's name is short");
            write(buffer);
            buffer.push(b'}');
        });
        Publication { offset: place.map_or(Offset::START, |p| p.offset), expires_ms: 0, shared, object }
    }

    /// Wraps a publication that was encoded elsewhere: `object` is its JSON object without a place.
    pub fn wrap(channel: &str, object: &[u8], place: Option<LogPosition<'_>>) -> Self {
        let mut placed = object.strip_suffix(b"}").unwrap_or(object).to_vec();
        if let Some(place) = place {
            encode::position_members(&mut placed, place);
        }
        placed.push(b'}');
        let publication = Publication::frame(channel, place, placed.len(), |buffer| buffer.extend_from_slice(&placed));
        Publication { expires_ms: expiry_of(object), ..publication }
    }

    /// Whether nobody is to be given it any more.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms > 0 && self.expires_ms <= now_ms
    }

    /// The whole push as a WebSocket text frame from the server.
    pub fn websocket_json(&self) -> &Bytes {
        &self.shared.frame
    }

    /// The whole push as it leaves in this form, for a subscriber that is given this change.
    pub fn framed(&self, wire: Wire, change: Delta<'_>) -> Bytes {
        let kind = PushKind::of(change);
        if kind == PushKind::Plain {
            return self.shared.framed(wire);
        }
        self.shared
            .forms
            .get(EncodingKey::Framed(wire, kind), || frame_push(&self.changed_push(change, kind), wire, true))
    }

    /// The publication's JSON object, as it stands in history and recovery.
    pub fn json(&self) -> &[u8] {
        object_of(self.shared.push(), self.object)
    }

    /// Bytes that the whole push takes, which is hardly more than its JSON object.
    pub fn size(&self) -> usize {
        self.shared.frame.len()
    }

    /// The same as Protobuf.
    pub fn protobuf(&self) -> Bytes {
        self.shared.forms.get(EncodingKey::Object(PushKind::Plain), || publication_of_json(self.json(), false).into())
    }

    /// Its labels.
    pub fn tags(&self) -> Tags {
        PushParts::read(self.json()).map(|parts| parts.tags).unwrap_or_default()
    }

    /// The payload, a JSON value.
    fn data(&self) -> &[u8] {
        PushParts::read(self.json()).and_then(|parts| parts.data).map_or(&[], |data| data.get().as_bytes())
    }

    /// The push, its payload as text.
    fn changed_push(&self, change: Delta<'_>, kind: PushKind) -> Bytes {
        self.shared.forms.get(EncodingKey::Json(kind), || {
            let (push, data) = (self.shared.push(), self.data());
            let delta = match change {
                Delta::From(before) => {
                    Some(fossil::create(before.data(), data)).filter(|delta| delta.len() < data.len())
                }
                Delta::None | Delta::Whole => None,
            };
            // Our own object begins with its payload.
            let start = self.object as usize + b"{\"data\":".len();
            let mut out = Vec::with_capacity(push.len() + 32);
            out.extend_from_slice(&push[..start]);
            let text = delta.as_deref().unwrap_or(data);
            encode::text(&mut out, &String::from_utf8_lossy(text));
            if delta.is_some() {
                out.extend_from_slice(b",\"delta\":true");
            }
            out.extend_from_slice(&push[start + data.len()..]);
            out.into()
        })
    }
}

fn object_of(push: &[u8], start: u32) -> &[u8] {
    &push[start as usize..push.len() - 1]
}

impl PushKind {
    fn of(change: Delta<'_>) -> Self {
        match change {
            Delta::None => PushKind::Plain,
            Delta::Whole => PushKind::Whole,
            Delta::From(before) => {
                let mut hasher = DefaultHasher::new();
                before.data().hash(&mut hasher);
                PushKind::From(hasher.finish())
            }
        }
    }
}

/// What of a publication's object is looked at again.
#[derive(Deserialize, Default)]
#[serde(default)]
struct PushParts<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    tags: Tags,
}

/// When a publication expires, by its object without a place: nothing stands behind `expires_at` there. 0 = it does
/// not.
fn expiry_of(object: &[u8]) -> u64 {
    let members = object.strip_suffix(b"}").unwrap_or_default();
    let digits = members.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = members.split_at(members.len() - digits);
    let is_expiry = before.ends_with(b",\"expires_at\":");
    std::str::from_utf8(number).ok().filter(|_| is_expiry).and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl<'a> PushParts<'a> {
    fn read(object: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(object).ok()
    }
}

/// Publications that a subscriber missed, oldest first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recovered<'a> {
    /// They.
    pub publications: &'a [Arc<Publication>],
    /// The first is whole, each other one the change to the one before.
    pub is_delta: bool,
}

impl<'a> Recovered<'a> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.publications.is_empty()
    }

    /// Each with what the subscriber is given of it.
    pub(crate) fn iter(self) -> impl Iterator<Item = RecoveredPublication<'a>> {
        self.publications.iter().enumerate().map(move |(index, publication)| {
            let change = match index.checked_sub(1) {
                _ if !self.is_delta => Delta::None,
                None => Delta::Whole,
                Some(before) => Delta::From(&self.publications[before]),
            };
            RecoveredPublication { publication, change }
        })
    }
}

/// One of them.
pub(crate) struct RecoveredPublication<'a> {
    publication: &'a Publication,
    change: Delta<'a>,
}

impl RecoveredPublication<'_> {
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        match PushKind::of(self.change) {
            PushKind::Plain => out.extend_from_slice(self.publication.json()),
            kind => {
                let push = self.publication.changed_push(self.change, kind);
                out.extend_from_slice(object_of(&push, self.publication.object));
            }
        }
    }

    pub(crate) fn protobuf(&self) -> Bytes {
        match PushKind::of(self.change) {
            PushKind::Plain => self.publication.protobuf(),
            kind => self.publication.shared.forms.get(EncodingKey::Object(kind), || {
                let push = self.publication.changed_push(self.change, kind);
                publication_of_json(object_of(&push, self.publication.object), true).into()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Coding, Framing};

    fn content(data: &str) -> Content {
        Content { data: Bytes::copy_from_slice(data.as_bytes()), ..Content::default() }
    }

    #[test]
    fn a_publication_is_framed_once_and_its_object_is_inside() {
        let place = LogPosition { offset: Offset(2), epoch: "abcdefgh", time_ms: 5 };
        let publication = Publication::encode("news", &content("{\"a\":1}"), Some(place));
        assert_eq!(publication.json(), br#"{"data":{"a":1},"offset":2,"time":5}"#);
        let body = br#"{"push":{"channel":"news","pub":{"data":{"a":1},"offset":2,"time":5}}}"#;
        assert_eq!(publication.websocket_json()[..2], [0x81, body.len() as u8]);
        assert_eq!(&publication.websocket_json()[2..], body);
    }

    #[test]
    fn the_first_publication_of_a_stream_carries_its_epoch() {
        let place = LogPosition { offset: Offset(1), epoch: "abcdefgh", time_ms: 5 };
        let publication = Publication::encode("news", &content("1"), Some(place));
        assert_eq!(publication.json(), br#"{"data":1,"offset":1,"time":5,"epoch":"abcdefgh"}"#);
    }

    #[test]
    fn frames_of_every_head_length_are_whole() {
        for length in [10, 200, 70_000] {
            let text = format!("\"{}\"", "x".repeat(length));
            let publication = Publication::encode("c", &content(&text), None);
            assert!(publication.websocket_json().ends_with(b"}}}"));
            assert_eq!(publication.json().len(), text.len() + br#"{"data":}"#.len());
        }
    }

    #[test]
    fn a_publication_that_was_stored_expires_when_it_did_before() {
        for (data, expires_ms) in
            [("1", 0), ("{\"expires_at\":5}", 0), ("\",\\\"expires_at\\\":7\"", 0), ("1", 1_700_000_000_123)]
        {
            let content = Content { expires_ms, ..content(data) };
            let mut object = Vec::new();
            encode::publication(&mut object, &content, None);
            let place = LogPosition { offset: Offset(1), epoch: "abcdefgh", time_ms: 5 };
            assert_eq!(Publication::wrap("c", &object, Some(place)).expires_ms, expires_ms, "{data}");
        }
    }

    #[test]
    fn a_publication_that_was_stored_says_the_same_in_its_new_place() {
        let tags = Tags::from([("league".to_owned(), "serie-a".to_owned())]);
        for offset in [0, 1, 2] {
            let content = Content { tags: tags.clone(), ..content("{\"a\":1}") };
            let place = (offset > 0).then_some(LogPosition { offset: Offset(offset), epoch: "abcdefgh", time_ms: 5 });
            let (made, stored) = (Publication::encode("c", &content, place), Publication::encode("c", &content, None));
            let wrapped = Publication::wrap("c", stored.json(), place);
            let said = |publication: &Publication| {
                serde_json::from_slice::<serde_json::Value>(publication.json()).expect("it is JSON")
            };
            assert_eq!(said(&wrapped), said(&made));
            assert_eq!((wrapped.offset, wrapped.size()), (Offset(offset), made.size()));
            assert_eq!((made.tags(), wrapped.tags()), (tags.clone(), tags.clone()));
            assert_eq!(made.size(), made.websocket_json().len());
        }
    }

    #[test]
    fn a_publication_expires_at_its_time_and_not_before() {
        for (expires_ms, now_ms, is_expired) in
            [(5, 4, false), (5, 5, true), (5, 6, true), (0, 0, false), (0, 6, false)]
        {
            let publication = Publication::encode("c", &Content { expires_ms, ..content("1") }, None);
            assert_eq!(publication.is_expired(now_ms), is_expired, "{expires_ms} at {now_ms}");
        }
    }

    #[test]
    fn every_form_says_the_same() {
        let publication = Publication::encode("news", &content("{\"a\":1}"), None);
        let framed = |body, envelope| publication.framed(Wire { encoding: body, framing: envelope }, Delta::None);
        assert_eq!(
            &framed(Encoding::Json, Framing::Stream(Coding::Identity))[..],
            b"{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":{\"a\":1}}}}\n"
        );
        assert_eq!(
            &framed(Encoding::Push, Framing::EventStream(Coding::Identity))[..],
            b"data: {\"channel\":\"news\",\"pub\":{\"data\":{\"a\":1}}}\n\n"
        );
        let message = b"\x13\x22\x11\x12\x04news\x22\x09\x22\x07{\"a\":1}";
        assert_eq!(&framed(Encoding::Protobuf, Framing::Stream(Coding::Identity))[..], message);
        assert_eq!(
            framed(Encoding::Protobuf, Framing::Stream(Coding::Identity)).as_ptr(),
            framed(Encoding::Protobuf, Framing::Stream(Coding::Identity)).as_ptr(),
            "made once"
        );
    }

    #[test]
    fn a_message_that_many_get_is_what_one_alone_would_get() {
        use crate::message::{Messages, Push};
        let data = br#"{"from":{},"to":"all","data":[1,"x"]}"#;
        let shared = EncodedPush::encode(data.len(), |out| {
            out.extend_from_slice(b"{\"message\":{\"data\":");
            out.extend_from_slice(data);
            out.extend_from_slice(b"}}");
        });
        for body in [Encoding::Json, Encoding::Protobuf, Encoding::Push] {
            let wire = Wire { encoding: body, framing: Framing::Stream(Coding::Identity) };
            let mut alone = Messages::default();
            alone.encode_as(body);
            alone.push("", &Push::Message(data));
            let mut framed = Vec::new();
            wire.frame(alone.bytes(), &mut framed);
            assert_eq!(&shared.framed(wire)[..], &framed[..], "{body:?}");
        }
    }

    #[test]
    fn a_change_is_sent_where_it_is_shorter() {
        let state =
            |goals: u32| format!("{{\"teams\":[\"Roma\",\"Lazio\"],\"stadium\":\"Olimpico\",\"goals\":{goals}}}");
        let (first, second) =
            (Publication::encode("c", &content(&state(1)), None), Publication::encode("c", &content(&state(2)), None));
        let line = Wire { encoding: Encoding::Json, framing: Framing::Stream(Coding::Identity) };
        let json = |bytes: Bytes| {
            serde_json::from_slice::<serde_json::Value>(&bytes).expect("it is JSON")["push"]["pub"].clone()
        };
        assert_eq!(json(first.framed(line, Delta::Whole)), serde_json::json!({"data": state(1)}));
        let change = json(second.framed(line, Delta::From(&first)));
        assert_eq!(change["delta"], true);
        assert!(change["data"].as_str().is_some_and(|delta| delta.len() < 40 && delta.ends_with(';')), "{change}");
        let other = Publication::encode("c", &content("\"short\""), None);
        assert_eq!(json(other.framed(line, Delta::From(&first))), serde_json::json!({"data": "\"short\""}));
    }

    #[test]
    fn a_payload_as_text_is_the_same_bytes_in_protobuf() {
        let publication = Publication::encode("c", &content("{\"a\":\"\\n\"}"), None);
        let wire = Wire { encoding: Encoding::Protobuf, framing: Framing::Stream(Coding::Identity) };
        assert_eq!(publication.framed(wire, Delta::Whole), publication.framed(wire, Delta::None));
    }

    #[test]
    fn a_change_as_long_as_the_payload_is_not_sent() {
        let text = "0123456789abcdefghijklmnopqrstuvwxyz";
        let mut seen = std::collections::BTreeSet::new();
        // With the quotation mark before it, the text's second block begins at 15.
        for end in 31..text.len() {
            let payloads = [text.to_owned(), format!("!{}!", &text[15..end])];
            let publications = payloads.map(|text| Publication::encode("c", &content(&format!("\"{text}\"")), None));
            let [before, publication] = publications;
            let order = fossil::create(before.data(), publication.data()).len().cmp(&publication.data().len());
            let line = Wire { encoding: Encoding::Push, framing: Framing::Stream(Coding::Identity) };
            let push: serde_json::Value =
                serde_json::from_slice(&publication.framed(line, Delta::From(&before))).expect("it is JSON");
            assert_eq!(push["pub"].get("delta").is_some(), order.is_lt(), "{push}");
            seen.insert(order);
        }
        assert_eq!(seen.len(), 3, "longer, as long, and shorter");
    }

    #[test]
    fn of_what_was_missed_the_first_is_whole_and_the_rest_are_changes() {
        let state =
            |goals: u32| format!("{{\"teams\":[\"Roma\",\"Lazio\"],\"stadium\":\"Olimpico\",\"goals\":{goals}}}");
        let publications = [1, 2, 3].map(|goals| Arc::new(Publication::encode("c", &content(&state(goals)), None)));
        let said = |is_delta| {
            Recovered { publications: &publications, is_delta }.iter().map(|one| {
                let mut json = Vec::new();
                one.write_json(&mut json);
                serde_json::from_slice::<serde_json::Value>(&json).expect("it is JSON")
            })
        };
        let whole = |goals| serde_json::from_str::<serde_json::Value>(&state(goals)).expect("it is JSON");
        assert!(said(false).eq([1, 2, 3].map(|goals| serde_json::json!({"data": whole(goals)}))));
        let deltas: Vec<_> = said(true).collect();
        assert_eq!(deltas[0], serde_json::json!({"data": state(1)}));
        assert!(deltas[1..].iter().all(|change| change["delta"] == true), "{deltas:?}");
        assert!(!Recovered { publications: &publications, is_delta: true }.is_empty());
        assert!(Recovered::default().is_empty());
    }
}
