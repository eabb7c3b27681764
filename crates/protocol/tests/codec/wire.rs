//! Builds frames as bytes, and runs this crate's decoder on them.

use touchline_protocol::websocket::{Assembly, FrameEvent, Role, Violation, mask};

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
pub(crate) const FIN: u8 = 0x80;

const KEY: [u8; 4] = [0xa1, 0x02, 0x7f, 0xc4];

/// A frame of a client: masked, its length in the shortest form. `first` is the first byte of its head.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(first, 0x80, payload.len());
    bytes.extend_from_slice(&KEY);
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    mask(KEY, &mut bytes[start..]);
    bytes
}

/// A frame of a server, which is not masked.
pub(crate) fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    [head(first, 0, payload.len()), payload.to_vec()].concat()
}

fn head(first: u8, mask_bit: u8, length: usize) -> Vec<u8> {
    match length {
        0..=125 => vec![first, mask_bit | length as u8],
        126..=0xffff => [vec![first, mask_bit | 126], (length as u16).to_be_bytes().to_vec()].concat(),
        _ => [vec![first, mask_bit | 127], (length as u64).to_be_bytes().to_vec()].concat(),
    }
}

/// An event that owns its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

impl Seen {
    pub(crate) fn of(event: &FrameEvent<'_>) -> Self {
        match *event {
            FrameEvent::Text(text) => Seen::Text(text.to_owned()),
            FrameEvent::Binary(bytes) => Seen::Binary(bytes.to_vec()),
            FrameEvent::Ping(bytes) => Seen::Ping(bytes.to_vec()),
            FrameEvent::Pong(bytes) => Seen::Pong(bytes.to_vec()),
            FrameEvent::Close { code, reason } => Seen::Close(code, reason.to_owned()),
        }
    }

    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Seen::Text(_) | Seen::Binary(_))
    }
}

/// All events that a decoder returns, and the violation that stopped it. `pieces` are the lengths in which the bytes
/// arrive; the last one repeats.
pub(crate) fn decode(role: Role, max: usize, bytes: &[u8], pieces: &[usize]) -> (Vec<Seen>, Option<Violation>) {
    let (mut assembly, mut seen, mut rest) = (Assembly::default(), Vec::new(), bytes);
    let mut pieces = pieces.iter().copied();
    let mut length = usize::MAX;
    while !rest.is_empty() {
        length = pieces.next().unwrap_or(length).clamp(1, rest.len());
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        let (mut input, mut at) = (piece.to_vec(), 0);
        loop {
            match assembly.next(role, max, &mut input, &mut at) {
                Ok(None) => {
                    assert_eq!(at, input.len(), "all is used up");
                    break;
                }
                Ok(Some(event)) => seen.push(Seen::of(&event)),
                Err(violation) => return (seen, Some(violation)),
            }
        }
        assert!(assembly.buffered_bytes() <= max + 14, "more is kept than a message may have");
    }
    (seen, None)
}
