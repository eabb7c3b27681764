//! Publishing over HTTP, keep-alive, into a channel without subscribers.

use std::time::Duration;

use anyhow::Result;

use crate::arguments::{Options, PublishOptions};
use crate::process::Meter;
use crate::publisher::{Many, publish_from_many};
use crate::report::{Figure, Results};
use crate::server_under_test::ServerUnderTest;
use crate::transport::ClientTransport;

const SCENARIO: &str = "publish";
const CHANNEL: &str = "lab:publish";
const SIZE: usize = 128;

/// One run of the scenario.
pub(super) fn publish(publish: &PublishOptions, options: &Options, results: &mut Results) -> Result<()> {
    let server = ServerUnderTest::start(options)?;
    let warm = Many {
        channel: CHANNEL,
        connections: publish.connections,
        size: SIZE,
        lasting: Duration::from_millis(500),
        rate: 0.0,
    };
    publish_from_many(&server.api, &warm)?;
    let meter = Meter::start(server.pid)?;
    let published = publish_from_many(&server.api, &Many { lasting: Duration::from_secs(publish.seconds), ..warm })?;
    let us = meter.stop()? / published.count.max(1) as f64;
    results.add(
        Figure::new(SCENARIO, "server CPU per publish", "µs")
            .bound(9.0, 6.0)
            .only_if(options.transport != ClientTransport::Tls),
        us,
    );
    results.add(Figure::new(SCENARIO, "publishes", "/s"), published.count as f64 / published.seconds);
    results.add(Figure::new(SCENARIO, "p50 of an answer", "ms"), published.times.quantile_ms(0.5));
    results.add(Figure::new(SCENARIO, "p99 of an answer", "ms"), published.times.quantile_ms(0.99));
    Ok(())
}
