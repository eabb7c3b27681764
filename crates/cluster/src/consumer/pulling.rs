//! Pulls messages: opens the consumer, and opens it again when it was deleted or its heartbeat is missed.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::ServerAddr;
use async_nats::jetstream::consumer::pull::Stream as Messages;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{self, AckKind, Message};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connecting;
use super::types::{MessageHandler, MessageOutcome, StreamConsumerOptions, StreamMessage, StreamReport};

/// How long a message may be under way before JetStream delivers it again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// JetStream says so often that it is there; two that are missed end a pull.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Messages that this node asks for in advance.
const PULLED_MAX: usize = 100;
/// Between two counts of what waits.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Whether the stream or the consumer is not there any more.
fn is_gone(kind: ConsumerInfoErrorKind) -> bool {
    matches!(kind, ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound)
}

/// What ended a pull; its text is a cause, and what to do.
struct PullFailure(String);

impl PullFailure {
    fn of(what: &str, cause: impl Display) -> Self {
        PullFailure(format!("{what}: {cause}"))
    }
}

/// Reads one stream.
pub(super) struct Puller {
    pub(super) options: StreamConsumerOptions,
    pub(super) servers: Vec<ServerAddr>,
    pub(super) handler: Arc<dyn MessageHandler>,
}

impl Puller {
    /// Serves until `stop` turns true.
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

    /// Connects and pulls until that fails; Ok = `stop` has turned true.
    async fn pull(&self, stop: &mut watch::Receiver<bool>) -> Result<(), PullFailure> {
        let opened = tokio::select! {
            opened = self.open() => opened?,
            _ = stop.wait_for(|is_over| *is_over) => return Ok(()),
        };
        let (stream, consumer, mut messages) = opened;
        self.handler.report(StreamReport::Working);
        // A panic of the counting would only stop the counting.
        let counting = self.count(&stream, &consumer);
        tokio::pin!(counting);
        loop {
            let first = tokio::select! {
                first = messages.next() => first,
                counted = &mut counting => match counted {
                    Err(failure) => return Err(failure),
                    Ok(never) => match never {},
                },
                _ = stop.wait_for(|is_over| *is_over) => return Ok(()),
            };
            let Some(first) = first else { return Err(PullFailure("JetStream has ended the pull".into())) };
            let first = first.map_err(|error| PullFailure::of("pulling messages", error))?;
            let mut batch = vec![first];
            // What has come already is handed over with it.
            while batch.len() < PULLED_MAX
                && let Some(Some(Ok(next))) = messages.next().now_or_never()
            {
                batch.push(next);
            }
            tokio::select! {
                carried_out = self.carry_out(batch) => carried_out?,
                counted = &mut counting => match counted {
                    Err(failure) => return Err(failure),
                    Ok(never) => match never {},
                },
            }
        }
    }

    async fn open(&self) -> Result<(Stream, PullConsumer, Messages), PullFailure> {
        let StreamConsumerOptions { stream: name, durable, .. } = &self.options;
        let options = connecting::options(&self.options).map_err(|error| PullFailure(error.to_string()))?;
        let client = options.connect(self.servers.clone()).await;
        let client = client.map_err(|error| PullFailure::of("connecting to NATS", error))?;
        let context = jetstream::new(client);
        let stream = context.get_stream(name).await;
        let stream = stream.map_err(|error| PullFailure::of(&format!("opening the stream {name}"), error))?;
        let consumer: PullConsumer = if self.options.is_existing {
            let found = stream.get_consumer(durable).await;
            found.map_err(|error| {
                let text = format!("looking for the consumer {durable}, which use_existing_consumer says is there");
                PullFailure::of(&text, error)
            })?
        } else {
            let made = stream.create_consumer(self.config(&stream).await).await;
            made.map_err(|error| PullFailure::of(&format!("making the consumer {durable}"), error))?
        };
        let most = PULLED_MAX.min(self.options.max_ack_pending);
        let messages = consumer.stream().max_messages_per_batch(most).heartbeat(HEARTBEAT).messages().await;
        let messages = messages.map_err(|error| PullFailure::of("pulling messages", error))?;
        Ok((stream, consumer, messages))
    }

    /// The configuration of the consumer. Where one begins can't be changed, so that of one that is there is kept.
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

    /// Hands messages over, and acknowledges them.
    async fn carry_out(&self, batch: Vec<Message>) -> Result<(), PullFailure> {
        let (mut given, mut ackers) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for message in batch {
            let Ok(info) = message.info() else { continue };
            let (sequence, deliveries) = (info.stream_sequence, info.delivered.max(1) as u64);
            let stored_ns = info.published.unix_timestamp_nanos();
            let (message, acker) = message.split();
            let headers = message
                .headers
                .iter()
                .flat_map(async_nats::HeaderMap::iter)
                .filter_map(|(name, values)| Some((name.to_string(), values.first()?.as_str().to_owned())));
            let (headers, payload) = (headers.collect(), message.payload);
            given.push(StreamMessage { sequence, stored_ns, deliveries, headers, payload });
            ackers.push(acker);
        }
        let outcomes = self.handler.handle(given).await;
        let is_all_done = outcomes.iter().all(|outcome| *outcome == MessageOutcome::Done);
        for (acker, outcome) in ackers.into_iter().zip(outcomes) {
            let kind = match outcome {
                MessageOutcome::Done => AckKind::Ack,
                MessageOutcome::Retry(delay) => AckKind::Nak(Some(delay)),
            };
            acker.ack_with(kind).await.map_err(|error| PullFailure::of("acknowledging a message", error))?;
        }
        if is_all_done {
            self.handler.report(StreamReport::Working);
        }
        Ok(())
    }

    /// Counts what waits, again and again. It ends when the stream or the consumer is gone.
    async fn count(&self, stream: &Stream, consumer: &PullConsumer) -> Result<Infallible, PullFailure> {
        loop {
            let info = match consumer.get_info().await {
                Ok(info) => info,
                Err(error) if is_gone(error.kind()) => {
                    return Err(PullFailure::of("looking at the consumer", error));
                }
                // Without an answer the pull ends by itself: its heartbeat is missed.
                Err(_) => {
                    tokio::time::sleep(COUNT_INTERVAL).await;
                    continue;
                }
            };
            let waiting = info.num_pending + info.num_ack_pending as u64;
            let oldest =
                if waiting == 0 { Duration::ZERO } else { self.oldest(stream, info.ack_floor.stream_sequence).await };
            self.handler.report(StreamReport::Lag(waiting, oldest));
            tokio::time::sleep(COUNT_INTERVAL).await;
        }
    }

    /// How long the first message behind a number has waited; zero = that can't be told.
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
