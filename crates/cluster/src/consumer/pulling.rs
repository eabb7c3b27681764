//! Pulls messages: opens the consumer, and opens it again if it was deleted or its heartbeat was missed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::Stream as Messages;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::Stream;
use async_nats::{Client, ServerAddr};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, Interval};

use super::connecting;
use super::kept::KeptMessages;
use super::pull_failure::PullFailure;
use super::types::{HandledMessages, MessageHandler, StreamConsumerOptions, StreamReport};

/// How long a message may be in progress before JetStream delivers it again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// The interval of JetStream's heartbeats. Two missed heartbeats end a pull.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The number of messages that this node requests in advance.
const PULLED_MAX: usize = 100;
/// The size of the messages that this node requests in advance, bytes. A larger message would never arrive; NATS does
/// not allow messages above 64 MiB.
const PULLED_SIZE_MAX: usize = 65 * 1024 * 1024;
/// How many times JetStream receives a progress signal within the acknowledgement timeout.
const SIGNS_OF_PROGRESS: u32 = 3;
/// The time limit for giving messages back.
const GIVE_BACK_TIME_MAX: Duration = Duration::from_secs(1);
/// The interval between two counts of waiting messages.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Whether the stream or the consumer no longer exists.
fn is_gone(kind: ConsumerInfoErrorKind) -> bool {
    matches!(kind, ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound)
}

/// Reads one stream.
pub(super) struct Puller {
    pub(super) options: StreamConsumerOptions,
    pub(super) servers: Vec<ServerAddr>,
    pub(super) handler: Arc<dyn MessageHandler>,
}

impl Puller {
    /// Serves until `stop` becomes true.
    pub(super) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut failures = 0;
        while !*stop.borrow() {
            let began = Instant::now();
            match self.pull(&mut stop).await {
                Ok(()) => return,
                Err(PullFailure(cause)) => self.handler.report(StreamReport::Failing(cause)),
            }
            failures = if began.elapsed() > COUNT_INTERVAL { 1 } else { failures + 1 };
            tokio::select! {
                () = tokio::time::sleep(self.handler.delay(failures)) => {}
                _ = stop.wait_for(|is_over| *is_over) => return,
            }
        }
    }

    /// Connects and pulls until that fails. `Ok` = `stop` has become true.
    async fn pull(&self, stop: &mut watch::Receiver<bool>) -> Result<(), PullFailure> {
        let opened = tokio::select! {
            opened = self.open() => opened?,
            _ = stop.wait_for(|is_over| *is_over) => return Ok(()),
        };
        let (client, stream, consumer, mut messages) = opened;
        self.handler.report(StreamReport::Working);
        let ack_wait = Some(consumer.cached_info().config.ack_wait).filter(|wait| !wait.is_zero());
        let mut progress = tokio::time::interval(ack_wait.unwrap_or(ACK_WAIT) / SIGNS_OF_PROGRESS);
        let mut kept = KeptMessages::default();
        // A panic while counting would only stop the counting.
        let counting = self.count(&stream, &consumer);
        tokio::pin!(counting);
        let ended = loop {
            tokio::select! {
                came = self.wait(&mut messages, &mut kept, &mut progress) => if let Err(failure) = came {
                    break Err(failure);
                },
                Err(failure) = &mut counting => break Err(failure),
                _ = stop.wait_for(|is_over| *is_over) => break Ok(()),
            }
            tokio::select! {
                carried_out = self.carry_out(&mut kept) => if let Err(failure) = carried_out {
                    break Err(failure);
                },
                Err(failure) = &mut counting => break Err(failure),
            }
        };
        // Messages pulled in advance are given back too. Otherwise they would be delivered after newer ones.
        while let Some(Some(Ok(message))) = messages.next().now_or_never() {
            kept.take(message);
        }
        kept.give_back().await;
        // If NATS does not accept them in this time, it delivers them again after a while.
        let _ = tokio::time::timeout(GIVE_BACK_TIME_MAX, client.flush()).await;
        ended
    }

    async fn open(&self) -> Result<(Client, Stream, PullConsumer, Messages), PullFailure> {
        let StreamConsumerOptions { stream: name, durable, .. } = &self.options;
        let options =
            connecting::options(&self.options, &self.servers).map_err(|error| PullFailure(error.to_string()))?;
        let client = options.connect(self.servers.clone()).await;
        let client = client.map_err(|error| PullFailure::of("connecting to NATS", error))?;
        let context = jetstream::new(client.clone());
        let stream = context.get_stream(name).await;
        let stream = stream.map_err(|error| PullFailure::of(&format!("opening the stream {name}"), error))?;
        let consumer: PullConsumer = if self.options.is_existing {
            let found = stream.get_consumer(durable).await;
            found.map_err(|error| {
                let text = format!("looking up the consumer {durable}, which must exist (use_existing_consumer)");
                PullFailure::of(&text, error)
            })?
        } else {
            let made = stream.create_consumer(self.config(&stream).await).await;
            made.map_err(|error| PullFailure::of(&format!("creating the consumer {durable}"), error))?
        };
        let most = PULLED_MAX.min(self.options.max_ack_pending);
        let messages = consumer
            .stream()
            .max_messages_per_batch(most)
            .max_bytes_per_batch(PULLED_SIZE_MAX)
            .heartbeat(HEARTBEAT)
            .messages()
            .await;
        let messages = messages.map_err(|error| PullFailure::of("pulling messages", error))?;
        Ok((client, stream, consumer, messages))
    }

    /// The configuration of the consumer. The start of a consumer cannot be changed, so an existing consumer keeps its
    /// start.
    async fn config(&self, stream: &Stream) -> pull::Config {
        let StreamConsumerOptions { durable, subjects, delivers_all, max_ack_pending, .. } = &self.options;
        let wanted = if *delivers_all { DeliverPolicy::All } else { DeliverPolicy::New };
        let known = stream.get_consumer::<pull::Config>(durable).await.ok();
        pull::Config {
            durable_name: Some(durable.clone()),
            description: Some("commands for Touchline".to_owned()),
            deliver_policy: known.map_or(wanted, |known| known.cached_info().config.deliver_policy),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_deliver: -1,
            filter_subject: if let [one] = subjects.as_slice() { one.clone() } else { String::new() },
            filter_subjects: if subjects.len() > 1 { subjects.clone() } else { Vec::new() },
            max_ack_pending: *max_ack_pending as i64,
            ..pull::Config::default()
        }
    }

    /// Waits until the handler must be called, and takes the messages that have arrived.
    async fn wait(
        &self,
        messages: &mut Messages,
        kept: &mut KeptMessages,
        progress: &mut Interval,
    ) -> Result<(), PullFailure> {
        let most = self.options.max_ack_pending;
        loop {
            tokio::select! {
                first = messages.next(), if kept.has_room(most) => {
                    let Some(first) = first else { return Err(PullFailure("JetStream has ended the pull".into())) };
                    kept.take(first.map_err(|error| PullFailure::of("pulling messages", error))?);
                    break;
                }
                () = kept.until_due() => break,
                _ = progress.tick() => kept.tell_progress().await?,
            }
        }
        while kept.has_room(most)
            && let Some(Some(Ok(next))) = messages.next().now_or_never()
        {
            kept.take(next);
        }
        Ok(())
    }

    /// Passes all kept messages to the handler, and acknowledges the finished ones.
    async fn carry_out(&self, kept: &mut KeptMessages) -> Result<(), PullFailure> {
        let HandledMessages { outcomes, pause } = self.handler.handle(kept.all()).await;
        kept.settle(outcomes, pause.unwrap_or(HEARTBEAT)).await
    }

    /// Counts the waiting messages periodically. It ends when the stream or the consumer is gone.
    async fn count(&self, stream: &Stream, consumer: &PullConsumer) -> Result<Infallible, PullFailure> {
        loop {
            let info = match consumer.get_info().await {
                Ok(info) => info,
                Err(error) if is_gone(error.kind()) => {
                    return Err(PullFailure::of("inspecting the consumer", error));
                }
                // Without an answer the pull ends by itself, because its heartbeat is missed.
                Err(_) => {
                    tokio::time::sleep(COUNT_INTERVAL).await;
                    continue;
                }
            };
            let waiting = info.num_pending + info.num_ack_pending as u64;
            let oldest =
                if waiting == 0 { Duration::ZERO } else { self.oldest(stream, info.ack_floor.stream_sequence).await };
            let floor = info.ack_floor.stream_sequence;
            let unsettled = info.num_ack_pending as u64;
            self.handler.report(StreamReport::Lag { waiting, oldest, floor, unsettled });
            tokio::time::sleep(COUNT_INTERVAL).await;
        }
    }

    /// How long the first message after a sequence number has waited. Zero = unknown.
    async fn oldest(&self, stream: &Stream, behind: u64) -> Duration {
        let everything = [">".to_owned()];
        let subjects = if self.options.subjects.is_empty() { &everything[..] } else { &self.options.subjects };
        let mut oldest = Duration::ZERO;
        for subject in subjects {
            let found =
                stream.raw_message_builder().sequence(behind + 1).next_by_subject(subject.as_str()).send().await;
            let Ok(found) = found else { continue };
            let stored_ns = u128::try_from(found.time.unix_timestamp_nanos()).unwrap_or_default();
            let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let waited = now_ns.saturating_sub(stored_ns) / 1_000_000;
            oldest = oldest.max(Duration::from_millis(waited as u64));
        }
        oldest
    }
}
