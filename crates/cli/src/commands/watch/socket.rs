//! The client's end of a WebSocket (RFC 6455) over a blocking socket.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use touchline_protocol::websocket::{Assembly, FrameEvent, Opcode, Role, encode_masked_frame};

use crate::client::http::{HttpUrl, read_line, read_status};

/// Largest message that is taken from a server, bytes.
const MESSAGE_LEN_MAX: usize = 64 * 1024 * 1024;
/// Lines of a head that are read at most.
const HEAD_LINES_MAX: usize = 100;
/// Longest head, bytes.
const HEAD_LEN_MAX: u64 = 64 * 1024;
/// Bytes asked for at once.
const CHUNK_LEN: usize = 16 * 1024;
/// What a server adds to the client's key before it hashes it (RFC 6455, section 1.3).
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What comes from the server.
pub(super) enum SocketEvent {
    /// A message.
    Text(String),
    /// Its goodbye: code and reason.
    Closed(u32, String),
}

/// Why the connection failed.
pub(super) enum ConnectError {
    /// To try again would not help.
    Refused(String),
    /// It might.
    Lost(String),
}

/// An open link.
pub(super) struct WatchSocket {
    stream: BufReader<TcpStream>,
    assembly: Assembly,
    input: Vec<u8>,
    /// Bytes of the input that were taken.
    used: usize,
}

impl WatchSocket {
    /// Connects and shakes hands.
    pub(super) fn connect(url: &HttpUrl) -> Result<Self, ConnectError> {
        let lost = |error: anyhow::Error| ConnectError::Lost(format!("{error:#}"));
        let mut stream = BufReader::new(url.connect().map_err(lost)?);
        let key = STANDARD.encode(random::<16>().map_err(lost)?);
        let (status, is_accepted) = shake_hands(&mut stream, url, &key).map_err(lost)?;
        match status {
            101 if !is_accepted => {
                Err(ConnectError::Refused("the server's Sec-WebSocket-Accept does not answer our key".to_owned()))
            }
            101 => Ok(WatchSocket { stream, assembly: Assembly::default(), input: Vec::new(), used: 0 }),
            429 | 500..=599 => Err(ConnectError::Lost(format!("the server is not ready ({status})"))),
            status => Err(ConnectError::Refused(format!(
                "no WebSocket at ws://{}{}: the server answered {status}",
                url.authority(),
                url.path
            ))),
        }
    }

    /// How long to wait for the server to say anything; `None` for ever.
    pub(super) fn expect_within(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(patience)
    }

    /// Sends one message.
    pub(super) fn send(&mut self, message: &str) -> Result<()> {
        self.send_frame(Opcode::Text, message.as_bytes())
    }

    fn send_frame(&mut self, opcode: Opcode, payload: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        encode_masked_frame(opcode, payload, random()?, &mut frame);
        self.stream.get_mut().write_all(&frame).context("failed to send")
    }

    /// The next message; answers pings on the way.
    pub(super) fn next(&mut self) -> Result<SocketEvent> {
        loop {
            let event = self.assembly.next(Role::Client, MESSAGE_LEN_MAX, &mut self.input, &mut self.used);
            let pong = match event {
                Err(violation) => bail!("the server broke the WebSocket protocol: {}", violation.reason),
                Ok(Some(FrameEvent::Text(text))) => return Ok(SocketEvent::Text(text.to_owned())),
                Ok(Some(FrameEvent::Binary(_))) => bail!("the server sent bytes where text was agreed on"),
                Ok(Some(FrameEvent::Close { code, reason })) => {
                    let closed = SocketEvent::Closed(code.map_or(1005, u32::from), reason.to_owned());
                    let _ = self.send_frame(
                        Opcode::Close,
                        &code.map(u16::to_be_bytes).unwrap_or_default()[..code.map_or(0, |_| 2)],
                    );
                    return Ok(closed);
                }
                Ok(Some(FrameEvent::Pong(_))) => None,
                Ok(Some(FrameEvent::Ping(payload))) => Some(payload.to_vec()),
                Ok(None) => {
                    self.read()?;
                    None
                }
            };
            if let Some(payload) = pong {
                self.send_frame(Opcode::Pong, &payload)?;
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        self.input.resize(CHUNK_LEN, 0);
        self.used = 0;
        match self.stream.read(&mut self.input) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(count) => {
                self.input.truncate(count);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                bail!("the server fell silent")
            }
            Err(error) => Err(error).context("the connection broke"),
        }
    }
}

/// Asks for the upgrade. Gives the status, and whether the server proved that it understood.
fn shake_hands(stream: &mut BufReader<TcpStream>, url: &HttpUrl, key: &str) -> Result<(u16, bool)> {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {key}\r\n\r\n",
        url.path,
        url.authority()
    );
    stream.get_mut().write_all(request.as_bytes()).context("failed to send")?;
    let mut head = stream.take(HEAD_LEN_MAX);
    let status = read_status(&read_line(&mut head)?)?;
    let mut is_accepted = false;
    for _ in 0..HEAD_LINES_MAX {
        let line = read_line(&mut head)?;
        if line.is_empty() {
            return Ok((status, is_accepted));
        }
        if let Some((name, value)) = line.split_once(':') {
            is_accepted |= name.eq_ignore_ascii_case("sec-websocket-accept") && value.trim() == accept_of(key);
        }
    }
    bail!("the server's answer has too many headers")
}

fn accept_of(key: &str) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT_SUFFIX}").as_bytes()))
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok().context("failed to get randomness from the system")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn a_key_has_one_answer() {
        assert_eq!(accept_of("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    /// A server that answers one request with this head and these bytes.
    fn server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> HttpUrl {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the client comes");
            let mut stream = BufReader::new(stream);
            let mut key = String::new();
            loop {
                let line = read_line(&mut stream).expect("a line");
                if let Some(value) = line.strip_prefix("Sec-WebSocket-Key: ") {
                    key = value.to_owned();
                }
                if line.is_empty() {
                    break;
                }
            }
            stream.get_mut().write_all(&answer(&key)).expect("the client reads");
            let _ = stream.read(&mut [0; 64]);
        });
        HttpUrl { host: "127.0.0.1".into(), port, path: "/connection/websocket".into() }
    }

    #[test]
    fn messages_come_out_of_frames() {
        let url = server(|key| {
            let head = format!("HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: {}\r\n\r\n", accept_of(key));
            [head.as_bytes(), b"\x89\x01p", b"\x01\x02{}", b"\x80\x01\n", b"\x88\x06\x0b\xb9gone"].concat()
        });
        let Ok(mut socket) = WatchSocket::connect(&url) else { panic!("it is accepted") };
        assert!(matches!(socket.next().expect("a message"), SocketEvent::Text(text) if text == "{}\n"));
        assert!(matches!(socket.next().expect("a close"), SocketEvent::Closed(3001, reason) if reason == "gone"));
    }

    #[test]
    fn only_a_server_that_proves_itself_is_taken() {
        let refused = |answer: &'static str| WatchSocket::connect(&server(move |_| answer.into())).err();
        let wrong = refused("HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLBmMiTxaRbK+xOo=\r\n\r\n");
        assert!(matches!(wrong, Some(ConnectError::Refused(reason)) if reason.contains("does not answer our key")));
        assert!(matches!(refused("HTTP/1.1 503 Later\r\n\r\n"), Some(ConnectError::Lost(_))));
        assert!(matches!(refused("HTTP/1.1 403 Forbidden\r\n\r\n"), Some(ConnectError::Refused(_))));
    }
}
