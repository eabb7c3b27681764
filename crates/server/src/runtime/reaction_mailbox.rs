//! The mailbox of the thread that keeps the totals of reactions, and its metrics.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use touchline_engine::ShardId;
use touchline_engine::reactions::{CountedReactions, ReactionAdmission, ReactionFault, ReactionRefusal, ReactionState};
use touchline_protocol::stream::ChannelName;

use super::meters::{Counter, Gauge};

/// How many messages may wait for the thread.
const MESSAGES_MAX: usize = 4_096;

/// A message to the thread that keeps the totals of reactions.
#[derive(Debug)]
pub(crate) enum ReactionMessage {
    /// The reactions that a shard has counted.
    Counted(ShardId, Vec<CountedReactions>),
    /// A message from the same thread of another node.
    Scope(Bytes),
    /// This node takes part in the cluster from now on.
    Joined,
    /// Other nodes are in sight now. Requests that wait for a node that is gone stop waiting.
    PeersChanged,
    /// A request of the server API about a channel.
    Operate(ChannelName, ReactionOperation),
    /// The node stops.
    Stop,
}

/// What the server API asks about the reactions of a channel.
#[derive(Debug)]
pub(crate) enum ReactionOperation {
    /// Opens the reactions. The answer is when they were opened, in Unix milliseconds. It is sent when the nodes in
    /// sight know that the reactions are open.
    Open {
        options: Box<[Box<str>]>,
        /// How many reactions a second one connection may send.
        rate: u32,
        /// When the reactions close by themselves, in Unix milliseconds; 0 = never.
        closes_at_ms: u64,
        reply: ReactionReply<u64>,
    },
    /// Adds `n` reactions with an option.
    Add { option: Box<str>, n: u64, reply: ReactionReply<()> },
    /// Reads the state of the reactions.
    Get(ReactionReply<ReactionState>),
    /// Closes the reactions. The answer is sent when they have been published for the last time.
    Close(ReactionReply<ReactionState>),
}

impl ReactionOperation {
    /// Whether the answer waits for other nodes or the database.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(self, ReactionOperation::Open { .. } | ReactionOperation::Close(_))
    }

    /// Answers the operation with a fault.
    pub(crate) fn refuse(self, fault: ReactionFault) {
        // A request whose caller is gone needs no answer.
        match self {
            ReactionOperation::Open { reply, .. } => drop(reply.send(Err(fault))),
            ReactionOperation::Add { reply, .. } => drop(reply.send(Err(fault))),
            ReactionOperation::Get(reply) | ReactionOperation::Close(reply) => drop(reply.send(Err(fault))),
        }
    }
}

/// The sender for the answer of an operation.
pub(crate) type ReactionReply<T> = oneshot::Sender<Result<T, ReactionFault>>;

/// The metrics of reactions.
#[derive(Debug, Default)]
pub(crate) struct ReactionMetrics {
    pub(crate) accepted: Counter,
    /// Messages of clients that were refused, by reason.
    pub(crate) refused: [Counter; ReactionRefusal::ALL.len()],
    /// Reactions that shards had accepted and the thread did not count, because a later round had begun.
    pub(crate) late: Counter,
    /// The number of channels with totals.
    pub(crate) channels: Gauge,
    /// Messages of other nodes that were dropped because there was no room for their channels.
    pub(crate) dropped: Gauge,
    /// Writes to the primary database that failed; they are repeated.
    pub(crate) failed_writes: Counter,
}

/// The mailbox of the thread that keeps the totals of reactions.
pub(crate) struct ReactionMailbox {
    sender: Sender<ReactionMessage>,
    pub(crate) metrics: Arc<ReactionMetrics>,
    /// Whether shards may accept reactions in channels that the thread does not hold.
    pub(crate) admission: Arc<ReactionAdmission>,
}

impl ReactionMailbox {
    /// Makes a mailbox and its receiving end.
    pub(crate) fn new() -> (Self, Receiver<ReactionMessage>) {
        let (sender, messages) = channel(MESSAGES_MAX);
        (ReactionMailbox { sender, metrics: Arc::default(), admission: Arc::default() }, messages)
    }

    /// Sends a message, unless too much waits.
    ///
    /// # Errors
    /// If too much waits, the error contains the message. If the thread has ended, the node has ended too, and the
    /// message is dropped.
    pub(crate) fn try_send(&self, message: ReactionMessage) -> Result<(), ReactionMessage> {
        match self.sender.try_send(message) {
            Err(TrySendError::Full(message)) => Err(message),
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// Sends the last message. It waits until the thread has made room for it.
    pub(crate) fn stop(&self) {
        while self.try_send(ReactionMessage::Stop).is_err() {
            // real time: a pause between two tries.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The metrics of reactions, for a scrape.
#[derive(Debug)]
pub(crate) struct ReactionCollector(pub(crate) Arc<ReactionMetrics>);

impl Collector for ReactionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let metrics = &self.0;
        let counters = [
            ("reactions_accepted", "Reactions of clients that were counted", &metrics.accepted),
            ("reactions_late", "Reactions that were accepted when a later round had begun", &metrics.late),
            ("reaction_writes_failed", "Writes of totals to the primary database that failed", &metrics.failed_writes),
        ];
        for (name, help, counter) in counters {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(counter.get()).encode(family)?;
        }
        let help = "Refused messages with reactions";
        let mut family = encoder.encode_descriptor("reactions_refused", help, None, MetricType::Counter)?;
        for ((_, reason), counter) in ReactionRefusal::ALL.iter().zip(&metrics.refused) {
            ConstCounter::new(counter.get()).encode(family.encode_family(&[("reason", *reason)])?)?;
        }
        let help = "Reports of other nodes that were dropped because there was no room for their channels";
        let family = encoder.encode_descriptor("reaction_records_dropped", help, None, MetricType::Counter)?;
        ConstCounter::new(metrics.dropped.get()).encode(family)?;
        let help = "Channels with reactions that the node holds";
        let family = encoder.encode_descriptor("reaction_channels", help, None, MetricType::Gauge)?;
        ConstGauge::new(metrics.channels.get() as i64).encode(family)
    }
}
