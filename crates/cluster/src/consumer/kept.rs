//! Messages that were pulled and are not acknowledged yet, in the order of their sequence numbers.

use std::time::Duration;

use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use tokio::time::Instant;

use super::pull_failure::PullFailure;
use super::types::{MessageOutcome, StreamMessage};

/// If the kept payloads of one consumer exceed this size, it pulls no more, bytes. The last payload may exceed it.
const KEPT_SIZE_MAX: usize = 64 * 1024 * 1024;

/// The pulled messages that are not acknowledged yet.
#[derive(Default)]
pub(super) struct KeptMessages {
    /// The messages with their acknowledgers, ordered by sequence number.
    messages: Vec<(StreamMessage, Acker)>,
    /// When the messages are passed to the handler again even if no other message arrives.
    due: Option<Instant>,
}

impl KeptMessages {
    /// Whether another message may be pulled. `most` is the maximum number of kept messages.
    pub(super) fn has_room(&self, most: usize) -> bool {
        let size: usize = self.messages.iter().map(|(message, _)| message.payload.len()).sum();
        self.messages.len() < most && size < KEPT_SIZE_MAX
    }

    /// Adds a message. If it is here already, it was delivered again, and only its last delivery can be acknowledged.
    pub(super) fn take(&mut self, message: Message) {
        let Ok(info) = message.info() else { return };
        let (sequence, deliveries) = (info.stream_sequence, info.delivered.max(1) as u64);
        let stored_ns = info.published.unix_timestamp_nanos();
        let (message, acker) = message.split();
        let headers = message
            .headers
            .iter()
            .flat_map(async_nats::HeaderMap::iter)
            .filter_map(|(name, values)| Some((name.to_string(), values.first()?.as_str().to_owned())));
        let (headers, payload) = (headers.collect(), message.payload);
        let taken = (StreamMessage { sequence, stored_ns, deliveries, headers, payload }, acker);
        match self.messages.binary_search_by_key(&sequence, |(known, _)| known.sequence) {
            Ok(index) => self.messages[index] = taken,
            Err(index) => self.messages.insert(index, taken),
        }
    }

    /// Copies of all messages, for the handler.
    pub(super) fn all(&self) -> Vec<StreamMessage> {
        self.messages.iter().map(|(message, _)| message.clone()).collect()
    }

    /// Acknowledges the finished messages and keeps the rest. `outcomes` has one entry for each message of
    /// [`KeptMessages::all`]. `pause` is the time until the first kept message is due.
    ///
    /// # Errors
    /// The first acknowledgement that fails. Its message and all later ones are kept, so that they can be given back.
    pub(super) async fn settle(&mut self, outcomes: Vec<MessageOutcome>, pause: Duration) -> Result<(), PullFailure> {
        let count = self.messages.len();
        let mut failure = None;
        let mut kept = Vec::new();
        for (message, outcome) in std::mem::take(&mut self.messages).into_iter().zip(outcomes) {
            let acknowledged = match outcome {
                MessageOutcome::Kept => {
                    kept.push(message);
                    continue;
                }
                _ if failure.is_some() => {
                    kept.push(message);
                    continue;
                }
                MessageOutcome::Done => message.1.ack().await,
                MessageOutcome::DoneForCertain => message.1.double_ack().await,
            };
            if let Err(error) = acknowledged {
                failure = Some(PullFailure::of("acknowledging a message", error));
                kept.push(message);
            }
        }
        // Messages that waited for one that is finished now need not wait for the pause.
        let pause = if kept.len() < count { Duration::ZERO } else { pause };
        self.due = (!kept.is_empty()).then(|| Instant::now() + pause);
        self.messages = kept;
        failure.map_or(Ok(()), Err)
    }

    /// Waits until the messages are due. Waits forever if there are none.
    pub(super) async fn until_due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Reports to JetStream that these messages are in progress. Otherwise it would deliver them again.
    pub(super) async fn tell_progress(&self) -> Result<(), PullFailure> {
        for (_, acker) in &self.messages {
            let told = acker.ack_with(AckKind::Progress).await;
            told.map_err(|error| PullFailure::of("reporting that a message is in progress", error))?;
        }
        Ok(())
    }

    /// Gives the messages back as far as JetStream can be reached. It then delivers them again at once, otherwise after
    /// a while.
    pub(super) async fn give_back(self) {
        for (_, acker) in self.messages {
            let _ = acker.ack_with(AckKind::Nak(None)).await;
        }
    }
}
