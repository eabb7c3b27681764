//! Clients that act: they publish by commands on their own connections, and record the result of each command.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use mio::{Events, Interest, Poll, Token};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::ledger::Times;
use crate::process::now_us;
use crate::server_under_test::ServerUnderTest;
use crate::socket::LabStream;
use crate::wire;
use crate::worker::channel_name;

/// Bytes of a publication's data.
const SIZE: usize = 128;
/// How long a poll of the sockets waits at most.
const TURN: Duration = Duration::from_millis(20);
/// Maximum time to wait for answers after the last action.
const PATIENCE: Duration = Duration::from_secs(30);

/// The results of all actions.
#[derive(Debug, Default)]
pub(crate) struct Acted {
    /// Number of actions that succeeded.
    pub(crate) succeeded: u64,
    /// Actions that were answered with an error.
    pub(crate) refused: u64,
    /// Time of the first success, Unix microseconds; 0 = no action has succeeded.
    pub(crate) first_success_us: u64,
    /// Time of the last refusal, Unix microseconds; 0 = no action was refused.
    pub(crate) last_refusal_us: u64,
    /// How long those took that succeeded.
    pub(crate) times: Times,
}

/// The clients: WebSocket, JSON. Each publishes into channels of its own.
pub(crate) struct ActingClients {
    poll: Poll,
    clients: Vec<ActingClient>,
    /// Maximum number of unanswered actions of one client.
    each: usize,
    idle: VecDeque<(usize, usize)>,
}

struct ActingClient {
    socket: LabStream<mio::net::TcpStream>,
    rest: Vec<u8>,
    /// When each action that is under way began.
    began: Vec<Option<Instant>>,
}

/// A reply to a command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ActionReply {
    id: usize,
    error: Option<IgnoredAny>,
}

impl ActingClients {
    /// Connects `count` clients, each with a token. `each` is the maximum number of unanswered actions of one client.
    pub(crate) fn connect(server: &ServerUnderTest, count: usize, each: usize) -> Result<Self> {
        let poll = Poll::new()?;
        let clients = (0..count).map(|number| ActingClient::connect(server, &poll, number, each));
        let clients = clients.collect::<Result<Vec<_>>>()?;
        let idle = (0..each).flat_map(|slot| (0..count).map(move |client| (client, slot))).collect();
        Ok(ActingClients { poll, clients, each, idle })
    }

    /// Publishes until `is_over`, `rate` times per second over all clients; 0 = each client again as soon as it has its
    /// answer. Actions for which no client is free are left out. Then it waits for the answers.
    fn act(&mut self, prefix: &str, rate: f64, is_over: &AtomicBool) -> Result<Acted> {
        let (began, mut acted, mut due, mut over_since) = (Instant::now(), Acted::default(), 0u64, None);
        let mut events = Events::with_capacity(1_024);
        let mut scratch = vec![0; 65_536];
        loop {
            if is_over.load(Relaxed) {
                let since = *over_since.get_or_insert_with(Instant::now);
                if self.idle.len() == self.clients.len() * self.each {
                    return Ok(acted);
                }
                if since.elapsed() > PATIENCE {
                    bail!("actions of clients have no answer");
                }
            } else if rate == 0.0 {
                while let Some(free) = self.idle.pop_front() {
                    self.begin(free, prefix)?;
                }
            } else {
                let now = (began.elapsed().as_secs_f64() * rate) as u64;
                for _ in due..now {
                    let Some(free) = self.idle.pop_front() else { break };
                    self.begin(free, prefix)?;
                }
                due = now;
            }
            let pause = if rate > 0.0 { Duration::from_secs_f64(1.0 / rate).min(TURN) } else { TURN };
            self.poll.poll(&mut events, Some(pause))?;
            for event in &events {
                self.read(event.token().0, &mut scratch, &mut acted)?;
            }
        }
    }

    /// Publishes as [`ActingClients::act`] does while something else is done, on a thread of its own.
    pub(crate) fn act_beside<T>(
        &mut self,
        prefix: &str,
        rate: f64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Acted)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| self.act(prefix, rate, &is_over));
            let done = work();
            is_over.store(true, Relaxed);
            let acted = acting.join().map_err(|_| anyhow!("the thread of clients that act has panicked"))??;
            Ok((done?, acted))
        })
    }

    fn begin(&mut self, (client, slot): (usize, usize), prefix: &str) -> Result<()> {
        let id = slot + 2;
        let channel = channel_name(prefix, client * self.each + slot);
        let data = wire::data(1, now_us(), SIZE);
        let command = format!(r#"{{"id":{id},"publish":{{"channel":"{channel}","data":{data}}}}}"#);
        let client = &mut self.clients[client];
        client.began[slot] = Some(Instant::now());
        Ok(client.socket.write_all(&wire::text(&command))?)
    }

    fn read(&mut self, number: usize, scratch: &mut [u8], acted: &mut Acted) -> Result<()> {
        let client = &mut self.clients[number];
        loop {
            match client.socket.read(scratch) {
                Ok(0) => bail!("the server closed the connection of a client that acts"),
                Ok(length) => client.rest.extend_from_slice(&scratch[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut used = 0;
        while let Some((head, payload, length)) = wire::frame(&client.rest[used..]) {
            used += length;
            if head == wire::CLOSE {
                bail!("the server ends a client that acts: {}", String::from_utf8_lossy(payload));
            }
            let replies = payload.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            for line in replies {
                if line == b"{}" {
                    client.socket.write_all(&wire::text("{}"))?;
                    continue;
                }
                let reply: ActionReply = serde_json::from_slice(line)?;
                let slot = reply.id.checked_sub(2).filter(|slot| *slot < client.began.len());
                let Some((slot, since)) = slot.and_then(|slot| Some((slot, client.began[slot].take()?))) else {
                    continue;
                };
                self.idle.push_back((number, slot));
                if reply.error.is_some() {
                    acted.refused += 1;
                    acted.last_refusal_us = now_us();
                } else {
                    acted.succeeded += 1;
                    acted.times.record(since.elapsed().as_micros() as u64);
                    if acted.first_success_us == 0 {
                        acted.first_success_us = now_us();
                    }
                }
            }
        }
        client.rest.drain(..used);
        Ok(())
    }
}

impl ActingClient {
    fn connect(server: &ServerUnderTest, poll: &Poll, number: usize, each: usize) -> Result<Self> {
        let mut socket = server.connect()?;
        let token = server.token(number).unwrap_or_default();
        socket.write_all(&wire::handshake("lab", "/connection/websocket"))?;
        socket.write_all(&wire::text(&format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#)))?;
        let (mut answer, mut some) = (Vec::new(), [0; 4_096]);
        while wire::find(&answer, b"\"client\"").is_none() {
            match socket.read(&mut some)? {
                0 => bail!("a client that acts was not let in: {}", String::from_utf8_lossy(&answer)),
                length => answer.extend_from_slice(&some[..length]),
            }
        }
        let mut socket = socket.into_polled()?;
        poll.registry().register(socket.socket_mut(), Token(number), Interest::READABLE)?;
        Ok(ActingClient { socket, rest: Vec::new(), began: vec![None; each] })
    }
}
