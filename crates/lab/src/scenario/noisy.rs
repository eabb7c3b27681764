//! One client that sends as many commands as it can, and what its neighbours notice of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::bare::{REST, patience};
use super::exact;
use crate::arguments::{Noisy, Options};
use crate::fleet::{Delivered, Fleet};
use crate::publisher::Publisher;
use crate::report::{Figure, Results};
use crate::subject::{PLAIN, Subject};
use crate::way::Way;
use crate::wire;

const SIZE: usize = 128;
/// Commands in one message of the noisy client, and messages a second: 100,000 commands.
const COMMANDS: usize = 50;
const MESSAGES: u64 = 2_000;

/// One run: a fan-out beside nobody, beside a noisy client, beside nobody.
pub(super) fn noisy(noisy: &Noisy, options: &Options, results: &mut Results) -> Result<()> {
    let subject = Subject::start_guarded(options)?;
    let mut fleet = Fleet::start(&subject.plan(noisy.connections, PLAIN, 1, SIZE, false))?;
    fleet.open_all(200)?;
    let mut publisher = Publisher::new(subject.api.clone(), PLAIN, 1, SIZE)?;
    std::thread::sleep(REST);
    let messages = (noisy.rate * noisy.seconds as f64) as usize;
    let mut round = || -> Result<Delivered> {
        fleet.expect(messages, patience(messages, noisy.rate))?;
        publisher.publish(messages, noisy.rate)?;
        fleet.delivered()
    };
    let before = round()?;
    let noise = Noise::start(&subject)?;
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
    results.add(exact("a noisy neighbour"), wrongs as f64);
    Ok(())
}

/// A client that does not let up.
struct Noise {
    is_over: Arc<AtomicBool>,
    commands: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl Noise {
    fn start(subject: &Subject) -> Result<Self> {
        let mut socket = TcpStream::connect(subject.address)?;
        socket.write_all(&Way::Websocket.opening("lab", "/connection/websocket", "lab"))?;
        socket.write_all(&wire::text(r#"{"id":1,"connect":{}}"#))?;
        let (is_over, commands, bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (mut reader, read_over, read_bytes) = (socket.try_clone()?, Arc::clone(&is_over), Arc::clone(&bytes));
        reader.set_read_timeout(Some(Duration::from_millis(100)))?;
        std::thread::spawn(move || {
            let mut scratch = vec![0; 256 * 1024];
            while !read_over.load(Relaxed) {
                match reader.read(&mut scratch) {
                    Ok(0) => return,
                    Ok(length) => drop(read_bytes.fetch_add(length as u64, Relaxed)),
                    Err(_) => {}
                }
            }
        });
        let (write_over, sent) = (Arc::clone(&is_over), Arc::clone(&commands));
        socket.set_write_timeout(Some(Duration::from_millis(200)))?;
        let command = r#"{"id":9,"rpc":{"method":"none","data":{}}}"#;
        let message = wire::text(&vec![command; COMMANDS].join("\n"));
        std::thread::spawn(move || {
            let (began, mut messages, mut offset) = (Instant::now(), 0u64, 0);
            while !write_over.load(Relaxed) {
                if messages > began.elapsed().as_micros() as u64 * MESSAGES / 1_000_000 {
                    std::thread::sleep(Duration::from_micros(500));
                    continue;
                }
                // A message that does not fit goes on where it stopped.
                if let Ok(written) = socket.write(&message[offset..]) {
                    offset += written;
                }
                if offset == message.len() {
                    (messages, offset) = (messages + 1, 0);
                    sent.fetch_add(COMMANDS as u64, Relaxed);
                }
            }
        });
        Ok(Noise { is_over, commands, bytes })
    }

    fn stop(self) -> (f64, f64) {
        self.is_over.store(true, Relaxed);
        (self.commands.load(Relaxed) as f64, self.bytes.load(Relaxed) as f64)
    }
}
