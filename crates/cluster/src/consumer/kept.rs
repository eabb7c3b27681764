//! Messages that were pulled and are not acknowledged yet, in the order of their numbers.

use std::time::Duration;

use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use tokio::time::Instant;

use super::pull_failure::PullFailure;
use super::types::{MessageOutcome, StreamMessage};

/// Payloads that are held by one consumer beyond which it pulls no more, bytes; the last one may end beyond it.
const KEPT_SIZE_MAX: usize = 64 * 1024 * 1024;

/// Messages of a pull.
#[derive(Default)]
pub(super) struct KeptMessages {
    /// By their numbers.
    messages: Vec<(StreamMessage, Acker)>,
    /// When they are handed over again though no other message comes.
    due: Option<Instant>,
}

impl KeptMessages {
    /// Whether another message may be pulled. `most`: messages that may be held.
    pub(super) fn has_room(&self, most: usize) -> bool {
        let size: usize = self.messages.iter().map(|(message, _)| message.payload.len()).sum();
        self.messages.len() < most && size < KEPT_SIZE_MAX
    }

    /// Takes a message. One that is here already was delivered again: only its last delivery can be acknowledged.
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

    /// All of them, to be handed over.
    pub(super) fn all(&self) -> Vec<StreamMessage> {
        self.messages.iter().map(|(message, _)| message.clone()).collect()
    }

    /// Acknowledges what is done, and keeps the rest; `outcomes`: one for each of [`KeptMessages::all`]. `pause`: how
    /// long none of the rest is due.
    ///
    /// # Errors
    /// The first acknowledgement that fails. Its message and all behind it are kept, to be given back.
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
        // What has waited for one that is done now does not wait for its time.
        let pause = if kept.len() < count { Duration::ZERO } else { pause };
        self.due = (!kept.is_empty()).then(|| Instant::now() + pause);
        self.messages = kept;
        failure.map_or(Ok(()), Err)
    }

    /// Waits until one is due; without any for ever.
    pub(super) async fn until_due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Tells JetStream that these are under way, or it would deliver them again.
    pub(super) async fn tell_progress(&self) -> Result<(), PullFailure> {
        for (_, acker) in &self.messages {
            let told = acker.ack_with(AckKind::Progress).await;
            told.map_err(|error| PullFailure::of("telling that a message is under way", error))?;
        }
        Ok(())
    }

    /// Gives them back, as far as JetStream can be reached: it delivers them again at once, else after a while.
    pub(super) async fn give_back(self) {
        for (_, acker) in self.messages {
            let _ = acker.ack_with(AckKind::Nak(None)).await;
        }
    }
}
