//! Reactions of a crowd: the cost of one compared with a bare loop, a check that none is lost, and the cost of a
//! fan-out meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::fanout::{Numbers, deliver};
use crate::arguments::{Options, ReactionsOptions};
use crate::part::LabPart;
use crate::process::Meter;
use crate::publisher::PublishClient;
use crate::reaction_parts::{CHANNEL, CountingOrder, CountingReport, CrowdOrder, CrowdReport};
use crate::report::{Figure, Results};
use crate::server_under_test::ServerUnderTest;

const SCENARIO: &str = "reactions";
const SIZE: usize = 128;
/// Publications of the fan-out, a second.
const MESSAGES_RATE: f64 = 10.0;
/// Maximum time until the sent reactions are counted.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum seconds of a fan-out besides its publications: opening and a pause.
const AROUND: u64 = 8;

/// Pairs of a crowd at the bare loop and at a server. Then a fan-out during the reactions of a crowd.
pub(super) fn reactions(reactions: &ReactionsOptions, options: &Options, results: &mut Results) -> Result<()> {
    if options.server.is_some() {
        bail!("fresh servers are compared: leave --server out");
    }
    let (mut us, mut lost) = ([0.0; 2], 0);
    for pair in 0..reactions.pairs {
        // In turns, so that neither is always the first.
        for side in [pair % 2, 1 - pair % 2] {
            let (one, missing) = if side == 0 { at_floor(reactions)? } else { at_server(reactions, options)? };
            us[side] += one / reactions.pairs as f64;
            lost += missing;
        }
    }
    let figure = |name, unit| Figure::new(SCENARIO, name, unit);
    results.add(figure("floor: CPU per reaction", "µs"), us[0]);
    results.add(figure("CPU per reaction", "µs"), us[1]);
    results.add(figure("CPU per reaction / floor", "×").bound(1.5, 1.2), us[1] / us[0]);
    let Beside { alone_us, beside_us, missing, watchers } = beside(reactions, options)?;
    results.add(figure("fan-out: CPU per delivery", "µs"), alone_us);
    results.add(figure("fan-out beside reactions: CPU per delivery, without theirs", "µs"), beside_us);
    results.add(figure("fan-out beside reactions / alone", "×").bound(1.05, 1.02), beside_us / alone_us);
    results.add(figure("watchers that have seen the last total", ""), watchers as f64);
    let unseen = (reactions.senders - watchers) as u64;
    results.add(Figure::exact(SCENARIO), (lost + missing + unseen) as f64);
    Ok(())
}

/// Lets a crowd react. Returns the number of reactions.
fn react(crowd: &mut LabPart<CrowdOrder, CrowdReport>, rate: u64, seconds: u64) -> Result<u64> {
    match crowd.ask(&CrowdOrder::React { rate, seconds })? {
        CrowdReport::Reacted { sent, .. } => Ok(sent),
        other => bail!("the crowd said {other:?}"),
    }
}

/// CPU of the bare loop for each reaction, and reactions that it has not counted.
fn at_floor(reactions: &ReactionsOptions) -> Result<(f64, u64)> {
    let mut floor: LabPart<CountingOrder, CountingReport> = LabPart::start("reaction-floor")?;
    let CountingReport::Listening { address } = floor.report()? else { bail!("the floor does not listen") };
    let mut crowd = LabPart::start("reaction-crowd")?;
    crowd.ask(&CrowdOrder::Open { address, connections: reactions.senders, is_bare: true })?;
    let meter = Meter::start(floor.pid())?;
    let sent = react(&mut crowd, reactions.rate, reactions.seconds)?;
    let missing = settled(sent, || match floor.ask(&CountingOrder::Count)? {
        CountingReport::Counted { reactions } => Ok(reactions),
        other => bail!("the floor said {other:?}"),
    })?;
    Ok((meter.stop()? / sent as f64, missing))
}

/// Waits until the sent reactions are counted. Returns the final error of the count.
fn settled(sent: u64, mut count: impl FnMut() -> Result<u64>) -> Result<u64> {
    let until = Instant::now() + PATIENCE;
    loop {
        let counted = count()?;
        if counted == sent || Instant::now() > until {
            return Ok(sent.abs_diff(counted));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The same of a server that publishes the totals once a minute, so that its CPU is that of counting.
fn at_server(reactions: &ReactionsOptions, options: &Options) -> Result<(f64, u64)> {
    let server = ServerUnderTest::start_counting(options, "60s")?;
    let mut crowd = LabPart::start("reaction-crowd")?;
    crowd.ask(&CrowdOrder::Open { address: server.address, connections: reactions.senders, is_bare: false })?;
    let meter = Meter::start(server.pid)?;
    let sent = react(&mut crowd, reactions.rate, reactions.seconds)?;
    let missing = settled(sent, || total(&server.api))?;
    Ok((meter.stop()? / sent as f64, missing))
}

/// The result of a fan-out during the reactions of a crowd.
struct Beside {
    alone_us: f64,
    /// CPU time during the reactions, without the cost of the crowd alone, microseconds.
    beside_us: f64,
    missing: u64,
    /// Clients of the crowd that have seen the last total.
    watchers: usize,
}

/// A fan-out alone, a crowd alone, and both. All clients of the crowd watch the totals, which are published four times
/// per second.
fn beside(reactions: &ReactionsOptions, options: &Options) -> Result<Beside> {
    let server = ServerUnderTest::start_counting(options, "250ms")?;
    let mut crowd = LabPart::start("reaction-crowd")?;
    crowd.ask(&CrowdOrder::Open { address: server.address, connections: reactions.senders, is_bare: false })?;
    let numbers = Numbers {
        scenario: SCENARIO,
        connections: reactions.subscribers,
        channels: 1,
        messages: reactions.messages,
        rate: MESSAGES_RATE,
        size: SIZE,
        coalesce: 1,
        transport: options.transport,
    };
    let alone = deliver(&server, &numbers)?;
    let meter = Meter::start(server.pid)?;
    let mut sent = react(&mut crowd, reactions.rate, reactions.seconds)?;
    let crowd_us = meter.stop()? / reactions.seconds as f64;
    let seconds = (reactions.messages as f64 / MESSAGES_RATE) as u64 + AROUND;
    crowd.command(&CrowdOrder::React { rate: reactions.rate, seconds })?;
    let both = deliver(&server, &numbers)?;
    let CrowdReport::Reacted { sent: more, .. } = crowd.report()? else { bail!("the crowd does not react") };
    sent += more;
    let deliveries = both.delivered.count.max(1) as f64;
    let beside_us = both.us - crowd_us * both.seconds / deliveries;
    let missing = settled(sent, || total(&server.api))?;
    let watchers = match crowd.ask(&CrowdOrder::Watch { seq: sent })? {
        CrowdReport::Watched { clients } => clients,
        other => bail!("the crowd said {other:?}"),
    };
    Ok(Beside { alone_us: alone.us, beside_us, missing, watchers })
}

/// The sum that the server has counted.
fn total(api: &PublishClient) -> Result<u64> {
    let reactions = api.ask("reactions_get", &format!(r#"{{"channel":"{CHANNEL}"}}"#))?;
    reactions["seq"].as_u64().context("the server does not say what it has counted")
}
