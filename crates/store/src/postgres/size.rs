//! Measures the tables of the primary database. A task with a separate connection looks, so no write waits for it. Near
//! the limit, it also estimates the room inside the tables, and vacuums deleted rows (`vacuum.rs`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::Client;
use touchline_lock::Lock;

use super::address::PostgresAddress;
use super::connection::{PostgresClient, with_timeout};
use super::failure::PostgresError;
use super::vacuum::Vacuum;
use crate::growth::{GrowthBudget, GrowthLimits, SizeReading};
use crate::metrics::StoreMetrics;

/// The interval between two looks if there is a limit.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two looks that only metrics need.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// The minimum interval between two looks, however much is written.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The interval between two estimates of the room inside the files.
const ESTIMATE_INTERVAL: Duration = Duration::from_secs(2);
/// The number of consecutive failures before one is logged. Looks fail until the writer has created the schema.
const TOLD_FAILURES: u32 = 10;

/// The total size of all tables of the schema with their indexes and large values, and the number of nodes that write
/// to them. Each table costs a request to the file system.
const LOOK: &str = "SELECT (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'touchline' AND c.relkind IN ('r', 'm')), \
     (SELECT count(*) FROM touchline.lease WHERE expires > clock_timestamp())";

/// The budget that the writer charges and the watcher updates. It is locked only for a few steps.
#[derive(Clone)]
pub(super) struct SharedBudget {
    budget: Arc<Lock<GrowthBudget>>,
    wanted: Arc<Notify>,
    limits: GrowthLimits,
}

impl SharedBudget {
    pub(super) fn new(limits: GrowthLimits) -> Self {
        SharedBudget { budget: Arc::new(Lock::new(GrowthBudget::new(limits))), wanted: Arc::default(), limits }
    }

    /// Whether any limit is set.
    pub(super) fn is_limited(&self) -> bool {
        self.limits.are_set()
    }

    /// Runs a few steps with the budget. If a look is needed, it wakes the watcher.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut GrowthBudget) -> T) -> T {
        let mut budget = self.budget.lock();
        let done = work(&mut budget);
        if budget.needs_look() {
            self.wanted.notify_one();
        }
        done
    }

    /// Looks for the first time.
    pub(super) async fn begin(&self, client: &Client, metrics: &StoreMetrics) -> Result<(), PostgresError> {
        let (held, nodes) = look(client).await?;
        // This node does not have a lease yet.
        let reading = SizeReading { held, reusable: 0, is_exact: false, disk_free: None, to_move: 0, nodes: nodes + 1 };
        self.with(|budget| budget.end_look(reading));
        self.with(|budget| metrics.size.note(budget));
        Ok(())
    }
}

/// The size of all tables in bytes, and the number of nodes.
async fn look(client: &Client) -> Result<(u64, u64), PostgresError> {
    let row = client.query_one(LOOK, &[]).await?;
    Ok((row.get::<_, i64>(0).max(0) as u64, row.get::<_, i64>(1).max(0) as u64))
}

/// The task that looks, with its state.
pub(super) struct SizeWatcher {
    address: PostgresAddress,
    budget: SharedBudget,
    metrics: Arc<StoreMetrics>,
    /// The connection. `None` at first and after a failure.
    link: Option<PostgresClient>,
    /// The room inside the files from the last estimate, minus what was written since, bytes.
    reusable: u64,
    estimated_at: Option<Instant>,
    vacuum: Vacuum,
    /// The number of failed looks since one succeeded.
    failures: u32,
}

impl SizeWatcher {
    pub(super) fn new(address: PostgresAddress, budget: SharedBudget, metrics: Arc<StoreMetrics>) -> Self {
        SizeWatcher {
            address,
            budget,
            metrics,
            link: None,
            reusable: 0,
            estimated_at: None,
            vacuum: Vacuum::default(),
            failures: 0,
        }
    }

    /// Looks until the runtime ends.
    pub(super) async fn serve(mut self) {
        let interval = if self.budget.is_limited() { LOOK_INTERVAL } else { IDLE_INTERVAL };
        let wanted = Arc::clone(&self.budget.wanted);
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            match with_timeout(self.address.timeout, self.look()).await {
                Ok(()) => self.failures = 0,
                Err(error) => {
                    self.link = None;
                    self.failures = self.failures.saturating_add(1);
                    // The writer and the readers log a server that is down. They do not log a locked table: a look then
                    // gets no answer in time.
                    let is_logged = error.is_away() && !matches!(error, PostgresError::TimedOut(_));
                    if !is_logged && self.failures == TOLD_FAILURES {
                        tracing::warn!(%error, "the size of the primary database could not be measured");
                    }
                }
            }
            let _ = tokio::time::timeout(interval, wanted.notified()).await;
        }
    }

    async fn look(&mut self) -> Result<(), PostgresError> {
        let link = match self.link.take() {
            Some(link) if !link.client.is_closed() => link,
            _ => {
                // If the server has crashed, its counts of deleted rows are lost.
                self.vacuum.forget();
                (self.reusable, self.estimated_at) = (0, None);
                PostgresClient::to(&self.address).await?
            }
        };
        let client = &self.link.insert(link).client;
        let written = self.budget.with(GrowthBudget::begin_look);
        let (held, nodes) = look(client).await?;
        // The charges exceed what is written, and other nodes write as much.
        self.reusable = self.reusable.saturating_sub(written.saturating_mul(nodes.max(1)));
        let is_old = self.estimated_at.is_none_or(|at| at.elapsed() >= ESTIMATE_INTERVAL);
        let is_near = self.budget.with(|budget| budget.is_near());
        if is_near && is_old {
            self.estimated_at = Some(Instant::now());
            let (reusable, uncleared) = self.vacuum.estimate(client).await?;
            self.reusable = reusable;
            self.vacuum.start(&self.address, uncleared);
        }
        let reusable = self.reusable.min(held);
        let reading = SizeReading { held, reusable, is_exact: false, disk_free: None, to_move: 0, nodes };
        self.budget.with(|budget| {
            budget.end_look(reading);
            self.metrics.size.note(budget);
        });
        Ok(())
    }
}
