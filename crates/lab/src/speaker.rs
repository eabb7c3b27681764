//! A speaker: one connection that sends speech frames at their times, whether earlier ones have arrived or not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use touchline_protocol::notation::notation;
use touchline_protocol::protobuf::{FieldValue, fields, take_varint};
use touchline_protocol::publication::{ClientInfo, Content, Delta, LogPosition};
use touchline_protocol::{Offset, Publication};

use crate::ledger::Times;
use crate::process::now_us;
use crate::transport::ClientTransport;
use crate::wire;

/// The transport of speakers and listeners, because JSON has no bytes.
pub(crate) const SPEECH: ClientTransport = ClientTransport::Protobuf;
/// Bytes of a frame: Opus at 28.8 kbit/s.
pub(crate) const FRAME_SIZE: usize = 72;
/// Frames per second.
pub(crate) const FRAME_RATE: u64 = 50;
/// Microseconds of a frame.
const FRAME_US: u64 = 1_000_000 / FRAME_RATE;
/// Maximum time of an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The command that connects has this id. A frame has its number, plus this, so that each answer has an id of its own.
const CONNECT_ID: u64 = 1;

/// The speaker's connection.
pub(crate) struct Speaker {
    socket: TcpStream,
    channel: String,
    /// Whether the peer is the floor, which accepts frames in the form for listeners and sends no answers.
    is_bare: bool,
    /// The beginning of a message that is not whole.
    rest: Vec<u8>,
    /// Answers to commands.
    answered: u64,
}

impl Speaker {
    /// A client of a server.
    ///
    /// # Errors
    /// When the server does not let it in.
    pub(crate) fn connect(server: SocketAddr, channel: &str) -> Result<Self> {
        let mut speaker = Speaker::open(server, channel, false)?;
        speaker.socket.write_all(&SPEECH.opening("lab", "/connection/websocket", channel))?;
        let end = loop {
            match wire::find(&speaker.rest, b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => speaker.read_more()?,
            }
        };
        if !speaker.rest.starts_with(b"HTTP/1.1 101 ") {
            bail!("the speaker was refused: {}", String::from_utf8_lossy(&speaker.rest));
        }
        speaker.rest.drain(..end);
        speaker.socket.write_all(&SPEECH.command("", |fields| {
            fields.number(1, CONNECT_ID).message(4, |_| {});
        }))?;
        speaker.await_answers(1)?;
        Ok(speaker)
    }

    /// A connection to the floor.
    ///
    /// # Errors
    /// When the floor does not listen.
    pub(crate) fn connect_to_floor(floor: SocketAddr, channel: &str) -> Result<Self> {
        Speaker::open(floor, channel, true)
    }

    fn open(address: SocketAddr, channel: &str, is_bare: bool) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Speaker { socket, channel: channel.to_owned(), is_bare, rest: Vec::new(), answered: 0 })
    }

    /// Sends this many frames, each with the time at which it is due, and waits for the answers. Returns the delays of
    /// the sends.
    ///
    /// # Errors
    /// When the connection ends, or a frame is refused.
    pub(crate) fn speak(&mut self, frames: u64) -> Result<Times> {
        let (began_us, before, mut delays) = (now_us(), self.answered, Times::default());
        for number in 1..=frames {
            let due_us = began_us + (number - 1) * FRAME_US;
            std::thread::sleep(Duration::from_micros(due_us.saturating_sub(now_us())));
            delays.record(now_us().saturating_sub(due_us));
            self.socket.write_all(&self.message(number, due_us))?;
            self.take_answers()?;
        }
        if !self.is_bare {
            self.await_answers(before + frames)?;
        }
        Ok(delays)
    }

    /// The bytes to send for a frame: a command to a server, or the listener's bytes to the floor.
    fn message(&self, number: u64, due_us: u64) -> Vec<u8> {
        let frame = frame(number, due_us);
        if self.is_bare {
            return delivered(&self.channel, number, &frame, due_us);
        }
        SPEECH.command("", |fields| {
            fields.number(1, CONNECT_ID + number).message(7, |fields| {
                fields.text(1, &self.channel).bytes(2, &frame);
            });
        })
    }

    /// Reads the answers that have arrived.
    fn take_answers(&mut self) -> Result<()> {
        self.socket.set_nonblocking(true)?;
        while self.read_some()? > 0 {}
        self.socket.set_nonblocking(false)?;
        self.note()
    }

    fn await_answers(&mut self, count: u64) -> Result<()> {
        self.note()?;
        while self.answered < count {
            self.read_more()?;
            self.note()?;
        }
        Ok(())
    }

    /// Waits until there are more bytes.
    fn read_more(&mut self) -> Result<()> {
        match self.read_some()? {
            0 => bail!("the server does not answer the speaker"),
            _ => Ok(()),
        }
    }

    /// The number of bytes that were read; 0 = there are none yet.
    fn read_some(&mut self) -> Result<usize> {
        let mut some = [0; 4_096];
        match self.socket.read(&mut some) {
            Ok(0) => bail!("the connection of the speaker was closed"),
            Ok(length) => {
                self.rest.extend_from_slice(&some[..length]);
                Ok(length)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(0),
            Err(error) => Err(error).context("the speaker reads nothing more"),
        }
    }

    /// Counts the answers that have arrived, and answers pings.
    fn note(&mut self) -> Result<()> {
        let mut used = 0;
        while let Some((head, payload, length)) = wire::frame(&self.rest[used..]) {
            used += length;
            match head {
                wire::CLOSE => bail!("the server ends the speaker: {}", String::from_utf8_lossy(payload)),
                wire::PING => self.socket.write_all(&wire::pong(payload))?,
                _ => {
                    let replies = replies(payload)?;
                    self.answered += replies.answers;
                    if let Some(pong) = SPEECH.pong().filter(|_| replies.has_ping) {
                        self.socket.write_all(&pong)?;
                    }
                }
            }
        }
        self.rest.drain(..used);
        Ok(())
    }
}

/// A frame of speech: its number and the time at which it is due, as the listeners look for them, and bytes that are
/// not text.
fn frame(number: u64, due_us: u64) -> Vec<u8> {
    let mut frame = wire::data(number, due_us, FRAME_SIZE).into_bytes();
    let header = wire::data(0, due_us, 0).len();
    frame[header..].fill(0xff);
    frame
}

/// The bytes for each listener: what a server writes for a frame of an anonymous client in a channel with history.
fn delivered(channel: &str, number: u64, frame: &[u8], due_us: u64) -> Vec<u8> {
    let client = "00000000-0000-4000-8000-000000000000";
    let info = ClientInfo { user: "".into(), client: client.into(), conn_info: None, chan_info: None };
    let content = Content { data: notation(frame), info: Some(info.into()), ..Content::default() };
    let place = LogPosition { offset: Offset(number), epoch: "abcdefgh", time_ms: due_us / 1_000 };
    Publication::encode(channel, &content, Some(place)).framed(SPEECH.wire(), Delta::None).to_vec()
}

/// The fields of a server message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replies {
    /// Answers to commands.
    answers: u64,
    has_ping: bool,
}

/// Reads a message: replies, each with its length before it.
///
/// # Errors
/// When a command was refused, or the message is not Protobuf.
fn replies(mut payload: &[u8]) -> Result<Replies> {
    let malformed = |_| anyhow!("the server sends no Protobuf to the speaker");
    let mut found = Replies::default();
    while !payload.is_empty() {
        let length = take_varint(&mut payload).map_err(malformed)?.unwrap_or(u64::MAX);
        let Some((reply, rest)) = payload.split_at_checked(usize::try_from(length)?) else {
            bail!("the server sends a reply to the speaker that is cut off");
        };
        payload = rest;
        let (mut id, mut error) = (0, None);
        let read = |tag, value: FieldValue<'_>| {
            match tag {
                1 => id = value.number()?,
                2 => error = Some(String::from_utf8_lossy(value.bytes()?).into_owned()),
                _ => {}
            }
            Ok(())
        };
        fields(reply, read).map_err(malformed)?;
        if let Some(error) = error {
            bail!("the server refuses the speaker's command {id}: {error}");
        }
        found.answers += u64::from(id > 0);
        found.has_ping |= reply.is_empty();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use touchline_protocol::protobuf::{Fields, delimited};

    use super::*;

    #[test]
    fn a_listener_finds_number_and_time_of_a_frame_of_bytes() {
        let sent = frame(1, 1_700_000_000_000_001);
        assert_eq!(sent.len(), FRAME_SIZE);
        assert!(std::str::from_utf8(&sent).is_err(), "JSON could carry it as text");
        let message = delivered("talk:room0", 1, &sent, 1_700_000_000_000_001);
        let (head, payload, length) = wire::frame(&message).expect("it is whole");
        // A server writes as many bytes for the first publication of the channel.
        assert_eq!((head, length, message.len()), (0x82, 157, 157));
        assert!(wire::find(payload, &sent).is_some(), "the bytes are there as they are");
        assert_eq!(wire::marks(payload, FRAME_SIZE).collect::<Vec<_>>(), [(1, 1_700_000_000_000_001)]);
    }

    #[test]
    fn answers_and_pings_are_counted_and_a_refusal_is_an_error() {
        let reply = |out: &mut Vec<u8>, id: u64| {
            delimited(out, |out| {
                Fields(out).number(1, id).message(7, |_| {});
            });
        };
        let mut message = Vec::new();
        reply(&mut message, 2);
        message.push(0);
        reply(&mut message, 3);
        assert_eq!(replies(&message).ok(), Some(Replies { answers: 2, has_ping: true }));
        assert!(replies(&message[..message.len() - 1]).is_err(), "the last one is cut off");
        delimited(&mut message, |out| {
            Fields(out).number(1, 4).message(2, |error| {
                error.number(1, 103).text(2, "permission denied");
            });
        });
        let refused = replies(&message).expect_err("the last one is an error").to_string();
        assert!(refused.contains("command 4") && refused.contains("permission denied"), "{refused}");
    }
}
