//! Measures the cost of an attack for others while it runs: the server's memory, `/health`, and a neighbour that
//! receives publications.

use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use touchline_testkit::websocket::WebSocket;
use touchline_testkit::{PATIENCE, comes};

use super::http::http;
use super::server::{KEY, Server, memory};
use super::{MIB, pause};

/// The time between two requests to `/health`.
const INTERVAL: Duration = Duration::from_millis(20);
/// Nine of ten requests to `/health` take at most this time on a machine without other load. On a machine with shared
/// cores the time is multiplied by the measured stretch. The time of an echo is added `FLOORS` times.
const HEALTH_MOST: Duration = Duration::from_millis(100);
/// The longest request to `/health` takes at most this time, with the same corrections.
const HEALTH_WORST: Duration = Duration::from_secs(1);
/// A request to `/health` may cost as much as this many echoes.
const FLOORS: u32 = 3;
/// The duration of one measured piece of work. The work runs a tenth of the time.
const WORK: Duration = Duration::from_millis(8);
/// On a machine with a larger stretch the measurement shows nothing.
const STRETCH_MAX: f64 = 10.0;
/// A server that uses this much memory is killed to protect the machine: its attack has succeeded.
const CEILING: u64 = 2048 * MIB;
/// The longest time for the neighbour's last publications on a machine without other load.
const DELIVERY: Duration = Duration::from_secs(5);

/// A value that ends a thread. It also ends the thread when a failing test drops it.
#[derive(Default)]
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One attack while it is measured.
pub(crate) struct Watch<'a> {
    name: &'static str,
    server: &'a Server,
    before: u64,
    is_over: Flag,
    is_heard: Flag,
    guard: JoinHandle<bool>,
    health: JoinHandle<Vec<Duration>>,
    floor: JoinHandle<Vec<Duration>>,
    share: JoinHandle<f64>,
    publisher: JoinHandle<(u64, Option<String>)>,
    subscriber: JoinHandle<Option<String>>,
    delivered: Arc<AtomicU64>,
    told: Vec<String>,
}

impl<'a> Watch<'a> {
    /// Starts the measurement. Earlier memory of the server does not count.
    pub(crate) fn begin(name: &'static str, server: &'a Server) -> Self {
        let is_over = Flag::default();
        let is_heard = Flag::default();
        let delivered = Arc::new(AtomicU64::new(0));
        let address = server.address;
        let mut neighbour = WebSocket::connected(address);
        neighbour.must(json!({"id": 2, "subscribe": {"channel": "watch:w"}}));
        let over = || Arc::clone(&is_over.0);
        let (flag, seen) = (Arc::clone(&is_heard.0), Arc::clone(&delivered));
        let subscriber = std::thread::spawn(move || subscribe(neighbour, &flag, &seen));
        let flag = over();
        let process = server.id();
        let guard = std::thread::spawn(move || keep_below(process, &flag));
        let flag = over();
        let health = std::thread::spawn(move || look(address, &flag));
        let flag = over();
        let floor = std::thread::spawn(move || echo(&flag));
        let flag = over();
        let share = std::thread::spawn(move || stretch(&flag));
        let flag = over();
        let publisher = std::thread::spawn(move || publish(address, &flag));
        // The neighbour must be subscribed before the first figure is taken.
        comes(PATIENCE, || delivered.load(Relaxed) > 0);
        server.forget_peak();
        let before = server.memory();
        Watch {
            name,
            server,
            before,
            is_over,
            is_heard,
            guard,
            health,
            floor,
            share,
            publisher,
            subscriber,
            delivered,
            told: Vec::new(),
        }
    }

    /// Notes the answer to the attacker.
    pub(crate) fn told(&mut self, what: impl Display) {
        self.told.push(what.to_string());
    }

    /// Ends the measurement and prints it. Asserts that no other client was harmed, and that the server's memory grew
    /// by at most `memory` bytes. Returns the stretch: the time of work divided by its time on a machine without other
    /// load.
    pub(crate) fn end(self, memory: u64) -> f64 {
        self.is_over.0.store(true, Relaxed);
        assert!(
            !self.guard.join().expect("it ends"),
            "{}: the server took more than {} MiB and was killed",
            self.name,
            CEILING / MIB
        );
        let (published, refused) = self.publisher.join().expect("the publisher ends");
        let stretch = self.share.join().expect("it ends");
        let has_all = comes(DELIVERY.mul_f64(stretch), || self.delivered.load(Relaxed) >= published);
        self.is_heard.0.store(true, Relaxed);
        let growth = self.server.peak().saturating_sub(self.before);
        let (health, floor) = (self.health.join().expect("it ends"), self.floor.join().expect("it ends"));
        let missing = || (!has_all).then(|| format!("only {} of {published} came", self.delivered.load(Relaxed)));
        let wrong = self.subscriber.join().expect("it ends").or(refused).or_else(missing);
        let (most, worst) = (part(&health, 90), part(&health, 100));
        let (floor_most, floor_worst) = (part(&floor, 90), part(&floor, 100));
        let line = format!(
            "attack: {} | +{:.1} MiB of {} | /health {most:?}, at worst {worst:?} (echo {floor_most:?}, \
             {floor_worst:?}, work takes {stretch:.1} times as long) | {published} delivered{} | {}\n",
            self.name,
            growth as f64 / MIB as f64,
            memory / MIB,
            wrong.as_deref().map(|wrong| format!(": {wrong}")).unwrap_or_default(),
            self.told.join(", "),
        );
        // The test does not use print!, whose output is shown only for tests that fail.
        let _ = std::io::stderr().write_all(line.as_bytes());
        assert!(growth <= memory, "{}: the server took {growth} bytes more, {memory} are allowed", self.name);
        assert!(most <= HEALTH_MOST.mul_f64(stretch) + floor_most * FLOORS, "{}: /health takes {most:?}", self.name);
        assert!(
            worst <= HEALTH_WORST.mul_f64(stretch) + floor_worst * FLOORS,
            "{}: /health takes {worst:?} at worst",
            self.name
        );
        assert_eq!(wrong, None, "{}: the neighbour", self.name);
        assert_eq!(http(self.server.address).metric("touchline_panics_total"), 0, "{}", self.name);
        stretch
    }
}

/// The time that `percent` of a hundred measurements do not exceed.
pub(crate) fn part(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(Duration::ZERO)
}

/// Kills a process that uses too much memory for the machine. Returns whether it was killed.
fn keep_below(process: u32, is_over: &AtomicBool) -> bool {
    while !is_over.load(Relaxed) {
        if memory(process) > CEILING {
            let _ = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
            return true;
        }
        pause(INTERVAL);
    }
    false
}

/// Sends requests to `/health` again and again. A request that fails counts as one that never ends.
fn look(address: SocketAddr, is_over: &AtomicBool) -> Vec<Duration> {
    let mut http = http(address);
    let mut times = Vec::new();
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        // The server may have closed the kept connection. Then the request is sent again on a new connection (RFC 9112
        // section 9.3.1).
        let answer = http.request("GET", "/health", "", "").or_else(|_| http.request("GET", "/health", "", ""));
        let is_well = answer.is_ok_and(|(status, _)| status == 200);
        times.push(if is_well { began.elapsed() } else { PATIENCE });
        pause(INTERVAL);
    }
    times
}

/// The time of an echo between two threads of this process: no server answers faster.
fn echo(is_over: &AtomicBool) -> Vec<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut socket = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (mut other, _) = listener.accept().expect("it was called");
    std::thread::spawn(move || {
        let mut byte = [0];
        while other.read_exact(&mut byte).is_ok() && other.write_all(&byte).is_ok() {}
    });
    let mut times = Vec::new();
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        let mut byte = [1];
        let _ = socket.write_all(&byte);
        let _ = socket.read_exact(&mut byte);
        times.push(began.elapsed());
        pause(INTERVAL);
    }
    times
}

/// The elapsed time of work divided by its processor time. The shards' threads share cores with attackers and
/// neighbours in the same way.
fn stretch(is_over: &AtomicBool) -> f64 {
    let used = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|nanoseconds| nanoseconds.parse().ok())
            .map_or(Duration::ZERO, Duration::from_nanos)
    };
    let (mut of_core, mut of_clock) = (Duration::ZERO, Duration::ZERO);
    while !is_over.load(Relaxed) {
        let (before, began) = (used(), Instant::now());
        // The work is longer than the scheduler's slice, so that other threads on the core are noticed.
        while used() - before < WORK && began.elapsed() < WORK * 50 {}
        of_core += used() - before;
        of_clock += began.elapsed();
        pause(WORK * 9);
    }
    (of_clock.as_secs_f64() / of_core.as_secs_f64().max(f64::EPSILON)).clamp(1.0, STRETCH_MAX)
}

/// Publishes 1, 2, 3, … until the end. Returns the last number, and the first fault if there was one.
fn publish(address: SocketAddr, is_over: &AtomicBool) -> (u64, Option<String>) {
    let mut http = http(address);
    let key = format!("X-API-Key: {KEY}\r\n");
    let mut last = 0;
    while !is_over.load(Relaxed) {
        let body = json!({"channel": "watch:w", "data": last + 1}).to_string();
        match http.request("POST", "/api/publish", &key, &body) {
            Ok((200, answer)) if answer.contains("result") => last += 1,
            other => return (last, Some(format!("a publication was answered by {other:?}"))),
        }
        pause(INTERVAL);
    }
    (last, None)
}

/// Receives 1, 2, 3, … until the end. Returns the first fault if there was one.
fn subscribe(mut neighbour: WebSocket, is_over: &AtomicBool, delivered: &AtomicU64) -> Option<String> {
    while !is_over.load(Relaxed) {
        if !neighbour.has_more(INTERVAL) {
            continue;
        }
        let expected = delivered.load(Relaxed) + 1;
        match neighbour.next_message() {
            Ok(message) if message["push"]["pub"]["data"] == json!(expected) => delivered.store(expected, Relaxed),
            Ok(message) => return Some(format!("{message} instead of {expected}")),
            Err(end) => return Some(format!("{end:?} instead of {expected}")),
        }
    }
    None
}
