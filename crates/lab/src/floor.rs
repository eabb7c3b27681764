//! The floor: the cost of a delivery on the bare machine. It uses one thread, plain sockets, one prebuilt frame per
//! event, and one send for each reader. Readers over TLS have their own sessions: the frame is encrypted for each, as
//! one record, and there may be several threads.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustls::{ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::certificate::SelfSignedCertificate;
use crate::part::say;
use crate::process::now_us;
use crate::transport::ClientTransport;
use crate::wire;
use crate::worker::channel_name;

const BACKLOG: i32 = 4_096;

/// A command to the floor's sender.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FloorCommand {
    /// Accept so many readers, acknowledge each, and share them out to so many threads.
    Accept { connections: usize, transport: ClientTransport, threads: usize },
    /// Send events, each to the readers of one channel after the other.
    Send(Sending),
    /// Accept this many readers and acknowledge each. Then accept one speaker, and write each of its frames to one
    /// reader after the other, until the speaker ends.
    Relay { connections: usize, transport: ClientTransport },
}

/// The parameters of one sending of the floor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sending {
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    /// Events, of all channels together.
    pub(crate) messages: usize,
    /// Number of events sent before. The numbers of new events continue after them.
    pub(crate) earlier: usize,
    /// Events a second; as fast as possible where it is zero.
    pub(crate) rate: f64,
    /// Number of events in one send.
    pub(crate) coalesce: usize,
    pub(crate) size: usize,
    /// The transport whose bytes are sent.
    pub(crate) transport: ClientTransport,
}

/// A report of the floor's sender.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FloorReport {
    /// The sender listens on this address.
    Listening { address: SocketAddr },
    /// All readers are connected.
    Accepted,
    /// Everything is sent; the last send began so late, microseconds.
    Sent { late_us: u64 },
}

/// Runs commands until standard input ends.
pub(crate) fn serve() -> Result<()> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(BACKLOG)?;
    let address = listener.local_addr()?.as_socket().context("the floor listens on TCP")?;
    say(&FloorReport::Listening { address })?;
    let mut crew = ReaderThreads::default();
    for line in std::io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            FloorCommand::Accept { connections, transport, threads } => {
                crew = ReaderThreads::start(accept(&listener, connections, transport)?, threads)?;
                say(&FloorReport::Accepted)?;
            }
            FloorCommand::Send(sending) => {
                let late = crew.send(&sending)?;
                say(&FloorReport::Sent { late_us: late.as_micros() as u64 })?;
            }
            FloorCommand::Relay { connections, transport } => {
                let mut readers = accept(&listener, connections, transport)?;
                say(&FloorReport::Accepted)?;
                relay(listener.accept()?.0.into(), &mut readers)?;
                say(&FloorReport::Sent { late_us: 0 })?;
            }
        }
    }
    Ok(())
}

fn accept(listener: &Socket, connections: usize, transport: ClientTransport) -> Result<Vec<FloorReader>> {
    let sessions =
        if transport == ClientTransport::Tls { Some(SelfSignedCertificate::make()?.sessions()?) } else { None };
    let accept_one = |_| {
        let mut reader = FloorReader::accept(listener.accept()?.0.into(), sessions.as_ref())?;
        reader.write_all(transport.acknowledgement())?;
        Ok(reader)
    };
    (0..connections).map(accept_one).collect()
}

/// The sending threads. They stay after sending, because the kernel accounts to a process only the CPU time of its
/// living threads.
#[derive(Default)]
struct ReaderThreads {
    commands: Vec<Sender<Sending>>,
    results: Option<Receiver<Result<Duration>>>,
}

impl ReaderThreads {
    /// Gives each thread its share of the readers.
    fn start(mut readers: Vec<FloorReader>, threads: usize) -> Result<Self> {
        let (result, results) = channel();
        let share = readers.len().div_ceil(threads.max(1));
        let (mut commands, mut first) = (Vec::new(), 0);
        while !readers.is_empty() {
            let others = readers.split_off(share.min(readers.len()));
            let mut own = std::mem::replace(&mut readers, others);
            let (command, received) = channel::<Sending>();
            let result = result.clone();
            let work = move || {
                received.iter().map(|sending| send(&mut own, first, &sending)).try_for_each(|sent| result.send(sent))
            };
            std::thread::Builder::new().name("sender".into()).spawn(work).context("failed to start a thread")?;
            commands.push(command);
            first += share;
        }
        Ok(ReaderThreads { commands, results: Some(results) })
    }

    /// Lets all send, and waits for them. Returns how late the last send of any began.
    fn send(&self, sending: &Sending) -> Result<Duration> {
        self.commands.iter().try_for_each(|command| command.send(sending.clone()))?;
        let mut results = self.results.iter().flat_map(Receiver::iter).take(self.commands.len());
        results.try_fold(Duration::ZERO, |late, result| Ok(late.max(result?)))
    }
}

/// The sender's side of one reader.
struct FloorReader {
    socket: TcpStream,
    session: Option<ServerConnection>,
}

impl FloorReader {
    /// Accepts a reader, and does the TLS handshake if there is TLS.
    fn accept(mut socket: TcpStream, sessions: Option<&Arc<ServerConfig>>) -> Result<Self> {
        socket.set_nodelay(true)?;
        let mut session = sessions.map(|config| ServerConnection::new(Arc::clone(config))).transpose()?;
        if let Some(session) = &mut session {
            session.set_buffer_limit(None);
            while session.is_handshaking() {
                session.complete_io(&mut socket)?;
            }
        }
        Ok(FloorReader { socket, session })
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(session) = &mut self.session else { return Ok(self.socket.write_all(bytes)?) };
        session.writer().write_all(bytes)?;
        while session.wants_write() {
            session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

/// Writes the frames of a speaker to all readers, one by one, until the speaker ends.
fn relay(mut speaker: TcpStream, readers: &mut [FloorReader]) -> Result<()> {
    let (mut begun, mut some) = (Vec::new(), [0; 4_096]);
    loop {
        let length = speaker.read(&mut some)?;
        if length == 0 {
            return Ok(());
        }
        begun.extend_from_slice(&some[..length]);
        while let Some((.., length)) = wire::frame(&begun) {
            readers.iter_mut().try_for_each(|reader| reader.write_all(&begun[..length]))?;
            begun.drain(..length);
        }
    }
}

/// Sends to these readers. `first_reader` is the number of the first one among the readers of all threads. Returns how
/// late the last send began; zero without a rate.
fn send(readers: &mut [FloorReader], first_reader: usize, sending: &Sending) -> Result<Duration> {
    let Sending { ref prefix, channels, messages, earlier, rate, coalesce, size, transport } = *sending;
    let began = Instant::now();
    let (mut sent, mut round) = (0, earlier / coalesce);
    let mut late = Duration::ZERO;
    while sent < messages {
        if rate > 0.0 {
            let due = began + Duration::from_secs_f64(sent as f64 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            late = due.elapsed();
        }
        let (channel, first) = (round % channels, round / channels * coalesce + 1);
        let posted_us = now_us();
        let name = channel_name(prefix, channel);
        let frames: Vec<u8> = (first..first + coalesce)
            .flat_map(|number| transport.publication(&name, &wire::data(number as u64, posted_us, size)))
            .collect();
        // A reader's channel is the remainder of its number.
        let skipped = (channel + channels - first_reader % channels) % channels;
        for reader in readers.iter_mut().skip(skipped).step_by(channels) {
            reader.write_all(&frames)?;
        }
        round += 1;
        sent += coalesce;
    }
    Ok(late)
}
