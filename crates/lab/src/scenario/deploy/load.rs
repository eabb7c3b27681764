//! Publishers that continue while nodes are restarted. Each numbers the publications of its channels. It sends a
//! publication without an answer again to the next node, with the same idempotency key.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::process::now_us;
use crate::publisher::{PublishClient, answer};
use crate::server_under_test::HISTORY;
use crate::socket::LabStream;
use crate::wire;
use crate::worker::channel_name;

/// Number of threads that publish.
const PUBLISHERS: usize = 4;
/// Bytes of a publication's data.
const SIZE: usize = 128;
/// Maximum time of one publication, for all tries together.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time of one answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// The pause when every node was tried.
const PAUSE: Duration = Duration::from_millis(20);

/// The publishers, on threads of their own. They end when this is dropped.
pub(super) struct PublishLoad {
    shared: Arc<LoadCounts>,
    threads: Vec<JoinHandle<Result<()>>>,
}

#[derive(Debug)]
struct LoadCounts {
    is_over: AtomicBool,
    /// The number of the last acknowledged publication of each channel.
    acknowledged: Vec<AtomicU64>,
    /// Tries that got no acknowledgement.
    failed: AtomicU64,
}

impl PublishLoad {
    /// Begins to publish, channel after channel; `rate` a second, of all channels together.
    pub(super) fn start(nodes: &[PublishClient], channels: usize, rate: f64) -> Self {
        let shared = Arc::new(LoadCounts {
            is_over: AtomicBool::new(false),
            acknowledged: (0..channels).map(|_| AtomicU64::new(0)).collect(),
            failed: AtomicU64::new(0),
        });
        let count = PUBLISHERS.min(channels);
        let threads = (0..count).map(|number| {
            let own: Vec<usize> = (number..channels).step_by(count).collect();
            let mut publisher = NumberingPublisher { nodes: nodes.to_vec(), node: number % nodes.len(), socket: None };
            let (shared, rate) = (Arc::clone(&shared), rate * own.len() as f64 / channels as f64);
            std::thread::spawn(move || publisher.run(&own, rate, &shared))
        });
        PublishLoad { threads: threads.collect(), shared }
    }

    /// The number of the last acknowledged publication of each channel.
    ///
    /// # Errors
    /// When a publisher has given up.
    pub(super) fn acknowledged(&mut self) -> Result<Vec<u64>> {
        if let Some(index) = self.threads.iter().position(JoinHandle::is_finished) {
            join(self.threads.swap_remove(index))?;
            bail!("a publisher has ended too early");
        }
        Ok(self.shared.acknowledged.iter().map(|number| number.load(Relaxed)).collect())
    }

    /// Tries that got no acknowledgement so far, and were sent again.
    pub(super) fn failed(&self) -> u64 {
        self.shared.failed.load(Relaxed)
    }
}

impl Drop for PublishLoad {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            if let Err(error) = join(thread) {
                eprintln!("a publisher failed: {error:#}");
            }
        }
    }
}

fn join(thread: JoinHandle<Result<()>>) -> Result<()> {
    thread.join().map_err(|_| anyhow!("the thread of a publisher has panicked"))?
}

/// A publisher that numbers its publications.
struct NumberingPublisher {
    nodes: Vec<PublishClient>,
    /// The node that the publisher uses, by its place among the addresses.
    node: usize,
    socket: Option<LabStream<std::net::TcpStream>>,
}

impl NumberingPublisher {
    fn run(&mut self, channels: &[usize], rate: f64, shared: &LoadCounts) -> Result<()> {
        let began = Instant::now();
        for (index, channel) in channels.iter().cycle().enumerate() {
            let due = began + Duration::from_secs_f64(index as f64 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if shared.is_over.load(Relaxed) {
                break;
            }
            let number = shared.acknowledged[*channel].load(Relaxed) + 1;
            self.publish(*channel, number, shared)?;
            shared.acknowledged[*channel].store(number, Relaxed);
        }
        Ok(())
    }

    /// Publishes once: tries node after node until one acknowledges it.
    fn publish(&mut self, channel: usize, number: u64, shared: &LoadCounts) -> Result<()> {
        let name = channel_name(HISTORY, channel);
        let data = wire::data(number, now_us(), SIZE);
        let body = format!(r#"{{"channel":"{name}","idempotency_key":"{channel}-{number}","data":{data}}}"#);
        let began = Instant::now();
        for tries in 1.. {
            let Err(error) = self.try_once(&body) else { break };
            shared.failed.fetch_add(1, Relaxed);
            (self.socket, self.node) = (None, (self.node + 1) % self.nodes.len());
            if began.elapsed() > PATIENCE {
                return Err(error.context(format!("no node takes publication {number} of {name}")));
            }
            if tries % self.nodes.len() == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    fn try_once(&mut self, body: &str) -> Result<()> {
        let api = &self.nodes[self.node];
        if self.socket.is_none() {
            let socket = api.connect()?;
            socket.socket().set_read_timeout(Some(ANSWER_PATIENCE))?;
            self.socket = Some(socket);
        }
        let socket = self.socket.as_mut().context("a connection was made")?;
        socket.write_all(&api.call("publish", body))?;
        let (mut received, mut some) = (Vec::new(), [0; 4_096]);
        while answer(&received)?.is_none() {
            match socket.read(&mut some)? {
                0 => bail!("the node closed the publisher's connection"),
                length => received.extend_from_slice(&some[..length]),
            }
        }
        Ok(())
    }
}
