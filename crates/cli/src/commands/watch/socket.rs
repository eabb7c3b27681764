//! The client side of a WebSocket: tungstenite over a blocking stream, with or without TLS.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, bail};
use rustls::ClientConfig;
use tungstenite::client::client_with_config;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::HandshakeError;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use crate::client::stream::ClientStream;
use crate::client::tls::TlsRefusal;
use crate::client::url::ServerUrl;

/// Maximum size of a message from a server, bytes.
const MESSAGE_LEN_MAX: usize = 64 * 1024 * 1024;
/// The close code of RFC 6455 for a close frame without a code.
const NO_CLOSE_CODE: u32 = 1005;

/// An event from the server.
pub(super) enum SocketEvent {
    /// A text message.
    Text(String),
    /// A close frame: code and reason.
    Closed(u32, String),
}

/// Why the connection failed.
pub(super) enum ConnectError {
    /// The failure is final: another try would not help.
    Refused(String),
    /// Another try may help.
    Lost(String),
}

/// An open WebSocket connection.
pub(super) struct WatchSocket(WebSocket<ClientStream>);

impl WatchSocket {
    /// Connects and performs the handshake, with TLS if a configuration is given.
    pub(super) fn connect(url: &ServerUrl, tls: Option<&Arc<ClientConfig>>) -> Result<Self, ConnectError> {
        let stream = ClientStream::connect(url, tls).map_err(|error| {
            let is_final = error.is::<TlsRefusal>();
            let text = format!("{error:#}");
            if is_final { ConnectError::Refused(text) } else { ConnectError::Lost(text) }
        })?;
        let scheme = if url.is_tls { "wss" } else { "ws" };
        let address = format!("{scheme}://{}{}", url.authority(), url.path);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_LEN_MAX))
            .max_frame_size(Some(MESSAGE_LEN_MAX))
            // Send each message at once.
            .write_buffer_size(0);
        match client_with_config(address.as_str(), stream, Some(config)) {
            Ok((socket, _)) => Ok(WatchSocket(socket)),
            Err(HandshakeError::Interrupted(_)) => {
                Err(ConnectError::Lost(format!("{} did not answer in time", url.authority())))
            }
            Err(HandshakeError::Failure(error)) => Err(refusal(error, &address)),
        }
    }

    /// Sets how long the next read waits for the server. `None` = for ever.
    pub(super) fn expect_within(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.0.get_ref().tcp().set_read_timeout(patience)
    }

    /// Sends one text message.
    pub(super) fn send(&mut self, message: &str) -> Result<()> {
        self.0.send(Message::text(message)).map_err(|error| Error::new(error).context("failed to send"))
    }

    /// Waits for the next message or close frame, and answers pings.
    pub(super) fn next(&mut self) -> Result<SocketEvent> {
        loop {
            match self.0.read().map_err(told)? {
                Message::Text(text) => return Ok(SocketEvent::Text(text.as_str().to_owned())),
                Message::Binary(_) => bail!("the server sent binary data instead of text"),
                Message::Close(frame) => {
                    // Answer the close frame. The server may have closed the connection already.
                    let _ = self.0.flush();
                    let (code, reason) = frame.map_or((NO_CLOSE_CODE, String::new()), |frame| {
                        (u16::from(frame.code).into(), frame.reason.as_str().to_owned())
                    });
                    return Ok(SocketEvent::Closed(code, reason));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

/// Whether another try may help after a failed upgrade.
fn refusal(error: tungstenite::Error, address: &str) -> ConnectError {
    match error {
        tungstenite::Error::Http(answer) => match answer.status().as_u16() {
            status @ (408 | 425 | 429 | 500..=599) => {
                let text = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                let first = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
                let line: String =
                    first.unwrap_or("the server is not ready").chars().filter(|c| !c.is_control()).collect();
                ConnectError::Lost(format!("{line} ({status})"))
            }
            status => ConnectError::Refused(format!("no WebSocket at {address}: the server answered {status}")),
        },
        // For example the alert with which a TLS server answers plain text.
        tungstenite::Error::Protocol(ProtocolError::HttparseError(_)) => {
            let hint = match address.strip_prefix("ws://") {
                Some(rest) => format!(" (does it use TLS? Then use wss://{rest})"),
                None => String::new(),
            };
            ConnectError::Refused(format!("no WebSocket at {address}: the port does not use HTTP{hint}"))
        }
        tungstenite::Error::Protocol(
            ProtocolError::SecWebSocketAcceptKeyMismatch
            | ProtocolError::MissingConnectionUpgradeHeader
            | ProtocolError::MissingUpgradeWebSocketHeader,
        ) => {
            ConnectError::Refused(format!("no WebSocket at {address}: the server's answer to the upgrade is not valid"))
        }
        error => ConnectError::Lost(format!("{:#}", told(error))),
    }
}

/// Explains why an open connection was lost.
fn told(error: tungstenite::Error) -> Error {
    match error {
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed
        | tungstenite::Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::HandshakeIncomplete,
        ) => anyhow!("the server closed the connection"),
        tungstenite::Error::Io(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow!("the server stopped sending"),
            ErrorKind::UnexpectedEof => anyhow!("the server closed the connection"),
            _ => Error::new(error).context("the connection failed"),
        },
        error => Error::new(error).context("the server violated the WebSocket protocol"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;
    use tungstenite::handshake::derive_accept_key;

    /// A server that answers one request with what `answer` makes of the client's key. It tells what the client sent
    /// after that.
    fn server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (ServerUrl, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the client comes");
            let mut stream = BufReader::new(stream);
            let (mut key, mut line) = (String::new(), String::new());
            while stream.read_line(&mut line).expect("a line") > 2 {
                if let Some(value) = line.trim_end().strip_prefix("Sec-WebSocket-Key: ") {
                    key = value.to_owned();
                }
                line.clear();
            }
            stream.get_mut().write_all(&answer(&key)).expect("the client reads");
            let mut sent = Vec::new();
            let _ = stream.read_to_end(&mut sent);
            sent
        });
        (ServerUrl { is_tls: false, host: "127.0.0.1".into(), port, path: "/connection/websocket".into() }, server)
    }

    fn upgraded(key: &str, frames: &[&[u8]]) -> Vec<u8> {
        let accept = derive_accept_key(key.as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        );
        [head.as_bytes(), &frames.concat()].concat()
    }

    #[test]
    fn messages_come_out_of_frames() {
        let (url, server) =
            server(|key| upgraded(key, &[b"\x89\x01p", b"\x01\x02{}", b"\x80\x01\n", b"\x88\x06\x0b\xb9gone"]));
        let Ok(mut socket) = WatchSocket::connect(&url, None) else { panic!("it is accepted") };
        assert!(matches!(socket.next().expect("a message"), SocketEvent::Text(text) if text == "{}\n"));
        assert!(matches!(socket.next().expect("a close"), SocketEvent::Closed(3001, reason) if reason == "gone"));
        drop(socket);
        let sent = server.join().expect("it ends");
        // A head of two bytes, a mask of four, and the payload: the answer to the ping, and that to the close.
        assert_eq!((sent[0], sent[7]), (0x8a, 0x88), "{sent:x?}");
    }

    #[test]
    fn a_close_without_a_code_and_bytes_are_told() {
        let (url, _) = server(|key| upgraded(key, &[b"\x88\x00"]));
        let Ok(mut socket) = WatchSocket::connect(&url, None) else { panic!("it is accepted") };
        assert!(matches!(socket.next().expect("a close"), SocketEvent::Closed(1005, reason) if reason.is_empty()));
        let (url, _) = server(|key| upgraded(key, &[b"\x82\x01x"]));
        let Ok(mut socket) = WatchSocket::connect(&url, None) else { panic!("it is accepted") };
        assert!(socket.next().is_err_and(|error| error.to_string().contains("binary data instead of text")));
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let (url, _) = server(|key| upgraded(key, &[]));
        let Ok(mut socket) = WatchSocket::connect(&url, None) else { panic!("it is accepted") };
        socket.expect_within(Some(Duration::from_millis(50))).expect("it is set");
        assert!(socket.next().is_err_and(|error| error.to_string() == "the server stopped sending"));
    }

    #[test]
    fn only_a_server_that_proves_itself_is_taken() {
        let refused = |answer: &'static str| WatchSocket::connect(&server(move |_| answer.into()).0, None).err();
        let wrong = refused(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLBmMiTxaRbK+xOo=\r\n\r\n",
        );
        assert!(matches!(wrong, Some(ConnectError::Refused(reason)) if reason.contains("upgrade is not valid")));
        for status in [301, 400, 401, 403, 404, 405, 426] {
            let answer = format!("HTTP/1.1 {status} No\r\n\r\n");
            let Some(ConnectError::Refused(reason)) = refused(answer.leak()) else { panic!("{status} is final") };
            assert!(reason.starts_with("no WebSocket at ws://127.0.0.1:"), "{reason}");
            assert!(reason.ends_with(&format!("the server answered {status}")), "{reason}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504] {
            let answer = format!("HTTP/1.1 {status} Later\r\n\r\n");
            assert!(matches!(refused(answer.leak()), Some(ConnectError::Lost(_))), "{status} is for now");
        }
        let told = refused("HTTP/1.1 429 Later\r\nContent-Length: 11\r\n\r\nnot so fast");
        assert!(matches!(told, Some(ConnectError::Lost(reason)) if reason == "not so fast (429)"));
    }

    #[test]
    fn a_port_that_does_not_speak_http_is_final_and_the_scheme_for_tls_is_named() {
        for answer in [&b"\x15\x03\x03\x00\x02\x02\x46"[..], b"SSH-2.0-OpenSSH\r\n\r\n"] {
            let (url, _) = server(move |_| answer.to_vec());
            let wss = format!("Then use wss://{}/connection/websocket", url.authority());
            let Some(ConnectError::Refused(reason)) = WatchSocket::connect(&url, None).err() else { panic!("final") };
            assert!(reason.contains("does not use HTTP") && reason.contains(&wss), "{reason}");
        }
    }
}
