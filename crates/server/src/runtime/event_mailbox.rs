//! The mailbox of the thread that sends events: what shards, the registry actor and the store have seen.
//!
//! No sender waits here. If too much waits, events of clients and names are lost and counted, and the thread sends a
//! `state.reset` event. Two kinds of message must not be lost, because nothing would correct them. One says that
//! somebody holds a channel or a user. The other is the end of a client that was reported as connected. A shard keeps
//! these until there is room.

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

/// How many messages may wait for the thread.
const MESSAGES_MAX: usize = 262_144;
/// How many bytes of messages may wait for the thread.
const MESSAGES_SIZE_MAX: usize = 64 * 1_024 * 1_024;

/// An event of a client, with its client id and user.
#[derive(Debug)]
pub(crate) struct ClientIncident {
    pub(crate) client: OwnerId,
    /// The user of the client; empty = anonymous.
    pub(crate) user: Box<str>,
    pub(crate) change: ClientChange,
}

/// What has changed for a client.
#[derive(Debug)]
pub(crate) enum ClientChange {
    /// The client has connected.
    Connected(Box<ConnectedFacts>),
    /// The connection of the client has ended.
    Disconnected(Box<DisconnectedFacts>),
    /// The client has subscribed to a channel. `number`: counts the subscriptions of the client.
    Subscribed { channel: ChannelName, number: u32 },
    /// A subscription of the client has ended. `code`: None = because its connection has ended.
    Unsubscribed { channel: ChannelName, number: u32, code: Option<u32>, duration_ms: u64 },
}

/// What an event reports about a new connection.
#[derive(Debug)]
pub(crate) struct ConnectedFacts {
    /// The life of its node in which it is reported.
    pub(crate) life: u32,
    /// Whether it was reported before, and another node has reported it as gone since.
    pub(crate) is_again: bool,
    pub(crate) transport: &'static str,
    pub(crate) encoding: &'static str,
    pub(crate) name: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) meta: Option<Bytes>,
    pub(crate) labels: Option<Bytes>,
}

/// What an event reports about a connection that has ended.
#[derive(Debug)]
pub(crate) struct DisconnectedFacts {
    /// The life of its node in which it is reported.
    pub(crate) life: u32,
    pub(crate) transport: &'static str,
    pub(crate) code: u16,
    pub(crate) reason: Box<str>,
    pub(crate) cause: &'static str,
    pub(crate) duration_ms: u64,
}

/// A message to the thread that sends events.
#[derive(Debug)]
pub(crate) enum EventMessage {
    /// An event of a client, with its time in Unix milliseconds.
    Client(u64, ClientIncident),
    /// Whether a shard has subscribers of a channel, or connections of a user.
    Held { key: StateKey, shard: ShardId, is_held: bool },
    /// An event of a name or a group, with its time in Unix milliseconds.
    Entry(u64, Box<EntryIncident>),
    /// A client whose node is gone, and when that was noticed, in Unix milliseconds.
    LostClient(u64, LostClient),
    /// Inbox messages that nobody has acknowledged in time, and when they were deleted, in Unix milliseconds.
    Expired(u64, Vec<ExpiredMessage>),
    /// A message from the same thread of another node.
    Scope(Bytes),
    /// This node takes part in the cluster from now on, and sees these other nodes.
    Joined(Vec<Arc<str>>),
    /// Another node is dead.
    Gone(Arc<str>),
    /// An operator wants events to be sent again to an endpoint that has refused all events.
    Resume(Box<str>),
    /// A request about dead letters. It is dropped if the node keeps none.
    Dead(DeadRequest),
    /// The node stops.
    Stop,
}

/// A request about dead letters, with the sender for its answer.
#[derive(Debug)]
pub(crate) enum DeadRequest {
    /// Lists at most `limit` dead letters of an endpoint (`None` = of all) whose numbers are greater than `behind`.
    List { endpoint: Option<String>, behind: u64, limit: u32, reply: DeadReply<Vec<DeadLetter>> },
    /// Sends these dead letters again. The answer is how many of them there were.
    Retry { ids: Vec<u64>, reply: DeadReply<u64> },
    /// Deletes these dead letters. The answer is how many of them there were.
    Drop { ids: Vec<u64>, reply: DeadReply<u64> },
}

/// The sender for an answer about dead letters.
pub(crate) type DeadReply<T> = oneshot::Sender<Result<T, LedgerError>>;

impl EventMessage {
    /// Bytes that the message makes the node hold.
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

    /// When it was seen, in Unix milliseconds; None = the message does not contain a time.
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
    /// The kind of event that reports this change.
    pub(crate) fn kind(&self) -> EventKind {
        match self {
            ClientChange::Connected(_) => EventKind::Connected,
            ClientChange::Disconnected(_) => EventKind::Disconnected,
            ClientChange::Subscribed { .. } => EventKind::Subscribed,
            ClientChange::Unsubscribed { .. } => EventKind::Unsubscribed,
        }
    }

    /// Whether it was reported before, in an earlier life of the node.
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

/// What at least one endpoint wants to receive.
#[derive(Debug, Default, Clone)]
pub(crate) struct EventWants {
    /// The kinds of events that threads must be able to report, because an endpoint may want them at some time.
    pub(crate) kinds: EventKinds,
    /// The kinds among them that an endpoint wants at the start.
    pub(crate) told: EventKinds,
    /// The namespaces of the channels; None = all.
    pub(crate) namespaces: Option<Vec<Box<str>>>,
}

impl EventWants {
    /// Combines these wants with others. What was wanted once is recorded until the node stops: an event needs the
    /// state from before it, which is missing if it was not recorded for a while.
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

    /// Whether at least one endpoint wants events of channels of this namespace.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.iter().any(|name| **name == *namespace))
    }
}

/// The mailbox of the thread that sends events.
pub(crate) struct EventMailbox {
    sender: UnboundedSender<EventMessage>,
    /// The kinds that at least one endpoint wants now, as bits. Other nodes and reloads may add kinds.
    told: AtomicU16,
    pub(crate) metrics: Arc<EventMetrics>,
    room: Arc<MailboxRoom>,
}

/// What waits in the mailbox, and what was lost for want of room.
#[derive(Debug)]
struct MailboxRoom {
    messages: AtomicUsize,
    size: AtomicUsize,
    lost: AtomicU64,
    /// When the first lost message was seen, in Unix milliseconds; `u64::MAX` = it is not known.
    lost_since_ms: AtomicU64,
}

/// The receiving end of the mailbox, which the thread has.
pub(crate) struct EventReceiver {
    messages: UnboundedReceiver<EventMessage>,
    room: Arc<MailboxRoom>,
}

impl EventMailbox {
    /// Makes a mailbox and its receiving end.
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

    /// Adds kinds that at least one endpoint wants from now on.
    pub(crate) fn widen(&self, kinds: EventKinds) {
        self.told.fetch_or(kinds.bits(), Relaxed);
    }

    /// Whether at least one endpoint wants events of this kind.
    pub(crate) fn wants(&self, kind: EventKind) -> bool {
        EventKinds::from_bits(self.told.load(Relaxed)).has(kind)
    }

    /// Sends an event to the thread. If too much waits, the event is lost and counted. Returns whether there was room.
    pub(crate) fn tell(&self, message: EventMessage) -> bool {
        let sent = self.try_send(message);
        if let Err(message) = &sent {
            self.lose(message);
        }
        sent.is_ok()
    }

    /// Counts a message as lost.
    pub(crate) fn lose(&self, message: &EventMessage) {
        // The time is set first, so that a reader that sees the count sees the time too.
        self.room.lost_since_ms.fetch_min(message.seen_ms().unwrap_or(u64::MAX), SeqCst);
        self.room.lost.fetch_add(1, SeqCst);
    }

    /// Sends a message, unless too much waits.
    ///
    /// # Errors
    /// If too much waits, the error contains the message.
    pub(crate) fn try_send(&self, message: EventMessage) -> Result<(), EventMessage> {
        let size = message.size();
        if self.room.messages.load(Relaxed) >= MESSAGES_MAX || self.room.size.load(Relaxed) >= MESSAGES_SIZE_MAX {
            return Err(message);
        }
        self.send(message, size);
        Ok(())
    }

    /// Sends a message that an operator or the end of the node causes. There is always room for it.
    pub(crate) fn command(&self, message: EventMessage) {
        let size = message.size();
        self.send(message, size);
    }

    fn send(&self, message: EventMessage, size: usize) {
        self.room.messages.fetch_add(1, Relaxed);
        self.room.size.fetch_add(size, Relaxed);
        // If the thread has ended, the node has ended too.
        let _ = self.sender.send(message);
    }
}

impl EventReceiver {
    /// Waits for the next message; None = the node is gone.
    pub(crate) async fn next(&mut self) -> Option<EventMessage> {
        let message = self.messages.recv().await;
        self.count(message)
    }

    /// Takes a message that is already in the mailbox; None = the mailbox is empty.
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

    /// How many messages were lost since the last call; None = none. `checked_ms`: when that call was, in Unix
    /// milliseconds.
    pub(crate) fn take_lost(&self, checked_ms: u64) -> Option<EventLoss> {
        if self.room.lost.load(Relaxed) == 0 {
            return None;
        }
        let events = self.room.lost.swap(0, SeqCst);
        // A message that is lost between these two lines is counted by the next call, which passes a later time.
        let since_ms = self.room.lost_since_ms.swap(u64::MAX, SeqCst).min(checked_ms);
        Some(EventLoss { events, since_ms })
    }
}
