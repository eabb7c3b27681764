//! Channels with history: one JetStream stream for each namespace, which republishes what it has stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Config, DirectGetErrorKind, DiscardPolicy, Info, LastRawMessageErrorKind, Republish, StorageType, Stream,
};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;

use crate::loader::Load;
use crate::settings::{Settings, Storage, StreamSettings};
use crate::subject::Subjects;
use crate::{History, Stored};

/// How long an idempotency key holds.
const DUPLICATES: Duration = Duration::from_secs(300);
/// How long a publisher waits for JetStream.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long a read is asked again, and how often: what was on its way when a link broke is lost, and nobody says so.
const READ_TIMEOUT: Duration = Duration::from_millis(1_500);
const READ_TRIES: usize = 3;

/// How often, and after which pause, a replica is asked again that lags behind the leader.
const LAG_RETRIES: u32 = 40;
const LAG_PAUSE: Duration = Duration::from_millis(50);

/// What was read of a channel.
#[derive(Debug)]
pub(crate) struct Kept {
    publications: Vec<Stored>,
    /// The channel's last sequence; 0 = nothing is kept.
    pub(crate) last: u64,
}

/// What is seen of a stream.
pub(crate) struct Seen {
    /// Its last sequence.
    pub(crate) last: u64,
    /// The NATS server that leads it, if there are several.
    pub(crate) leader: Option<String>,
}

/// What a look at a stream comes to.
pub(crate) enum Look {
    /// It is there.
    Seen(Seen),
    /// It is gone, or another has its name.
    Gone,
    /// Nobody can say now.
    Unknown,
}

/// The streams of a cluster.
#[derive(Clone)]
pub(crate) struct Streams {
    context: Context,
    subjects: Subjects,
    settings: Arc<Settings>,
    open: Arc<HashMap<String, (Stream, u64)>>,
}

impl Streams {
    /// Makes the streams that are missing, and the first time adapts those that are there.
    ///
    /// # Errors
    /// NATS's reason, as text.
    pub(crate) async fn open(
        client: async_nats::Client,
        settings: Arc<Settings>,
        subjects: Subjects,
        is_first: bool,
    ) -> Result<Self, String> {
        let mut context = jetstream::new(client);
        context.set_timeout(STORE_TIMEOUT);
        let mut open = HashMap::new();
        for of_namespace in &settings.streams {
            let config = config(&settings, &subjects, of_namespace);
            let name = config.name.clone();
            let known = if is_first { None } else { context.get_stream(&name).await.ok() };
            let stream = match known {
                Some(stream) => stream,
                None => {
                    context.create_or_update_stream(config).await.map_err(|error| error.to_string())?;
                    context.get_stream(&name).await.map_err(|error| error.to_string())?
                }
            };
            let epoch = epoch_of(stream.cached_info());
            open.insert(of_namespace.namespace.clone(), (stream, epoch));
        }
        Ok(Streams { context, subjects, settings, open: Arc::new(open) })
    }

    /// Namespaces with history.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.open.keys().map(String::as_str)
    }

    /// Looks at a namespace's stream.
    pub(crate) async fn look(&self, namespace: &str) -> Look {
        let Some((stream, epoch)) = self.open.get(namespace) else { return Look::Unknown };
        let now = answered(|| self.context.get_stream(&stream.cached_info().config.name)).await;
        match now.as_ref().map(|now| now.as_ref().map(Stream::cached_info)) {
            Some(Ok(info)) if epoch_of(info) == *epoch => {
                let leader = info.cluster.as_ref().and_then(|cluster| cluster.leader.clone());
                Look::Seen(Seen { last: info.state.last_sequence, leader })
            }
            Some(Ok(_)) => Look::Gone,
            Some(Err(error)) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => Look::Gone,
                _ => Look::Unknown,
            },
            None => Look::Unknown,
        }
    }

    /// Stores a publication; the answer is its sequence and epoch, if JetStream has it.
    pub(crate) async fn store(&self, channel: &str, namespace: &str, payload: Bytes, id: &str) -> Option<(u64, u64)> {
        let subject = self.subjects.stored(namespace, channel);
        let mut headers = HeaderMap::new();
        if !id.is_empty() {
            // One key means another publication in another channel.
            headers.insert("Nats-Msg-Id", format!("{}/{id}", crate::subject::token(channel)).as_str());
        }
        let acknowledged = self.context.publish_with_headers(subject, headers, payload).await.ok()?.await.ok()?;
        let (_, epoch) = self.open.get(namespace)?;
        Some((acknowledged.sequence, *epoch))
    }

    /// Whether the other's streams are the same, each in the same life.
    pub(crate) fn are(&self, other: &Streams) -> bool {
        self.open.len() == other.open.len()
            && self.open.iter().all(|(namespace, (_, epoch))| other.open.get(namespace).is_some_and(|(_, theirs)| theirs == epoch))
    }

    /// Reads what is kept of a channel behind an offset, by direct gets; `None` = it can't be had now.
    pub(crate) async fn read(&self, Load { channel, namespace, behind, .. }: &Load) -> Option<Kept> {
        let (stream, _) = self.open.get(&**namespace)?;
        let subject = self.subjects.stored(namespace, channel);
        let last = last_sequence(stream, &subject).await?;
        let mut publications: Vec<Stored> = Vec::new();
        let mut next = behind.saturating_add(1);
        let mut patience = LAG_RETRIES;
        while next <= last {
            match answered(|| stream.direct_get_next_for_subject(&subject, Some(next))).await? {
                Ok(message) => {
                    next = message.sequence + 1;
                    publications.push(Stored { offset: message.sequence, payload: message.payload });
                }
                Err(error) if error.kind() == DirectGetErrorKind::NotFound && patience > 0 => {
                    patience -= 1;
                    tokio::time::sleep(LAG_PAUSE).await;
                }
                Err(_) => return None,
            }
        }
        Some(Kept { publications, last })
    }

    /// The first sequence that a namespace's stream still has, and behind an empty one the first that it will have.
    pub(crate) async fn first_sequence(&self, namespace: &str) -> Option<u64> {
        let (stream, _) = self.open.get(namespace)?;
        Some(answered(|| stream.get_info()).await?.ok()?.state.first_sequence)
    }

    /// What a channel's publications behind an offset are worth, by the first sequence that the stream had after they were read.
    pub(crate) fn history(&self, namespace: &str, behind: u64, kept: Kept, first_sequence: u64) -> Option<History> {
        let (_, epoch) = self.open.get(namespace)?;
        let size = self.settings.streams.iter().find(|of| of.namespace == namespace)?.size;
        let Kept { publications, last } = kept;
        let dropped = first_sequence.saturating_sub(1);
        let top = publications.last().map_or(last.max(behind).max(dropped), |latest| latest.offset);
        // Where the channel has room left, nothing was pushed out; then only age can have taken something, and age takes in order.
        let has_room = publications.len() < size;
        let floor = match publications.first() {
            Some(first) if !has_room => first.offset,
            _ => dropped.min(top),
        };
        Some(History { epoch: *epoch, kept: publications, top, floor: floor.max(behind) })
    }

    /// Drops what is kept of a channel.
    pub(crate) async fn purge(&self, channel: &str, namespace: &str) -> bool {
        let Some((stream, _)) = self.open.get(namespace) else { return false };
        stream.purge().filter(self.subjects.stored(namespace, channel)).await.is_ok()
    }
}

/// One life of a stream.
fn epoch_of(info: &Info) -> u64 {
    info.created.unix_timestamp_nanos() as u64
}

/// Asks until there is an answer of whatever kind; `None` = there is none.
async fn answered<A: Future>(ask: impl Fn() -> A) -> Option<A::Output> {
    for _ in 0..READ_TRIES {
        if let Ok(answer) = tokio::time::timeout(READ_TIMEOUT, ask()).await {
            return Some(answer);
        }
    }
    None
}

/// The last sequence of a subject; 0 = none. Gets are answered by any replica, this by the leader: it shows who lags behind.
async fn last_sequence(stream: &Stream, subject: &str) -> Option<u64> {
    match answered(|| stream.get_last_raw_message_by_subject(subject)).await? {
        Ok(message) => Some(message.sequence),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Some(0),
        Err(_) => None,
    }
}

/// What an acknowledgement is worth depends on how NATS is set up; most of that can't be asked for, so it is said.
pub(crate) fn warn_of_losses(settings: &Settings) {
    if settings.streams.is_empty() {
        return;
    }
    if settings.storage == Storage::Memory {
        tracing::warn!("cluster.stream_storage is memory: history is lost when the NATS servers stop");
    } else if settings.replicas < 3 {
        tracing::warn!(
            "cluster.stream_replicas is below 3: history can't be reached while its NATS server is away, and what was acknowledged last is \
             lost with the power unless that server runs with sync_interval: always"
        );
    }
}

fn config(settings: &Settings, subjects: &Subjects, of_namespace: &StreamSettings) -> Config {
    Config {
        name: subjects.stream(&of_namespace.namespace),
        subjects: vec![subjects.stored(&of_namespace.namespace, ">")],
        max_messages_per_subject: i64::try_from(of_namespace.size).unwrap_or(i64::MAX),
        max_age: of_namespace.ttl,
        max_bytes: match settings.stream_max_bytes {
            0 => -1,
            bytes => i64::try_from(bytes).unwrap_or(i64::MAX),
        },
        discard: DiscardPolicy::Old,
        storage: match settings.storage {
            Storage::File => StorageType::File,
            Storage::Memory => StorageType::Memory,
        },
        num_replicas: settings.replicas.max(1),
        duplicate_window: DUPLICATES.min(of_namespace.ttl),
        allow_direct: true,
        republish: Some(Republish {
            source: subjects.stored(&of_namespace.namespace, ">"),
            destination: subjects.republished(),
            headers_only: false,
        }),
        ..Config::default()
    }
}
