//! Statistics during a fan-out: the cost of the rows for the fan-out.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::bare::{BareResult, REST};
use super::fanout::{Numbers, deliver};
use crate::arguments::{Options, Statistics};
use crate::process::Meter;
use crate::report::{Figure, Results};
use crate::server_under_test::{LabDatabase, ServerUnderTest};
use crate::socket::LabStream;
use crate::wire;

const SCENARIO: &str = "statistics";
/// Clients that report.
const REPORTERS: usize = 10;
/// The time between two messages of one of these clients; each message holds many events.
const PAUSE: Duration = Duration::from_millis(10);
const RATE: f64 = 10.0;

/// One run: publications alone, rows alone, and both at once.
pub(super) fn statistics(statistics: &Statistics, options: &Options, results: &mut Results) -> Result<()> {
    let Statistics { connections, rows, seconds } = *statistics;
    let messages = seconds * RATE as usize;
    let numbers = Numbers {
        scenario: SCENARIO,
        connections,
        channels: 1,
        messages,
        rate: RATE,
        size: 128,
        coalesce: 1,
        transport: options.transport,
    };
    let database = LabDatabase::new();
    let alone = deliver(&ServerUnderTest::start_with_stats(options, &database)?, &numbers)?;
    let server = ServerUnderTest::start_with_stats(options, &LabDatabase::new())?;
    let rows_us = {
        let _reporting = Reporting::start(&server, rows)?;
        std::thread::sleep(REST);
        let meter = Meter::start(server.pid)?;
        std::thread::sleep(Duration::from_secs(seconds as u64));
        meter.stop()? / seconds as f64
    };
    drop(server);
    let server = ServerUnderTest::start_with_stats(options, &LabDatabase::new())?;
    let reporting = Reporting::start(&server, rows)?;
    let (before, began) = (EventFigure::of(&server)?, Instant::now());
    let both = deliver(&server, &numbers)?;
    let (after, elapsed) = (EventFigure::of(&server)?, began.elapsed().as_secs_f64());
    drop(reporting);
    let figure = |name, unit| Figure::new(SCENARIO, name, unit);
    // The cost of rows alone is subtracted for the rows that were written during the fan-out.
    let of_fanout = |outcome: &BareResult, of_rows: f64| {
        outcome.us - of_rows * outcome.seconds / outcome.delivered.count.max(1) as f64
    };
    let (us, us_beside) = (of_fanout(&alone, 0.0), of_fanout(&both, rows_us));
    results.add(figure("rows written", "/s").at_least(50_000.0, 50_000.0), (after.written - before.written) / elapsed);
    results.add(figure("rows dropped", "").bound(0.0, 0.0), after.dropped);
    results.add(figure("server CPU of a row", "µs"), rows_us / rows as f64);
    results.add(figure("CPU per delivery without rows", "µs"), us);
    results.add(figure("CPU per delivery beside rows, theirs taken off", "µs"), us_beside);
    results.add(figure("CPU per delivery, beside rows / without", "×").bound(1.05, 1.0), us_beside / us);
    results.add(figure("mean latency without rows", "ms"), alone.delivered.times.mean_ms());
    results.add(figure("mean latency beside rows", "ms"), both.delivered.times.mean_ms());
    results.add(
        Figure::exact(SCENARIO),
        (alone.delivered.wrongs.total("alone") + both.delivered.wrongs.total("both")) as f64,
    );
    Ok(())
}

/// The server's counters of its rows.
struct EventFigure {
    written: f64,
    dropped: f64,
}

impl EventFigure {
    fn of(server: &ServerUnderTest) -> Result<Self> {
        let mut socket = server.connect()?;
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("_total "));
            line.and_then(|number| number.parse().ok()).with_context(|| format!("no {name} in the server's metrics"))
        };
        Ok(EventFigure { written: count("touchline_stats_written")?, dropped: count("touchline_stats_dropped")? })
    }
}

/// Clients that report events until this is dropped.
struct Reporting(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Reporting {
    /// So many events a second, of all together.
    fn start(server: &ServerUnderTest, rate: usize) -> Result<Self> {
        let each = (rate as f64 * PAUSE.as_secs_f64() / REPORTERS as f64).ceil() as usize;
        let events: Vec<String> = (0..each)
            .map(|n| {
                let event = r#"{"event":"goal_seen","props":{"team":"home"}}"#;
                format!(r#"{{"id":{},"rpc":{{"method":"stats.track","data":{event}}}}}"#, n + 2)
            })
            .collect();
        let message = wire::text(&events.join("\n"));
        let mut reporters = (0..REPORTERS).map(|_| reporter(server)).collect::<Result<Vec<_>>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let work = move || {
            let mut due = Instant::now();
            while !until.load(Relaxed) {
                if let Err(error) = reporters.iter_mut().try_for_each(|socket| report(socket, &message)) {
                    return eprintln!("a client could not report: {error}");
                }
                due += PAUSE;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        };
        let thread =
            std::thread::Builder::new().name("reporters".into()).spawn(work).context("failed to start a thread")?;
        Ok(Reporting(is_over, Some(thread)))
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        let _ = self.1.take().map(std::thread::JoinHandle::join);
    }
}

fn reporter(server: &ServerUnderTest) -> Result<LabStream<TcpStream>> {
    let mut socket = server.connect()?;
    socket.write_all(&wire::handshake("lab", "/connection/websocket"))?;
    socket.write_all(&wire::text(r#"{"id":1,"connect":{}}"#))?;
    let (mut answer, mut some) = (Vec::new(), [0; 4_096]);
    while wire::find(&answer, b"\"client\"").is_none() {
        match socket.read(&mut some)? {
            0 => bail!("a client that reports was not let in"),
            length => answer.extend_from_slice(&some[..length]),
        }
    }
    socket.socket().set_read_timeout(Some(Duration::from_millis(1)))?;
    Ok(socket)
}

/// Sends reports, and discards the server's answers so far.
fn report(socket: &mut LabStream<TcpStream>, message: &[u8]) -> Result<()> {
    socket.write_all(message)?;
    socket.socket().set_nonblocking(true)?;
    let mut scratch = [0; 65_536];
    let read = loop {
        match socket.read(&mut scratch) {
            Ok(0) => bail!("the server has closed the connection"),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    socket.socket().set_nonblocking(false)?;
    Ok(read?)
}
