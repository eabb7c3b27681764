//! One client that sends as many commands as it can, and its effect on other clients.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::bare::{REST, timeout};
use crate::arguments::{Noisy, Options};
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::socket::LabStream;
use crate::transport::ClientTransport;
use crate::wire;
use crate::workers::{Delivered, Workers};

const SIZE: usize = 128;
/// Commands in one message of the noisy client, and messages a second: 100,000 commands.
const COMMANDS: usize = 50;
const MESSAGES: u64 = 2_000;
/// How long it waits when nothing can be read or written.
const PAUSE: Duration = Duration::from_micros(500);

/// One run: a fan-out alone, one with a noisy client, and one alone.
pub(super) fn noisy(noisy: &Noisy, options: &Options, results: &mut Results) -> Result<()> {
    let server = ServerUnderTest::start_guarded(options)?;
    let mut workers = Workers::start(&server.plan(noisy.connections, PLAIN, 1, SIZE, false))?;
    workers.open_all(200)?;
    let mut publisher = Publisher::new(server.api.clone(), PLAIN, 1, SIZE)?;
    std::thread::sleep(REST);
    let messages = (noisy.rate * noisy.seconds as f64) as usize;
    let mut round = || -> Result<Delivered> {
        workers.expect(messages, timeout(messages, noisy.rate))?;
        publisher.publish(messages, noisy.rate)?;
        workers.delivered()
    };
    let before = round()?;
    let noise = Noise::start(&server)?;
    let during = round()?;
    let (sent, answered) = noise.stop();
    let after = round()?;
    let p99 = |delivered: &Delivered| delivered.times.quantile_ms(0.99);
    let quiet = (p99(&before) + p99(&after)) / 2.0;
    let figure = |name, unit| Figure::new("a noisy neighbour", name, unit);
    results.add(figure("p99 latency in quiet", "ms"), quiet);
    results.add(figure("p99 latency beside it", "ms"), p99(&during));
    results.add(figure("p99 beside it / in quiet", "×").bound(1.5, 1.1), p99(&during) / quiet);
    results.add(figure("its commands that were taken", "/s"), sent / noisy.seconds as f64);
    results.add(figure("bytes of its answers", "/s"), answered / noisy.seconds as f64);
    let wrongs = [&before, &during, &after].iter().map(|delivered| delivered.wrongs.total("server")).sum::<u64>();
    results.add(Figure::exact("a noisy neighbour"), wrongs as f64);
    Ok(())
}

/// A client that sends commands without a pause.
struct Noise {
    is_over: Arc<AtomicBool>,
    commands: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Noise {
    fn start(server: &ServerUnderTest) -> Result<Self> {
        let mut socket = server.connect()?;
        socket.write_all(&ClientTransport::Websocket.opening("lab", "/connection/websocket", "lab"))?;
        socket.write_all(&wire::text(r#"{"id":1,"connect":{}}"#))?;
        socket.socket().set_nonblocking(true)?;
        let noise = Noise { is_over: Arc::default(), commands: Arc::default(), bytes: Arc::default() };
        let (is_over, commands, bytes) =
            (Arc::clone(&noise.is_over), Arc::clone(&noise.commands), Arc::clone(&noise.bytes));
        std::thread::spawn(move || {
            // The server may have closed the connection. Then there is no more noise, which the figures show.
            let _ = make_noise(&mut socket, &is_over, &commands, &bytes);
        });
        Ok(noise)
    }

    fn stop(self) -> (f64, f64) {
        self.is_over.store(true, Relaxed);
        (self.commands.load(Relaxed) as f64, self.bytes.load(Relaxed) as f64)
    }
}

/// Sends at a fixed rate what the server accepts, and discards the answers.
fn make_noise(
    socket: &mut LabStream<TcpStream>,
    is_over: &AtomicBool,
    commands: &AtomicU64,
    bytes: &AtomicU64,
) -> Result<()> {
    let command = r#"{"id":9,"rpc":{"method":"none","data":{}}}"#;
    let message = wire::text(&vec![command; COMMANDS].join("\n"));
    let mut scratch = vec![0; 256 * 1024];
    let (began, mut messages, mut offset) = (Instant::now(), 0u64, 0);
    while !is_over.load(Relaxed) {
        let has_read = match socket.read(&mut scratch) {
            Ok(0) => bail!("the server closed the connection"),
            read => moved(read)?,
        };
        bytes.fetch_add(has_read as u64, Relaxed);
        let is_due = messages <= began.elapsed().as_micros() as u64 * MESSAGES / 1_000_000;
        // A partly sent message continues where it stopped.
        let has_written = if is_due { moved(socket.write(&message[offset..]))? } else { 0 };
        offset += has_written;
        if offset == message.len() {
            (messages, offset) = (messages + 1, 0);
            commands.fetch_add(COMMANDS as u64, Relaxed);
        }
        if has_read + has_written == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// The number of bytes that were read or written. None = the socket is not ready.
fn moved(outcome: std::io::Result<usize>) -> Result<usize> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        outcome => Ok(outcome?),
    }
}
