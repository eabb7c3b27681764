//! Messages of a stream in JetStream.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use touchline_cluster::consumer::{MessageHandler, MessageOutcome, MessagesHandled, StreamMessage, StreamReport};
use touchline_config::JetStreamSettings;

use super::command::AskedCommand;
use super::execution::carry_out;
use super::outcome::EntryOutcome;
use super::told::Told;
use super::{backoff, entry_key};
use crate::node::Node;

/// Carries out the messages of one consumer.
pub(super) struct StreamCommands {
    pub(super) node: Arc<Node>,
    pub(super) told: Told,
    pub(super) settings: JetStreamSettings,
}

impl StreamCommands {
    async fn carry_out(&self, messages: Vec<StreamMessage>) -> Vec<MessageOutcome> {
        let entries = messages.iter().map(|message| self.asked(message)).collect();
        let (name, longest) =
            (self.told.metrics.name(), self.node.session.namespaces.settings().idempotency_key_max_length);
        let key_of = |index: usize| entry_key::of_message(name, &messages[index], longest);
        let outcomes = carry_out(&self.node, entries, &key_of, None).await;
        messages.iter().zip(outcomes).map(|(message, outcome)| self.tell(message, outcome)).collect()
    }

    /// What a message asks for.
    fn asked(&self, message: &StreamMessage) -> AskedCommand {
        let (mode, method_header) = (&self.settings.publication_data_mode, &self.settings.method_header);
        if mode.enabled {
            return AskedCommand::of_data(mode, &message.headers, &message.payload);
        }
        let Ok(text) = std::str::from_utf8(&message.payload) else {
            return AskedCommand::Unreadable("the payload is not UTF-8".to_owned());
        };
        let is_method = |name: &str| !method_header.is_empty() && name.eq_ignore_ascii_case(method_header);
        match message.headers.iter().find(|(name, value)| is_method(name) && !value.is_empty()) {
            Some((_, method)) => AskedCommand::read(method, text),
            None => AskedCommand::read_envelope(text),
        }
    }

    fn tell(&self, message: &StreamMessage, outcome: EntryOutcome) -> MessageOutcome {
        let again = || {
            let deliveries = u32::try_from(message.deliveries).unwrap_or(u32::MAX);
            MessageOutcome::Retry(self.delay(deliveries))
        };
        match outcome {
            EntryOutcome::Done | EntryOutcome::Gone => self.told.processed(),
            EntryOutcome::PassedOver(why) => self.told.passed_over(message.sequence, &why),
            EntryOutcome::Failed(why) => self.told.failed(message.sequence, &why),
            EntryOutcome::Retry(why) => {
                self.told.retried();
                self.told.failing(None, &why);
                return again();
            }
            EntryOutcome::Waiting => return again(),
        }
        MessageOutcome::Done
    }
}

impl MessageHandler for StreamCommands {
    fn handle(&self, messages: Vec<StreamMessage>) -> MessagesHandled<'_> {
        Box::pin(self.carry_out(messages))
    }

    fn delay(&self, failures: u32) -> Duration {
        backoff::delay(failures, fastrand::u64(..))
    }

    fn report(&self, report: StreamReport) {
        match report {
            StreamReport::Failing(cause) => self.told.failing(None, &cause),
            StreamReport::Working => self.told.working(None),
            StreamReport::Lag(messages, oldest) => {
                self.told.metrics.waiting.store(messages, Relaxed);
                self.told.metrics.oldest_ms.store(oldest.as_millis() as u64, Relaxed);
            }
        }
    }
}
