//! The primary database in PostgreSQL: one thread with its own runtime. One connection writes in batches, a few read,
//! and one listens to the notifications of other nodes.

mod address;
mod connection;
mod directory;
mod facts;
pub(crate) mod failure;
mod inbox;
mod lease;
pub(crate) mod ledger;
mod ledger_lanes;
mod ledger_link;
mod listener;
mod numbers;
mod parts;
mod reactions;
mod reader;
mod row_appends;
mod seen;
mod size;
mod vacuum;
mod writer;

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, UnboundedSender, channel, unbounded_channel};
use touchline_lock::Lock;

pub(crate) use address::PostgresAddress;
pub(crate) use connection::{PostgresClient, with_timeout};
pub use failure::PostgresError;
pub(crate) use vacuum::MAY_VACUUM;

use self::facts::FactFollower;
use self::size::{SharedBudget, SizeWatcher};
use crate::batch::{ReadRequest, WriteRequest};
use crate::errors::OpenError;
use crate::events::EventSink;
use crate::metrics::StoreMetrics;
use crate::migrate::PRIMARY;
use crate::panics::caught_in;
use crate::refusal::StoreRefusal;
use crate::runs::RunBook;
use crate::settings::PrimaryOptions;

/// A handle of the database thread.
pub(crate) struct PostgresPrimary {
    writes: Sender<WriteRequest>,
    reads: UnboundedSender<ReadRequest>,
    thread: Lock<Option<JoinHandle<()>>>,
}

impl PostgresPrimary {
    /// Connects once to check the schema if the server can be reached, and starts the thread.
    pub(crate) fn open(
        address: &PostgresAddress,
        settings: &PrimaryOptions,
        events: EventSink,
        metrics: Arc<StoreMetrics>,
    ) -> Result<Self, OpenError> {
        let of_system = |source| OpenError::Thread { work: "PostgreSQL", source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(of_system)?;
        let (writes, mut write_requests) = channel(settings.store.commit_queue.max(1));
        let (reads, read_requests) = unbounded_channel();
        let runs = Arc::<RunBook>::default();
        let (check_sender, checked) = std::sync::mpsc::channel();
        let (address, settings, weak_writes) = (address.clone(), settings.clone(), writes.downgrade());
        let work = move || {
            runtime.block_on(async {
                let budget = SharedBudget::new(settings.growth_limits());
                metrics.size.limit_to(settings.growth_limits());
                let is_checked = match begin(&address, &settings, &events, (&metrics, &budget)).await {
                    Ok(is_checked) => is_checked,
                    Err(error) => return drop(check_sender.send(Err(error))),
                };
                let _ = check_sender.send(Ok(()));
                let read_requests = Arc::new(tokio::sync::Mutex::new(read_requests));
                for _ in 0..settings.store.primary.pool_size.max(1) {
                    let (events, writes, metrics) = (Arc::clone(&events), weak_writes.clone(), Arc::clone(&metrics));
                    let reader =
                        reader::PostgresReader::new(address.clone(), events, writes, metrics, Arc::clone(&runs));
                    tokio::spawn(reader.serve(Arc::clone(&read_requests)));
                }
                if !settings.notifier.is_empty() {
                    tokio::spawn(listener::serve(
                        address.clone(),
                        (settings.notifier.clone(), settings.has_facts),
                        Arc::clone(&events),
                        Arc::clone(&metrics),
                    ));
                }
                let watcher = SizeWatcher::new(address.clone(), budget.clone(), Arc::clone(&metrics));
                tokio::spawn(watcher.serve());
                let writer_events = EventSink::clone(&events);
                let writer = writer::PostgresWriter::new(
                    address,
                    &settings,
                    is_checked,
                    writer_events,
                    Arc::clone(&metrics),
                    runs,
                    budget,
                );
                let Err(panicked) = caught_in(writer.serve(&mut write_requests)).await else { return };
                metrics.fail(&panicked);
                // The writer has ended. Every write is refused until the store is closed.
                while let Some(write) = write_requests.recv().await
                    && !matches!(write, WriteRequest::Close)
                {
                    write.reject(&events, &metrics, StoreRefusal::Failed);
                }
            });
        };
        let thread = std::thread::Builder::new().name("store".into()).spawn(work).map_err(of_system)?;
        checked.recv().unwrap_or(Ok(()))?;
        Ok(PostgresPrimary { writes, reads, thread: Lock::new(Some(thread)) })
    }

    /// Queues a write. Returns it if the queue has no room, or if the writer has ended.
    pub(crate) fn write(&self, write: WriteRequest) -> Option<(WriteRequest, StoreRefusal)> {
        match self.writes.try_send(write) {
            Ok(()) => None,
            Err(TrySendError::Full(write)) => Some((write, StoreRefusal::QueueFull)),
            Err(TrySendError::Closed(write)) => Some((write, StoreRefusal::Failed)),
        }
    }

    /// Queues a read. Returns it if the readers have ended.
    pub(crate) fn read(&self, read: ReadRequest) -> Option<ReadRequest> {
        self.reads.send(read).err().map(|unread| unread.0)
    }

    pub(crate) fn close(&self) {
        let _ = self.writes.blocking_send(WriteRequest::Close);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

/// Connects once. It checks the schema and loads the shared facts, so that the first clients need not wait for them.
/// Returns false if the server cannot be reached now. It may be reachable later; until then the node serves requests
/// that do not need it.
async fn begin(
    address: &PostgresAddress,
    settings: &PrimaryOptions,
    events: &EventSink,
    (metrics, budget): (&StoreMetrics, &SharedBudget),
) -> Result<bool, OpenError> {
    let mut link = match PostgresClient::to(address).await {
        Ok(link) => link,
        Err(failure) if failure.is_transient() => {
            failure.note(metrics);
            return Ok(false);
        }
        Err(failure) => return Err(failure.into()),
    };
    link.check(&PRIMARY, settings.store.migrate).await?;
    budget.begin(&link.client, metrics).await?;
    if settings.has_facts {
        // If this fails, the task that follows the facts loads them, or reports why it cannot.
        let mut facts = FactFollower::default();
        let _ = facts.follow(&link.client, address.timeout, events).await;
    }
    Ok(true)
}
