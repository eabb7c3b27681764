//! Calls that wait: clients call names whose owners answer after a delay. They are compared with programs in which as
//! many goroutines, promises or threads wait.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::{Value, json};

use crate::arguments::Options;
use crate::process::{Meter, resident_bytes};
use crate::report::{Figure, Results};
use crate::rival::Rival;
use crate::server_under_test::ServerUnderTest;
use crate::web_arguments::WaitingOptions;

const SCENARIO: &str = "waiting calls";
/// Names that are called: as many answer at a time.
const ANSWERERS: usize = 100;
/// Maximum time of a step beyond the delay.
const PATIENCE: Duration = Duration::from_secs(60);
/// Stack of a waiting thread, bytes: the minimum of the system.
const STACK: usize = 16_384;

/// One run of the scenario.
pub(super) fn waiting(waiting: &WaitingOptions, options: &Options, results: &mut Results) -> Result<()> {
    if options.server.is_some() {
        bail!("only a server of the lab's own lets so many calls wait: leave --server out");
    }
    let count = waiting.callers * waiting.calls;
    calls(waiting, options, results)?;
    let own = std::env::current_exe().context("this program has no path")?.display().to_string();
    beside("threads", &[own, "waiting-threads".to_owned()], count, waiting.delay, results)?;
    for rival in &waiting.rivals {
        beside(&rival.name, &rival.words, count, waiting.delay, results)?;
    }
    Ok(())
}

/// Starts waiting threads, as many as the system allows.
pub(crate) fn let_threads_wait(count: usize, delay: u64) -> Result<()> {
    println!("ready");
    let mut threads = Vec::new();
    for _ in 0..count.min(threads_max()) {
        let wait = move || std::thread::sleep(Duration::from_secs(delay));
        let Ok(thread) = std::thread::Builder::new().stack_size(STACK).spawn(wait) else { break };
        threads.push(thread);
    }
    println!("waiting {}", threads.len());
    for thread in threads {
        let _ = thread.join();
    }
    println!("done");
    // The kernel's accounting of this process can be read while the process exists.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Maximum number of threads of a process. Each needs some memory areas, and a thread that cannot get them ends the
/// process.
fn threads_max() -> usize {
    const AREAS: usize = 5;
    let areas = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
    areas.unwrap_or(65_530usize) / AREAS
}

/// A program that says `ready`, `waiting COUNT` and `done`.
fn beside(name: &str, words: &[String], count: usize, delay: u64, results: &mut Results) -> Result<()> {
    let words: Vec<String> = words.iter().cloned().chain([count.to_string(), delay.to_string()]).collect();
    let mut rival = Rival::start(&words)?;
    rival.line()?;
    let before = resident_bytes(rival.pid())?;
    let meter = Meter::start(rival.pid())?;
    let began = Instant::now();
    let line = rival.line()?;
    let waiting: usize =
        line.strip_prefix("waiting ").and_then(|count| count.parse().ok()).context("it does not say how many wait")?;
    let bytes = resident_bytes(rival.pid())? - before;
    rival.line()?;
    let seconds = began.elapsed().as_secs_f64();
    if waiting == 0 || seconds < delay as f64 {
        bail!("{name} has let {waiting} wait, and was done after {seconds:.1} of {delay} s");
    }
    report(name, &Waited { waiting, bytes, cpu_us: meter.stop()?, late_s: seconds - delay as f64 }, results);
    Ok(())
}

/// The cost of waiting.
struct Waited {
    waiting: usize,
    /// Memory while all wait, beyond that before.
    bytes: f64,
    /// From the first that began to the last that ended.
    cpu_us: f64,
    /// From the first that began to the last that ended, without the delay.
    late_s: f64,
}

fn report(name: &str, waited: &Waited, results: &mut Results) {
    let mut add = |what: &str, unit, value| {
        let name: &'static str = Box::leak(format!("{name}: {what}").into_boxed_str());
        results.add(Figure::new(SCENARIO, name, unit), value);
    };
    add("waiting at the same time", "", waited.waiting as f64);
    add("memory of one that waits", "B", waited.bytes / waited.waiting as f64);
    add("CPU of one, from its beginning to its end", "µs", waited.cpu_us / waited.waiting as f64);
    add("all of them, beyond the delay", "s", waited.late_s);
}

fn calls(waiting: &WaitingOptions, options: &Options, results: &mut Results) -> Result<()> {
    let (server, address) = ServerUnderTest::start_calling(options)?;
    let mut clients = CallClients::connect(address, waiting.callers + ANSWERERS)?;
    let answerers = clients.lines.len() - ANSWERERS..clients.lines.len();
    for (number, index) in answerers.clone().enumerate() {
        let name = json!({"scope": "lab", "name": name_of(number), "meta": {}});
        clients.send(index, &rpc(2, "registry.register", &name))?;
    }
    clients.until(PATIENCE, |clients| clients.answers >= ANSWERERS)?;
    clients.answers = 0;
    let before = resident_bytes(server.pid)?;
    let meter = Meter::start(server.pid)?;
    let began = Instant::now();
    let timeout_ms = (waiting.delay + PATIENCE.as_secs()) * 1_000;
    for caller in 0..waiting.callers {
        let call = |call| {
            let name = name_of((caller * waiting.calls + call) % ANSWERERS);
            let data = json!({"scope": "lab", "name": name, "data": call, "timeout_ms": timeout_ms});
            rpc(call + 10, "registry.call", &data)
        };
        clients.send(caller, &(0..waiting.calls).map(call).collect::<Vec<_>>().join("\n"))?;
        clients.turn(Duration::ZERO)?;
    }
    let count = waiting.callers * waiting.calls;
    clients.until(PATIENCE, |clients| clients.called.len() >= count)?;
    let bytes = resident_bytes(server.pid)? - before;
    if clients.answers > 0 {
        bail!("{} calls were answered before their time: {}", clients.answers, clients.refusal);
    }
    let delay = Duration::from_secs(waiting.delay);
    while let Some((index, call, at)) = clients.called.pop_front() {
        while at.elapsed() < delay {
            clients.turn(delay.saturating_sub(at.elapsed()))?;
        }
        clients.send(index, &rpc(3, "reply", &json!({"call": call, "data": 1})))?;
        if clients.called.len() % 64 == 0 {
            clients.turn(Duration::ZERO)?;
        }
    }
    // Each answer is answered too.
    clients.until(PATIENCE, |clients| clients.answers >= 2 * count)?;
    if !clients.refusal.is_empty() {
        bail!("a call was refused: {}", clients.refusal);
    }
    let late_s = began.elapsed().as_secs_f64() - waiting.delay as f64;
    report("calls", &Waited { waiting: count, bytes, cpu_us: meter.stop()?, late_s }, results);
    Ok(())
}

fn name_of(number: usize) -> String {
    format!("n{number}")
}

/// A command that calls a method.
fn rpc(id: usize, method: &str, data: &Value) -> String {
    json!({"id": id, "rpc": {"method": method, "data": data}}).to_string()
}

/// Clients that speak lines over TCP.
struct CallClients {
    poll: Poll,
    events: Events,
    lines: Vec<LineClient>,
    /// Calls that came, in their order: the client, the call, and when.
    called: VecDeque<(usize, Value, Instant)>,
    /// Number of answers to commands.
    answers: usize,
    /// The first answer that was an error.
    refusal: String,
}

struct LineClient {
    socket: TcpStream,
    read: Vec<u8>,
    unsent: Vec<u8>,
}

impl CallClients {
    /// Connects so many, each as a client of its own.
    fn connect(address: SocketAddr, count: usize) -> Result<Self> {
        let poll = Poll::new()?;
        let mut lines = Vec::new();
        for index in 0..count {
            let socket = std::net::TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            poll.registry().register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            lines.push(LineClient { socket, read: Vec::new(), unsent: Vec::new() });
        }
        let events = Events::with_capacity(1_024);
        let mut clients =
            CallClients { poll, events, lines, called: VecDeque::new(), answers: 0, refusal: String::new() };
        for index in 0..count {
            clients.send(index, r#"{"id":1,"connect":{}}"#)?;
        }
        clients.until(PATIENCE, |clients| clients.answers >= count)?;
        clients.answers = 0;
        Ok(clients)
    }

    /// Sends lines, or keeps them until the socket accepts them.
    fn send(&mut self, index: usize, lines: &str) -> Result<()> {
        let client = &mut self.lines[index];
        client.unsent.extend_from_slice(lines.as_bytes());
        client.unsent.push(b'\n');
        client.flush()
    }

    fn until(&mut self, patience: Duration, is_done: impl Fn(&Self) -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_done(self) {
            if began.elapsed() > patience {
                bail!(
                    "calls were not carried out in time: {} called, {} answers; {}",
                    self.called.len(),
                    self.answers,
                    self.refusal
                );
            }
            self.turn(Duration::from_millis(20))?;
        }
        Ok(())
    }

    /// Reads and writes on the sockets that are ready.
    fn turn(&mut self, pause: Duration) -> Result<()> {
        self.poll.poll(&mut self.events, Some(pause))?;
        let ready: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
        for index in ready {
            self.lines[index].flush()?;
            let lines = self.lines[index].take()?;
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.hear(index, line)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, index: usize, line: &[u8]) -> Result<()> {
        let value: Value = serde_json::from_slice(line)?;
        if let Some(call) = value.pointer("/push/message/data/call") {
            self.called.push_back((index, call.clone(), Instant::now()));
        } else if value.get("id").is_some() {
            self.answers += 1;
            if value.get("error").is_some() && self.refusal.is_empty() {
                self.refusal = value.to_string();
            }
        } else if value.as_object().is_some_and(serde_json::Map::is_empty) {
            self.send(index, "{}")?;
        }
        Ok(())
    }
}

impl LineClient {
    fn flush(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The complete lines that have arrived.
    fn take(&mut self) -> Result<Vec<u8>> {
        let mut scratch = [0; 65_536];
        loop {
            match self.socket.read(&mut scratch) {
                Ok(0) => bail!("the server has closed the connection of a caller"),
                Ok(length) => self.read.extend_from_slice(&scratch[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let end = self.read.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        Ok(self.read.drain(..end).collect())
    }
}
