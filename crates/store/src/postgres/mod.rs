//! The primary database in PostgreSQL: one thread with a runtime of its own; one connection writes, in batches, a few
//! read, one listens to what other nodes have written.

mod connection;
mod directory;
mod inbox;
mod lease;
mod listener;
mod parts;
mod reader;
mod writer;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, UnboundedSender, channel, unbounded_channel};

pub(crate) use connection::{Address, Failure, PostgresClient};

use crate::batch::{ReadRequest, WriteRequest};
use crate::migrate::PRIMARY;
use crate::panics::caught_in;
use crate::runs::RunBook;
use crate::{EventSink, OpenError, Settings, StoreMetrics, StoreRefusal};

/// The way to the thread.
pub(crate) struct Primary {
    writes: Sender<WriteRequest>,
    reads: UnboundedSender<ReadRequest>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Primary {
    /// Connects once, to check the schema if the server can be reached, and starts the thread.
    pub(crate) fn open(
        address: &Address,
        settings: &Settings,
        hand: EventSink,
        figures: Arc<StoreMetrics>,
    ) -> Result<Self, OpenError> {
        let of_system = |source| OpenError::File { path: "a thread for PostgreSQL".into(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(of_system)?;
        let (writes, written) = channel(settings.commit_queue.max(1));
        let (reads, asked) = unbounded_channel();
        let runs = Arc::<RunBook>::default();
        let (said, checked) = std::sync::mpsc::channel();
        let (address, settings, of_figures, of_writes) =
            (address.clone(), settings.clone(), figures, writes.downgrade());
        let work = move || {
            runtime.block_on(async {
                // A server that can't be reached now may be there later: the node serves what does not need it until
                // then.
                let checked = match PostgresClient::to(&address).await {
                    Ok(mut link) => {
                        link.check(&PRIMARY, settings.migrates).await.map(|()| true).map_err(OpenError::from)
                    }
                    Err(failure) if failure.is_passing() => {
                        of_figures.fail(&failure);
                        Ok(false)
                    }
                    Err(failure) => Err(failure.into()),
                };
                let is_checked = match checked {
                    Ok(is_checked) => is_checked,
                    Err(error) => return drop(said.send(Err(error))),
                };
                let _ = said.send(Ok(()));
                let asked = Arc::new(tokio::sync::Mutex::new(asked));
                for _ in 0..settings.pool_size.max(1) {
                    let (hand, writes, figures) = (Arc::clone(&hand), of_writes.clone(), Arc::clone(&of_figures));
                    let reader = reader::Reader::new(address.clone(), hand, writes, figures, Arc::clone(&runs));
                    tokio::spawn(reader.serve(Arc::clone(&asked)));
                }
                if !settings.notifier.is_empty() {
                    tokio::spawn(listener::serve(address.clone(), settings.notifier.clone(), Arc::clone(&hand)));
                }
                let (of_writer, mut written) = (EventSink::clone(&hand), written);
                let writer =
                    writer::Writer::new(address, &settings, is_checked, of_writer, Arc::clone(&of_figures), runs);
                let Err(panicked) = caught_in(writer.serve(&mut written)).await else { return };
                of_figures.fail(&panicked);
                // Nobody writes any more: whoever asks is told so, until the store is closed.
                while let Some(write) = written.recv().await
                    && !matches!(write, WriteRequest::Close)
                {
                    write.turn_back(&hand, &of_figures, StoreRefusal::Failed);
                }
            });
        };
        let thread = std::thread::Builder::new().name("store".into()).spawn(work).map_err(of_system)?;
        checked.recv().unwrap_or(Ok(()))?;
        Ok(Primary { writes, reads, thread: Mutex::new(Some(thread)) })
    }

    /// Gives back what there is no room for, or nobody to write it.
    pub(crate) fn write(&self, write: WriteRequest) -> Option<(WriteRequest, StoreRefusal)> {
        match self.writes.try_send(write) {
            Ok(()) => None,
            Err(TrySendError::Full(write)) => Some((write, StoreRefusal::QueueFull)),
            Err(TrySendError::Closed(write)) => Some((write, StoreRefusal::Failed)),
        }
    }

    /// Gives back what nobody is there to read.
    pub(crate) fn read(&self, read: ReadRequest) -> Option<ReadRequest> {
        self.reads.send(read).err().map(|unread| unread.0)
    }

    pub(crate) fn close(&self) {
        let _ = self.writes.blocking_send(WriteRequest::Close);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
