//! The bytes that subscribers send and read: as few as a client needs, so that the load generator stays cheap.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use touchline_protocol::websocket::{Opcode, encode_masked_frame};

/// A mask that is not zero: unmasking must cost the server what it costs with real clients.
pub(crate) const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// Numbers are written from here, so that all have ten digits.
pub(crate) const NUMBER_BASE: u64 = 1_000_000_000;
const NUMBER_DIGITS: usize = 10;
const TIME_DIGITS: usize = 16;
const MARK: &[u8] = b"{\"n\":1";

/// The first byte of a WebSocket ping frame.
pub(crate) const PING: u8 = 0x89;
/// The first byte of a WebSocket close frame.
pub(crate) const CLOSE: u8 = 0x88;

/// The protocol of a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dialect {
    /// The Centrifugal client protocol over WebSocket: connect, its reply, subscribe, its reply.
    Centrifugal,
    /// WebSocket without a protocol: a text frame with the channel's name subscribes, the first frame back
    /// acknowledges.
    Raw,
    /// The frames of a WebSocket on a bare socket, as the floor sends them; the first one acknowledges.
    #[value(skip)]
    Plain,
}

/// The request that turns a connection into a WebSocket.
pub(crate) fn handshake(host: &str, path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dG91Y2hsaW5lLWxhYi0xNg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes()
}

/// A client's text frame.
pub(crate) fn text(payload: &str) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 14);
    encode_masked_frame(Opcode::Text, payload.as_bytes(), MASK, &mut frame);
    frame
}

/// A client's pong to a WebSocket ping.
pub(crate) fn pong(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_masked_frame(Opcode::Pong, payload, MASK, &mut frame);
    frame
}

/// The data of a publication: its number in its channel, when it was posted (Unix microseconds), and padding up to
/// `size` bytes.
pub(crate) fn data(number: u64, posted_us: u64, size: usize) -> String {
    let mut data = format!("{{\"n\":{},\"t\":{posted_us},\"p\":\"", NUMBER_BASE + number);
    while data.len() + 2 < size {
        data.push('x');
    }
    data.push_str("\"}");
    data
}

/// Number and time of each publication in a payload, in order.
pub(crate) fn marks(payload: &[u8], data_size: usize) -> impl Iterator<Item = (u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += find(payload.get(at..)?, MARK)?;
        let digits = at + MARK.len() - 1;
        let time = digits + NUMBER_DIGITS + b",\"t\":".len();
        let number = decimal(payload.get(digits..digits + NUMBER_DIGITS)?)?.checked_sub(NUMBER_BASE)?;
        let posted_us = decimal(payload.get(time..time + TIME_DIGITS)?)?;
        at += data_size;
        Some((number, posted_us))
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// The index at which `needle` begins in `hay`. None = it does not occur.
pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

/// The text value of a key, as far as it needs no unescaping.
pub(crate) fn text_value<'a>(payload: &'a [u8], key: &str) -> Option<&'a str> {
    let key = format!("\"{key}\":\"");
    let start = find(payload, key.as_bytes())? + key.len();
    let length = payload[start..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&payload[start..start + length]).ok()
}

/// One frame of a server at the beginning of `bytes`: the first byte of its head, its payload and its whole length.
pub(crate) fn frame(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let short = usize::from(*bytes.get(1)? & 0x7f);
    let (head, length): (usize, usize) = match short {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        _ => (2, short),
    };
    Some((bytes[0], bytes.get(head..head.checked_add(length)?)?, head + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_again() {
        let one = data(7, 1_700_000_000_000_001, 128);
        assert_eq!(one.len(), 128);
        let frame_bytes = crate::transport::ClientTransport::Websocket.publication("lab", &one);
        let (head, payload, length) = frame(&frame_bytes).expect("it is whole");
        assert_eq!((head, length), (0x81, frame_bytes.len()));
        assert_eq!(marks(payload, 128).collect::<Vec<_>>(), [(7, 1_700_000_000_000_001)]);
        let two = [payload, b"\n", payload].concat();
        assert_eq!(marks(&two, 128).count(), 2);
        assert!(frame(&frame_bytes[..length - 1]).is_none());
    }

    #[test]
    fn a_text_value_is_found_by_its_key() {
        assert_eq!(text_value(br#"{"id":2,"subscribe":{"epoch":"abcd","offset":3}}"#, "epoch"), Some("abcd"));
        assert_eq!(text_value(b"{}", "epoch"), None);
    }
}
