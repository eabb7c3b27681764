//! Publishers over HTTP: a single one that is paced or waits for each answer, and many concurrent ones for the publish
//! scenario.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mio::{Events, Interest, Poll, Token};

use crate::ledger::Times;
use crate::process::now_us;
use crate::socket::LabStream;
use crate::wire;
use crate::worker::channel_name;

/// The API of the server under test.
#[derive(Debug, Clone)]
pub(crate) struct PublishClient {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) is_tls: bool,
}

impl PublishClient {
    /// A new connection to the API.
    pub(crate) fn connect(&self) -> Result<LabStream<TcpStream>> {
        LabStream::connect(self.address, self.is_tls)
    }

    fn request(&self, channel: &str, data: &str) -> Vec<u8> {
        self.call("publish", &format!(r#"{{"channel":"{channel}","data":{data}}}"#))
    }

    /// A request for an operation.
    pub(crate) fn call(&self, operation: &str, body: &str) -> Vec<u8> {
        format!(
            "POST /api/{operation} HTTP/1.1\r\nHost: {}\r\nX-API-Key: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.key,
            body.len()
        )
        .into_bytes()
    }

    /// Calls an operation on a connection of its own. Returns its result.
    ///
    /// # Errors
    /// When the answer is an error, or does not come.
    pub(crate) fn ask(&self, operation: &str, body: &str) -> Result<serde_json::Value> {
        let mut socket = connect(self)?;
        socket.write_all(&self.call(operation, body))?;
        let (mut received, mut some) = (Vec::new(), [0; 4_096]);
        let whole = loop {
            match socket.read(&mut some)? {
                0 => bail!("the server closed the connection of {operation}"),
                length => received.extend_from_slice(&some[..length]),
            }
            if let Some(whole) = answer(&received)? {
                break whole;
            }
        };
        let head = wire::find(&received, b"\r\n\r\n").context("an answer has a head")?;
        let mut answer: serde_json::Value = serde_json::from_slice(&received[head + 4..whole])?;
        Ok(answer["result"].take())
    }
}

/// The length of the whole answer at the beginning of `bytes`. None = it is incomplete.
///
/// # Errors
/// When the answer reports a failure.
pub(crate) fn answer(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = wire::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok()).unwrap_or(0);
    let whole = end + 4 + length;
    let Some(body) = bytes.get(end + 4..whole) else { return Ok(None) };
    if !head.starts_with("http/1.1 200") || wire::find(body, b"\"error\"").is_some() {
        bail!("a request was refused: {head} {}", String::from_utf8_lossy(body));
    }
    Ok(Some(whole))
}

/// One publisher: numbers the publications of each channel, and waits for each answer.
pub(crate) struct Publisher {
    api: PublishClient,
    socket: LabStream<TcpStream>,
    prefix: String,
    channels: usize,
    size: usize,
    /// Publications sent so far, of all channels.
    sent: usize,
    answer: Vec<u8>,
}

impl Publisher {
    pub(crate) fn new(api: PublishClient, prefix: &str, channels: usize, size: usize) -> Result<Self> {
        let socket = connect(&api)?;
        Ok(Publisher { api, socket, prefix: prefix.to_owned(), channels, size, sent: 0, answer: vec![0; 4_096] })
    }

    /// Connects again, because the server may be another process by now.
    pub(crate) fn reconnect(&mut self) -> Result<()> {
        self.socket = connect(&self.api)?;
        Ok(())
    }

    /// Publishes so many, channel after channel; `rate` a second, or without a pause where it is zero.
    pub(crate) fn publish(&mut self, messages: usize, rate: f64) -> Result<()> {
        let began = Instant::now();
        for index in 0..messages {
            if rate > 0.0 {
                let due = began + Duration::from_secs_f64(index as f64 / rate);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            self.publish_one()?;
        }
        Ok(())
    }

    fn publish_one(&mut self) -> Result<()> {
        let channel = channel_name(&self.prefix, self.sent % self.channels);
        let number = (self.sent / self.channels + 1) as u64;
        let request = self.api.request(&channel, &wire::data(number, now_us(), self.size));
        self.sent += 1;
        self.socket.write_all(&request)?;
        let mut length = 0;
        loop {
            let more = self.socket.read(&mut self.answer[length..])?;
            if more == 0 {
                bail!("the server closed the publisher's connection");
            }
            length += more;
            if answer(&self.answer[..length])?.is_some() {
                return Ok(());
            }
        }
    }
}

fn connect(api: &PublishClient) -> Result<LabStream<TcpStream>> {
    let socket = api.connect()?;
    socket.socket().set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(socket)
}

/// The result of many publishers.
pub(crate) struct Published {
    pub(crate) count: u64,
    pub(crate) times: Times,
    pub(crate) seconds: f64,
}

/// The precision of the publishing rate.
const RATE_PRECISION: Duration = Duration::from_micros(20);

/// Many publishers, each with one request at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Many<'a> {
    pub(crate) channel: &'a str,
    pub(crate) connections: usize,
    pub(crate) size: usize,
    pub(crate) lasting: Duration,
    /// Publications a second, of all together; as many as answers allow where it is zero.
    pub(crate) rate: f64,
}

/// Publishes for a while.
pub(crate) fn publish_from_many(api: &PublishClient, many: &Many<'_>) -> Result<Published> {
    let Many { channel, connections, size, lasting, rate } = *many;
    let mut poll = Poll::new()?;
    let request = api.request(channel, &wire::data(1, now_us(), size));
    // With a rate: the connections that wait for their next publication, and when each is due. A connection whose
    // answer was late is due before those that wait already.
    let mut resting = BinaryHeap::new();
    let pause = Duration::from_secs_f64(if rate > 0.0 { connections as f64 / rate } else { 0.0 });
    let mut sockets = Vec::new();
    for index in 0..connections {
        let mut socket = api.connect()?.into_polled()?;
        poll.registry().register(socket.socket_mut(), Token(index), Interest::READABLE)?;
        resting.push(Reverse((Instant::now() + pause.mul_f64(index as f64 / connections as f64), index)));
        sockets.push((socket, Instant::now(), Vec::new()));
    }
    let (began, mut count, mut times) = (Instant::now(), 0, Times::default());
    let mut events = Events::with_capacity(connections);
    let mut scratch = [0; 4_096];
    while began.elapsed() < lasting {
        while let Some(&Reverse((due, index))) = resting.peek()
            && due <= Instant::now()
        {
            resting.pop();
            let (socket, asked, _) = &mut sockets[index];
            *asked = due.max(*asked);
            socket.write_all(&request)?;
        }
        // The poller counts whole milliseconds, which is too coarse for a rate.
        poll.poll(&mut events, Some(if rate > 0.0 { Duration::ZERO } else { Duration::from_millis(100) }))?;
        if rate > 0.0 && events.is_empty() {
            std::thread::sleep(RATE_PRECISION);
        }
        for event in &events {
            let (socket, asked, rest) = &mut sockets[event.token().0];
            loop {
                match socket.read(&mut scratch) {
                    Ok(0) => bail!("the server closed a publisher's connection"),
                    Ok(length) => rest.extend_from_slice(&scratch[..length]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
                if answer(rest)?.is_some() {
                    rest.clear();
                    count += 1;
                    times.record(asked.elapsed().as_micros() as u64);
                    let due = *asked + pause;
                    *asked = Instant::now();
                    if rate > 0.0 {
                        resting.push(Reverse((due, event.token().0)));
                    } else {
                        socket.write_all(&request)?;
                    }
                }
            }
        }
    }
    Ok(Published { count, times, seconds: began.elapsed().as_secs_f64() })
}
