//! Lifecycle events: their cost for a fan-out while clients connect and leave, and how many of them arrive.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::fanout::{Numbers, deliver};
use crate::arguments::{EventsOptions, Options};
use crate::guard::{self, POSTMASTER};
use crate::hook_parts::{BackendConduct, BackendCount, BackendOrder};
use crate::part::LabPart;
use crate::report::{Figure, Results};
use crate::server_under_test::{EventsSetup, ServerUnderTest};
use crate::wire;
use touchline_testkit::postgres::PostgresServer;

const SCENARIO: &str = "events";
const SIZE: usize = 128;
/// Threads of the clients that connect and leave.
const THREADS: u64 = 4;
/// Subscriptions that one client begins and ends at once.
const CHANNELS: usize = 100;
/// Event types for clients that subscribe and unsubscribe.
const SUBSCRIPTIONS: [&str; 2] = ["subscribed", "unsubscribed"];
/// Maximum time until the last events have arrived.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pairs of fan-outs while clients connect and leave, without and with events. Then the maximum rate of events.
pub(super) fn events(events: &EventsOptions, options: &Options, results: &mut Results) -> Result<()> {
    if options.server.is_some() {
        bail!("fresh servers are compared: leave --server out");
    }
    let mut backend: LabPart<BackendOrder, BackendCount> = LabPart::start("hook-backend")?;
    let address = backend.ask(&BackendOrder::Answer(BackendConduct::default()))?.address;
    if events.durable {
        return durable(&mut backend, address, (events, options), results);
    }
    let mut us = [0.0; 2];
    let (mut changes, mut told, mut rate) = (0, 0, f64::MAX);
    for pair in 0..events.pairs {
        // In turns, so that neither is always the first.
        for side in [pair % 2, 1 - pair % 2] {
            let types = ["connected", "disconnected", "user_online", "user_offline"];
            let setup = EventsSetup { backend: address, types: &types, postgres: None };
            let server = ServerUnderTest::start_with_events(options, (side == 1).then_some(&setup))?;
            let numbers = Numbers {
                scenario: SCENARIO,
                connections: events.subscribers,
                channels: 1,
                messages: events.messages,
                rate: 10.0,
                size: SIZE,
                coalesce: 1,
                transport: options.transport,
            };
            let (result, (passed, per_second)) = beside_passers(&server, events.rate, || deliver(&server, &numbers))?;
            rate = per_second.min(rate);
            us[side] += result.us / events.pairs as f64;
            if side == 1 {
                changes += passed;
                told += backend.ask(&BackendOrder::Count)?.events;
            }
        }
    }
    results.add(Figure::new(SCENARIO, "fan-out beside clients that come and go: CPU per delivery", "µs"), us[0]);
    results.add(Figure::new(SCENARIO, "the same, with events: CPU per delivery", "µs"), us[1]);
    results.add(Figure::new(SCENARIO, "with events / without", "×").bound(1.05, 1.02), us[1] / us[0]);
    results.add(Figure::new(SCENARIO, "clients that came and went, at the least", "/s"), rate);
    results.add(Figure::new(SCENARIO, "events per client that came and went", ""), told as f64 / changes.max(1) as f64);
    let setup = EventsSetup { backend: address, types: &SUBSCRIPTIONS, postgres: None };
    let (rate, _) = arriving(&mut backend, &setup, events, options)?;
    results.add(Figure::new(SCENARIO, "events that arrive, best effort", "/s").at_least(20_000.0, 40_000.0), rate);
    Ok(())
}

/// As many durable events as arrive, and whether each has arrived.
fn durable(
    backend: &mut LabPart<BackendOrder, BackendCount>,
    address: std::net::SocketAddr,
    (events, options): (&EventsOptions, &Options),
    results: &mut Results,
) -> Result<()> {
    if !PostgresServer::is_installed() {
        bail!("PostgreSQL is not installed (Debian package postgresql)");
    }
    let scratch = EventsScratch(std::env::temp_dir().join(format!("touchline-lab-events-{}", std::process::id())));
    guard::remove_with_lab(&scratch.0);
    guard::end_named_by(scratch.0.join(POSTMASTER));
    let postgres = PostgresServer::start_with(&scratch.0, &[], "");
    let url = postgres.url();
    let setup = EventsSetup { backend: address, types: &SUBSCRIPTIONS, postgres: Some(&url) };
    let (rate, share) = arriving(backend, &setup, events, options)?;
    results.add(Figure::new(SCENARIO, "events that arrive, durable", "/s").at_least(5_000.0, 10_000.0), rate);
    results.add(Figure::new(SCENARIO, "the same: events that have arrived / made", ""), share);
    Ok(())
}

/// A directory that is removed in the end.
struct EventsScratch(PathBuf);

impl Drop for EventsScratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Does work while clients connect and leave, so many times a second. Returns how many have, and how many in a second.
fn beside_passers<T>(server: &ServerUnderTest, rate: u64, work: impl FnOnce() -> Result<T>) -> Result<(T, (u64, f64))> {
    let (is_over, passed) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let pass = |thread: u64| -> Result<()> {
            let began = Instant::now();
            let mut count = 0;
            while !is_over.load(Relaxed) {
                let due = (began.elapsed().as_secs_f64() * (rate / THREADS) as f64) as u64;
                if count >= due {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                drop(connected(server, (thread + count * THREADS) as usize)?);
                count += 1;
                passed.fetch_add(1, Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || pass(thread))).collect();
        let done = work();
        let seconds = began.elapsed().as_secs_f64();
        is_over.store(true, Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("the thread of clients that come and go has panicked"))??;
        }
        let passed = passed.load(Relaxed);
        Ok((done?, (passed, passed as f64 / seconds)))
    })
}

/// A client that is connected.
fn connected(server: &ServerUnderTest, user: usize) -> Result<crate::socket::LabStream<std::net::TcpStream>> {
    let mut socket = server.connect()?;
    let token = server.token(user).unwrap_or_default();
    socket.write_all(&wire::handshake("lab", "/connection/websocket"))?;
    socket.write_all(&wire::text(&format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#)))?;
    read_until(&mut socket, b"\"client\"")?;
    Ok(socket)
}

fn read_until(socket: &mut impl std::io::Read, end: &[u8]) -> Result<()> {
    let (mut answer, mut some) = (Vec::new(), [0; 16_384]);
    while wire::find(&answer, end).is_none() {
        match socket.read(&mut some)? {
            0 => bail!("the server closed the connection of a client"),
            length => answer.extend_from_slice(&some[..length]),
        }
    }
    Ok(())
}

/// Clients subscribe and unsubscribe as fast as they can; returns the events that arrive in a second, and the share of
/// those that were made which have arrived.
fn arriving(
    backend: &mut LabPart<BackendOrder, BackendCount>,
    setup: &EventsSetup<'_>,
    events: &EventsOptions,
    options: &Options,
) -> Result<(f64, f64)> {
    let server = ServerUnderTest::start_with_events(options, Some(setup))?;
    let clients = 4;
    let seconds = Duration::from_secs(events.seconds);
    backend.ask(&BackendOrder::Count)?;
    let began = Instant::now();
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let act = |client: usize| -> Result<()> {
            let mut socket = connected(&server, client)?;
            let mut id = 2;
            while began.elapsed() < seconds {
                let mut commands = String::new();
                for verb in ["subscribe", "unsubscribe"] {
                    for channel in 0..CHANNELS {
                        commands += &format!("{{\"id\":{id},\"{verb}\":{{\"channel\":\"lab:{client}-{channel}\"}}}}\n");
                        id += 1;
                    }
                }
                socket.write_all(&wire::text(&commands))?;
                read_until(&mut socket, format!("\"id\":{},", id - 1).as_bytes())?;
                made.fetch_add(2 * CHANNELS as u64, Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..clients).map(|client| scope.spawn(move || act(client))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a client has panicked"))?);
        joined.collect::<Result<Vec<()>>>()
    })?;
    let (made, mut arrived) = (made.load(Relaxed), 0);
    let mut last = began.elapsed();
    while arrived < made && began.elapsed() < seconds + PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        let more = backend.ask(&BackendOrder::Count)?.events;
        arrived += more;
        if more > 0 {
            last = began.elapsed();
        }
    }
    Ok((arrived as f64 / last.as_secs_f64(), arrived as f64 / made.max(1) as f64))
}
