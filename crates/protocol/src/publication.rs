//! A publication in all the forms in which it leaves the server, encoded once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::encode;
use crate::websocket::{Opcode, encode_header};

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
}

/// Where a publication stands in a channel with history.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its offset, from 1 on.
    pub offset: u64,
    /// The channel's epoch.
    pub epoch: &'a str,
    /// When it was accepted, Unix milliseconds.
    pub time_ms: u64,
}

/// One event of a channel. Its JSON object and its WebSocket frame are parts of one allocation.
#[derive(Debug, Clone)]
pub struct Publication {
    /// Its offset; 0 in a channel without history.
    pub offset: u64,
    frame: Bytes,
    object: (u32, u32),
}

impl Publication {
    /// Encodes a publication of `channel`; `place` is none in a channel without history.
    pub fn encode(channel: &str, content: &Content, place: Option<Place<'_>>) -> Self {
        Publication::frame(channel, place, content.data.len(), |buffer| encode::publication(buffer, content, place))
    }

    fn frame(channel: &str, place: Option<Place<'_>>, size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        // The head's length depends on the body's, so the body is written behind the longest head and the head put right before it.
        const HEAD_MAX: usize = 10;
        let mut buffer = Vec::with_capacity(HEAD_MAX + 96 + channel.len() + size);
        buffer.resize(HEAD_MAX, 0);
        buffer.extend_from_slice(b"{\"push\":{\"channel\":");
        encode::text(&mut buffer, channel);
        buffer.extend_from_slice(b",\"pub\":");
        let start = buffer.len();
        write(&mut buffer);
        let end = buffer.len();
        buffer.extend_from_slice(b"}}");
        let mut head = Vec::with_capacity(HEAD_MAX);
        encode_header(Opcode::Text, buffer.len() - HEAD_MAX, &mut head);
        let skipped = HEAD_MAX - head.len();
        buffer[skipped..HEAD_MAX].copy_from_slice(&head);
        let at = |index: usize| u32::try_from(index - skipped).expect("a publication is limited to megabytes");
        Publication { offset: place.map_or(0, |p| p.offset), object: (at(start), at(end)), frame: Bytes::from(buffer).slice(skipped..) }
    }

    /// Wraps a publication that was encoded elsewhere: `object` is its JSON object without a place.
    pub fn wrap(channel: &str, object: &[u8], place: Option<Place<'_>>) -> Self {
        let mut placed = object.strip_suffix(b"}").unwrap_or(object).to_vec();
        if let Some(place) = place {
            encode::place(&mut placed, place);
        }
        placed.push(b'}');
        Publication::frame(channel, place, placed.len(), |buffer| buffer.extend_from_slice(&placed))
    }

    /// The whole push as a WebSocket text frame from the server.
    pub fn websocket_json(&self) -> &Bytes {
        &self.frame
    }

    /// The publication's JSON object, as it stands in history and recovery.
    pub fn json(&self) -> &[u8] {
        &self.frame[self.object.0 as usize..self.object.1 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(data: &str) -> Content {
        Content { data: Bytes::copy_from_slice(data.as_bytes()), ..Content::default() }
    }

    #[test]
    fn a_publication_is_framed_once_and_its_object_is_inside() {
        let place = Place { offset: 2, epoch: "abcdefgh", time_ms: 5 };
        let publication = Publication::encode("news", &content("{\"a\":1}"), Some(place));
        assert_eq!(publication.json(), br#"{"data":{"a":1},"offset":2,"time":5}"#);
        let body = br#"{"push":{"channel":"news","pub":{"data":{"a":1},"offset":2,"time":5}}}"#;
        assert_eq!(publication.websocket_json()[..2], [0x81, body.len() as u8]);
        assert_eq!(&publication.websocket_json()[2..], body);
    }

    #[test]
    fn the_first_publication_of_a_stream_carries_its_epoch() {
        let place = Place { offset: 1, epoch: "abcdefgh", time_ms: 5 };
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
}
