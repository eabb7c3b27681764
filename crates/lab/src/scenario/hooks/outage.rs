//! A backend that is dead for a minute, under load: half of it silent, half of it with its port closed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;

use super::common::{DETAIL, HookResults, HookScale, REST, RunningBackend, SIZE, detail, ratio};
use crate::acting::ActingClients;
use crate::arguments::Options;
use crate::hook_parts::{BackendConduct, BackendOrder};
use crate::process::{now_us, resident_bytes};
use crate::publisher::Publisher;
use crate::report::Figure;
use crate::scenario::bare::timeout;
use crate::server_under_test::{ASKED, AskedAction, PLAIN, ServerUnderTest};
use crate::workers::{Delivered, Workers};

/// The usual timeout of a call. An action that waited for a dead backend would be late by this time.
const HOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Publications a second that all bystanders get.
const RATE: f64 = 10.0;
/// Actions per second that call the backend: more than the queue holds while the backend is silent.
const ACTIONS: f64 = 1_000.0;
/// Clients that act, and the actions that each has under way at most.
const ACTORS: usize = 200;
const EACH: usize = 8;
/// Seconds before the backend dies, and after it answers again.
const BEFORE: usize = 10;
const AFTER: usize = 4;
/// The default of `hooks.queue_max_size`: bytes of calls that wait.
const QUEUE_MAX_SIZE: f64 = 67_108_864.0;
/// How long all may fail after the backend answers.
const NORMAL_AFTER: f64 = 2.0;
/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(100);
const MIB: f64 = 1_048_576.0;

/// Publications to the bystanders, before, while and after the backend is dead.
struct OutageRounds {
    before: Delivered,
    silent: Delivered,
    closed: Delivered,
    after: Delivered,
    /// Memory of the server before, and the most since.
    memory: (f64, f64),
    /// When the backend answers again, Unix microseconds.
    alive_us: u64,
}

/// One run of the scenario.
pub(super) fn outage(scale: &HookScale, options: &Options, results: &mut HookResults) -> Result<()> {
    let conduct = BackendConduct { json: r#"{"result":{}}"#.to_owned(), ..BackendConduct::default() };
    let mut backend = RunningBackend::start(conduct.clone())?;
    let hook = backend.setup(AskedAction::Publish, HOOK_TIMEOUT)?;
    let server = ServerUnderTest::start_with_hook(options, &hook)?;
    let mut workers = Workers::start(&server.plan(scale.bystanders, PLAIN, 1, SIZE, false))?;
    workers.open_all(500)?;
    let mut publisher = Publisher::new(server.api.clone(), PLAIN, 1, SIZE)?;
    let mut actors = ActingClients::connect(&server, ACTORS, EACH)?;
    std::thread::sleep(REST);
    let mut round = |seconds: usize| -> Result<Delivered> {
        let messages = seconds * RATE as usize;
        workers.expect(messages, timeout(messages, RATE))?;
        publisher.publish(messages, RATE)?;
        workers.delivered()
    };
    let (rounds, acted) = actors.act_beside(ASKED, ACTIONS, || {
        let before = round(BEFORE.min(scale.dead_seconds))?;
        let resident = resident_bytes(server.pid)?;
        backend.conduct(BackendOrder::FallSilent)?;
        let ((silent, closed, alive_us, after), most) = peak_bytes(server.pid, || {
            let silent = round(scale.dead_seconds)?;
            backend.conduct(BackendOrder::Close)?;
            let closed = round(scale.dead_seconds)?;
            let alive_us = now_us();
            backend.conduct(BackendOrder::Answer(conduct))?;
            Ok((silent, closed, alive_us, round(AFTER)?))
        })?;
        Ok(OutageRounds { before, silent, closed, after, memory: (resident, most), alive_us })
    })?;
    let calls = backend.count()?;
    let OutageRounds { before, silent, closed, after, memory, alive_us } = rounds;
    let slowest = silent.times.max_ms().max(closed.times.max_ms());
    let name = "outage: slowest delivery / the hook's timeout";
    let timeout_ms = HOOK_TIMEOUT.as_secs_f64() * 1e3;
    results.ratios.compare(ratio(name).bound(0.5, 0.1), "ms", &[(slowest, timeout_ms)]);
    let p99 = |delivered: &Delivered| delivered.times.quantile_ms(0.99);
    results.ratios.compare(
        ratio("outage: p99 of a delivery, backend dead / alive"),
        "ms",
        &[(p99(&silent), p99(&before)), (p99(&closed), p99(&before))],
    );
    let name = "outage: memory that it takes / hooks.queue_max_size";
    let grown = ((memory.1 - memory.0) / MIB, QUEUE_MAX_SIZE / MIB);
    results.ratios.compare(ratio(name).bound(1.0, 0.5), "MiB", &[grown]);
    let failing = (acted.last_refusal_us.saturating_sub(alive_us)) as f64 / 1e6;
    let failing = if calls.calls == 0 { f64::INFINITY } else { failing };
    let name = "outage: actions fail after it answers / 2 s";
    results.ratios.compare(ratio(name).bound(1.0, 0.5), "s", &[(failing, NORMAL_AFTER)]);
    results.details.add(detail("outage: slowest delivery before", "ms"), before.times.max_ms());
    results.details.add(detail("outage: actions that succeeded", ""), acted.succeeded as f64);
    results.details.add(detail("outage: actions that were refused", ""), acted.refused as f64);
    results.details.add(detail("outage: calls once it answers", ""), calls.calls as f64);
    let wrongs = [before, silent, closed, after].iter().map(|round| round.wrongs.total("outage")).sum::<u64>();
    results.details.add(Figure::exact(DETAIL), wrongs as f64);
    Ok(())
}

/// Does something, and returns with it the most memory that a process has had meanwhile, bytes.
fn peak_bytes<T>(pid: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut most = 0f64;
            while !is_over.load(Relaxed) {
                most = most.max(resident_bytes(pid).unwrap_or(0.0));
                std::thread::sleep(LOOK);
            }
            most
        });
        let done = work();
        is_over.store(true, Relaxed);
        let most = looking.join().unwrap_or(f64::INFINITY);
        Ok((done?, most))
    })
}
