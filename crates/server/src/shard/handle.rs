//! The way to a shard: its inbox, and the shard itself, which one thread at a time runs.
//!
//! A shard has a thread of its own. To wake it costs more than most messages take to serve, though, so a thread of
//! another shard that brings a small one runs the shard for that moment, if nobody else does. Nobody waits for that:
//! who finds the shard taken leaves the message to whoever runs it, and that one looks into the inbox again once the
//! shard is free. No message is left behind: the counter of messages goes up before the look at the lock, and is read
//! after the lock is given back, with a fence between the two on either side, so one of the two sees the other
//! (Dekker's algorithm). The wish of the shard's own thread to have it back goes the same way.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Shard;
use crate::mailbox::Message;
use crate::metrics::ShardMetrics;

/// How often who runs a shard on an errand looks whether more has come: a publication that is given its place comes
/// back as a delivery.
const INLINE_RECHECKS_MAX: usize = 4;
/// Looks at a taken shard before its own thread goes to sleep: some 20 µs.
const SPINS_MAX: usize = 500;

/// See the module.
pub(crate) struct ShardHandle {
    pub(crate) metrics: Arc<ShardMetrics>,
    /// Publications in the inbox.
    backlog: AtomicUsize,
    /// See [`ShardHandle::http_buffered`].
    http_buffered: Arc<AtomicUsize>,
    mailbox: UnboundedSender<Message>,
    /// Tasks that serve connections whose client is not known yet.
    half_open_tasks: AtomicUsize,
    /// Tasks whose requests a node that drains still waits for.
    awaited_tasks: AtomicUsize,
    /// Messages in the inbox, or about to be there.
    waiting: AtomicUsize,
    /// Wakes the shard's own thread.
    waker: Notify,
    /// That thread has found the shard taken.
    is_wanted: AtomicBool,
    /// Until its thread has started and after it has ended there is none.
    shard: Mutex<Option<Shard>>,
}

impl ShardHandle {
    /// The way to a shard that is not there yet, and its inbox.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Message>) {
        let (inbox, messages) = unbounded_channel();
        let handle = ShardHandle {
            metrics: Arc::default(),
            backlog: AtomicUsize::new(0),
            http_buffered: Arc::default(),
            mailbox: inbox,
            half_open_tasks: AtomicUsize::new(0),
            awaited_tasks: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waker: Notify::new(),
            is_wanted: AtomicBool::new(false),
            shard: Mutex::new(None),
        };
        (handle, messages)
    }

    /// Puts a message into the inbox, for the shard's own thread. A shard that has ended loses it: so does the node
    /// then.
    pub(crate) fn send(&self, message: Message) {
        self.enqueue(message);
        self.wake();
    }

    /// Puts a message into the inbox and wakes nobody: the first of many that [`ShardHandle::wake`] ends. To wake a
    /// thread for each costs both sides more than the messages do.
    pub(crate) fn enqueue(&self, message: Message) {
        if matches!(message, Message::Delivery { .. }) {
            self.backlog.fetch_add(1, Relaxed);
        }
        self.waiting.fetch_add(1, Relaxed);
        let _ = self.mailbox.send(message);
    }

    /// Wakes the shard's own thread if something waits and nobody serves it.
    pub(crate) fn wake(&self) {
        if self.has_messages() && self.try_take().is_some() {
            self.waker.notify_one();
        }
    }

    /// Puts a message into the inbox, and serves it here and now unless the shard is taken. Only for threads of shards,
    /// and for messages that are served in a moment.
    pub(crate) fn run_inline(&self, message: Message) {
        self.enqueue(message);
        fence(SeqCst);
        for _ in 0..INLINE_RECHECKS_MAX {
            let Some(mut seat) = self.try_take() else { return };
            let Some(shard) = seat.as_mut() else { return };
            shard.run_inline();
            let has_work = shard.has_work();
            drop(seat);
            if has_work {
                break;
            }
            if !self.has_messages() {
                if self.is_wanted.swap(false, Relaxed) {
                    self.waker.notify_one();
                }
                return;
            }
        }
        self.waker.notify_one();
    }

    /// A task serves a connection whose client is not known yet.
    pub(super) fn enter_half_open(&self) {
        self.half_open_tasks.fetch_add(1, Relaxed);
    }

    /// It has ended, or knows its client.
    pub(super) fn leave_half_open(&self) {
        self.half_open_tasks.fetch_sub(1, Relaxed);
    }

    /// How many of them there are.
    pub(super) fn half_open_tasks(&self) -> usize {
        self.half_open_tasks.load(Relaxed)
    }

    /// A task begins to serve a connection: it may have taken requests until [`ShardHandle::leave_awaited`].
    pub(super) fn enter_awaited(&self) {
        self.awaited_tasks.fetch_add(1, Relaxed);
    }

    /// It has ended, or its last answer has left.
    pub(super) fn leave_awaited(&self) {
        self.awaited_tasks.fetch_sub(1, Relaxed);
    }

    /// How many of them there are.
    pub(super) fn awaited_tasks(&self) -> usize {
        self.awaited_tasks.load(Relaxed)
    }

    /// Publications that wait in the inbox.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog.load(Relaxed)
    }

    /// Bytes that the shard's HTTP tasks hold, outside all connections of clients: bodies of requests while they are
    /// read and served, and HTTP/2 connections and streams, each counted as the most that it may hold.
    pub(crate) fn http_buffered(&self) -> usize {
        self.http_buffered.load(Relaxed)
    }

    /// What these tasks count in.
    pub(crate) fn http_counter(&self) -> &Arc<AtomicUsize> {
        &self.http_buffered
    }

    /// Gives the shard to those who may run it.
    pub(super) fn install(&self, shard: Shard) {
        *self.take() = Some(shard);
    }

    /// The shard ends.
    pub(super) fn clear(&self) -> Option<Shard> {
        self.take().take()
    }

    /// Runs the shard on its own thread; whether there is more for it to do at once. None = it is taken: a nudge comes
    /// when it is free.
    pub(super) fn run(&self, turn: impl FnOnce(&mut Shard)) -> Option<bool> {
        let mut seat = self.try_take().or_else(|| self.spin_then_try_take())?;
        let Some(shard) = seat.as_mut() else { return Some(false) };
        turn(shard);
        let has_work = shard.has_work();
        drop(seat);
        Some(has_work || self.has_messages())
    }

    /// An errand is over in a moment, most often; to sleep and to be woken takes longer.
    fn spin_then_try_take(&self) -> Option<MutexGuard<'_, Option<Shard>>> {
        for _ in 0..SPINS_MAX {
            std::hint::spin_loop();
            if let Some(seat) = self.try_take() {
                return Some(seat);
            }
        }
        self.is_wanted.store(true, Relaxed);
        fence(SeqCst);
        // Who has given it back before that does not know.
        self.try_take()
    }

    /// Waits until the shard's own thread is wanted.
    pub(super) async fn woken(&self) {
        self.waker.notified().await;
    }

    /// So many messages have been taken out of the inbox.
    pub(super) fn note_received<'m>(&self, messages: impl Iterator<Item = &'m Message>) {
        let (mut all, mut publications) = (0, 0);
        for message in messages {
            all += 1;
            publications += usize::from(matches!(message, Message::Delivery { .. }));
        }
        self.waiting.fetch_sub(all, Relaxed);
        self.backlog.fetch_sub(publications, Relaxed);
    }

    /// Whether somebody has put a message in who may have found the shard taken.
    fn has_messages(&self) -> bool {
        fence(SeqCst);
        self.waiting.load(Relaxed) > 0
    }

    /// Waits for somebody's errand, if there is one.
    fn take(&self) -> MutexGuard<'_, Option<Shard>> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(&self) -> Option<MutexGuard<'_, Option<Shard>>> {
        match self.shard.try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::Poisoned(seat)) => Some(seat.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
