//! HTTP/1.1 written by hand: requests on one connection, and raw bytes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::PATIENCE;
use super::server::KEY;

/// A connection that is used for several requests.
pub(crate) struct Http {
    address: SocketAddr,
    socket: Option<TcpStream>,
}

/// A socket to the server with a deadline for each read and write.
pub(crate) fn socket(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).and_then(with_deadlines).expect("the server listens")
}

/// A socket with a small receive buffer.
pub(crate) fn narrow_socket(address: SocketAddr) -> TcpStream {
    try_narrow_socket(address).expect("the server listens")
}

/// A socket with a small receive buffer, for a server that may have ended.
pub(crate) fn try_narrow_socket(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_recv_buffer_size(4096)?;
    socket.connect(&address.into())?;
    with_deadlines(TcpStream::from(socket))
}

fn with_deadlines(socket: TcpStream) -> std::io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Sends bytes on a new connection. Returns the answer until the connection ends, or until nothing arrives for a while.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8], patience: Duration) -> String {
    let mut socket = socket(address);
    let _ = socket.write_all(bytes);
    rest(&mut socket, patience)
}

/// The remaining bytes until the end, or until nothing arrives for a while.
pub(crate) fn rest(socket: &mut TcpStream, patience: Duration) -> String {
    let _ = socket.set_read_timeout(Some(patience));
    let (mut reply, mut some) = (Vec::new(), [0; 16 * 1024]);
    while let Ok(length @ 1..) = socket.read(&mut some) {
        reply.extend_from_slice(&some[..length]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

/// The status of an answer. 0: there is no answer.
pub(crate) fn status(answer: &str) -> u16 {
    answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

impl Http {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Http { address, socket: None }
    }

    /// Sends one request. `None`: the connection broke.
    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Option<(u16, String)> {
        let answer = self.try_request(method, path, headers, body);
        if answer.is_none() {
            self.socket = None;
        }
        answer
    }

    /// Calls an operation of the server API.
    pub(crate) fn api(&mut self, operation: &str, body: &Value) -> Value {
        let answer =
            self.request("POST", &format!("/api/{operation}"), &format!("X-API-Key: {KEY}\r\n"), &body.to_string());
        let (_, text) = answer.unwrap_or_else(|| panic!("no answer to {operation}"));
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{operation}: no JSON: {text}"))
    }

    /// Publishes data into a channel.
    pub(crate) fn publish(&mut self, channel: &str, data: &Value) -> Value {
        self.api("publish", &json!({"channel": channel, "data": data}))
    }

    /// The value of a counter or gauge of `/metrics`: the sum over all labels.
    pub(crate) fn metric(&mut self, name: &str) -> u64 {
        let (_, text) = self.request("GET", "/metrics", "", "").expect("metrics are served");
        let rest = text.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with([' ', '{']));
        rest.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    fn try_request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Option<(u16, String)> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(TcpStream::connect(self.address).and_then(with_deadlines).ok()?),
        };
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        socket.write_all((head + body).as_bytes()).ok()?;
        let (mut answer, mut some) = (Vec::new(), [0; 64 * 1024]);
        loop {
            match socket.read(&mut some) {
                Ok(length @ 1..) => answer.extend_from_slice(&some[..length]),
                _ => return None,
            }
            let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
            let status = status(&head.to_ascii_uppercase());
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.or(if status == 204 { Some(0) } else { None })?;
            if let Some(body) = answer.get(end + 4..end + 4 + length) {
                return Some((status, String::from_utf8_lossy(body).into_owned()));
            }
        }
    }
}
