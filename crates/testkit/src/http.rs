//! HTTP/1.1 by hand: whole requests, raw bytes, and heads.

use std::io::{ErrorKind, Read, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::wait::PATIENCE;

/// A connection for several requests. It is opened again after it broke.
#[derive(Debug)]
pub struct TestClient {
    address: SocketAddr,
    key: String,
    socket: Option<TcpStream>,
}

impl TestClient {
    /// A client of a server. `key` is the key of the server API.
    pub fn new(address: SocketAddr, key: &str) -> Self {
        TestClient { address, key: key.to_owned(), socket: None }
    }

    /// Sends one request, and returns the status and the body of the answer. `headers` end with a line feed.
    ///
    /// # Errors
    /// If the connection breaks before the answer is complete.
    pub fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<(u16, String), String> {
        let answer = self.try_request(method, path, headers, body);
        if answer.is_err() {
            self.socket = None;
        }
        answer
    }

    /// Calls an operation of the server API, and returns the whole answer.
    ///
    /// # Errors
    /// If the connection breaks before the answer is complete, or the answer is not JSON.
    pub fn call(&mut self, operation: &str, body: &Value) -> Result<Value, String> {
        let headers = format!("X-API-Key: {}\r\n", self.key);
        let (status, text) = self.request("POST", &format!("/api/{operation}"), &headers, &body.to_string())?;
        serde_json::from_str(&text).map_err(|error| format!("{operation}: {status} {error}: {text}"))
    }

    /// Calls an operation of a running server.
    #[track_caller]
    pub fn api(&mut self, operation: &str, body: &Value) -> Value {
        let answer = self.call(operation, body).or_else(|_| self.call(operation, body));
        answer.unwrap_or_else(|reason| panic!("no answer to {operation}: {reason}"))
    }

    /// Publishes data in a channel of a running server, and returns the whole answer.
    #[track_caller]
    pub fn publish(&mut self, channel: &str, data: &Value) -> Value {
        self.api("publish", &json!({"channel": channel, "data": data}))
    }

    /// The value of a counter or gauge of `/metrics`: the sum over all labels.
    #[track_caller]
    pub fn metric(&mut self, name: &str) -> u64 {
        metric(&self.request("GET", "/metrics", "", "").expect("metrics are served").1, name)
    }

    fn try_request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<(u16, String), String> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(try_socket(self.address).map_err(|error| error.to_string())?),
        };
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        socket.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let (mut answer, mut some) = (Vec::new(), [0; 64 * 1024]);
        loop {
            match socket.read(&mut some).map_err(|error| error.to_string())? {
                0 => return Err(format!("closed after {:?}", String::from_utf8_lossy(&answer))),
                length => answer.extend_from_slice(&some[..length]),
            }
            let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&answer[..end]).into_owned();
            let status = status(&head);
            let fields = head.to_ascii_lowercase();
            let length = fields.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let length = length.or((status == 204).then_some(0));
            let length = length.ok_or_else(|| format!("an answer without a length: {head}"))?;
            if let Some(body) = answer.get(end + 4..end + 4 + length) {
                return Ok((status, String::from_utf8_lossy(body).into_owned()));
            }
        }
    }
}

/// A socket to a server, with [`PATIENCE`] for each read and write.
#[track_caller]
pub fn socket(address: SocketAddr) -> TcpStream {
    try_socket(address).expect("the server listens")
}

fn try_socket(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    with_patience(&socket)?;
    Ok(socket)
}

/// Gives a socket [`PATIENCE`] for each read and write, and sends small writes at once.
///
/// # Errors
/// If the socket is closed.
pub fn with_patience(socket: &TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))
}

/// Sends bytes on a new connection, and reads the answer to its end.
#[track_caller]
pub fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = socket(address);
    let _ = socket.write_all(bytes);
    to_the_end(&mut socket)
}

/// Sends a request on a new connection, and returns the status and the body of the answer. The status is 0 if there is
/// no answer. `headers` end with a line feed.
#[track_caller]
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}");
    let answer = raw(address, format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
    (status(&answer), answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

/// The sum of the values of a counter or gauge in the text of `/metrics`.
pub fn metric(text: &str, name: &str) -> u64 {
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    let values = text.lines().filter(of_name).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum::<f64>() as u64
}

/// The status in the head of an answer. It is 0 if there is no answer.
pub fn status(head: &str) -> u16 {
    head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

/// Fills a buffer. False if the connection has ended, properly or by a reset.
#[track_caller]
pub fn fill(socket: &mut impl Read, buffer: &mut [u8]) -> bool {
    match socket.read_exact(buffer) {
        Err(error) if is_silence(&error) => panic!("neither bytes nor the end arrive: {error}"),
        outcome => outcome.is_ok(),
    }
}

/// Whether a read failed because nothing arrived in time.
pub(crate) fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Reads until the connection ends.
#[track_caller]
pub fn to_the_end(socket: &mut impl Read) -> String {
    let mut all = Vec::new();
    match socket.read_to_end(&mut all) {
        Err(error) if is_silence(&error) => panic!("no end after {:?}", String::from_utf8_lossy(&all)),
        _ => String::from_utf8_lossy(&all).into_owned(),
    }
}

/// Reads until the input ends with `end`, or until the connection ends.
#[track_caller]
pub fn up_to(end: &str, socket: &mut impl Read) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(end.as_bytes()) && fill(socket, &mut byte) {
        all.push(byte[0]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Reads the head of an answer. If there is no complete head, it returns everything until the end.
#[track_caller]
pub fn head_of(socket: &mut impl Read) -> String {
    up_to("\r\n\r\n", socket)
}
