//! The cost of one call for the server, compared with the same action without a call and the same call in a bare loop.

use anyhow::{Result, bail};

use super::common::{CALLS_MAX, HookResults, HookScale, REST, RunningBackend, SIZE, WIDE_TIMEOUT, detail, ratio};
use crate::acting::ActingClients;
use crate::arguments::Options;
use crate::hook_parts::{BackendConduct, CALL, CallerDone, CallerTask};
use crate::part::LabPart;
use crate::process::Meter;
use crate::server_under_test::{ASKED, AskedAction, DIRECT, HookSetup, PLAIN, ServerUnderTest};
use crate::workers::Workers;

/// Connections that are opened at a time.
const OPENED_AT_ONCE: usize = 500;

/// The CPU time of one action, microseconds.
struct CallCost {
    /// Of the server, when no backend is asked.
    unasked: f64,
    /// Of the server, when the backend is asked.
    asked: f64,
    /// Of a bare loop, for the call alone.
    bare: f64,
}

/// Connections without a token, compared with connections with one.
pub(super) fn connect(scale: &HookScale, options: &Options, results: &mut HookResults) -> Result<()> {
    // A token says the same: a user of its own, and an end.
    let json = format!(r#"{{"result":{{"user":"user{CALL}","expire_at":4102444800}}}}"#);
    let mut backend = RunningBackend::start(BackendConduct { json, ..BackendConduct::default() })?;
    let hook = backend.setup(AskedAction::Connect, WIDE_TIMEOUT)?;
    let server = ServerUnderTest::start_with_hook(options, &hook)?;
    let workers = |has_tokens| -> Result<Workers> {
        let mut plan = server.plan(scale.connections, PLAIN, 1, SIZE, has_tokens);
        plan.is_subscribing = false;
        let mut workers = Workers::start(&plan)?;
        // From now on the server's memory, its connections to the backend and the ports exist.
        open_and_close(&server, &mut workers)?;
        Ok(workers)
    };
    let (mut with_token, mut without) = (workers(true)?, workers(false)?);
    let mut caller = BareCaller::start(&hook, &mut backend)?;
    let calls = scale.connections as u64;
    let mut costs = Vec::new();
    for pair in 0..scale.pairs {
        let first = if pair % 2 == 0 { open_and_close(&server, &mut with_token)? } else { caller.call(calls)? };
        backend.count()?;
        let asked = open_and_close(&server, &mut without)?;
        caller.concurrency = backend.count()?.at_once;
        let last = if pair % 2 == 0 { caller.call(calls)? } else { open_and_close(&server, &mut with_token)? };
        let (unasked, bare) = if pair % 2 == 0 { (first, last) } else { (last, first) };
        costs.push(CallCost { unasked, asked, bare });
    }
    let parts = costs.iter().map(|cost| (cost.asked, cost.unasked + cost.bare)).collect::<Vec<_>>();
    let name = "connect hook: CPU per connection / with a token and a bare call";
    results.ratios.compare(ratio(name).bound(1.6, 1.3), "µs", &parts);
    for cost in costs {
        results.details.add(detail("connect hook: CPU per connection with a token", "µs"), cost.unasked);
        results.details.add(detail("connect hook: CPU of a bare call", "µs"), cost.bare);
    }
    results.details.add(detail("connect hook: calls under way at once", ""), caller.concurrency as f64);
    Ok(())
}

/// CPU of the server for each connection that is opened; then all are closed.
fn open_and_close(server: &ServerUnderTest, workers: &mut Workers) -> Result<f64> {
    let meter = Meter::start(server.pid)?;
    let opened = workers.open_all(OPENED_AT_ONCE)?;
    let us = meter.stop()? / opened.times.count().max(1) as f64;
    workers.close()?;
    std::thread::sleep(REST);
    Ok(us)
}

/// Publications of clients, with a hook and without.
pub(super) fn publish(scale: &HookScale, options: &Options, results: &mut HookResults) -> Result<()> {
    let json = r#"{"result":{}}"#.to_owned();
    let mut backend = RunningBackend::start(BackendConduct { json, ..BackendConduct::default() })?;
    let hook = backend.setup(AskedAction::Publish, WIDE_TIMEOUT)?;
    let server = ServerUnderTest::start_with_hook(options, &hook)?;
    let publish = |prefix| -> Result<(f64, u64)> {
        let mut clients = ActingClients::connect(&server, scale.publishers, 1)?;
        let meter = Meter::start(server.pid)?;
        let ((), acted) = clients.act_beside(prefix, 0.0, || {
            std::thread::sleep(scale.publishing);
            Ok(())
        })?;
        if acted.refused > 0 {
            bail!("{} publications were refused", acted.refused);
        }
        Ok((meter.stop()? / acted.succeeded.max(1) as f64, acted.succeeded))
    };
    publish(DIRECT)?;
    publish(ASKED)?;
    let mut caller = BareCaller::start(&hook, &mut backend)?;
    let mut costs = Vec::new();
    let mut calls = scale.publishers as u64;
    for pair in 0..scale.pairs {
        let mut unasked = if pair % 2 == 0 { publish(DIRECT)?.0 } else { 0.0 };
        let (asked, published) = publish(ASKED)?;
        caller.concurrency = backend.count()?.at_once;
        calls = calls.max(published);
        let bare = caller.call(calls)?;
        backend.count()?;
        if pair % 2 == 1 {
            unasked = publish(DIRECT)?.0;
        }
        costs.push(CallCost { unasked, asked, bare });
    }
    let parts = costs.iter().map(|cost| (cost.asked, cost.unasked + cost.bare)).collect::<Vec<_>>();
    let name = "publish hook: CPU per publication / without and a bare call";
    results.ratios.compare(ratio(name).bound(1.5, 1.2), "µs", &parts);
    for cost in costs {
        results.details.add(detail("publish hook: CPU per publication without a hook", "µs"), cost.unasked);
        results.details.add(detail("publish hook: CPU of a bare call", "µs"), cost.bare);
    }
    results.details.add(detail("publish hook: calls under way at once", ""), caller.concurrency as f64);
    Ok(())
}

/// The bare loop, which sends the same requests as the server.
struct BareCaller {
    part: LabPart<CallerTask, CallerDone>,
    url: String,
    body: String,
    /// Requests at a time: as many as the server had under way at most.
    concurrency: usize,
}

impl BareCaller {
    /// Starts a loop that sends the last question of the server, once with each of its connections.
    fn start(hook: &HookSetup, backend: &mut RunningBackend) -> Result<Self> {
        let part = LabPart::start("hook-caller")?;
        let body = backend.count()?.question;
        let mut caller = BareCaller { part, url: hook.url(), body, concurrency: CALLS_MAX };
        caller.call(CALLS_MAX as u64)?;
        Ok(caller)
    }

    /// CPU of each call.
    fn call(&mut self, calls: u64) -> Result<f64> {
        let (url, body) = (self.url.clone(), self.body.clone());
        let meter = Meter::start(self.part.pid())?;
        self.part.ask(&CallerTask { url, body, calls, concurrency: self.concurrency })?;
        Ok(meter.stop()? / calls as f64)
    }
}
