//! Load on web servers. In the open loop, connections arrive at a rate, independent of the answers (as in httperf). In
//! the closed loop, the number of open connections is constant (as in `ab`).

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use crate::ledger::Times;
use crate::process::{Meter, now_us};
use crate::wire;

/// Maximum number of open connections; further ones count as failed. httperf has 1,024.
const OPEN_MAX: usize = 10_000;
/// An answer that takes longer counts as failed: httperf's `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two checks for connections that take too long.
const LOOK: Duration = Duration::from_millis(100);
/// The precision of the rate.
const PRECISION: Duration = Duration::from_micros(20);
const FIRST_PORT: usize = 20_000;
/// Connections from one address, so that the kernel need not search for a port.
const PER_ADDRESS: usize = 4_000;
const ADDRESSES: usize = 250;
const EINPROGRESS: i32 = 115;

/// The requests of a load, and the server that gets them.
#[derive(Debug, Clone)]
pub(crate) struct HttpLoad {
    pub(crate) address: SocketAddr,
    /// The bytes of the whole request.
    pub(crate) request: Vec<u8>,
    /// Number of requests per connection, one after the other.
    pub(crate) calls: u32,
}

/// The result of a load.
#[derive(Debug, Default)]
pub(crate) struct HttpOutcome {
    pub(crate) replies: u64,
    /// Requests without an answer of 200 or 304 in time.
    pub(crate) errors: u64,
    /// From when a request was due to its answer. The first of a connection is due when the connection is.
    pub(crate) times: Times,
    pub(crate) seconds: f64,
    /// The share of a processor that the load itself took.
    pub(crate) busy: f64,
}

impl HttpOutcome {
    pub(crate) fn replies_per_s(&self) -> f64 {
        self.replies as f64 / self.seconds
    }
}

/// A request by `GET`, or by `POST` with a body of JSON and an API key.
pub(crate) fn request(address: SocketAddr, path: &str, post: Option<(&str, &str)>, more: &str) -> Vec<u8> {
    match post {
        None => format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n"),
        Some((key, body)) => {
            let length = body.len();
            format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\n{more}\r\n{body}"
            )
        }
    }
    .into_bytes()
}

/// Opens `connections`, `rate` of them a second.
///
/// # Errors
/// When the system gives no socket.
pub(crate) fn sweep(load: &HttpLoad, connections: usize, rate: f64) -> Result<HttpOutcome> {
    let crowd = HttpCrowd::new(load)?;
    let mut next = 0;
    crowd.run(|crowd| {
        while next < connections {
            let due = crowd.began + Duration::from_secs_f64(next as f64 / rate);
            if due > Instant::now() {
                return Ok(Some(due));
            }
            crowd.open(due)?;
            next += 1;
        }
        Ok(None)
    })
}

/// Makes so many requests, `at_once` connections at a time.
///
/// # Errors
/// When the system gives no socket.
pub(crate) fn hammer(load: &HttpLoad, at_once: usize, requests: u64) -> Result<HttpOutcome> {
    let crowd = HttpCrowd::new(load)?;
    let mut left = requests;
    crowd.run(|crowd| {
        while left > 0 && crowd.open < at_once {
            crowd.open(Instant::now())?;
            left = left.saturating_sub(u64::from(load.calls.max(1)));
        }
        Ok((left > 0).then(|| Instant::now() + LOOK))
    })
}

/// One connection of the load.
struct LoadClient {
    socket: TcpStream,
    /// When the request under way was due.
    due: Instant,
    /// Requests without an answer.
    left: u32,
    is_connected: bool,
    /// The beginning of an answer.
    rest: Vec<u8>,
}

/// All connections that are open.
struct HttpCrowd<'a> {
    load: &'a HttpLoad,
    poll: Poll,
    clients: Vec<Option<LoadClient>>,
    free: Vec<usize>,
    open: usize,
    began: Instant,
    outcome: HttpOutcome,
    scratch: Vec<u8>,
}

impl<'a> HttpCrowd<'a> {
    fn new(load: &'a HttpLoad) -> Result<Self> {
        Ok(HttpCrowd {
            load,
            poll: Poll::new()?,
            clients: Vec::new(),
            free: Vec::new(),
            open: 0,
            began: Instant::now(),
            outcome: HttpOutcome::default(),
            scratch: vec![0; 65_536],
        })
    }

    /// Serves the connections until none is open and `more` opens none. It says when the next is due; `None` = there is
    /// no next one.
    fn run(mut self, mut more: impl FnMut(&mut Self) -> Result<Option<Instant>>) -> Result<HttpOutcome> {
        let meter = Meter::start(std::process::id())?;
        let began_us = now_us();
        let mut events = Events::with_capacity(1_024);
        let mut looked = Instant::now();
        let mut ended = Instant::now();
        loop {
            let due = more(&mut self)?;
            if due.is_none() && self.open == 0 {
                break;
            }
            // The poller counts whole milliseconds, which is too coarse for a rate.
            let pause = due.map_or(LOOK, |due| due.saturating_duration_since(Instant::now())).min(LOOK);
            let is_soon = pause < Duration::from_millis(2);
            self.poll.poll(&mut events, Some(if is_soon { Duration::ZERO } else { pause }))?;
            if events.is_empty() && is_soon {
                std::thread::sleep(PRECISION);
            }
            for event in &events {
                self.serve(event.token().0);
            }
            if !events.is_empty() {
                ended = Instant::now();
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.end_late();
            }
        }
        let wall_us = (now_us() - began_us).max(1) as f64;
        self.outcome.busy = meter.stop()? / wall_us;
        self.outcome.seconds = (ended - self.began).as_secs_f64().max(1e-3);
        Ok(self.outcome)
    }

    /// Starts to connect.
    fn open(&mut self, due: Instant) -> Result<()> {
        if self.open >= OPEN_MAX {
            self.outcome.errors += u64::from(self.load.calls);
            return Ok(());
        }
        let mut socket = dial(self.load.address)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        self.poll.registry().register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        let left = self.load.calls;
        self.clients[index] = Some(LoadClient { socket, due, left, is_connected: false, rest: Vec::new() });
        self.open += 1;
        Ok(())
    }

    fn serve(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else { return };
        let is_open = client.serve(self.load, &mut self.scratch, &mut self.outcome).unwrap_or(false);
        if !is_open {
            self.close(index);
        }
    }

    /// Closes a connection. Its missing answers count as failed.
    fn close(&mut self, index: usize) {
        if let Some(client) = self.clients[index].take() {
            self.outcome.errors += u64::from(client.left);
            self.free.push(index);
            self.open -= 1;
        }
    }

    fn end_late(&mut self) {
        for index in 0..self.clients.len() {
            if self.clients[index].as_ref().is_some_and(|client| client.due.elapsed() > TIMEOUT) {
                self.close(index);
            }
        }
    }
}

impl LoadClient {
    /// Sends the next request and reads answers, as far as the socket goes. False = it has all that it wanted.
    fn serve(&mut self, load: &HttpLoad, scratch: &mut [u8], outcome: &mut HttpOutcome) -> Result<bool> {
        if !self.is_connected {
            if self.socket.take_error()?.is_some() || self.socket.peer_addr().is_err() {
                bail!("no connection");
            }
            self.is_connected = true;
            // A request fits into the buffer of a socket that is new.
            self.socket.write_all(&load.request)?;
        }
        loop {
            let length = match self.socket.read(scratch) {
                Ok(0) => bail!("the server has closed the connection"),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error.into()),
            };
            self.rest.extend_from_slice(&scratch[..length]);
            if !is_whole(&self.rest)? {
                continue;
            }
            self.rest.clear();
            outcome.replies += 1;
            outcome.times.record(self.due.elapsed().as_micros() as u64);
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                return Ok(false);
            }
            self.due = Instant::now();
            self.socket.write_all(&load.request)?;
        }
    }
}

/// Begins to connect from the next address and port.
fn dial(server: SocketAddr) -> Result<TcpStream> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let address = Ipv4Addr::new(127, 9, 0, 1 + (number / PER_ADDRESS % ADDRESSES) as u8);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::from((address, (FIRST_PORT + number % PER_ADDRESS) as u16)).into())?;
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error.into()),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}

/// Whether an answer is complete. An answer without a length and without chunks is not supported, because it lasts as
/// long as its connection.
///
/// # Errors
/// When the answer reports a failure.
fn is_whole(bytes: &[u8]) -> Result<bool> {
    let Some(end) = wire::find(bytes, b"\r\n\r\n") else { return Ok(false) };
    let head = &bytes[..end];
    let status = head.get(9..12).unwrap_or_default();
    if status == b"304" {
        return Ok(true);
    }
    if status != b"200" {
        bail!("a request was refused: {}", String::from_utf8_lossy(head));
    }
    match length_of(head) {
        Some(length) => Ok(bytes.len() >= end + 4 + length),
        None => Ok(bytes.ends_with(b"\r\n0\r\n\r\n")),
    }
}

/// The length that the head of an answer states.
fn length_of(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let line = head
        .split(|byte| *byte == b'\n')
        .find(|line| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME))?;
    std::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_by_its_length_or_its_last_chunk() {
        let cases: [(&[u8], bool); 6] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", true),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na", false),
            (b"HTTP/1.1 200 OK\r\nContent-Le", false),
            (b"HTTP/1.1 304 Not Modified\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", true),
        ];
        for (bytes, expected) in cases {
            assert_eq!(is_whole(bytes).ok(), Some(expected), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(is_whole(b"HTTP/1.1 500 Error\r\n\r\n").is_err());
    }
}
