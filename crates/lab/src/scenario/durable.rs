//! Durable channels: the cost of durability for a publisher, and the duration of a start with a large database.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use touchline_config::{PrimarySettings, StoreSettings};
use touchline_protocol::stored::encode_publication;
use touchline_protocol::stream::Retention;
use touchline_store::{Append, PrimaryOptions, Store};

use crate::arguments::{Durable, Options, Reopen};
use crate::publisher::{Many, Publisher, publish_from_many};
use crate::report::{Figure, Results};
use crate::server_under_test::{DURABLE, LabDatabase, ServerUnderTest};
use crate::wire;
use crate::worker::channel_name;

const SIZE: usize = 128;
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// One run: publishing into a durable channel, compared with a channel without history, with a commit for each
/// publication, and with bare syncs.
pub(super) fn durable(durable: &Durable, options: &Options, results: &mut Results) -> Result<()> {
    const SCENARIO: &str = "durable publish";
    let rate = |server: &ServerUnderTest, channel, rate| -> Result<(f64, f64)> {
        let many = Many {
            channel,
            connections: durable.connections,
            size: SIZE,
            lasting: Duration::from_secs(durable.seconds),
            rate,
        };
        publish_from_many(&server.api, &Many { lasting: Duration::from_millis(500), ..many })?;
        let published = publish_from_many(&server.api, &many)?;
        Ok((published.count as f64 / published.seconds, published.times.quantile_ms(0.99)))
    };
    let database = LabDatabase::new();
    let server = ServerUnderTest::start_durable(options, &database, None)?;
    let (plain, _) = rate(&server, "lab:publish", 0.0)?;
    let (safe, p99_full) = rate(&server, "durable:publish", 0.0)?;
    let (_, p99_half) = rate(&server, "durable:publish", safe / 2.0)?;
    let (_, p99_half_plain) = rate(&server, "lab:publish", safe / 2.0)?;
    drop(server);
    let alone = LabDatabase::new();
    let (one_each, _) = rate(&ServerUnderTest::start_durable(options, &alone, Some(1))?, "durable:publish", 0.0)?;
    let sync_ms = bare_sync_ms(&database)?;
    let figure = |name, unit| Figure::new(SCENARIO, name, unit);
    results.add(figure("durable publishes", "/s"), safe);
    results.add(figure("publishes that nobody keeps", "/s"), plain);
    results.add(figure("durable / not kept", "×").at_least(0.4, 0.7), safe / plain);
    results.add(figure("durable publishes with a commit for each", "/s"), one_each);
    results.add(figure("durable / a commit for each", "×").at_least(20.0, 20.0), safe / one_each);
    results.add(figure("p99 of an answer at full load", "ms"), p99_full);
    results.add(figure("p99 of an answer at half that load", "ms"), p99_half);
    results.add(figure("the same where nobody keeps them", "ms"), p99_half_plain);
    results.add(figure("a bare sync of a page on this disk, median", "ms"), sync_ms);
    results.add(figure("p99 at half load / a bare sync", "×").bound(4.0, 2.0), p99_half / sync_ms);
    Ok(())
}

/// The median time to append a page to a file and to sync it.
fn bare_sync_ms(database: &LabDatabase) -> Result<f64> {
    let path = database.0.join("floor");
    let mut file = File::create(&path).context("failed to make a file beside the database")?;
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        file.write_all(&[b'x'; 4_096])?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    std::fs::remove_file(path)?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// One run: a server starts on a large database.
pub(super) fn reopen(reopen: &Reopen, options: &Options, results: &mut Results) -> Result<()> {
    const SCENARIO: &str = "a start on a large database";
    let database = LabDatabase::new();
    let filled = Instant::now();
    fill(&database, reopen)?;
    results.add(
        Figure::new(SCENARIO, "stored before, through the store alone", "/s"),
        reopen.publications as f64 / filled.elapsed().as_secs_f64(),
    );
    let began = Instant::now();
    let server = ServerUnderTest::start_durable(options, &database, None)?;
    results.add(Figure::new(SCENARIO, "it serves after", "s").bound(2.0, 0.5), began.elapsed().as_secs_f64());
    let asked = Instant::now();
    let mut publisher = Publisher::new(server.api.clone(), DURABLE, reopen.channels, SIZE)?;
    publisher.publish(1, 0.0)?;
    results.add(Figure::new(SCENARIO, "the first durable publish", "ms"), asked.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

/// Stores publications, channel after channel.
fn fill(database: &LabDatabase, reopen: &Reopen) -> Result<()> {
    let primary = PrimarySettings { pool_size: 1, read_queue: 1_000, ..PrimarySettings::default() };
    let settings = PrimaryOptions {
        store: StoreSettings { primary, commit_size: 20_000, commit_queue: 100_000, ..StoreSettings::default() },
        url: database.url().parse()?,
        tls_ca: String::new(),
        notifier: String::new(),
        has_facts: false,
        seen_expires_s: 0,
        reactions_expire_ms: 0,
        retention: Arc::new(|_| None),
    };
    let store = Store::open(&settings, |_| {})?;
    let failed = Arc::new(AtomicU64::new(0));
    let time_ms = crate::process::now_us() / 1_000;
    let object = format!("{{\"data\":{}}}", wire::data(1, 1_700_000_000_000_000, SIZE));
    let payload = encode_publication(time_ms, object.len(), |out| out.extend_from_slice(object.as_bytes()));
    let payload = Bytes::from(payload);
    for number in 0..reopen.publications {
        while store.metrics().waiting.load(Relaxed) > 90_000 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let failed = Arc::clone(&failed);
        store.append(Append {
            channel: channel_name(DURABLE, number % reopen.channels).into(),
            payload: payload.clone(),
            time_ms,
            key: Box::default(),
            version: 0,
            version_epoch: Box::default(),
            retention: Retention { size: 1_000_000, ttl_ms: DAY_MS, meta_ttl_ms: DAY_MS },
            done: Box::new(move |outcome| {
                failed.fetch_add(u64::from(outcome.is_err()), Relaxed);
            }),
        });
    }
    store.close();
    match failed.load(Relaxed) {
        0 => Ok(()),
        failed => bail!("{failed} publications could not be stored"),
    }
}
