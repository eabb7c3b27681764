//! One roaming client: dial, upgrade, connect, subscribe with recovery, read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Instant;

use anyhow::{Result, bail};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::messages::RoamingSpec;
use super::reply::{JoinReply, NodeMessage, messages};
use super::window::ClientWindow;
use crate::dial::dial;
use crate::process::now_us;
use crate::wire;
use crate::worker::channel_name;

/// Path of a node's WebSocket endpoint.
const PATH: &str = "/connection/websocket";

/// How far a client is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RoamingStage {
    /// It has no connection, or its subscription was refused: it waits until it is due.
    #[default]
    Waiting,
    Dialling,
    Upgrading,
    Connecting,
    Subscribing,
    Live,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    Nothing,
    /// The client is subscribed.
    Subscribed,
    /// The subscription was refused: the connection stays, and the client tries again later.
    Refused,
}

/// The end of a connection.
#[derive(Debug)]
pub(super) struct ConnectionEnd {
    /// The code of the close frame. `None` = there was no close frame.
    pub(super) code: Option<u16>,
    pub(super) why: String,
}

impl From<anyhow::Error> for ConnectionEnd {
    fn from(error: anyhow::Error) -> Self {
        ConnectionEnd { code: None, why: format!("{error:#}") }
    }
}

impl From<std::io::Error> for ConnectionEnd {
    fn from(error: std::io::Error) -> Self {
        ConnectionEnd { code: None, why: error.to_string() }
    }
}

impl ConnectionEnd {
    /// Whether the code says that the client must not reconnect: 3500 to 3999 and 4500 to 4999.
    pub(super) fn is_final(&self) -> bool {
        self.code.is_some_and(|code| matches!(code, 3_500..=3_999 | 4_500..=4_999))
    }
}

/// A client and its position in its channel.
#[derive(Debug, Default)]
pub(super) struct RoamingClient {
    socket: Option<TcpStream>,
    stage: RoamingStage,
    /// The node of the current or the last connection, by its place among the addresses.
    pub(super) node: usize,
    /// Whether the window counts the client among those that stay on their node.
    pub(super) is_staying: bool,
    /// Tries that have failed since it was subscribed.
    pub(super) failed: u32,
    /// When it tries again. None = it waits for nothing.
    pub(super) due: Option<Instant>,
    /// Part of a frame that has begun to arrive.
    rest: Vec<u8>,
    /// How many times it has dialled.
    dials: usize,
    /// Number of the last publication that came.
    pub(super) last: u64,
    offset: u64,
    /// Empty = it has no position yet.
    epoch: Box<str>,
}

impl RoamingClient {
    pub(super) fn is_live(&self) -> bool {
        self.stage == RoamingStage::Live
    }

    /// Whether it has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Ends the connection.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.stage = RoamingStage::Waiting;
        self.rest = Vec::new();
        self.is_staying = false;
    }

    /// Begins to connect to a node.
    pub(super) fn dial(&mut self, spec: &RoamingSpec, index: usize, node: usize, registry: &Registry) -> Result<()> {
        self.dials += 1;
        (self.node, self.due) = (node, None);
        let mut socket = dial(spec.addresses[node], spec.network, spec.first + index, self.dials)?;
        registry.register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        self.socket = Some(socket);
        self.stage = RoamingStage::Dialling;
        Ok(())
    }

    /// Subscribes; with a position it recovers what it missed.
    pub(super) fn subscribe(&mut self, spec: &RoamingSpec, index: usize) -> Result<()> {
        (self.stage, self.due) = (RoamingStage::Subscribing, None);
        let channel = channel_name(&spec.prefix, (spec.first + index) % spec.channels);
        let position = match &*self.epoch {
            "" => String::new(),
            epoch => format!(r#","recover":true,"offset":{},"epoch":"{epoch}""#, self.offset),
        };
        self.send(&wire::text(&format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"{position}}}}}"#)))
    }

    /// Reads until the socket has nothing more.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) fn read(
        &mut self,
        scratch: &mut [u8],
        spec: &RoamingSpec,
        index: usize,
        window: &mut ClientWindow,
    ) -> Result<ReadOutcome, ConnectionEnd> {
        if self.stage == RoamingStage::Dialling {
            self.begin(spec)?;
        }
        let mut outcome = ReadOutcome::Nothing;
        loop {
            let Some(socket) = self.socket.as_mut() else { return Ok(outcome) };
            let length = match socket.read(scratch) {
                Ok(0) => return Err(anyhow::anyhow!("the node closed the connection without a word").into()),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(outcome),
                Err(error) => return Err(error.into()),
            };
            let mut bytes = std::mem::take(&mut self.rest);
            bytes.extend_from_slice(&scratch[..length]);
            let used = self.take(&bytes, spec, index, window, &mut outcome)?;
            bytes.drain(..used);
            self.rest = bytes;
            if length < scratch.len() {
                return Ok(outcome);
            }
        }
    }

    /// The socket is connected: asks for a WebSocket.
    fn begin(&mut self, spec: &RoamingSpec) -> Result<()> {
        let Some(socket) = self.socket.as_ref() else { return Ok(()) };
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        if socket.peer_addr().is_err() {
            return Ok(());
        }
        socket.set_nodelay(true)?;
        self.stage = RoamingStage::Upgrading;
        self.send(&wire::handshake(&spec.addresses[self.node].to_string(), PATH))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(socket) = self.socket.as_mut() else { return Ok(()) };
        match socket.write(bytes) {
            Ok(length) if length == bytes.len() => Ok(()),
            Ok(_) => bail!("a command did not fit into the socket's buffer"),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles the complete messages. Returns their length in bytes.
    fn take(
        &mut self,
        bytes: &[u8],
        spec: &RoamingSpec,
        index: usize,
        window: &mut ClientWindow,
        outcome: &mut ReadOutcome,
    ) -> Result<usize, ConnectionEnd> {
        let mut used = 0;
        if self.stage == RoamingStage::Upgrading {
            let Some(end) = wire::find(bytes, b"\r\n\r\n") else { return Ok(0) };
            if !bytes.starts_with(b"HTTP/1.1 101 ") {
                let head = String::from_utf8_lossy(&bytes[..end.min(120)]).into_owned();
                return Err(ConnectionEnd { code: None, why: format!("refused: {head}") });
            }
            used = end + 4;
            self.stage = RoamingStage::Connecting;
            self.send(&wire::text(r#"{"id":1,"connect":{}}"#))?;
        }
        while let Some((head, payload, length)) = wire::frame(&bytes[used..]) {
            used += length;
            match head {
                wire::CLOSE => {
                    let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned();
                    return Err(ConnectionEnd { code, why: format!("closed with {code:?}: {reason}") });
                }
                wire::PING => self.send(&wire::pong(payload))?,
                _ => {
                    for message in messages(payload) {
                        self.receive(message?, spec, index, window, outcome)?;
                    }
                }
            }
        }
        Ok(used)
    }

    /// Handles one message.
    fn receive(
        &mut self,
        message: NodeMessage,
        spec: &RoamingSpec,
        index: usize,
        window: &mut ClientWindow,
        outcome: &mut ReadOutcome,
    ) -> Result<()> {
        if message.is_ping() {
            return self.send(&wire::text("{}"));
        }
        if let Some(push) = message.push {
            if let Some(publication) = push.publication {
                let age_us = now_us().saturating_sub(publication.posted_us());
                self.last = window.receive(self.last, publication.number(), Some(age_us).filter(|_| self.is_staying));
                self.offset = publication.offset;
            }
            if push.unsubscribe.is_some() && self.is_live() {
                self.is_staying = false;
                return self.subscribe(spec, index);
            }
            return Ok(());
        }
        match self.stage {
            RoamingStage::Connecting if message.connect.is_some() => {
                window.accepted(self.node, now_us());
                self.subscribe(spec, index)
            }
            RoamingStage::Subscribing => {
                match message.subscribe {
                    Some(reply) => {
                        self.join(reply, window);
                        *outcome = ReadOutcome::Subscribed;
                    }
                    None => {
                        self.stage = RoamingStage::Waiting;
                        *outcome = ReadOutcome::Refused;
                    }
                }
                Ok(())
            }
            _ => bail!("the node refuses the client while it is {:?}", self.stage),
        }
    }

    /// Handles a successful subscription: processes the missed publications and stores the new position.
    fn join(&mut self, reply: JoinReply, window: &mut ClientWindow) {
        for publication in &reply.publications {
            self.last = window.receive(self.last, publication.number(), None);
        }
        (self.offset, self.epoch) = (reply.offset, reply.epoch);
        (self.stage, self.failed) = (RoamingStage::Live, 0);
    }
}
