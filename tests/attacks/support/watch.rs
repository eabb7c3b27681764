//! What an attack costs others, looked at while it goes on: the server's memory, `/health`, and a neighbour who gets
//! what is published.

use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::http::Http;
use super::server::{KEY, Server, memory};
use super::websocket::WebSocket;
use super::{MIB, PATIENCE, comes};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);
/// Nine of ten looks at `/health` take no longer on a machine of one's own. Where work takes longer because cores are
/// shared, so may they; and what this machine needs for an echo, `FLOORS` times, comes on top.
const HEALTH_MOST: Duration = Duration::from_millis(100);
/// None takes longer, with the same on top.
const HEALTH_WORST: Duration = Duration::from_secs(1);
/// A look at `/health` is more than an echo: so many of them.
const FLOORS: u32 = 3;
/// Work that is measured, a tenth of the time.
const WORK: Duration = Duration::from_millis(8);
/// A machine that is busier than that can't show anything.
const STRETCH_MAX: f64 = 10.0;
/// A server that takes so much is killed before the machine suffers: its attack has succeeded.
const CEILING: u64 = 2048 * MIB;
/// How long the neighbour's last publications may take on a machine of one's own.
const DELIVERY: Duration = Duration::from_secs(5);

/// What ends a thread; it does so too when the test fails and drops it.
#[derive(Default)]
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One attack that is being watched.
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
    /// Begins to watch; what has been made before counts for nothing.
    pub(crate) fn begin(name: &'static str, server: &'a Server) -> Self {
        let is_over = Flag::default();
        let is_heard = Flag::default();
        let delivered = Arc::new(AtomicU64::new(0));
        let address = server.address;
        let mut neighbour = WebSocket::connected(address);
        neighbour.must(&json!({"id": 2, "subscribe": {"channel": "watch:w"}}));
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
        // Who watches is there before the first figure is taken.
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

    /// Notes what the attacker was told.
    pub(crate) fn told(&mut self, what: impl Display) {
        self.told.push(what.to_string());
    }

    /// Ends the watch: tells what it saw, and asserts that nobody else paid, and that the server took no more than so
    /// many bytes. Tells how many times as long work took as on a machine of one's own.
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
        // Not by print!, which is shown for tests that fail only.
        let _ = std::io::stderr().write_all(line.as_bytes());
        assert!(growth <= memory, "{}: the server took {growth} bytes more, {memory} are allowed", self.name);
        assert!(most <= HEALTH_MOST.mul_f64(stretch) + floor_most * FLOORS, "{}: /health takes {most:?}", self.name);
        assert!(
            worst <= HEALTH_WORST.mul_f64(stretch) + floor_worst * FLOORS,
            "{}: /health takes {worst:?} at worst",
            self.name
        );
        assert_eq!(wrong, None, "{}: the neighbour", self.name);
        assert_eq!(Http::new(self.server.address).metric("touchline_panics_total"), 0, "{}", self.name);
        stretch
    }
}

/// The time that so many of a hundred do not exceed.
pub(crate) fn part(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(Duration::ZERO)
}

/// Kills a process that takes more than a machine can bear; whether it did.
fn keep_below(process: u32, is_over: &AtomicBool) -> bool {
    while !is_over.load(Relaxed) {
        if memory(process) > CEILING {
            let _ = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
            return true;
        }
        std::thread::sleep(INTERVAL);
    }
    false
}

/// Looks at `/health` again and again; a look that fails counts as one that takes for ever.
fn look(address: SocketAddr, is_over: &AtomicBool) -> Vec<Duration> {
    let mut http = Http::new(address);
    let mut times = Vec::new();
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        // A connection that was kept may have been closed meanwhile: then the request is sent again, on a fresh one
        // (RFC 9112 section 9.3.1).
        let answer = http.request("GET", "/health", "", "").or_else(|| http.request("GET", "/health", "", ""));
        let is_well = answer.is_some_and(|(status, _)| status == 200);
        times.push(if is_well { began.elapsed() } else { PATIENCE });
        std::thread::sleep(INTERVAL);
    }
    times
}

/// What this machine needs for an echo between two threads of ours: nobody is faster.
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
        std::thread::sleep(INTERVAL);
    }
    times
}

/// How many times as long work takes as it takes of a core: the shards' threads, too, have to share cores with
/// attackers and neighbours.
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
        // Longer than the scheduler's slice, so that it is seen who else is there.
        while used() - before < WORK && began.elapsed() < WORK * 50 {}
        of_core += used() - before;
        of_clock += began.elapsed();
        std::thread::sleep(WORK * 9);
    }
    (of_clock.as_secs_f64() / of_core.as_secs_f64().max(f64::EPSILON)).clamp(1.0, STRETCH_MAX)
}

/// Publishes 1, 2, 3, … until it is over; gives the last, and what was wrong, if anything was.
fn publish(address: SocketAddr, is_over: &AtomicBool) -> (u64, Option<String>) {
    let mut http = Http::new(address);
    let key = format!("X-API-Key: {KEY}\r\n");
    let mut last = 0;
    while !is_over.load(Relaxed) {
        let body = json!({"channel": "watch:w", "data": last + 1}).to_string();
        match http.request("POST", "/api/publish", &key, &body) {
            Some((200, answer)) if answer.contains("result") => last += 1,
            other => return (last, Some(format!("a publication was answered by {other:?}"))),
        }
        std::thread::sleep(INTERVAL);
    }
    (last, None)
}

/// Hears 1, 2, 3, … until it is not needed any more; gives what was wrong, if anything was.
fn subscribe(mut neighbour: WebSocket, is_over: &AtomicBool, delivered: &AtomicU64) -> Option<String> {
    while !is_over.load(Relaxed) {
        if !neighbour.has_more(INTERVAL) {
            continue;
        }
        let expected = delivered.load(Relaxed) + 1;
        match neighbour.next() {
            Ok(message) if message["push"]["pub"]["data"] == json!(expected) => delivered.store(expected, Relaxed),
            Ok(message) => return Some(format!("{message} instead of {expected}")),
            Err(end) => return Some(format!("{end:?} instead of {expected}")),
        }
    }
    None
}
