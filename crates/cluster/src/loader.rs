//! Loads the histories of channels. It reads a limited number at a time, and takes one snapshot of a stream for all
//! loads that finish together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};

use crate::errors::StreamError;
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::history::Streams;
use crate::outage::OutageLog;
use crate::reading::ReadRecords;
use crate::types::StreamLoad;

/// The maximum number of channels that are read at a time. More would only wait in the queues of the NATS server, which
/// drops what does not fit.
const READING_MAX: usize = 256;
/// The maximum number of channels that are checked at a time. No caller waits for checks, so they leave room for loads.
const CHECKING_MAX: usize = 16;

/// The state of the checks.
pub(crate) struct Checks {
    under_way: AtomicUsize,
    have_failed: AtomicBool,
    /// Notified when something may have been lost, including a failed check.
    pub(crate) trouble: Notify,
    /// Logs why reads fail.
    outages: OutageLog,
}

impl Default for Checks {
    fn default() -> Self {
        Checks {
            under_way: AtomicUsize::default(),
            have_failed: AtomicBool::default(),
            trouble: Notify::default(),
            outages: OutageLog::new("reads of histories in JetStream"),
        }
    }
}

impl Checks {
    /// Whether some checks are still in progress.
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way.load(Relaxed) > 0
    }

    /// Whether a check has failed since the last call.
    pub(crate) fn have_failed(&self) -> bool {
        self.have_failed.swap(false, Relaxed)
    }

    /// Logs why a read has failed. Returns the records, or `None` after a failure.
    fn read(&self, read: Result<ReadRecords, StreamError>) -> Option<ReadRecords> {
        match read {
            Ok(records) => {
                self.outages.succeed();
                Some(records)
            }
            Err(error) => {
                if !error.is_reported() {
                    self.outages.fail(&error);
                }
                None
            }
        }
    }

    fn fail(&self) {
        self.have_failed.store(true, Relaxed);
        self.trouble.notify_one();
    }
}

/// A handle of the loader's tasks. Two tasks run the loads, and one takes snapshots of the streams and reports the
/// histories.
pub(crate) struct Loader {
    loads: UnboundedSender<StreamLoad>,
    checks: UnboundedSender<StreamLoad>,
    state: Arc<Checks>,
}

impl Loader {
    /// Starts the tasks. They end when the handle is dropped and all requests are answered.
    pub(crate) fn start(streams: Streams, events: ClusterEventSink, state: Arc<Checks>) -> Self {
        let (loads, load_requests) = unbounded_channel();
        let (checks, check_requests) = unbounded_channel();
        let (read_sender, reads) = unbounded_channel();
        let of_loads = (streams.clone(), read_sender.clone(), Arc::clone(&state));
        tokio::spawn(run_loads(load_requests, READING_MAX, move |load| read(of_loads.clone(), load)));
        let of_checks = (streams.clone(), read_sender, Arc::clone(&state));
        tokio::spawn(run_loads(check_requests, CHECKING_MAX, move |load| check(of_checks.clone(), load)));
        tokio::spawn(report_histories(streams, reads, events, Arc::clone(&state)));
        Loader { loads, checks, state }
    }

    /// Requests a load. [`ClusterEvent::Loaded`] reports the result.
    pub(crate) fn load(&self, load: StreamLoad) {
        if load.is_check {
            self.state.under_way.fetch_add(1, Relaxed);
            let _ = self.checks.send(load);
        } else {
            let _ = self.loads.send(load);
        }
    }
}

type Read = (StreamLoad, Option<ReadRecords>);

/// Runs loads, at most `concurrency` at a time.
async fn run_loads<Work: Future<Output = ()> + Send + 'static>(
    mut requests: UnboundedReceiver<StreamLoad>,
    concurrency: usize,
    work: impl Fn(StreamLoad) -> Work,
) {
    let room = Arc::new(Semaphore::new(concurrency));
    while let Some(load) = requests.recv().await {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let work = work(load);
        tokio::spawn(async move {
            work.await;
            drop(permit);
        });
    }
}

async fn read((streams, reads, state): (Streams, UnboundedSender<Read>, Arc<Checks>), load: StreamLoad) {
    let kept = state.read(streams.read(&load).await);
    let _ = reads.send((load, kept));
}

async fn check((streams, reads, state): (Streams, UnboundedSender<Read>, Arc<Checks>), load: StreamLoad) {
    match state.read(streams.read(&load).await) {
        Some(kept) if kept.has_nothing() => {}
        Some(kept) => drop(reads.send((load, Some(kept)))),
        None => state.fail(),
    }
    state.under_way.fetch_sub(1, Relaxed);
}

/// Reports histories. The snapshot of a stream is taken after the reads. So publications that the stream has dropped by
/// then are not reported as present.
async fn report_histories(
    streams: Streams,
    mut reads: UnboundedReceiver<Read>,
    events: ClusterEventSink,
    state: Arc<Checks>,
) {
    let mut batch = Vec::new();
    while reads.recv_many(&mut batch, READING_MAX).await > 0 {
        let mut snapshots = HashMap::new();
        for (StreamLoad { channel, namespace, id: load, is_check }, kept) in batch.drain(..) {
            let snapshot = match snapshots.get(&namespace) {
                Some(snapshot) => *snapshot,
                None => *snapshots.entry(namespace.clone()).or_insert(streams.snapshot(&namespace).await),
            };
            let history = snapshot.zip(kept).map(|(snapshot, kept)| kept.history(load.behind.0, &snapshot));
            if is_check && history.is_none() {
                state.fail();
            } else {
                if history.is_none() {
                    // The stream may be in another life or run. An inspection detects that.
                    state.trouble.notify_one();
                }
                events(ClusterEvent::Loaded { channel, load, history });
            }
        }
    }
}
