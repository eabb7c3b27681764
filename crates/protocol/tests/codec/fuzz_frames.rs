//! Passes streams of frames, valid and mutated, through this crate's decoder and through tungstenite. Both must read
//! the same messages and end in the same way.

use std::io::{self, Read, Write};

use touchline_protocol::websocket::Role;
use tungstenite::protocol::{Role as TheirRole, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

use crate::random::{Random, fuzz};
use crate::wire::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, Seen, TEXT, decode, masked};

const MAX: usize = 2_000;

/// A peer that has already sent everything, and accepts everything that is sent to it.
struct Sent<'a>(&'a [u8]);

impl Read for Sent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How tungstenite stopped reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TheirEnd {
    /// It has read all bytes.
    Exhausted,
    /// The text is not UTF-8; this may be seen before the message is complete.
    Text,
    /// Any other violation of the protocol.
    Violation,
    /// A close frame, after which it does not read.
    Closed,
}

/// What tungstenite reads from these bytes.
pub(crate) fn tungstenite_reads(role: Role, max: usize, bytes: &[u8]) -> (Vec<Seen>, TheirEnd) {
    let their_role = if role == Role::Server { TheirRole::Server } else { TheirRole::Client };
    let config = WebSocketConfig::default().max_message_size(Some(max)).max_frame_size(Some(max));
    let mut socket = WebSocket::from_raw_socket(Sent(bytes), their_role, Some(config));
    let mut seen = Vec::new();
    loop {
        seen.push(match socket.read() {
            Ok(Message::Text(text)) => Seen::Text(text.to_string()),
            Ok(Message::Binary(bytes)) => Seen::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Seen::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Seen::Pong(bytes.to_vec()),
            Ok(Message::Close(frame)) => {
                seen.push(match frame {
                    Some(frame) => Seen::Close(Some(frame.code.into()), frame.reason.to_string()),
                    None => Seen::Close(None, String::new()),
                });
                return (seen, TheirEnd::Closed);
            }
            Ok(Message::Frame(_)) => unreachable!("reading never gives a bare frame"),
            Err(Error::Utf8(_)) => return (seen, TheirEnd::Text),
            Err(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => {
                return (seen, TheirEnd::Exhausted);
            }
            Err(Error::Protocol(_) | Error::Capacity(_)) => return (seen, TheirEnd::Violation),
            Err(Error::ConnectionClosed | Error::Io(_)) => return (seen, TheirEnd::Exhausted),
            Err(error) => panic!("tungstenite: {error}"),
        });
    }
}

/// A stream of frames that are mostly valid.
fn stream(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut is_inside = false;
    for _ in 0..1 + random.below(8) {
        let payload = match random.below(10) {
            0 => [random.bytes(126), random.bytes_below(200)].concat(),
            1 => random.bytes(20),
            2 => "é😀".repeat(random.below(30)).into_bytes(),
            _ => random.text().into_bytes(),
        };
        let short = &payload[..payload.len().min(125)];
        let fin = if random.one_in(3) { 0 } else { FIN };
        let frame = match random.below(8) {
            0 => masked(FIN | PING, short),
            1 => masked(FIN | PONG, short),
            2 if random.one_in(4) => {
                let code = [1000u16, 1001, 1005, 1016, 3000, 4999, 999][random.below(7)];
                masked(FIN | CLOSE, &[&code.to_be_bytes()[..], &short[..short.len().min(20)]].concat())
            }
            _ if is_inside => {
                is_inside = fin == 0;
                masked(fin | CONTINUATION, &payload)
            }
            kind => {
                is_inside = fin == 0;
                masked(fin | if kind % 2 == 0 { BINARY } else { TEXT }, &payload)
            }
        };
        bytes.extend(frame);
    }
    if random.one_in(2) {
        random.mutate(&mut bytes);
    }
    bytes
}

#[test]
fn frames_mean_the_same_to_tungstenite() {
    fuzz(|random| {
        let bytes = stream(random);
        let pieces: Vec<usize> = (0..30).map(|_| 1 + random.below(40)).collect();
        let whole = decode(Role::Server, MAX, &bytes, &[usize::MAX]);
        assert_eq!(whole, decode(Role::Server, MAX, &bytes, &pieces), "pieces change nothing: {bytes:02x?}");
        let (ours, violation) = whole;
        let (theirs, end) = tungstenite_reads(Role::Server, MAX, &bytes);
        compare(&ours, violation.map(|v| (v.code, v.reason)), &theirs, &end).unwrap_or_else(|why| {
            panic!("{why}\nours {ours:?} {violation:?}\ntheirs {theirs:?} {end:?}\n{bytes:02x?}");
        });
    });
}

/// Both decoders must agree, except where the RFC leaves a choice or tungstenite does not check. Each such case is
/// named here.
fn compare(ours: &[Seen], violation: Option<(u16, &str)>, theirs: &[Seen], end: &TheirEnd) -> Result<(), &'static str> {
    // tungstenite reads nothing after a close frame. The server does not either, but here its decoder continues.
    let goodbye = ours.iter().position(|seen| matches!(seen, Seen::Close(..)));
    let (ours, violation) = match goodbye {
        Some(at) => (&ours[..=at], None),
        None => (ours, violation),
    };
    let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let (ours_more, theirs_more) = (&ours[same..], &theirs[same..]);
    match (violation, end) {
        // tungstenite passes forbidden codes to its caller, and itself answers with 1002.
        (Some((1002, "a close code that may not be sent")), TheirEnd::Closed) if ours_more.is_empty() => Ok(()),
        // tungstenite does not know 1014 (bad gateway), which IANA has added to the allowed codes, and answers with
        // 1002.
        (None, TheirEnd::Closed)
            if matches!((ours_more, theirs_more), ([Seen::Close(Some(1014), _)], [Seen::Close(..)])) =>
        {
            Ok(())
        }
        // tungstenite detects broken text before the message is complete. Until then, this decoder may see control
        // frames.
        (_, TheirEnd::Text) if theirs_more.is_empty() && !ours_more.iter().any(Seen::is_message) => Ok(()),
        // tungstenite accepts lengths in a longer form than needed, and continues.
        (Some((1002, "a length is not in its shortest form")), _) if ours_more.is_empty() => Ok(()),
        // The same for a control frame, which has no longer form.
        (Some((1002, "a control frame is fragmented or too long")), _)
            if ours_more.is_empty() && theirs_more.first().is_some_and(|seen| !seen.is_message()) =>
        {
            Ok(())
        }
        // This decoder decides by the head; tungstenite may wait for the rest of the frame, which never arrives.
        (Some(_), TheirEnd::Violation | TheirEnd::Text | TheirEnd::Exhausted)
            if ours_more.is_empty() && theirs_more.is_empty() =>
        {
            Ok(())
        }
        (None, TheirEnd::Exhausted | TheirEnd::Closed) if ours_more.is_empty() && theirs_more.is_empty() => Ok(()),
        _ => Err("the decoders disagree"),
    }
}
