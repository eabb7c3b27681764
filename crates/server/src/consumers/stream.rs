//! Consumers of a stream in JetStream.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use touchline_cluster::consumer::{
    HandledMessages, MessageHandler, MessageOutcome, MessagesHandled, StreamMessage, StreamReport,
};
use touchline_config::JetStreamSettings;
use touchline_lock::Lock;

use super::command::AskedCommand;
use super::execution::carry_out;
use super::outcome::EntryOutcome;
use super::repetition::RepetitionMarks;
use super::retried::RetriedHeads;
use super::told::Told;
use super::{backoff, entry_key};
use crate::node::Node;

/// The largest payload of a message in bytes, which is that of a row.
const MESSAGE_SIZE_MAX: usize = 10 * 1024 * 1024;

/// How long messages may be without an outcome before the log reports it. JetStream has delivered them twice by then.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Carries out the messages of one consumer.
pub(super) struct StreamCommands {
    node: Arc<Node>,
    told: Told,
    settings: JetStreamSettings,
    /// What is known of its messages. Only the loop of the consumer uses it.
    state: Lock<MessagesState>,
}

/// What is known of the messages of a stream.
#[derive(Default)]
struct MessagesState {
    retried: RetriedHeads,
    marks: RepetitionMarks,
    standstill: Option<Standstill>,
}

/// Messages that were delivered and have no outcome.
#[derive(Debug, Clone, Copy)]
struct Standstill {
    /// The number up to which all messages are acknowledged.
    at: u64,
    since: Instant,
    is_told: bool,
}

/// What a command changes, and whether its repetition could undo later commands.
struct CommandChanges {
    changes: Vec<String>,
    undoes: bool,
}

impl CommandChanges {
    fn of(command: &AskedCommand) -> Option<CommandChanges> {
        match command {
            AskedCommand::Publish { call, .. } | AskedCommand::Other(call) => {
                Some(CommandChanges { changes: call.changes(), undoes: call.undoes() })
            }
            AskedCommand::Nothing(_) | AskedCommand::Unreadable(_) => None,
        }
    }
}

impl StreamCommands {
    pub(super) fn new(node: Arc<Node>, told: Told, settings: JetStreamSettings) -> Self {
        StreamCommands { node, told, settings, state: Lock::default() }
    }

    async fn carry_out(&self, messages: Vec<StreamMessage>) -> HandledMessages {
        let (mut entries, mut changes, mut resting) = (Vec::new(), Vec::new(), Vec::new());
        {
            let (state, now) = (self.state.lock(), self.node.clock.time().now());
            for message in &messages {
                let mut command = self.asked(message).traced_by(&message.headers);
                changes.push(CommandChanges::of(&command));
                resting.push(state.retried.rests(message.sequence, now));
                if message.deliveries > 1
                    && let AskedCommand::Other(call) = &command
                    && state.marks.undoes(call, place(message))
                {
                    let operation = call.operation();
                    command = AskedCommand::Nothing(format!(
                        "the {operation} was delivered again, but this node has carried out it or a later command"
                    ));
                }
                entries.push(command);
            }
        }
        let (name, longest) =
            (self.told.metrics.name(), self.node.generation().session.namespaces.settings().idempotency_key_max_length);
        let key_of = |index: usize| entry_key::of_message(name, &messages[index], longest);
        let outcomes = carry_out(&self.node, entries, |index| resting[index], &key_of, None).await;
        let (mut state, now) = (self.state.lock(), self.node.clock.time().now());
        let turn = messages.iter().map(|message| message.sequence).zip(&outcomes);
        state.retried.settle(turn, now, || fastrand::u64(..));
        self.told.retrying(None, state.retried.told());
        let told = messages.iter().zip(outcomes).zip(changes);
        let outcomes = told.map(|((message, outcome), changes)| {
            let is_done = outcome == EntryOutcome::Done;
            let told = self.tell(message, outcome);
            let Some(CommandChanges { changes, undoes }) = changes.filter(|_| is_done) else { return told };
            state.marks.note(changes, place(message));
            if undoes { MessageOutcome::DoneForCertain } else { told }
        });
        let outcomes = outcomes.collect();
        HandledMessages { outcomes, pause: state.retried.pause(now) }
    }

    /// Reports that messages are delivered and have no outcome. The NATS client library silently drops messages whose
    /// headers are malformed.
    fn tell_standstill(&self, floor: u64, unsettled: u64) {
        let mut state = self.state.lock();
        let stands = unsettled > 0 && state.retried.told().is_none();
        match state.standstill {
            Some(Standstill { at, since, is_told: false }) if stands && at == floor => {
                if self.node.clock.time().since(since) >= STANDSTILL {
                    state.standstill = Some(Standstill { at, since, is_told: true });
                    self.told.failing(
                        None,
                        &format!(
                            "messages after number {floor} are delivered repeatedly, and none has an outcome: another \
                             node retries them, or their headers cannot be read; look at the first one with `nats \
                             stream get`"
                        ),
                    );
                }
            }
            Some(Standstill { at, .. }) if stands && at == floor => {}
            before => {
                state.standstill =
                    stands.then(|| Standstill { at: floor, since: self.node.clock.time().now(), is_told: false });
                if before.is_some_and(|before| before.is_told) {
                    self.told.working(None);
                }
            }
        }
    }

    /// Reads the command of a message.
    fn asked(&self, message: &StreamMessage) -> AskedCommand {
        if message.payload.len() > MESSAGE_SIZE_MAX {
            return AskedCommand::Unreadable(format!("the message is larger than {MESSAGE_SIZE_MAX} bytes"));
        }
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
        match outcome {
            EntryOutcome::Done | EntryOutcome::Gone => self.told.processed(),
            EntryOutcome::PassedOver(why) => self.told.passed_over(message.sequence, &why),
            EntryOutcome::Failed(why) => self.told.failed(message.sequence, &why),
            EntryOutcome::Retry(_) => {
                self.told.retried();
                return MessageOutcome::Kept;
            }
            EntryOutcome::Waiting => return MessageOutcome::Kept,
        }
        MessageOutcome::Done
    }
}

/// Returns the place of a message in its stream.
fn place(message: &StreamMessage) -> (i128, u64) {
    (message.stored_ns, message.sequence)
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
            StreamReport::Failing(cause) => {
                self.told.failing(None, &cause);
                // Messages that were kept belong to JetStream again.
                self.state.lock().retried = RetriedHeads::default();
                self.told.retrying(None, None);
            }
            StreamReport::Working => self.told.working(None),
            StreamReport::Lag { waiting, oldest, floor, unsettled } => {
                self.told.metrics.waiting.store(waiting, Relaxed);
                self.told.metrics.oldest_ms.store(oldest.as_millis() as u64, Relaxed);
                self.state.lock().marks.forget(floor);
                self.tell_standstill(floor, unsettled);
            }
        }
    }
}
