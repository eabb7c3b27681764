//! A crowd that returns at once to a server that has just started: the calls to the backend, and the time until all
//! clients are back.

use anyhow::Result;

use super::common::{CALLS_MAX, HookResults, HookScale, RunningBackend, SIZE, WIDE_TIMEOUT, detail, ratio};
use crate::arguments::Options;
use crate::hook_parts::{BackendConduct, BackendCount};
use crate::report::Figure;
use crate::server_under_test::{ASKED, AskedAction, ServerUnderTest};
use crate::workers::{OpenedConnections, Workers};

/// Answers that hold for everybody in the channel.
const SHARED: &str = r#"{"result":{"cache_for":60,"cache_scope":"channel"}}"#;
/// An answer that is valid for one client only.
const SINGLE: &str = r#"{"result":{}}"#;

/// One run with answers that hold for the channel, and one without.
pub(super) fn crowd(scale: &HookScale, options: &Options, results: &mut HookResults) -> Result<()> {
    let (shared, shared_calls) = come_back(SHARED, scale, options)?;
    let (single, single_calls) = come_back(SINGLE, scale, options)?;
    let name = "return, cache_scope = channel: calls / channels";
    let calls = [(shared_calls.calls as f64, scale.channels as f64)];
    results.ratios.compare(ratio(name).bound(2.0, 1.0), "", &calls);
    let name = "return, no cache: calls under way at once / hooks.calls_max";
    results.ratios.compare(ratio(name).bound(1.0, 1.0), "", &[(single_calls.at_once as f64, CALLS_MAX as f64)]);
    // The time that the backend needs for all calls if the maximum number of calls is always in progress.
    let shortest = scale.returning as f64 * scale.hook.as_secs_f64() / CALLS_MAX as f64;
    let name = "return, no cache: all back / clients × hook time ÷ calls_max";
    results.ratios.compare(ratio(name).bound(1.3, 1.1), "s", &[(single.seconds, shortest)]);
    results.details.add(detail("return, cache_scope = channel: all back after", "s"), shared.seconds);
    results.details.add(detail("return, no cache: calls", ""), single_calls.calls as f64);
    let failed: Figure = detail("failed to return", "").bound(0.0, 0.0);
    results.details.add(failed, (shared.failed + single.failed) as f64);
    Ok(())
}

/// All clients subscribe, their server dies and is started again, and all return at once.
fn come_back(json: &str, scale: &HookScale, options: &Options) -> Result<(OpenedConnections, BackendCount)> {
    let after_ms = scale.hook.as_millis() as u64;
    let conduct = BackendConduct { json: json.to_owned(), after_ms, ..BackendConduct::default() };
    let mut backend = RunningBackend::start(conduct)?;
    let hook = backend.setup(AskedAction::Subscribe, WIDE_TIMEOUT)?;
    let server = ServerUnderTest::start_with_hook(options, &hook)?;
    let mut workers = Workers::start(&server.plan(scale.returning, ASKED, scale.channels, SIZE, true))?;
    workers.open_all(500)?;
    let killed = server.kill()?;
    workers.close()?;
    let _server = killed.revive(options)?;
    backend.count()?;
    let returned = workers.open(scale.returning)?;
    returned.ensure_none_closed()?;
    if let Some(failure) = &returned.first_failure {
        eprintln!("the first failure: {failure}");
    }
    Ok((returned, backend.count()?))
}
