//! An outbox in PostgreSQL: how fast its rows become publications, compared with a loop that only selects and deletes
//! them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use touchline_testkit::postgres::PostgresServer;

use crate::arguments::{ConsumersOptions, Options};
use crate::guard::{self, POSTMASTER};
use crate::report::{Figure, Results};
use crate::server_under_test::{OUTBOX, OUTBOX_BATCH, ServerUnderTest};

const SCENARIO: &str = "consumers";
/// Between two looks whether the table is empty.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum time until a table is empty.
const PATIENCE: Duration = Duration::from_secs(600);

/// The target channels: the name of a figure, the name of its ratio to the floor, and an SQL expression of the channel
/// by the number of the row.
const TARGETS: [(&str, &str, &str); 4] = [
    ("publications into 500 channels", "500 channels / floor", "'lab:c' || (n % 500)"),
    ("publications into one channel", "one channel / floor", "'lab:c'"),
    ("publications into 500 durable channels", "500 durable channels / floor", "'durable:c' || (n % 500)"),
    ("publications into one durable channel", "one durable channel / floor", "'durable:c'"),
];

/// The directory of one run's database.
struct ConsumersScratch(PathBuf);

impl Drop for ConsumersScratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One run: the floor, then rows for each kind of channels.
pub(super) fn consumers(consumers: &ConsumersOptions, options: &Options, results: &mut Results) -> Result<()> {
    if !PostgresServer::is_installed() {
        bail!("PostgreSQL is not installed (Debian package postgresql)");
    }
    let scratch = ConsumersScratch(std::env::temp_dir().join(format!("touchline-lab-outbox-{}", std::process::id())));
    guard::remove_with_lab(&scratch.0);
    guard::end_named_by(scratch.0.join(POSTMASTER));
    let postgres = PostgresServer::start_with(&scratch.0, &[], "");
    postgres.sql(&format!(
        "CREATE TABLE {OUTBOX} (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL, \
         partition integer NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now()); \
         CREATE INDEX {OUTBOX}_order ON {OUTBOX} (partition, id)"
    ));
    let rows = consumers.rows;
    fill(&postgres, rows, "'lab:c'");
    let began = Instant::now();
    take_away(&postgres, rows);
    let floor = rows as f64 / began.elapsed().as_secs_f64();
    results.add(Figure::new(SCENARIO, "rows that are only selected and deleted (floor)", "/s"), floor);
    let server = ServerUnderTest::start_consuming(options, &postgres.url())?;
    for (name, ratio, channel) in TARGETS {
        fill(&postgres, rows, channel);
        let began = Instant::now();
        while postgres.sql(&format!("SELECT EXISTS (SELECT FROM {OUTBOX})")) == "t" {
            if began.elapsed() > PATIENCE {
                bail!("the outbox did not become empty");
            }
            std::thread::sleep(LOOK);
        }
        let rate = rows as f64 / began.elapsed().as_secs_f64();
        results.add(Figure::new(SCENARIO, name, "/s").at_least(10_000.0, 20_000.0), rate);
        results.add(Figure::new(SCENARIO, ratio, "×"), rate / floor);
    }
    if postgres.sql(&format!("SELECT count(*) FROM {OUTBOX}_dead")) != "0" {
        bail!("rows could not be published");
    }
    drop(server);
    Ok(())
}

/// Inserts rows into the table in one transaction, so that all rows become visible at once.
fn fill(postgres: &PostgresServer, rows: u32, channel: &str) {
    postgres.sql(&format!(
        "INSERT INTO {OUTBOX} (method, payload) SELECT 'publish', jsonb_build_object('channel', {channel}, 'data', \
         jsonb_build_object('n', n, 'text', repeat('x', 100))) FROM generate_series(1, {rows}) n"
    ));
}

/// Selects all rows and deletes them, as many in a transaction as a consumer does.
fn take_away(postgres: &PostgresServer, rows: u32) {
    let step = format!(
        "BEGIN; SELECT id, method, payload::text FROM {OUTBOX} WHERE partition = 0 ORDER BY id LIMIT {OUTBOX_BATCH}; \
         DELETE FROM {OUTBOX} WHERE id IN \
         (SELECT id FROM {OUTBOX} WHERE partition = 0 ORDER BY id LIMIT {OUTBOX_BATCH}); COMMIT;"
    );
    for _ in 0..rows.div_ceil(OUTBOX_BATCH * STEPS_AT_ONCE) {
        postgres.sql(&step.repeat(STEPS_AT_ONCE as usize));
    }
}

/// Steps of the floor for each start of `psql`.
const STEPS_AT_ONCE: u32 = 20;
