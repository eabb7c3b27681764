//! The floor of reactions: a bare loop that reads as many frames and adds to a table.

use std::collections::HashMap;
use std::io::{BufRead as _, ErrorKind, Read as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use serde::Deserialize;
use socket2::{Domain, Socket, Type};
use touchline_protocol::websocket::mask;

use super::messages::{CHANNEL, CountingOrder, CountingReport, OPTIONS};
use crate::part::say;

const BACKLOG: i32 = 4_096;
/// Bytes of one read, as many as the server reads.
const READ_SIZE: usize = 8 * 1_024;
/// Sockets served between two looks at the poller.
const EVENTS: usize = 256;

type Totals = HashMap<String, HashMap<String, u64>>;

/// The message of a client.
#[derive(Deserialize)]
struct FloorCommandJson<'a> {
    #[serde(borrow)]
    send: FloorSend<'a>,
}

#[derive(Deserialize)]
struct FloorSend<'a> {
    #[serde(borrow)]
    data: FloorMethod<'a>,
}

#[derive(Deserialize)]
struct FloorMethod<'a> {
    method: &'a str,
    #[serde(borrow)]
    data: FloorReaction<'a>,
}

#[derive(Deserialize)]
struct FloorReaction<'a> {
    channel: &'a str,
    option: &'a str,
    n: u64,
}

/// One thread with its sockets and its counts.
struct CountingThread {
    poll: Poll,
    sockets: Arc<Mutex<Vec<FloorSocket>>>,
    totals: Arc<Mutex<Totals>>,
}

/// A client, and the beginning of a frame that is not whole.
struct FloorSocket {
    socket: TcpStream,
    begun: Vec<u8>,
}

/// Counts until standard input ends, with as many threads as there are cores.
pub(crate) fn serve() -> Result<()> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(BACKLOG)?;
    let address = listener.local_addr()?.as_socket().context("the floor listens on TCP")?;
    say(&CountingReport::Listening { address })?;
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut threads = Vec::new();
    for _ in 0..count {
        let totals: Totals = [(CHANNEL.to_owned(), OPTIONS.map(|option| (option.to_owned(), 0)).into())].into();
        let poll = Poll::new()?;
        let (registry, sockets) = (poll.registry().try_clone()?, Arc::new(Mutex::new(Vec::new())));
        let totals = Arc::new(Mutex::new(totals));
        let mut thread = CountingThread { poll, sockets: Arc::clone(&sockets), totals: Arc::clone(&totals) };
        std::thread::Builder::new().name("counter".into()).spawn(move || thread.run())?;
        threads.push((registry, sockets, totals));
    }
    let places: Vec<_> =
        threads.iter().map(|(registry, sockets, _)| (registry.try_clone(), Arc::clone(sockets))).collect();
    let places = places.into_iter().map(|(registry, sockets)| Ok((registry?, sockets))).collect::<Result<Vec<_>>>()?;
    std::thread::Builder::new().name("acceptor".into()).spawn(move || accept(&listener, &places))?;
    for line in std::io::stdin().lock().lines() {
        let CountingOrder::Count = serde_json::from_str(&line?)?;
        let of = |totals: &Totals| totals.values().flat_map(HashMap::values).sum::<u64>();
        let reactions = threads.iter().map(|(.., totals)| totals.lock().map_or(0, |totals| of(&totals))).sum();
        say(&CountingReport::Counted { reactions })?;
    }
    Ok(())
}

/// Gives each thread its share of the clients.
fn accept(listener: &Socket, places: &[(Registry, Arc<Mutex<Vec<FloorSocket>>>)]) -> Result<()> {
    for (registry, sockets) in places.iter().cycle() {
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket.into());
        let Ok(mut sockets) = sockets.lock() else { break };
        registry.register(&mut socket, Token(sockets.len()), Interest::READABLE)?;
        sockets.push(FloorSocket { socket, begun: Vec::new() });
    }
    Ok(())
}

impl CountingThread {
    fn run(&mut self) -> Result<()> {
        let (mut events, mut scratch) = (Events::with_capacity(EVENTS), vec![0; READ_SIZE]);
        loop {
            self.poll.poll(&mut events, None)?;
            // No other thread uses these locks while the crowd reacts.
            let (Ok(mut sockets), Ok(mut totals)) = (self.sockets.lock(), self.totals.lock()) else { return Ok(()) };
            for event in &events {
                let Some(socket) = sockets.get_mut(event.token().0) else { continue };
                socket.read(&mut scratch, &mut totals)?;
            }
        }
    }
}

impl FloorSocket {
    fn read(&mut self, scratch: &mut [u8], totals: &mut Totals) -> Result<()> {
        loop {
            match self.socket.read(scratch) {
                Ok(0) => return Ok(()),
                Ok(length) if self.begun.is_empty() => {
                    let used = count(&mut scratch[..length], totals);
                    self.begun.extend_from_slice(&scratch[used..length]);
                    // A short read has emptied the socket.
                    if length < scratch.len() {
                        return Ok(());
                    }
                }
                Ok(length) => {
                    self.begun.extend_from_slice(&scratch[..length]);
                    let used = count(&mut self.begun, totals);
                    self.begun.drain(..used);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Counts the whole frames at the beginning of `bytes`. Returns their length. Frames are short and masked.
fn count(bytes: &mut [u8], totals: &mut Totals) -> usize {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 6) {
        let length = usize::from(head[1] & 0x7f);
        let key = [head[2], head[3], head[4], head[5]];
        let Some(payload) = bytes.get_mut(at + 6..at + 6 + length) else { break };
        mask(key, payload);
        if let Ok(FloorCommandJson { send }) = serde_json::from_slice(payload)
            && send.data.method == "reactions.add"
            && let Some(total) =
                totals.get_mut(send.data.data.channel).and_then(|options| options.get_mut(send.data.data.option))
        {
            *total += send.data.data.n;
        }
        at += 6 + length;
    }
    at
}
