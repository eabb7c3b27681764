//! Commands that come from tables and streams instead of requests. One thread reads all of them, and the shards carry
//! them out as operations of the server API.
//!
//! `command` reads the command of an entry, and `entry_key` makes its key. `wave` and `execution` decide the order, and
//! `retried` when a failed entry is retried. `exact` turns a row into a durable publication exactly once. `repetition`
//! decides which messages are not carried out again. `outbox` and `stream` report on the two kinds of sources.

mod backoff;
mod command;
mod entry_key;
mod exact;
mod execution;
mod outbox;
mod outcome;
mod repetition;
mod retried;
mod stream;
mod told;
mod wave;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use touchline_cluster::consumer::{StreamConsumer, StreamConsumerOptions};
use touchline_config::{ConsumerType, JetStreamSettings, NamedConsumer, OutboxSettings, Settings, TableName};
use touchline_store::outbox::{OutboxOptions, OutboxReader};

use self::outbox::OutboxConsumer;
use self::stream::StreamCommands;
use self::told::Told;
use crate::api::is_ready;
use crate::node::Node;
use crate::outbound::tls_config;
use crate::start_error::StartError;
use crate::tls::read_pem;

/// The time between two checks whether the thread has ended.
const END_INTERVAL: Duration = Duration::from_millis(5);
/// The time between two checks whether the node is ready to carry out commands.
const READY_INTERVAL: Duration = Duration::from_millis(50);

/// A consumer that is about to begin.
pub(crate) enum PreparedConsumer {
    /// A consumer of a table, with the number of its partitions.
    Outbox(Box<OutboxReader>, usize),
    /// A consumer of a stream.
    Stream(Box<StreamConsumer>, Box<JetStreamSettings>),
}

impl PreparedConsumer {
    /// Connects once. Returns the kind of the source and the outcome.
    pub(crate) async fn try_connection(&self) -> (&'static str, Result<String, String>) {
        match self {
            PreparedConsumer::Outbox(reader, _) => {
                let tried = reader.try_connection().await;
                ("PostgreSQL", tried.map(|()| "the table can be read".to_owned()).map_err(|error| error.to_string()))
            }
            PreparedConsumer::Stream(stream, _) => ("NATS", stream.try_connection().await),
        }
    }
}

/// Checks the consumers that are on, in the order of the settings. It connects to nothing.
///
/// # Errors
/// When an address, a certificate or credentials cannot be used.
pub(crate) fn prepare(settings: &Settings) -> Result<Vec<PreparedConsumer>, StartError> {
    let running = settings.consumers.iter().filter(|consumer| consumer.options.enabled);
    running.map(prepare_one).collect()
}

fn prepare_one(consumer: &NamedConsumer) -> Result<PreparedConsumer, StartError> {
    let name = &consumer.name;
    let wrong = |reason: String| StartError::Consumer { name: name.clone(), reason };
    match consumer.options.source {
        ConsumerType::Postgresql => {
            let settings = &consumer.options.sources.postgresql;
            let outbox =
                OutboxReader::new(outbox_options(name, settings)?).map_err(|error| wrong(error.to_string()))?;
            Ok(PreparedConsumer::Outbox(Box::new(outbox), settings.num_partitions))
        }
        ConsumerType::NatsJetStream => {
            let settings = &consumer.options.sources.nats_jetstream;
            let stream = StreamConsumer::new(stream_options(name, settings)?);
            let stream = stream.map_err(|error| wrong(format!("nats_jetstream.{error}")))?;
            Ok(PreparedConsumer::Stream(Box::new(stream), Box::new(settings.clone())))
        }
        ConsumerType::Missing => Err(wrong("type: missing".to_owned())),
    }
}

fn outbox_options(name: &str, settings: &OutboxSettings) -> Result<OutboxOptions, StartError> {
    let wrong = |key: &str, reason: String| StartError::Consumer {
        name: name.to_owned(),
        reason: format!("postgresql.{key}: {reason}"),
    };
    let table = |key, text: &str| text.parse::<TableName>().map_err(|error| wrong(key, error.to_string()));
    let of = table("outbox_table_name", &settings.outbox_table_name)?;
    let dead_table = match settings.dead_table_name.as_str() {
        "" => of.with_suffix("_dead").map_err(|error| wrong("dead_table_name", error.to_string()))?,
        text => table("dead_table_name", text)?,
    };
    let tls = &settings.tls;
    let tls = tls.enabled.then(|| tls_config(&format!("consumers[{name}].postgresql.tls"), tls)).transpose()?;
    Ok(OutboxOptions {
        name: name.to_owned(),
        dsn: settings.dsn.clone(),
        notification_dsn: settings.partition_notification_dsn.clone(),
        tls: tls.map(|tls| (tls, settings.tls.server_name.clone())),
        table: of,
        dead_table,
        partitions: settings.num_partitions as u32,
        select_limit: settings.partition_select_limit as u32,
        poll_interval: settings.partition_poll_interval,
        notification_channel: settings.partition_notification_channel.clone(),
        tries_lock: settings.use_try_lock,
    })
}

fn stream_options(name: &str, settings: &JetStreamSettings) -> Result<StreamConsumerOptions, StartError> {
    let section = format!("consumers[{name}].nats_jetstream");
    let tls = &settings.tls;
    Ok(StreamConsumerOptions {
        name: name.to_owned(),
        url: settings.url.clone(),
        credentials: read_pem(&format!("{section}.credentials_file"), &settings.credentials_file)?,
        user: (settings.username.clone(), settings.password.clone()),
        token: settings.token.clone(),
        tls: tls.enabled.then(|| tls_config(&format!("{section}.tls"), tls)).transpose()?,
        stream: settings.stream_name.clone(),
        durable: settings.durable_consumer_name.clone(),
        subjects: settings.subjects.clone(),
        delivers_all: settings.deliver_policy == "all",
        max_ack_pending: settings.max_ack_pending,
        is_existing: settings.use_existing_consumer,
    })
}

/// The running thread of the consumers.
pub(crate) struct RunningConsumers {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningConsumers {
    /// Starts the thread; None = no consumer is configured. The consumers begin when the node is ready.
    ///
    /// # Errors
    /// When the system cannot start the thread.
    pub(crate) fn start(node: &Arc<Node>, consumers: Vec<PreparedConsumer>) -> Result<Option<Self>, StartError> {
        if consumers.is_empty() {
            return Ok(None);
        }
        let of_system = |source| StartError::System { what: "a thread", source };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(of_system)?;
        let (stop, stopped) = watch::channel(false);
        let node = Arc::clone(node);
        let work = move || {
            runtime.block_on(run(node, consumers, stopped));
            // The shutdown does not wait for name lookups of the system.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("consumers".into()).spawn(work).map_err(of_system)?;
        Ok(Some(RunningConsumers { stop, thread: Some(thread) }))
    }

    /// Stops the consumers after the commands under way, and ends the thread. After `longest` the thread is left to end
    /// on its own. Commands that are under way then are not committed, and another node carries them out again.
    pub(crate) fn stop(&mut self, longest: Duration) {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return };
        // real time: the limit of a stop.
        let until = Instant::now() + longest;
        // real time: the limit of a stop.
        while !thread.is_finished() && Instant::now() < until {
            // real time: as above.
            std::thread::sleep(END_INTERVAL);
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

async fn run(node: Arc<Node>, consumers: Vec<PreparedConsumer>, mut stop: watch::Receiver<bool>) {
    while !is_ready(&node) {
        tokio::select! {
            () = node.clock.time().sleep(READY_INTERVAL) => {}
            _ = stop.wait_for(|is_over| *is_over) => return,
        }
    }
    let mut tasks = JoinSet::new();
    let generation = node.newest.get();
    for (consumer, metrics) in consumers.into_iter().zip(&generation.consumers) {
        let (told, node, stop) = (Told::new(Arc::clone(metrics)), Arc::clone(&node), stop.clone());
        let task = match consumer {
            PreparedConsumer::Outbox(outbox, partitions) => {
                tokio::spawn(outbox.run(Arc::new(OutboxConsumer::new(node, told, partitions)), stop))
            }
            PreparedConsumer::Stream(stream, settings) => {
                tokio::spawn(stream.run(Arc::new(StreamCommands::new(node, told, *settings)), stop))
            }
        };
        let metrics = Arc::clone(metrics);
        tasks.spawn(async move {
            if task.await.is_err() {
                metrics.fail(None, "a defect of this program has ended it");
                tracing::error!(consumer = metrics.name(), "a defect of this program has ended a consumer");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}
