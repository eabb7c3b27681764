//! One publication, with the encodings that its subscribers share.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::cache::{EncodingKey, PushKind};
use super::content::{Content, LogPosition, Tags};
use super::exclusion::Exclusion;
use super::push::{EncodedPush, frame_push};
use super::transcode::publication_of_json;
use crate::encode::object::text;
use crate::encode::publication::{position_members, publication};
use crate::encoding::Encoding;
use crate::fossil;
use crate::notation::{base64_of, bytes_of, notation};
use crate::stream::Offset;
use crate::wire::Wire;

/// The form in which a subscriber gets a publication.
#[derive(Debug, Clone, Copy)]
pub enum Delta<'a> {
    /// The publication without deltas.
    None,
    /// The whole payload as text, for a subscriber that asked for deltas and has no earlier publication to apply one
    /// to.
    Whole,
    /// A delta to this publication, which the subscriber has. If the delta is not shorter, the whole payload.
    From(&'a Publication),
}

/// One event of a channel.
#[derive(Debug)]
pub struct Publication {
    /// The publication's offset. 0 = the channel has no history.
    pub offset: Offset,
    /// When the publication expires, Unix milliseconds. It is not delivered from then on. 0 = it does not expire.
    pub expires_ms: u64,
    /// The client or user that does not get the live delivery. `None` = all subscribers get it.
    pub exclusion: Option<Box<Exclusion>>,
    pub(super) shared: EncodedPush,
    /// The index in the push at which the publication's JSON object begins.
    pub(super) object: u32,
}

impl Publication {
    /// Encodes a publication of `channel`. `place` is `None` in a channel without history.
    pub fn encode(channel: &str, content: &Content, place: Option<LogPosition<'_>>) -> Self {
        let framed =
            Publication::frame(channel, place, content.data.len(), |buffer| publication(buffer, content, place));
        Publication { expires_ms: content.expires_ms, ..framed }
    }

    fn frame(channel: &str, place: Option<LogPosition<'_>>, size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut object = 0;
        let shared = EncodedPush::encode(channel.len() + size, |buffer| {
            let start = buffer.len();
            buffer.extend_from_slice(b"{\"channel\":");
            text(buffer, channel);
            buffer.extend_from_slice(b",\"pub\":");
            object = u32::try_from(buffer.len() - start).expect("a channel's name is short");
            write(buffer);
            buffer.push(b'}');
        });
        let offset = place.map_or(Offset::START, |p| p.offset);
        Publication { offset, expires_ms: 0, exclusion: None, shared, object }
    }

    /// The same publication with an exclusion: the excluded client or user does not get the live delivery.
    pub fn excluding(self, exclusion: Option<Box<Exclusion>>) -> Self {
        Publication { exclusion, ..self }
    }

    /// Wraps a publication that was encoded elsewhere. `object` is its JSON object without a position.
    pub fn wrap(channel: &str, object: &[u8], place: Option<LogPosition<'_>>) -> Self {
        let mut placed = object.strip_suffix(b"}").unwrap_or(object).to_vec();
        if let Some(place) = place {
            position_members(&mut placed, place);
        }
        placed.push(b'}');
        let framed = Publication::frame(channel, place, placed.len(), |buffer| buffer.extend_from_slice(&placed));
        Publication { expires_ms: expiry_of(object), ..framed }
    }

    /// Whether the publication has expired at `now_ms` (Unix milliseconds), so that it must not be delivered.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms > 0 && self.expires_ms <= now_ms
    }

    /// The whole push as a WebSocket text frame from the server.
    pub fn websocket_json(&self) -> &Bytes {
        &self.shared.frame
    }

    /// The whole push encoded and framed for `wire`, with the payload in the form that `change` names.
    pub fn framed(&self, wire: Wire, change: Delta<'_>) -> Bytes {
        let kind = PushKind::of(change);
        if kind == PushKind::Plain {
            return self.shared.framed(wire);
        }
        self.shared.forms.get(EncodingKey::Framed(wire, kind.clone()), || {
            frame_push(&self.changed_push(change, kind, wire.encoding), wire, true)
        })
    }

    /// The publication's JSON object, as in history and recovery.
    pub fn json(&self) -> &[u8] {
        object_of(self.shared.push(), self.object)
    }

    /// The size of the whole push in bytes. It is only slightly larger than the JSON object.
    pub fn size(&self) -> usize {
        self.shared.frame.len()
    }

    /// The publication as Protobuf, as in history and recovery.
    pub fn protobuf(&self) -> Bytes {
        self.shared.forms.get(EncodingKey::Object(PushKind::Plain), || publication_of_json(self.json(), false).into())
    }

    /// The tags of the publication.
    pub fn tags(&self) -> Tags {
        PushParts::read(self.json()).map(|parts| parts.tags).unwrap_or_default()
    }

    /// The payload, a JSON value.
    pub(super) fn data(&self) -> &[u8] {
        PushParts::read(self.json()).and_then(|parts| parts.data).map_or(&[], |data| data.get().as_bytes())
    }

    /// The push for a client of this encoding, with the payload as text. For Protobuf, the payload is in the notation
    /// of bytes if it or the previous payload is bytes.
    pub(super) fn changed_push(&self, change: Delta<'_>, kind: PushKind, encoding: Encoding) -> Bytes {
        let before = || if let Delta::From(before) = change { before.data() } else { &[] };
        let is_bytes = |payload| base64_of(payload).is_some();
        if encoding == Encoding::Protobuf && (is_bytes(self.data()) || is_bytes(before())) {
            return self.shared.forms.get(EncodingKey::Bytes(kind), || {
                let (before, data) = (bytes_of(before()), bytes_of(self.data()));
                let delta = shorter_change(change, &before, &data);
                let payload = notation(delta.as_deref().unwrap_or(&data));
                self.with_payload(delta.is_some(), |out| out.extend_from_slice(&payload))
            });
        }
        self.shared.forms.get(EncodingKey::Json(kind), || {
            let data = self.data();
            let delta = shorter_change(change, before(), data);
            let payload = delta.as_deref().unwrap_or(data);
            self.with_payload(delta.is_some(), |out| text(out, &String::from_utf8_lossy(payload)))
        })
    }

    /// The push with another payload in it.
    fn with_payload(&self, is_delta: bool, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let push = self.shared.push();
        // The JSON object that this crate writes begins with the payload.
        let start = self.object as usize + b"{\"data\":".len();
        let mut out = Vec::with_capacity(push.len() + 32);
        out.extend_from_slice(&push[..start]);
        write(&mut out);
        if is_delta {
            out.extend_from_slice(b",\"delta\":true");
        }
        out.extend_from_slice(&push[start + self.data().len()..]);
        out.into()
    }
}

/// The delta from one payload to the next. `None` = no delta is wanted, or it is not shorter than the payload.
fn shorter_change(change: Delta<'_>, before: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    match change {
        Delta::From(_) => Some(fossil::create(before, data)).filter(|delta| delta.len() < data.len()),
        Delta::None | Delta::Whole => None,
    }
}

/// The publication's object in a push, found by its start index.
pub(super) fn object_of(push: &[u8], start: u32) -> &[u8] {
    &push[start as usize..push.len() - 1]
}

impl PushKind {
    pub(super) fn of(change: Delta<'_>) -> Self {
        match change {
            Delta::None => PushKind::Plain,
            Delta::Whole => PushKind::Whole,
            Delta::From(before) => {
                // A slice of the frame, so nothing is copied.
                PushKind::From(before.shared.frame.slice_ref(before.data()))
            }
        }
    }
}

/// The parts of a publication's object that are read again.
#[derive(Deserialize, Default)]
#[serde(default)]
struct PushParts<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    tags: Tags,
}

/// When a publication expires, read from its object without a position. `expires_at` is the last member there. 0 = it
/// does not expire.
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
