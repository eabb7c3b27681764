//! One subscriber: dial, upgrade, connect, subscribe, read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::Instant;

use anyhow::{Result, anyhow};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::messages::{SubscriberRequest, WorkerSpec, channel_name};
use crate::dial::dial;
use crate::ledger::{Ledger, Progress};
use crate::process::now_us;
use crate::socket::LabStream;
use crate::transport::ClientTransport;
use crate::wire::{self, CLOSE, Dialect, PING};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ClientStage {
    #[default]
    Gone,
    Dialling,
    Upgrading,
    Connecting,
    Subscribing,
    Live,
    Asking,
}

/// The result of reading.
pub(super) enum SubscriberResult {
    Nothing,
    /// The subscription is established.
    Open,
    /// The request is answered.
    Answered,
    /// The connection has failed, for this reason.
    Failed(String),
}

/// The state of the worker that a subscriber needs while it reads.
pub(super) struct WorkerContext<'a> {
    pub(super) spec: &'a WorkerSpec,
    pub(super) index: usize,
    pub(super) token: Option<&'a str>,
    pub(super) ledger: &'a mut Ledger,
    pub(super) epoch: &'a mut String,
    pub(super) reads: &'a mut u64,
}

#[derive(Default)]
pub(super) struct Subscriber {
    socket: Option<LabStream<TcpStream>>,
    stage: ClientStage,
    dialled: Option<Instant>,
    opened_us: u64,
    /// Part of a frame that has begun to arrive.
    rest: Vec<u8>,
    pub(super) progress: Progress,
}

impl Subscriber {
    pub(super) fn is_live(&self) -> bool {
        self.stage == ClientStage::Live
    }

    pub(super) fn is_opening(&self) -> bool {
        !matches!(self.stage, ClientStage::Live | ClientStage::Asking | ClientStage::Gone)
    }

    /// How far it is, for people.
    pub(super) fn stage_name(&self) -> String {
        format!("{:?}", self.stage).to_lowercase()
    }

    pub(super) fn opened_us(&self) -> u64 {
        self.opened_us
    }

    pub(super) fn close(&mut self) {
        self.socket = None;
        self.stage = ClientStage::Gone;
        self.rest = Vec::new();
    }

    /// Begins to connect. `round` counts how many times the subscribers have been opened.
    pub(super) fn dial(&mut self, spec: &WorkerSpec, index: usize, round: usize, registry: &Registry) -> Result<()> {
        let mut socket = dial(spec.server, spec.network, spec.first + index, round)?;
        registry.register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        self.socket = Some(LabStream::Plain(socket));
        self.stage = ClientStage::Dialling;
        self.dialled = Some(Instant::now());
        Ok(())
    }

    /// Sends a request; `number`: that of this subscriber among those of all workers.
    pub(super) fn ask(&mut self, request: &SubscriberRequest, number: usize, transport: ClientTransport) -> Result<()> {
        if self.stage != ClientStage::Live {
            return Err(anyhow!("the subscriber is not live"));
        }
        self.stage = ClientStage::Asking;
        match request {
            SubscriberRequest::Register => {
                let data = format!(r#"{{"scope":"lab","name":"name-{number:07}","meta":{{}}}}"#);
                let rpc = format!(r#"{{"id":3,"rpc":{{"method":"registry.register","data":{data}}}}}"#);
                self.send(&wire::text(&rpc))
            }
            SubscriberRequest::Join { prefix, channels } => {
                self.progress = Progress::default();
                self.send(&subscribe(transport, 3, &channel_name(prefix, number % channels), ""))
            }
        }
    }

    /// Reads until the socket has nothing more.
    pub(super) fn serve(&mut self, scratch: &mut [u8], mut context: WorkerContext<'_>) -> SubscriberResult {
        let was_asking = self.stage == ClientStage::Asking;
        match self.try_serve(scratch, &mut context) {
            Ok(true) if was_asking => SubscriberResult::Answered,
            Ok(true) => {
                self.opened_us = self.dialled.map_or(0, |since| since.elapsed().as_micros() as u64);
                SubscriberResult::Open
            }
            Ok(false) => SubscriberResult::Nothing,
            Err(why) => SubscriberResult::Failed(format!("{:?}: {why:#}", self.stage)),
        }
    }

    fn try_serve(&mut self, scratch: &mut [u8], context: &mut WorkerContext<'_>) -> Result<bool> {
        if self.stage == ClientStage::Gone {
            return Ok(false);
        }
        if self.stage == ClientStage::Dialling {
            self.begin(context.spec, context.index, context.token)?;
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
            *context.reads += u64::from(was_live);
            self.take(&scratch[..length], context)?;
            if length < scratch.len() && matches!(self.socket, Some(LabStream::Plain(_))) {
                break;
            }
        }
        Ok(!was_live && self.is_live())
    }

    /// The socket is connected: sends the first bytes.
    fn begin(&mut self, spec: &WorkerSpec, index: usize, token: Option<&str>) -> Result<()> {
        let Some(socket) = self.socket.as_ref().map(LabStream::socket) else { return Ok(()) };
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        if socket.peer_addr().is_err() {
            return Ok(());
        }
        socket.set_nodelay(true)?;
        if spec.transport == ClientTransport::Tls
            && let Some(LabStream::Plain(socket)) = self.socket.take()
        {
            self.socket = Some(LabStream::secure(socket)?);
        }
        if spec.dialect == Dialect::Plain {
            self.stage = ClientStage::Subscribing;
            // With TLS the client begins.
            return self.send(&[]);
        }
        if !spec.transport.begins_with_http() {
            self.stage = ClientStage::Connecting;
            return self.send(&connect(spec.transport, token));
        }
        self.stage = ClientStage::Upgrading;
        self.send(&spec.transport.opening(&spec.server.to_string(), &spec.path, &spec.channel(index)))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(socket) = self.socket.as_mut() else { return Ok(()) };
        match socket.write(bytes) {
            Ok(length) if length == bytes.len() => Ok(()),
            Ok(_) => Err(anyhow!("a command did not fit into the socket's buffer")),
            Err(error) => Err(error.into()),
        }
    }

    /// Handles received bytes, and keeps an incomplete message.
    fn take(&mut self, bytes: &[u8], context: &mut WorkerContext<'_>) -> Result<()> {
        if self.rest.is_empty() {
            let used = self.take_whole(bytes, context)?;
            self.rest.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        let mut rest = std::mem::take(&mut self.rest);
        rest.extend_from_slice(bytes);
        let used = self.take_whole(&rest, context)?;
        rest.drain(..used);
        if !rest.is_empty() {
            self.rest = rest;
        }
        Ok(())
    }

    /// Handles the complete messages. Returns their length in bytes.
    fn take_whole(&mut self, bytes: &[u8], context: &mut WorkerContext<'_>) -> Result<usize> {
        let mut used = 0;
        if self.stage == ClientStage::Upgrading {
            let Some(end) = wire::find(bytes, b"\r\n\r\n") else { return Ok(0) };
            let expected: &[u8] = if context.spec.transport.is_one_way() { b"HTTP/1.1 200 " } else { b"HTTP/1.1 101 " };
            if !bytes.starts_with(expected) {
                return Err(anyhow!("refused: {}", String::from_utf8_lossy(&bytes[..end.min(120)])));
            }
            used = end + 4;
            self.begin_session(context)?;
        }
        let now_us = now_us();
        while let Some((head, payload, length)) = context.spec.transport.message(&bytes[used..]) {
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
                _ => self.receive(&payload, now_us, context)?,
            }
        }
        Ok(used)
    }

    /// The connection is a WebSocket: sends the connect command, or the subscription if the protocol has no connect.
    fn begin_session(&mut self, context: &WorkerContext<'_>) -> Result<()> {
        if context.spec.dialect == Dialect::Raw {
            self.stage = ClientStage::Subscribing;
            return self.send(&wire::text(&context.spec.channel(context.index)));
        }
        if context.spec.transport.is_one_way() {
            self.stage = ClientStage::Subscribing;
            return Ok(());
        }
        self.stage = ClientStage::Connecting;
        self.send(&connect(context.spec.transport, context.token))
    }

    /// Handles one message.
    fn receive(&mut self, payload: &[u8], now_us: u64, context: &mut WorkerContext<'_>) -> Result<()> {
        let size = context.spec.data_size;
        match self.stage {
            ClientStage::Live => {
                for (number, posted_us) in wire::marks(payload, size) {
                    context.ledger.receive(&mut self.progress, number, now_us.saturating_sub(posted_us));
                }
                if context.spec.dialect == Dialect::Centrifugal
                    && has_ping(payload)
                    && let Some(pong) = context.spec.transport.pong()
                {
                    self.send(&pong)?;
                }
            }
            ClientStage::Connecting => {
                refuse_errors(payload)?;
                if !context.spec.is_subscribing {
                    self.stage = ClientStage::Live;
                    return Ok(());
                }
                self.stage = ClientStage::Subscribing;
                let channel = context.spec.channel(context.index);
                let position = match self.progress.last {
                    0 => String::new(),
                    last => format!(r#","recover":true,"offset":{last},"epoch":"{}""#, context.epoch),
                };
                self.send(&subscribe(context.spec.transport, 2, &channel, &position))?;
            }
            ClientStage::Subscribing => {
                refuse_errors(payload)?;
                if context.epoch.is_empty()
                    && let Some(epoch) = wire::text_value(payload, "epoch")
                {
                    context.epoch.push_str(epoch);
                }
                for (number, posted_us) in wire::marks(payload, size) {
                    context.ledger.receive(&mut self.progress, number, now_us.saturating_sub(posted_us));
                }
                self.stage = ClientStage::Live;
            }
            ClientStage::Asking => {
                refuse_errors(payload)?;
                if !is_ping(payload) {
                    self.stage = ClientStage::Live;
                }
                if has_ping(payload)
                    && let Some(pong) = context.spec.transport.pong()
                {
                    self.send(&pong)?;
                }
            }
            ClientStage::Gone | ClientStage::Dialling | ClientStage::Upgrading => {}
        }
        Ok(())
    }
}

/// The command that opens a session.
fn connect(transport: ClientTransport, token: Option<&str>) -> Vec<u8> {
    let json = match token {
        Some(token) => format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#),
        None => r#"{"id":1,"connect":{}}"#.to_owned(),
    };
    transport.command(&json, |fields| {
        fields.number(1, 1).message(4, |fields| {
            fields.text(1, token.unwrap_or_default());
        });
    })
}

/// The command that subscribes to a channel; `position`: further fields of JSON, with a comma before them.
fn subscribe(transport: ClientTransport, id: u64, channel: &str, position: &str) -> Vec<u8> {
    let json = format!(r#"{{"id":{id},"subscribe":{{"channel":"{channel}"{position}}}}}"#);
    transport.command(&json, |fields| {
        fields.number(1, id).message(5, |fields| {
            fields.text(1, channel);
        });
    })
}

fn refuse_errors(payload: &[u8]) -> Result<()> {
    match wire::find(payload, b"\"error\":{") {
        Some(_) => Err(anyhow!("refused: {}", String::from_utf8_lossy(payload))),
        None => Ok(()),
    }
}

/// Whether a message is the protocol's ping and nothing else.
fn is_ping(payload: &[u8]) -> bool {
    payload == b"{}" || payload == b"\0"
}

/// Whether a message is the protocol's ping, alone or in a batch.
fn has_ping(payload: &[u8]) -> bool {
    is_ping(payload) || payload.starts_with(b"{}\n") || payload.ends_with(b"\n{}")
}
