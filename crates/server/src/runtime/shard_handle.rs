//! The handle of a shard: its mailbox, and the shard itself behind a lock, so that one thread at a time runs it.
//!
//! A shard has its own thread. Waking that thread costs more than serving most messages. So a thread of another shard
//! that sends a small message runs the shard inline, unless another thread already runs it. `run_lock.rs` explains why
//! no message is left behind.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::connection_guard::TaskCounts;
use super::mailbox::Message;
use super::metrics::ShardMetrics;
use super::process::{thread_directory, thread_processor_s};
use super::run_lock::RunLock;

/// What the lock of a handle protects: a shard. This layer knows only how to run it.
pub(crate) trait Runnable: Send {
    /// Runs one turn on the shard's own thread. Returns whether more work is due at once. `events`: what the poller has
    /// reported.
    fn turn(&mut self, events: &mio::Events, is_tick_due: bool) -> bool;

    /// Runs a short turn on a thread of another shard that has sent a message. Returns whether more work is due at
    /// once.
    fn run_inline(&mut self) -> bool;

    /// Ends the shard after its last turn.
    fn finish(self: Box<Self>);
}

/// The mailbox of a shard, its counters, and the lock on the shard; see the module.
pub(crate) struct ShardHandle {
    pub(crate) metrics: Arc<ShardMetrics>,
    /// The number of publications in the mailbox.
    backlog: AtomicUsize,
    /// The counter of [`ShardHandle::http_buffered`], in bytes.
    http_buffered: Arc<AtomicUsize>,
    mailbox: UnboundedSender<Message>,
    /// The counts of [`ShardHandle::tasks`].
    tasks: Arc<TaskCounts>,
    shard: RunLock<Box<dyn Runnable>>,
    /// The directory of the shard's own thread in `/proc`; empty until the thread runs.
    thread: OnceLock<String>,
}

impl ShardHandle {
    /// Makes the handle of a shard that is not installed yet, and the receiving end of its mailbox.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Message>) {
        let (mailbox, messages) = unbounded_channel();
        let handle = ShardHandle {
            metrics: Arc::default(),
            backlog: AtomicUsize::new(0),
            http_buffered: Arc::default(),
            mailbox,
            tasks: Arc::default(),
            shard: RunLock::new(),
            thread: OnceLock::new(),
        };
        (handle, messages)
    }

    /// Notes the calling thread as the shard's own thread. That thread calls it when it begins.
    pub(crate) fn begin_thread(&self) {
        let _ = self.thread.set(thread_directory());
    }

    /// Processor time that the shard's own thread has used, in seconds.
    pub(crate) fn processor_s(&self) -> f64 {
        self.thread.get().map_or(0.0, |directory| thread_processor_s(directory))
    }

    /// Puts a message into the mailbox and wakes the shard's own thread. A shard that has ended drops the message; the
    /// node has ended then too.
    pub(crate) fn send(&self, message: Message) {
        self.enqueue(message);
        self.wake();
    }

    /// Puts a message into the mailbox without waking a thread. The caller must call [`ShardHandle::wake`] after the
    /// last message. One wake per message would cost both sides more than the messages do.
    pub(crate) fn enqueue(&self, message: Message) {
        if matches!(message, Message::Delivery { .. }) {
            self.backlog.fetch_add(1, Relaxed);
        }
        self.shard.enqueue(|| {
            let _ = self.mailbox.send(message);
        });
    }

    /// Wakes the shard's own thread if messages wait and no thread runs the shard.
    pub(crate) fn wake(&self) {
        self.shard.wake();
    }

    /// Puts a message into the mailbox, and serves it on the calling thread unless the shard is locked. It is only for
    /// threads of shards, and for messages that take only some microseconds to serve.
    pub(crate) fn run_inline(&self, message: Message) {
        self.enqueue(message);
        self.shard.run_inline(|shard| shard.run_inline());
    }

    /// The tasks of the shard that serve connections.
    pub(crate) fn tasks(&self) -> &Arc<TaskCounts> {
        &self.tasks
    }

    /// The number of publications in the mailbox.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(Relaxed)
    }

    /// Bytes that the shard's HTTP tasks hold outside the connections of clients. They are the bodies of requests while
    /// they are read and served, and HTTP/2 connections and streams. Each counts as the most that it may hold.
    pub(crate) fn http_buffered(&self) -> usize {
        self.http_buffered.load(Relaxed)
    }

    /// The counter of bytes that the shard's HTTP tasks change. See [`ShardHandle::http_buffered`].
    pub(crate) fn http_counter(&self) -> &Arc<AtomicUsize> {
        &self.http_buffered
    }

    /// Puts the shard behind the lock: from now on its own thread and inline runners may run it.
    pub(crate) fn install(&self, shard: Box<dyn Runnable>) {
        self.shard.install(shard);
    }

    /// Takes the shard out because it ends. None = it has been taken out before.
    pub(crate) fn clear(&self) -> Option<Box<dyn Runnable>> {
        self.shard.clear()
    }

    /// Runs one turn of the shard on its own thread. Returns whether more work is due at once. None = another thread
    /// holds the lock, and wakes this thread after it has released the lock.
    pub(crate) fn run(&self, turn: impl FnOnce(&mut dyn Runnable) -> bool) -> Option<bool> {
        self.shard.run(|shard| turn(&mut **shard))
    }

    /// Waits until another thread wakes the shard's own thread.
    pub(crate) async fn woken(&self) {
        self.shard.waker.notified().await;
    }

    /// Subtracts messages that the shard has taken out of the mailbox from the counters.
    pub(crate) fn note_received<'m>(&self, messages: impl Iterator<Item = &'m Message>) {
        let (mut all, mut publications) = (0, 0);
        for message in messages {
            all += 1;
            publications += usize::from(matches!(message, Message::Delivery { .. }));
        }
        self.shard.note_received(all);
        self.backlog.fetch_sub(publications, Relaxed);
    }
}
