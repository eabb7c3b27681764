//! The backend of the scenario of hooks: HTTP/1.1 with kept connections, one thread, one poller. It gives every call
//! the same answer, at once, after a time, or not at all, and counts the calls.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::part::{read_commands, say};
use crate::wire;

const COMMANDS: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);
const BACKLOG: i32 = 4_096;

/// The placeholder in an answer for the number of its call.
pub(crate) const CALL: &str = "{call}";

/// A command to the backend. Each is answered by a [`BackendCount`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackendOrder {
    /// Listen, and answer questions so from now on.
    Answer(BackendConduct),
    /// Accept calls from now on, but answer none.
    FallSilent,
    /// Close the port and all connections.
    Close,
    /// Only report the counts.
    Count,
}

/// How questions are answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct BackendConduct {
    /// The body of every answer; [`CALL`] in it becomes the number of the question.
    pub(crate) json: String,
    /// Milliseconds from a question to its answer.
    pub(crate) after_ms: u64,
    /// One of this many calls is answered after `slow_ms` instead; 0 = none.
    pub(crate) slow_one_in: u64,
    /// Milliseconds from a slow question to its answer.
    pub(crate) slow_ms: u64,
}

/// What the backend has counted since its last report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BackendCount {
    /// Where it listens, or listened.
    pub(crate) address: SocketAddr,
    /// Number of calls.
    pub(crate) calls: u64,
    /// The most questions that had no answer at the same time.
    pub(crate) at_once: usize,
    /// Number of events that it received in batches.
    pub(crate) events: u64,
    /// The body of the last question of its life; empty = there was none.
    pub(crate) question: String,
}

/// Runs commands until standard input ends.
pub(crate) fn serve() -> Result<()> {
    let poll = Poll::new()?;
    let commands = read_commands(Arc::new(Waker::new(poll.registry(), COMMANDS)?))?;
    let mut backend = LabBackend::new(poll)?;
    let mut events = Events::with_capacity(1_024);
    loop {
        let pause = backend.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        match backend.poll.poll(&mut events, pause) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            match event.token() {
                COMMANDS => {}
                LISTENER => backend.accept()?,
                Token(number) => backend.read(number),
            }
        }
        backend.answer_due();
        loop {
            match commands.try_recv() {
                Ok(command) => {
                    backend.obey(command)?;
                    say(&backend.count())?;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

/// A connection of a node.
struct Caller {
    socket: TcpStream,
    /// Part of a question that has begun to arrive.
    rest: Vec<u8>,
    /// The number of the call that has no answer yet. There is only one at a time: the next call follows the answer.
    asks: Option<u64>,
}

struct LabBackend {
    poll: Poll,
    address: SocketAddr,
    listener: Option<TcpListener>,
    /// None = it answers nothing.
    conduct: Option<BackendConduct>,
    callers: HashMap<usize, Caller>,
    next_caller: usize,
    /// When which caller gets its answer.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    asking: usize,
    calls: u64,
    events: u64,
    at_once: usize,
    asked: u64,
    question: Vec<u8>,
    scratch: Vec<u8>,
}

impl LabBackend {
    /// A backend that listens, and answers nothing.
    fn new(poll: Poll) -> Result<Self> {
        let mut backend = LabBackend {
            poll,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            listener: None,
            conduct: None,
            callers: HashMap::new(),
            next_caller: 0,
            due: BinaryHeap::new(),
            asking: 0,
            calls: 0,
            events: 0,
            at_once: 0,
            asked: 0,
            question: Vec::new(),
            scratch: vec![0; 16_384],
        };
        backend.listen()?;
        Ok(backend)
    }

    /// Opens the port, always the same, unless it is open.
    fn listen(&mut self) -> Result<()> {
        if self.listener.is_some() {
            return Ok(());
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&self.address.into())?;
        socket.listen(BACKLOG)?;
        self.address = socket.local_addr()?.as_socket().context("the backend listens on TCP")?;
        let mut listener = TcpListener::from_std(socket.into());
        self.poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    fn obey(&mut self, command: BackendOrder) -> Result<()> {
        match command {
            BackendOrder::Answer(conduct) => {
                self.conduct = Some(conduct);
                self.listen()?;
            }
            BackendOrder::FallSilent => {
                self.conduct = None;
                self.due.clear();
            }
            BackendOrder::Close => {
                self.conduct = None;
                self.due.clear();
                self.listener = None;
                self.callers.clear();
                self.asking = 0;
            }
            BackendOrder::Count => {}
        }
        Ok(())
    }

    /// The counts since the last report.
    fn count(&mut self) -> BackendCount {
        BackendCount {
            address: self.address,
            calls: std::mem::take(&mut self.calls),
            events: std::mem::take(&mut self.events),
            at_once: std::mem::replace(&mut self.at_once, self.asking),
            question: String::from_utf8_lossy(&self.question).into_owned(),
        }
    }

    fn accept(&mut self) -> Result<()> {
        while let Some((mut socket, _)) = self.listener.as_ref().and_then(|listener| listener.accept().ok()) {
            socket.set_nodelay(true)?;
            let number = self.next_caller;
            self.next_caller += 1;
            self.poll.registry().register(&mut socket, Token(number), Interest::READABLE)?;
            self.callers.insert(number, Caller { socket, rest: Vec::new(), asks: None });
        }
        Ok(())
    }

    /// Reads the bytes of a caller, and drops a caller that has closed its connection.
    fn read(&mut self, number: usize) {
        loop {
            let Some(caller) = self.callers.get_mut(&number) else { return };
            match caller.socket.read(&mut self.scratch) {
                Ok(length @ 1..) => caller.rest.extend_from_slice(&self.scratch[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(0) | Err(_) => return self.drop_caller(number),
            }
        }
        let Some(caller) = self.callers.get_mut(&number) else { return };
        let Some((body, length)) = http_request(&caller.rest) else { return };
        self.question.clear();
        self.question.extend_from_slice(body);
        self.events += events_of(body);
        caller.rest.drain(..length);
        self.asked += 1;
        caller.asks = Some(self.asked);
        self.asking += 1;
        self.calls += 1;
        self.at_once = self.at_once.max(self.asking);
        let Some(conduct) = &self.conduct else { return };
        let is_slow = conduct.slow_one_in > 0 && self.asked.is_multiple_of(conduct.slow_one_in);
        let pause = Duration::from_millis(if is_slow { conduct.slow_ms } else { conduct.after_ms });
        // Read everything that has arrived before answering, so that calls that arrive together are counted together.
        self.due.push(Reverse((Instant::now() + pause, number)));
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    fn answer_due(&mut self) {
        while self.next_due().is_some_and(|due| due <= Instant::now()) {
            if let Some(Reverse((_, number))) = self.due.pop() {
                self.answer(number);
            }
        }
    }

    fn answer(&mut self, number: usize) {
        let (Some(caller), Some(conduct)) = (self.callers.get_mut(&number), &self.conduct) else { return };
        let Some(call) = caller.asks.take() else { return };
        self.asking -= 1;
        if caller.socket.write_all(&http_answer(&conduct.json, call)).is_err() {
            self.drop_caller(number);
        }
    }

    fn drop_caller(&mut self, number: usize) {
        if self.callers.remove(&number).is_some_and(|caller| caller.asks.is_some()) {
            self.asking -= 1;
        }
    }
}

/// The events of a batch; a question of a hook has none.
fn events_of(body: &[u8]) -> u64 {
    let mut rest = if body.first() == Some(&b'[') { body } else { &[] };
    let mut events = 0;
    while let Some(at) = wire::find(rest, b"\"specversion\"") {
        events += 1;
        rest = &rest[at + 1..];
    }
    events
}

fn http_answer(json: &str, call: u64) -> Vec<u8> {
    let json = json.replace(CALL, &call.to_string());
    let length = json.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}").into_bytes()
}

/// The body of the whole request at the beginning of `bytes`, and the length of the request. None = it is incomplete.
fn http_request(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = wire::find(bytes, b"\r\n\r\n")? + 4;
    let fields = bytes[..end].split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        name.eq_ignore_ascii_case(b"content-length").then(|| value[1..].trim_ascii())
    });
    let length = fields.filter_map(|value| std::str::from_utf8(value).ok()?.parse::<usize>().ok()).next().unwrap_or(0);
    Some((bytes.get(end..end.checked_add(length)?)?, end + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_body() {
        let request = b"POST /x HTTP/1.1\r\nhost: b\r\ncontent-length: 4\r\n\r\nbodyPOST";
        assert_eq!(http_request(request), Some((&b"body"[..], request.len() - 4)));
        assert_eq!(http_request(&request[..request.len() - 5]), None);
        assert_eq!(http_request(b"GET / HTTP/1.1\r\n\r\n"), Some((&b""[..], 18)));
        assert_eq!(http_request(b"GET / HTTP/1.1\r\n"), None);
    }
}
