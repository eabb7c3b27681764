//! One subscriber: dial, upgrade, connect, subscribe, read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Result, anyhow};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Socket, Type};

use super::WorkerSpec;
use crate::ledger::{Ledger, Progress};
use crate::process::now_us;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::wire::{self, CLOSE, Dialect, PING};

/// Connections from one source address, each from a port that we choose: the kernel's own search becomes slow beyond a
/// few thousand.
const PER_ADDRESS: usize = 4_000;
/// The first of those ports; each time that a crowd comes, it comes from the next 4,000, because closed connections
/// keep theirs for a while.
const FIRST_PORT: usize = 10_000;
const PORT_BLOCKS: usize = 12;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Gone,
    Dialling,
    Upgrading,
    Connecting,
    Subscribing,
    Live,
    Registering,
}

/// What came of reading.
pub(super) enum SubscriberResult {
    Nothing,
    /// The subscription stands.
    Open,
    /// The name that it asked for is its own.
    Registered,
    /// The connection is of no use any more.
    Failed(String),
}

/// What a subscriber needs of its worker while it reads.
pub(super) struct WorkerContext<'a> {
    pub(super) crowd: &'a WorkerSpec,
    pub(super) index: usize,
    pub(super) token: Option<&'a str>,
    pub(super) ledger: &'a mut Ledger,
    pub(super) epoch: &'a mut String,
    pub(super) reads: &'a mut u64,
}

#[derive(Default)]
pub(super) struct Subscriber {
    socket: Option<Stream<TcpStream>>,
    stage: Stage,
    dialled: Option<Instant>,
    opened_us: u64,
    /// Part of a frame that has begun to arrive.
    rest: Vec<u8>,
    pub(super) progress: Progress,
}

impl Subscriber {
    pub(super) fn is_live(&self) -> bool {
        self.stage == Stage::Live
    }

    pub(super) fn is_opening(&self) -> bool {
        !matches!(self.stage, Stage::Live | Stage::Registering | Stage::Gone)
    }

    pub(super) fn opened_us(&self) -> u64 {
        self.opened_us
    }

    pub(super) fn close(&mut self) {
        self.socket = None;
        self.stage = Stage::Gone;
        self.rest = Vec::new();
    }

    /// Begins to connect. `visit` counts the times that the crowd has come.
    pub(super) fn dial(&mut self, crowd: &WorkerSpec, index: usize, visit: usize, registry: &Registry) -> Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        let number = crowd.first + index;
        let address = Ipv4Addr::new(127, crowd.network, 0, 1 + (number / PER_ADDRESS) as u8);
        let port = FIRST_PORT + visit % PORT_BLOCKS * PER_ADDRESS + number % PER_ADDRESS;
        socket.bind(&SocketAddr::from((address, port as u16)).into())?;
        match socket.connect(&crowd.server.into()) {
            Err(error) if error.raw_os_error() != Some(EINPROGRESS) => return Err(error.into()),
            _ => {}
        }
        let mut socket = TcpStream::from_std(socket.into());
        registry.register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        self.socket = Some(Stream::Plain(socket));
        self.stage = Stage::Dialling;
        self.dialled = Some(Instant::now());
        Ok(())
    }

    /// Asks for a name of its own.
    pub(super) fn register(&mut self, number: usize) -> Result<()> {
        if self.stage != Stage::Live {
            return Err(anyhow!("it is not there"));
        }
        self.stage = Stage::Registering;
        let data = format!(r#"{{"scope":"lab","name":"name-{number:07}","meta":{{}}}}"#);
        self.send(&wire::text(&format!(r#"{{"id":3,"rpc":{{"method":"registry.register","data":{data}}}}}"#)))
    }

    /// Reads until the socket has nothing more.
    pub(super) fn serve(&mut self, scratch: &mut [u8], mut scene: WorkerContext<'_>) -> SubscriberResult {
        let was_registering = self.stage == Stage::Registering;
        match self.try_serve(scratch, &mut scene) {
            Ok(true) if was_registering => SubscriberResult::Registered,
            Ok(true) => {
                self.opened_us = self.dialled.map_or(0, |since| since.elapsed().as_micros() as u64);
                SubscriberResult::Open
            }
            Ok(false) => SubscriberResult::Nothing,
            Err(why) => SubscriberResult::Failed(format!("{:?}: {why:#}", self.stage)),
        }
    }

    fn try_serve(&mut self, scratch: &mut [u8], scene: &mut WorkerContext<'_>) -> Result<bool> {
        if self.stage == Stage::Gone {
            return Ok(false);
        }
        if self.stage == Stage::Dialling {
            self.begin(scene.crowd, scene.index, scene.token)?;
        }
        let was_live = self.is_live();
        loop {
            let Some(socket) = self.socket.as_mut() else { return Ok(false) };
            let length = match socket.read(scratch) {
                Ok(0) => return Err(anyhow!("the server closed the connection")),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            };
            *scene.reads += u64::from(was_live);
            self.take(&scratch[..length], scene)?;
            if length < scratch.len() && matches!(self.socket, Some(Stream::Plain(_))) {
                break;
            }
        }
        Ok(!was_live && self.is_live())
    }

    /// The socket is connected: the first words.
    fn begin(&mut self, crowd: &WorkerSpec, index: usize, token: Option<&str>) -> Result<()> {
        let Some(socket) = self.socket.as_ref().map(Stream::socket) else { return Ok(()) };
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        if socket.peer_addr().is_err() {
            return Ok(());
        }
        socket.set_nodelay(true)?;
        if crowd.way == Transport::Tls
            && let Some(Stream::Plain(socket)) = self.socket.take()
        {
            self.socket = Some(Stream::secure(socket)?);
        }
        if crowd.dialect == Dialect::Plain {
            self.stage = Stage::Subscribing;
            // With TLS it is the client who begins.
            return self.send(&[]);
        }
        if !crowd.way.begins_with_http() {
            self.stage = Stage::Connecting;
            return self.send(&connect(crowd.way, token));
        }
        self.stage = Stage::Upgrading;
        self.send(&crowd.way.opening(&crowd.server.to_string(), &crowd.path, &crowd.channel(index)))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(socket) = self.socket.as_mut() else { return Ok(()) };
        match socket.write(bytes) {
            Ok(length) if length == bytes.len() => Ok(()),
            Ok(_) => Err(anyhow!("a command did not fit into the socket's buffer")),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes bytes that have come, and keeps what is not whole yet.
    fn take(&mut self, bytes: &[u8], scene: &mut WorkerContext<'_>) -> Result<()> {
        if self.rest.is_empty() {
            let used = self.take_whole(bytes, scene)?;
            self.rest.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let used = self.take_whole(&rest, scene)?;
        rest.drain(..used);
        if !rest.is_empty() {
            self.rest = rest;
        }
        Ok(())
    }

    /// Takes what is whole; the bytes of it.
    fn take_whole(&mut self, bytes: &[u8], scene: &mut WorkerContext<'_>) -> Result<usize> {
        let mut used = 0;
        if self.stage == Stage::Upgrading {
            let Some(end) = wire::find(bytes, b"\r\n\r\n") else { return Ok(0) };
            let expected: &[u8] = if scene.crowd.way.is_one_way() { b"HTTP/1.1 200 " } else { b"HTTP/1.1 101 " };
            if !bytes.starts_with(expected) {
                return Err(anyhow!("refused: {}", String::from_utf8_lossy(&bytes[..end.min(120)])));
            }
            used = end + 4;
            self.introduce(scene)?;
        }
        let now_us = now_us();
        while let Some((head, payload, length)) = scene.crowd.way.message(&bytes[used..]) {
            used += length;
            match head {
                // An empty line between events.
                _ if payload.trim_ascii().is_empty() => {}
                CLOSE => {
                    return Err(anyhow!(
                        "closed by the server: {}",
                        String::from_utf8_lossy(payload.get(2..).unwrap_or_default())
                    ));
                }
                PING => self.send(&wire::pong(&payload))?,
                _ => self.hear(&payload, now_us, scene)?,
            }
        }
        Ok(used)
    }

    /// The connection is a WebSocket: connect, or subscribe where there is nothing to connect to.
    fn introduce(&mut self, scene: &WorkerContext<'_>) -> Result<()> {
        if scene.crowd.dialect == Dialect::Raw {
            self.stage = Stage::Subscribing;
            return self.send(&wire::text(&scene.crowd.channel(scene.index)));
        }
        if scene.crowd.way.is_one_way() {
            self.stage = Stage::Subscribing;
            return Ok(());
        }
        self.stage = Stage::Connecting;
        self.send(&connect(scene.crowd.way, scene.token))
    }

    /// Takes one message.
    fn hear(&mut self, payload: &[u8], now_us: u64, scene: &mut WorkerContext<'_>) -> Result<()> {
        let size = scene.crowd.data_size;
        match self.stage {
            Stage::Live => {
                for (number, posted_us) in wire::marks(payload, size) {
                    scene.ledger.receive(&mut self.progress, number, now_us.saturating_sub(posted_us));
                }
                if scene.crowd.dialect == Dialect::Centrifugal
                    && has_ping(payload)
                    && let Some(pong) = scene.crowd.way.pong()
                {
                    self.send(&pong)?;
                }
            }
            Stage::Connecting => {
                refuse_errors(payload)?;
                self.stage = Stage::Subscribing;
                let channel = scene.crowd.channel(scene.index);
                let position = match self.progress.last {
                    0 => String::new(),
                    last => format!(r#","recover":true,"offset":{last},"epoch":"{}""#, scene.epoch),
                };
                let json = format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"{position}}}}}"#);
                self.send(&scene.crowd.way.command(&json, |fields| {
                    fields.number(1, 2).message(5, |fields| {
                        fields.text(1, &channel);
                    });
                }))?;
            }
            Stage::Subscribing => {
                refuse_errors(payload)?;
                if scene.epoch.is_empty()
                    && let Some(epoch) = wire::text_value(payload, "epoch")
                {
                    scene.epoch.push_str(epoch);
                }
                for (number, posted_us) in wire::marks(payload, size) {
                    scene.ledger.receive(&mut self.progress, number, now_us.saturating_sub(posted_us));
                }
                self.stage = Stage::Live;
            }
            Stage::Registering => {
                refuse_errors(payload)?;
                if wire::find(payload, b"\"rpc\":{").is_some() {
                    self.stage = Stage::Live;
                }
                if has_ping(payload) {
                    self.send(&wire::text("{}"))?;
                }
            }
            Stage::Gone | Stage::Dialling | Stage::Upgrading => {}
        }
        Ok(())
    }
}

/// `EINPROGRESS` of Linux: the connection is under way.
const EINPROGRESS: i32 = 115;

/// The command that opens a session.
fn connect(way: Transport, token: Option<&str>) -> Vec<u8> {
    let json = match token {
        Some(token) => format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#),
        None => r#"{"id":1,"connect":{}}"#.to_owned(),
    };
    way.command(&json, |fields| {
        fields.number(1, 1).message(4, |fields| {
            fields.text(1, token.unwrap_or_default());
        });
    })
}

fn refuse_errors(payload: &[u8]) -> Result<()> {
    match wire::find(payload, b"\"error\":{") {
        Some(_) => Err(anyhow!("refused: {}", String::from_utf8_lossy(payload))),
        None => Ok(()),
    }
}

/// Whether a message is the protocol's ping, alone or in a batch.
fn has_ping(payload: &[u8]) -> bool {
    payload == b"{}" || payload == b"\0" || payload.starts_with(b"{}\n") || payload.ends_with(b"\n{}")
}
