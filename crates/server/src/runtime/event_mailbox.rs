//! The mailbox of the thread that tells what happens: what shards, the registry actor and the store have seen.
//!
//! Nobody waits here. What happens to clients and names is lost if too much waits, and counted: the thread tells
//! `state.reset` then. Who holds a channel or a user must not be lost, nor the end of a client that was told as
//! connected, because nothing would ever correct it: a shard keeps that until there is room.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU16, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use touchline_engine::ShardId;
use touchline_engine::directory::{EntryIncident, LostClient};
use touchline_engine::events::{EventKind, EventKinds, EventLoss, StateKey};
use touchline_protocol::stream::ChannelName;
use touchline_registry::OwnerId;
use touchline_store::ExpiredMessage;
use touchline_store::ledger::{DeadLetter, LedgerError};

use super::event_metrics::EventMetrics;

/// Messages that may wait for the thread.
const MESSAGES_MAX: usize = 262_144;
/// Bytes of messages that may wait for the thread.
const MESSAGES_SIZE_MAX: usize = 64 * 1_024 * 1_024;

/// What has happened to a client.
#[derive(Debug)]
pub(crate) struct ClientIncident {
    pub(crate) client: OwnerId,
    /// Empty = anonymous.
    pub(crate) user: Box<str>,
    pub(crate) change: ClientChange,
}

/// A change of a client.
#[derive(Debug)]
pub(crate) enum ClientChange {
    /// It has connected.
    Connected(Box<ConnectedFacts>),
    /// Its connection has ended.
    Disconnected(Box<DisconnectedFacts>),
    /// It has subscribed. `number`: of the subscription, among those of the client.
    Subscribed { channel: ChannelName, number: u32 },
    /// Its subscription has ended. `code`: None = its connection has.
    Unsubscribed { channel: ChannelName, number: u32, code: Option<u32>, duration_ms: u64 },
}

/// What is told of a new connection.
#[derive(Debug)]
pub(crate) struct ConnectedFacts {
    /// The life of its node in which it is told.
    pub(crate) life: u32,
    /// It was told before: another node has told it as gone since.
    pub(crate) is_again: bool,
    pub(crate) transport: &'static str,
    pub(crate) encoding: &'static str,
    pub(crate) name: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) meta: Option<Bytes>,
    pub(crate) labels: Option<Bytes>,
}

/// What is told of a connection that has ended.
#[derive(Debug)]
pub(crate) struct DisconnectedFacts {
    /// The life of its node in which it is told.
    pub(crate) life: u32,
    pub(crate) transport: &'static str,
    pub(crate) code: u16,
    pub(crate) reason: Box<str>,
    pub(crate) cause: &'static str,
    pub(crate) duration_ms: u64,
}

/// A message to the thread that tells what happens.
#[derive(Debug)]
pub(crate) enum EventMessage {
    /// Something has happened to a client; when, Unix milliseconds.
    Client(u64, ClientIncident),
    /// Whether a channel has subscribers, or a user has connections, on a shard.
    Held { key: StateKey, shard: ShardId, is_held: bool },
    /// What has happened to a name or a group; when, Unix milliseconds.
    Entry(u64, Box<EntryIncident>),
    /// A client whose node is gone; when that was noticed, Unix milliseconds.
    LostClient(u64, LostClient),
    /// Messages that nobody has acknowledged in time; when they were deleted, Unix milliseconds.
    Expired(u64, Vec<ExpiredMessage>),
    /// A message of the same thread of another node.
    Scope(Bytes),
    /// This node takes part in the cluster from now on, in the sight of these nodes.
    Joined(Vec<Arc<str>>),
    /// Another node is dead.
    Gone(Arc<str>),
    /// An operator wants an endpoint to be sent events again that has refused all.
    Resume(Box<str>),
    /// A request about dead letters. It is dropped where none are kept.
    Dead(DeadRequest),
    /// The node stops.
    Stop,
}

/// A request about dead letters, and who waits for the answer.
#[derive(Debug)]
pub(crate) enum DeadRequest {
    /// Those of an endpoint (`None` = of all) behind a number, at most so many.
    List { endpoint: Option<String>, behind: u64, limit: u32, reply: DeadReply<Vec<DeadLetter>> },
    /// These are sent again; the answer is how many there were.
    Retry { ids: Vec<u64>, reply: DeadReply<u64> },
    /// These are deleted; the answer is how many there were.
    Drop { ids: Vec<u64>, reply: DeadReply<u64> },
}

/// Who waits for an answer about dead letters.
pub(crate) type DeadReply<T> = oneshot::Sender<Result<T, LedgerError>>;

impl EventMessage {
    /// Bytes that it makes the node hold.
    fn size(&self) -> usize {
        let texts = match self {
            EventMessage::Client(_, incident) => incident.user.len() + incident.change.size(),
            EventMessage::Held { key, .. } => key.name().len(),
            EventMessage::Resume(name) => name.len(),
            EventMessage::Entry(_, incident) => {
                let of_winner = incident.winner.as_ref().map_or(0, |winner| winner.key().len() + winner.meta().len());
                size_of::<EntryIncident>() + incident.entry.key().len() + incident.entry.meta().len() + of_winner
            }
            EventMessage::LostClient(_, lost) => lost.user.len(),
            EventMessage::Expired(_, messages) => {
                let of_one =
                    |message: &ExpiredMessage| size_of::<ExpiredMessage>() + message.scope.len() + message.name.len();
                messages.iter().map(of_one).sum()
            }
            EventMessage::Scope(message) => message.len(),
            EventMessage::Joined(nodes) => nodes.iter().map(|node| node.len()).sum(),
            EventMessage::Gone(_) | EventMessage::Dead(_) | EventMessage::Stop => 0,
        };
        size_of::<EventMessage>() + texts
    }

    /// When it was seen, Unix milliseconds; None = it does not say.
    fn seen_ms(&self) -> Option<u64> {
        match self {
            EventMessage::Client(at_ms, _)
            | EventMessage::Entry(at_ms, _)
            | EventMessage::Expired(at_ms, _)
            | EventMessage::LostClient(at_ms, _) => Some(*at_ms),
            _ => None,
        }
    }
}

impl ClientChange {
    /// What it tells.
    pub(crate) fn kind(&self) -> EventKind {
        match self {
            ClientChange::Connected(_) => EventKind::Connected,
            ClientChange::Disconnected(_) => EventKind::Disconnected,
            ClientChange::Subscribed { .. } => EventKind::Subscribed,
            ClientChange::Unsubscribed { .. } => EventKind::Unsubscribed,
        }
    }

    /// Whether it was told before, in an earlier life of the node.
    pub(crate) fn is_again(&self) -> bool {
        matches!(self, ClientChange::Connected(facts) if facts.is_again)
    }

    fn size(&self) -> usize {
        match self {
            ClientChange::Connected(facts) => {
                let json = facts.meta.iter().chain(&facts.labels).map(Bytes::len).sum::<usize>();
                size_of::<ConnectedFacts>() + facts.name.len() + facts.version.len() + json
            }
            ClientChange::Disconnected(facts) => size_of::<DisconnectedFacts>() + facts.reason.len(),
            ClientChange::Subscribed { channel, .. } | ClientChange::Unsubscribed { channel, .. } => channel.len(),
        }
    }
}

/// What some endpoint asks for.
#[derive(Debug, Default, Clone)]
pub(crate) struct EventWants {
    /// The kinds that threads have to be able to tell, because somebody may be told of them.
    pub(crate) kinds: EventKinds,
    /// Those of them that somebody is told of at the start.
    pub(crate) told: EventKinds,
    /// Namespaces of channels; None = all.
    pub(crate) namespaces: Option<Vec<Box<str>>>,
}

impl EventWants {
    /// These and others. What was asked for once is noted until the node stops: what is not noted for a while cannot be
    /// told later.
    pub(crate) fn with(&self, others: &EventWants) -> EventWants {
        let is_first = self.kinds == EventKinds::default();
        EventWants {
            kinds: self.kinds.union(others.kinds),
            told: self.told.union(others.told),
            namespaces: match (&self.namespaces, &others.namespaces) {
                (_, namespaces) if is_first => namespaces.clone(),
                (before, now) if before == now => now.clone(),
                _ => None,
            },
        }
    }

    /// Whether some endpoint is told of channels of this namespace.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.iter().any(|name| **name == *namespace))
    }
}

/// The mailbox of the thread that tells what happens.
pub(crate) struct EventMailbox {
    sender: UnboundedSender<EventMessage>,
    /// The kinds that somebody is told of now, as bits: other nodes and reloads may add some.
    told: AtomicU16,
    pub(crate) metrics: Arc<EventMetrics>,
    room: Arc<MailboxRoom>,
}

/// What waits in the mailbox, and what had no room there.
#[derive(Debug)]
struct MailboxRoom {
    messages: AtomicUsize,
    size: AtomicUsize,
    lost: AtomicU64,
    /// When the first of these was seen, Unix milliseconds; `u64::MAX` = it is not known.
    lost_since_ms: AtomicU64,
}

/// The end of the mailbox that the thread has.
pub(crate) struct EventReceiver {
    messages: UnboundedReceiver<EventMessage>,
    room: Arc<MailboxRoom>,
}

impl EventMailbox {
    /// A mailbox, and its receiving end.
    pub(crate) fn new(wants: &EventWants, metrics: Arc<EventMetrics>) -> (Self, EventReceiver) {
        let (sender, messages) = unbounded_channel();
        let room = Arc::new(MailboxRoom {
            messages: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            lost_since_ms: AtomicU64::new(u64::MAX),
        });
        let told = AtomicU16::new(wants.told.bits());
        (EventMailbox { sender, told, metrics, room: Arc::clone(&room) }, EventReceiver { messages, room })
    }

    /// Somebody is told of these kinds, too, from now on.
    pub(crate) fn widen(&self, kinds: EventKinds) {
        self.told.fetch_or(kinds.bits(), Relaxed);
    }

    /// Whether some endpoint is told of this.
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        EventKinds::from_bits(self.told.load(Relaxed)).has(kind)
    }

    /// Sends what has happened; if too much waits it is lost, and counted. Returns whether there was room.
    pub(crate) fn tell(&self, message: EventMessage) -> bool {
        let sent = self.try_send(message);
        if let Err(message) = &sent {
            self.lose(message);
        }
        sent.is_ok()
    }

    /// Counts a message as lost.
    pub(crate) fn lose(&self, message: &EventMessage) {
        // The time first: who sees the count sees it too.
        self.room.lost_since_ms.fetch_min(message.seen_ms().unwrap_or(u64::MAX), SeqCst);
        self.room.lost.fetch_add(1, SeqCst);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Too much waits: the message comes back.
    pub(crate) fn try_send(&self, message: EventMessage) -> Result<(), EventMessage> {
        let size = message.size();
        if self.room.messages.load(Relaxed) >= MESSAGES_MAX || self.room.size.load(Relaxed) >= MESSAGES_SIZE_MAX {
            return Err(message);
        }
        self.send(message, size);
        Ok(())
    }

    /// Sends a message that an operator or the end of the node causes: there is always room for it.
    pub(crate) fn command(&self, message: EventMessage) {
        let size = message.size();
        self.send(message, size);
    }

    fn send(&self, message: EventMessage, size: usize) {
        self.room.messages.fetch_add(1, Relaxed);
        self.room.size.fetch_add(size, Relaxed);
        // If the thread has ended, so has the node.
        let _ = self.sender.send(message);
    }
}

impl EventReceiver {
    /// The next message; None = the node is gone.
    pub(crate) async fn next(&mut self) -> Option<EventMessage> {
        let message = self.messages.recv().await;
        self.count(message)
    }

    /// A message that has come already; None = none has.
    pub(crate) fn try_next(&mut self) -> Option<EventMessage> {
        let message = self.messages.try_recv().ok();
        self.count(message)
    }

    fn count(&self, message: Option<EventMessage>) -> Option<EventMessage> {
        let message = message?;
        self.room.messages.fetch_sub(1, Relaxed);
        self.room.size.fetch_sub(message.size(), Relaxed);
        Some(message)
    }

    /// Messages that had no room since the last call; None = all had. `checked_ms`: when that call was, Unix
    /// milliseconds.
    pub(crate) fn take_lost(&self, checked_ms: u64) -> Option<EventLoss> {
        if self.room.lost.load(Relaxed) == 0 {
            return None;
        }
        let events = self.room.lost.swap(0, SeqCst);
        // One that is lost between these two lines is counted by the next call, which was not before this one.
        let since_ms = self.room.lost_since_ms.swap(u64::MAX, SeqCst).min(checked_ms);
        Some(EventLoss { events, since_ms })
    }
}
