//! Publishing over HTTP, keep-alive, into a channel without subscribers.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{Options, Publish};
use crate::process::Meter;
use crate::publisher::publish_from_many;
use crate::report::{Figure, Results};
use crate::subject::Subject;

const SCENARIO: &str = "publish";
const SIZE: usize = 128;

/// One run.
pub(super) fn publish(publish: &Publish, options: &Options, results: &mut Results) -> Result<()> {
    let subject = Subject::start(options)?;
    publish_from_many(&subject.api, publish.connections, SIZE, Duration::from_millis(500))?;
    let meter = Meter::start(subject.pid)?;
    let published = publish_from_many(&subject.api, publish.connections, SIZE, Duration::from_secs(publish.seconds))?;
    let us = meter.stop()? / published.count.max(1) as f64;
    results.add(Figure::new(SCENARIO, "server CPU per publish", "µs").bound(9.0, 6.0), us);
    results.add(Figure::new(SCENARIO, "publishes", "/s"), published.count as f64 / published.seconds);
    results.add(Figure::new(SCENARIO, "p50 of an answer", "ms"), published.times.quantile_ms(0.5));
    results.add(Figure::new(SCENARIO, "p99 of an answer", "ms"), published.times.quantile_ms(0.99));
    Ok(())
}
