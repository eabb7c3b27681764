//! Pages of the list of connections of several nodes: the time of a page by user and by scan, and the cost of a fan-out
//! with and without them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::bare::{REST, timeout};
use crate::arguments::{Options, Who};
use crate::ledger::Times;
use crate::nats::Nats;
use crate::process::Meter;
use crate::publisher::{PublishClient, Publisher, answer};
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::socket::LabStream;
use crate::workers::Workers;

const SCENARIO: &str = "who is connected";
const SIZE: usize = 128;
/// Connections of a page, and users of a request.
const PAGE: usize = 1_000;

/// A client that requests pages of connections over one HTTP connection.
struct PageReader {
    api: PublishClient,
    socket: LabStream<TcpStream>,
    received: Vec<u8>,
    cursor: Value,
}

impl PageReader {
    fn new(api: &PublishClient) -> Result<Self> {
        Ok(PageReader { api: api.clone(), socket: api.connect()?, received: Vec::new(), cursor: Value::Null })
    }

    /// Asks for a page. Returns the result and the microseconds that it took.
    fn ask(&mut self, body: &Value) -> Result<(Value, u64)> {
        let request = self.api.call("connections", &body.to_string());
        let began = Instant::now();
        self.socket.write_all(&request)?;
        let mut length = 0;
        let whole = loop {
            if self.received.len() < length + (64 << 10) {
                self.received.resize(length + (1 << 20), 0);
            }
            match self.socket.read(&mut self.received[length..])? {
                0 => bail!("the server closed the connection"),
                more => length += more,
            }
            if let Some(whole) = answer(&self.received[..length])? {
                break whole;
            }
        };
        let took_us = began.elapsed().as_micros() as u64;
        let start = crate::wire::find(&self.received[..whole], b"\r\n\r\n").context("an answer has a head")? + 4;
        let reply: Value = serde_json::from_slice(&self.received[start..whole])?;
        Ok((reply["result"].clone(), took_us))
    }

    /// The connections of many users.
    fn by_users(&mut self, users: usize) -> Result<(usize, u64)> {
        let users: Vec<String> = (0..users.min(PAGE)).map(|user| format!("user{user}")).collect();
        let (result, took_us) = self.ask(&json!({ "users": users, "limit": PAGE }))?;
        Ok((rows(&result), took_us))
    }

    /// The next page of all connections.
    fn by_scan(&mut self) -> Result<(usize, u64)> {
        let (result, took_us) = self.ask(&json!({ "limit": PAGE, "cursor": self.cursor }))?;
        self.cursor = result["cursor"].clone();
        Ok((rows(&result), took_us))
    }
}

fn rows(result: &Value) -> usize {
    result["connections"].as_object().map_or(0, serde_json::Map::len)
}

/// One run: pages alone, then fan-outs in pairs, without pages and beside them.
pub(super) fn who(who: &Who, options: &Options, results: &mut Results) -> Result<()> {
    let nats = Nats::start()?;
    let servers = ServerUnderTest::start_joined(options, &nats, usize::from(who.nodes))?;
    let mut plan = servers[0].plan(who.connections, PLAIN, 1, SIZE, true);
    plan.servers = servers.iter().map(|server| server.subscriber_address).collect();
    let mut workers = Workers::start(&plan)?;
    workers.open_all(500)?;
    std::thread::sleep(REST);
    let mut asker = PageReader::new(&servers[0].api)?;
    let (mut by_users, mut by_scan, mut short) = (Times::default(), Times::default(), 0);
    for _ in 0..who.pages {
        let (found, took_us) = asker.by_users(who.connections)?;
        by_users.record(took_us);
        short += usize::from(found != who.connections.min(PAGE));
        by_scan.record(asker.by_scan()?.1);
    }
    let figure = |name, unit| Figure::new(SCENARIO, name, unit);
    results.add(figure("page by users, median", "ms").bound(50.0, 25.0), by_users.quantile_ms(0.5));
    results.add(figure("page by users, p99", "ms"), by_users.quantile_ms(0.99));
    results.add(figure("page by scan, median", "ms").bound(50.0, 25.0), by_scan.quantile_ms(0.5));
    results.add(figure("page by scan, p99", "ms"), by_scan.quantile_ms(0.99));
    results.add(figure("pages by users that lack some", "").bound(0.0, 0.0), short as f64);
    let mut publisher = Publisher::new(servers[0].api.clone(), PLAIN, 1, SIZE)?;
    let (mut pairs, mut wrongs) = (Vec::new(), 0);
    for round in 0..who.rounds {
        // Take turns, so that neither is always first.
        let mut costs = [0.0; 2];
        for is_beside in [round % 2 == 1, round % 2 == 0] {
            let (cost, wrong) = if is_beside {
                fan_out_beside(who, &servers, &mut workers, &mut publisher, &mut asker)?
            } else {
                fan_out(who, &servers, &mut workers, &mut publisher)?
            };
            costs[usize::from(is_beside)] = cost;
            wrongs += wrong;
        }
        pairs.push((costs[1], costs[0]));
    }
    results.compare(figure("fan-out beside pages / without", "×").bound(1.05, 1.01), "µs", &pairs);
    results.add(Figure::exact(SCENARIO), wrongs as f64);
    Ok(())
}

/// Requests pages at a rate, by users and by scan in turns.
fn ask_until(is_over: &AtomicBool, who: &Who, asker: &mut PageReader) -> Result<()> {
    let pause = Duration::from_secs_f64(1.0 / who.pages_per_second.max(0.001));
    let mut is_scan = false;
    while !is_over.load(Relaxed) {
        let began = Instant::now();
        if is_scan {
            asker.by_scan()?
        } else {
            asker.by_users(who.connections)?
        };
        is_scan = !is_scan;
        std::thread::sleep(pause.saturating_sub(began.elapsed()));
    }
    Ok(())
}

/// The same as [`fan_out`] while somebody asks for pages.
fn fan_out_beside(
    who: &Who,
    servers: &[ServerUnderTest],
    workers: &mut Workers,
    publisher: &mut Publisher,
    asker: &mut PageReader,
) -> Result<(f64, u64)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask_until(&is_over, who, asker));
        let measured = fan_out(who, servers, workers, publisher);
        is_over.store(true, Relaxed);
        match asking.join() {
            Ok(Ok(())) => measured,
            Ok(Err(error)) => Err(error),
            Err(_) => bail!("the thread that asks has panicked"),
        }
    })
}

/// Publishes to everybody. Returns the CPU of all nodes per delivery, microseconds, and the number of wrong deliveries.
fn fan_out(
    who: &Who,
    servers: &[ServerUnderTest],
    workers: &mut Workers,
    publisher: &mut Publisher,
) -> Result<(f64, u64)> {
    workers.expect(who.messages, timeout(who.messages, who.rate))?;
    let meters = servers.iter().map(|server| Meter::start(server.pid)).collect::<Result<Vec<_>>>()?;
    publisher.publish(who.messages, who.rate)?;
    let delivered = workers.delivered()?;
    let costs = meters.into_iter().map(Meter::stop).collect::<Result<Vec<f64>>>()?;
    Ok((costs.iter().sum::<f64>() / delivered.count.max(1) as f64, delivered.wrongs.total("server")))
}
