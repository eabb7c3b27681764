//! Many channels with one subscriber each on each of three servers joined by NATS: how long that takes, and what it
//! costs in memory.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::arguments::{ChannelsOptions, Options};
use crate::nats::Nats;
use crate::process::resident_bytes;
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{HISTORY, PLAIN, ServerUnderTest};
use crate::socket::LabStream;
use crate::wire;
use crate::worker::channel_name;

const NODES: usize = 3;
/// Subscriptions of one connection.
const EACH: usize = 100;
const SIZE: usize = 128;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which memory that subscriptions have left behind is returned.
const REST: Duration = Duration::from_secs(2);

/// One run without history, and one with it.
pub(super) fn channels(channels: &ChannelsOptions, options: &Options, results: &mut Results) -> Result<()> {
    run("channels without history on three nodes", PLAIN, channels, options, results)?;
    run("channels with history on three nodes", HISTORY, channels, options, results)
}

fn run(
    scenario: &'static str,
    prefix: &str,
    channels: &ChannelsOptions,
    options: &Options,
    results: &mut Results,
) -> Result<()> {
    let nats = Nats::start()?;
    let servers = ServerUnderTest::start_joined(options, &nats, NODES)?;
    let memory = || -> Result<f64> { servers.iter().map(|server| resident_bytes(server.pid)).sum() };
    let (before, nats_before) = (memory()?, resident_bytes(nats.pid())?);
    let mut loads =
        servers.iter().map(|server| ChannelLoad::open(server, channels.channels)).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    at_once(&mut loads, |load| load.subscribe(prefix))?;
    let seconds = began.elapsed().as_secs_f64();
    std::thread::sleep(REST);
    let of_each = |bytes: f64| bytes / (channels.channels * NODES) as f64 / 1e3;
    results.add(Figure::new(scenario, "all subscribed after", "s"), seconds);
    results.add(Figure::new(scenario, "memory of a channel on each node", "KB"), of_each(memory()? - before));
    results.add(
        Figure::new(scenario, "memory of NATS for each of them", "KB"),
        of_each(resident_bytes(nats.pid())? - nats_before),
    );
    let mut publisher = Publisher::new(servers[0].api.clone(), prefix, channels.channels, SIZE)?;
    publisher.publish(channels.messages, 0.0)?;
    let received = at_once(&mut loads, |load| load.receive(channels.messages, prefix))?;
    results.add(Figure::exact(scenario), (channels.messages * NODES - received.iter().sum::<usize>()) as f64);
    Ok(())
}

/// Runs `step` with each server's load, on a thread for each.
fn at_once<T: Send>(loads: &mut [ChannelLoad], step: impl Fn(&mut ChannelLoad) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = loads.iter_mut().map(|load| scope.spawn(|| step(load))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| bail!("the thread of a load has panicked")))
            .collect()
    })
}

/// Subscribers of one server, each channel with one of them.
struct ChannelLoad {
    clients: Vec<Client>,
}

struct Client {
    socket: LabStream<TcpStream>,
    rest: Vec<u8>,
    channels: Range<usize>,
}

impl ChannelLoad {
    fn open(server: &ServerUnderTest, channels: usize) -> Result<Self> {
        let open = |first| Client::open(server, first..channels.min(first + EACH));
        Ok(ChannelLoad { clients: (0..channels).step_by(EACH).map(open).collect::<Result<_>>()? })
    }

    /// All clients request all their channels; then all wait for the replies.
    fn subscribe(&mut self, prefix: &str) -> Result<()> {
        for client in &mut self.clients {
            let subscribe = |number: usize| {
                let channel = channel_name(prefix, number);
                format!(r#"{{"id":{},"subscribe":{{"channel":"{channel}"}}}}"#, number + 2)
            };
            let commands: Vec<_> = client.channels.clone().map(subscribe).collect();
            client.socket.write_all(&wire::text(&commands.join("\n")))?;
        }
        for client in &mut self.clients {
            let mut missing = client.channels.len();
            while missing > 0 {
                client.read(|line| match wire::find(line, b"\"error\":{") {
                    Some(_) => bail!("refused: {}", String::from_utf8_lossy(line)),
                    None => {
                        missing -= usize::from(wire::find(line, b"\"subscribe\":{").is_some());
                        Ok(())
                    }
                })?;
            }
        }
        Ok(())
    }

    /// The number of the first channels that have received their one publication; a second one is an error.
    fn receive(&mut self, channels: usize, prefix: &str) -> Result<usize> {
        let mut received = HashSet::new();
        for client in &mut self.clients {
            let due = client.channels.end.min(channels).saturating_sub(client.channels.start);
            let wanted = received.len() + due;
            while received.len() < wanted {
                client.read(|line| match wire::text_value(line, "channel") {
                    Some(channel) if !channel.starts_with(prefix) || !received.insert(channel.to_owned()) => {
                        bail!("delivered twice, or to no subscriber: {channel}")
                    }
                    _ => Ok(()),
                })?;
            }
        }
        Ok(received.len())
    }
}

impl Client {
    fn open(server: &ServerUnderTest, channels: Range<usize>) -> Result<Self> {
        let mut socket = server.connect()?;
        socket.socket().set_read_timeout(Some(TIMEOUT))?;
        socket.write_all(&wire::handshake(&server.address.to_string(), "/connection/websocket"))?;
        let mut head = Vec::new();
        while wire::find(&head, b"\r\n\r\n").is_none() {
            let mut byte = [0];
            socket.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        socket.write_all(&wire::text(r#"{"id":1,"connect":{}}"#))?;
        let mut client = Client { socket, rest: Vec::new(), channels };
        let mut is_connected = false;
        while !is_connected {
            client.read(|line| {
                is_connected = wire::find(line, b"\"connect\":{").is_some();
                Ok(())
            })?;
        }
        Ok(client)
    }

    /// Waits for more bytes, and handles every complete line.
    fn read(&mut self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut scratch = [0; 16 * 1024];
        let length = self.socket.read(&mut scratch).context("nothing came")?;
        if length == 0 {
            bail!("the server closed the connection");
        }
        self.rest.extend_from_slice(&scratch[..length]);
        let mut used = 0;
        while let Some((head, payload, length)) = wire::frame(&self.rest[used..]) {
            used += length;
            match head {
                wire::PING => self.socket.write_all(&wire::pong(payload))?,
                wire::CLOSE => {
                    bail!("closed by the server: {}", String::from_utf8_lossy(payload.get(2..).unwrap_or_default()))
                }
                _ => payload.split(|byte| *byte == b'\n').try_for_each(&mut take)?,
            }
            if payload == b"{}" {
                self.socket.write_all(&wire::text("{}"))?;
            }
        }
        self.rest.drain(..used);
        Ok(())
    }
}
