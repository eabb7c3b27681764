//! Streams of frames, good and mutated, through our decoder and through tungstenite: the same messages, and the same
//! end.

use std::io::{self, Read, Write};

use touchline_protocol::websocket::Role;
use tungstenite::protocol::{Role as TheirRole, WebSocketConfig};
use tungstenite::{Error, Message, WebSocket};

use crate::random::{Random, fuzz};
use crate::wire::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, Seen, TEXT, decode, masked};

const MAX: usize = 2_000;

/// A peer that has sent everything already, and takes whatever it is sent.
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

/// How tungstenite stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TheirEnd {
    /// It has read everything.
    Exhausted,
    /// Text that is no UTF-8, seen perhaps before its message was whole.
    Text,
    /// Any other violation.
    Violation,
    /// A close frame: it reads no further.
    Closed,
}

/// What tungstenite reads.
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

/// A stream of frames that mostly make sense.
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

/// The two agree, but for what the RFC leaves open or tungstenite does not check; each such case is named here.
fn compare(ours: &[Seen], violation: Option<(u16, &str)>, theirs: &[Seen], end: &TheirEnd) -> Result<(), &'static str> {
    // tungstenite reads nothing behind a close frame; the server does neither, but its decoder is asked to here.
    let goodbye = ours.iter().position(|seen| matches!(seen, Seen::Close(..)));
    let (ours, violation) = match goodbye {
        Some(at) => (&ours[..=at], None),
        None => (ours, violation),
    };
    let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let (ours_more, theirs_more) = (&ours[same..], &theirs[same..]);
    match (violation, end) {
        // It hands codes that may not be sent to its caller, and answers with 1002 itself.
        (Some((1002, "a close code that may not be sent")), TheirEnd::Closed) if ours_more.is_empty() => Ok(()),
        // It knows 1014 (bad gateway) not yet, which IANA has added to the codes that may be sent, and answers with
        // 1002 itself.
        (None, TheirEnd::Closed)
            if matches!((ours_more, theirs_more), ([Seen::Close(Some(1014), _)], [Seen::Close(..)])) =>
        {
            Ok(())
        }
        // It finds broken text before the message is whole; until then we may see control frames.
        (_, TheirEnd::Text) if theirs_more.is_empty() && !ours_more.iter().any(Seen::is_message) => Ok(()),
        // It takes lengths in a longer form than needed, and goes on.
        (Some((1002, "a length is not in its shortest form")), _) if ours_more.is_empty() => Ok(()),
        // The same of a control frame, which has no longer form.
        (Some((1002, "a control frame is fragmented or too long")), _)
            if ours_more.is_empty() && theirs_more.first().is_some_and(|seen| !seen.is_message()) =>
        {
            Ok(())
        }
        // We judge by the head; it may wait for the rest of the frame, which never comes.
        (Some(_), TheirEnd::Violation | TheirEnd::Text | TheirEnd::Exhausted)
            if ours_more.is_empty() && theirs_more.is_empty() =>
        {
            Ok(())
        }
        (None, TheirEnd::Exhausted | TheirEnd::Closed) if ours_more.is_empty() && theirs_more.is_empty() => Ok(()),
        _ => Err("the decoders disagree"),
    }
}
