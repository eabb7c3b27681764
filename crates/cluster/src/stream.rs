//! The stream of one namespace: how it is created, described and changed.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Republish, StorageType};
use touchline_protocol::stream::{IDEMPOTENCY_KEY_TTL_MS, RunId};

use crate::errors::StreamError;
use crate::incarnation::StreamIncarnation;
use crate::marks::Marks;
use crate::nats::{JetStream, NatsStream, StreamInfo};
use crate::settings::{JoinOptions, Storage, StreamSettings};
use crate::subject::Subjects;
use crate::time::{new_id, now, sleep, timeout};

/// How long an idempotency key is remembered.
const DUPLICATES: Duration = Duration::from_millis(IDEMPOTENCY_KEY_TTL_MS);
/// The format of streams that this version creates, and the highest that it uses.
const FORMAT: u32 = 1;
/// How long a stream with replicas may end before what this node knows. A new leader answers before it has applied all
/// acknowledged publications. An old leader that was cut off answers until it hears of the new one.
const LEADER_SETTLES: Duration = Duration::from_secs(3);
/// How long a look-up of a stream waits for the answer.
const FIND_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The interval between two looks at such a stream.
const LEADER_RECHECK: Duration = Duration::from_millis(200);
/// What a stream says about itself in its description and its subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamDescription {
    /// The life of the stream. The epoch is a token of its subjects.
    pub(crate) life: StreamIncarnation,
    /// The smallest number of publications that a channel was ever allowed to hold. A channel with fewer has never lost
    /// any to newer ones.
    pub(crate) size_min: usize,
}

impl StreamDescription {
    fn new(size: usize) -> Self {
        StreamDescription { life: StreamIncarnation { epoch: new_id(), run: RunId::default() }, size_min: size }
    }

    /// The text of the stream's description.
    fn text(&self) -> String {
        let run = if self.life.run.0 > 0 { format!(" run={:010x}", self.life.run.0) } else { String::new() };
        format!("touchline format={FORMAT} size_min={}{run}", self.size_min)
    }

    /// Parses the description.
    ///
    /// # Errors
    /// Fails if another program, or a later version of this one, created the stream.
    fn read(epoch: Option<u64>, description: &str) -> Result<Self, &'static str> {
        const FOREIGN: &str = "another program created it: rename or delete the stream, or set another cluster.name";
        let mut words = description.split(' ');
        let (Some("touchline"), Some(format)) = (words.next(), words.next()) else { return Err(FOREIGN) };
        match format.strip_prefix("format=").and_then(|number| number.parse::<u32>().ok()) {
            Some(format) if format > FORMAT => {
                return Err("a later version of this program created it: run that version");
            }
            Some(_) => {}
            None => return Err(FOREIGN),
        }
        // Unknown words are from later versions, and may be ignored.
        let size_min = words.clone().find_map(|word| word.strip_prefix("size_min=")?.parse().ok());
        let run = words.find_map(|word| u64::from_str_radix(word.strip_prefix("run=")?, 16).ok()).unwrap_or_default();
        match (epoch, size_min) {
            (Some(epoch), Some(size_min)) => {
                Ok(StreamDescription { life: StreamIncarnation { epoch, run: RunId(run) }, size_min })
            }
            _ => Err(FOREIGN),
        }
    }
}

/// The observed state of a stream at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The first sequence that the stream still has. For an empty stream, the first sequence that it will have.
    pub(crate) first: u64,
    /// As in [`StreamDescription::life`].
    pub(crate) life: StreamIncarnation,
    /// As in [`StreamDescription::size_min`].
    pub(crate) size_min: usize,
    /// True if the stream's size is limited: when it is full, the oldest publications of all channels are removed.
    pub(crate) is_bounded: bool,
}

impl Snapshot {
    /// Creates a snapshot from the information that NATS gives.
    pub(crate) fn of(subjects: &Subjects, namespace: &str, info: &StreamInfo) -> Option<Self> {
        let epoch = subjects.epoch_of(namespace, &info.config.subjects);
        let known = StreamDescription::read(epoch, info.config.description.as_deref().unwrap_or_default()).ok()?;
        let is_bounded = info.config.max_bytes > 0 || info.config.max_messages > 0;
        Some(Snapshot { first: info.first, life: known.life, size_min: known.size_min, is_bounded })
    }
}

/// Opens a namespace's stream, and creates it if necessary. The first time, a stream that differs from the
/// configuration is changed.
///
/// # Errors
/// The reason that NATS gave, or why the stream cannot be used.
pub(crate) async fn open(
    jet_stream: &JetStream,
    settings: &JoinOptions,
    subjects: &Subjects,
    of_namespace: &StreamSettings,
    is_first: bool,
) -> Result<(NatsStream, StreamDescription), StreamError> {
    let name = subjects.stream(&of_namespace.namespace);
    let mut stream = match find(jet_stream, &name).await {
        Err(StreamError::Gone { .. }) => {
            let made = config(settings, subjects, of_namespace, &StreamDescription::new(held(of_namespace)));
            let refused = |source| StreamError::Create { stream: name.clone(), source };
            jet_stream.create(made).await.map_err(refused)?;
            // If another node created the stream first, its epoch is valid.
            find(jet_stream, &name).await?
        }
        found => found?,
    };
    let known = &stream.info.config;
    let epoch = subjects.epoch_of(&of_namespace.namespace, &known.subjects);
    let described = StreamDescription::read(epoch, known.description.as_deref().unwrap_or_default());
    let mut described = described.map_err(|reason| StreamError::Foreign { stream: name.clone(), reason })?;
    if is_first {
        described.size_min = described.size_min.min(held(of_namespace));
        let mut wanted = config(settings, subjects, of_namespace, &described);
        // NATS cannot change the storage.
        wanted.storage = known.storage;
        if differs(known, &wanted) {
            let (before, after) = (known.max_messages_per_subject, wanted.max_messages_per_subject);
            if (0..before).contains(&after) {
                tracing::warn!(stream = %name, before, after, "a smaller history_size shortens it for all nodes");
            }
            tracing::info!(stream = %name, "the stream is changed to the configured settings");
            let refused = |source| StreamError::Update { stream: name.clone(), source };
            jet_stream.update(&wanted).await.map_err(refused)?;
            stream = find(jet_stream, &name).await?;
        }
    }
    Ok((stream, described))
}

/// Whether a stream that was just opened lacks what this node knew of it before. A stream with replicas that ends too
/// early gets the time [`LEADER_SETTLES`].
///
/// # Errors
/// The reason that NATS gave.
pub(crate) async fn was_set_back(
    jet_stream: &JetStream,
    (stream, known): &(NatsStream, StreamDescription),
    marks: &Marks,
) -> Result<bool, StreamError> {
    if marks.has_left(known.life) {
        return Ok(true);
    }
    let Some(mark) = marks.of(known.life) else { return Ok(false) };
    let Config { name, num_replicas, .. } = &stream.info.config;
    let mut last = stream.info.last;
    let settled = now() + LEADER_SETTLES;
    while mark.is_lost_at(last) {
        if *num_replicas <= 1 || now() >= settled {
            return Ok(true);
        }
        sleep(LEADER_RECHECK).await;
        last = find(jet_stream, name).await?.info.last;
    }
    match stream.at(mark.sequence()).await {
        Ok(found) => Ok(mark.is_replaced(found.as_ref().map(|found| &found.payload[..]))),
        Err(source) => Err(StreamError::Verify { stream: name.clone(), source }),
    }
}

/// Begins a new run of a stream, unless its life differs from the known one.
///
/// # Errors
/// The reason that NATS gave.
pub(crate) async fn begin_run(
    jet_stream: &JetStream,
    subjects: &Subjects,
    namespace: &str,
    (known_stream, known): &(NatsStream, StreamDescription),
) -> Result<(), StreamError> {
    let name = &known_stream.info.config.name;
    let mut config = find(jet_stream, name).await?.info.config;
    let epoch = subjects.epoch_of(namespace, &config.subjects);
    let described = StreamDescription::read(epoch, config.description.as_deref().unwrap_or_default());
    let mut described = described.map_err(|reason| StreamError::Foreign { stream: name.clone(), reason })?;
    if described.life != known.life {
        return Ok(());
    }
    described.life.run = RunId(new_id().max(1));
    config.description = Some(described.text());
    let refused = |source| StreamError::Update { stream: name.clone(), source };
    jet_stream.update(&config).await.map_err(refused)?;
    tracing::warn!(
        stream = %name,
        "the stream was set back to an earlier state: clients that saw lost publications start again"
    );
    Ok(())
}

/// The number of publications that the stream holds for a channel: one more than its history. The additional one is the
/// position of a client that has missed as many publications as the history has.
fn held(of_namespace: &StreamSettings) -> usize {
    of_namespace.size.saturating_add(1)
}

/// Looks a stream up.
///
/// # Errors
/// [`StreamError::Gone`] if it does not exist, or the reason that NATS gave.
async fn find(jet_stream: &JetStream, name: &str) -> Result<NatsStream, StreamError> {
    let missed = |source| StreamError::Open { stream: name.to_owned(), source };
    // A stream without a leader does not answer: an early second request is answered as soon as there is one.
    let found = timeout(FIND_TIMEOUT, jet_stream.find(name)).await;
    found
        .map_err(|_| StreamError::NoLeader { stream: name.to_owned() })?
        .map_err(missed)?
        .ok_or_else(|| StreamError::Gone { stream: name.to_owned() })
}

/// Whether a stream must be changed. Only settings of this program count. An unnecessary change is not harmless,
/// because NATS then rewrites its state of the stream.
fn differs(known: &Config, wanted: &Config) -> bool {
    let of = |config: &Config| {
        let republish =
            config.republish.as_ref().map(|republish| (republish.source.clone(), republish.destination.clone()));
        (
            (config.subjects.clone(), config.description.clone(), republish, config.allow_direct),
            (config.max_messages_per_subject, config.max_age, config.max_bytes, config.duplicate_window),
            (config.num_replicas, config.discard == DiscardPolicy::Old),
        )
    };
    of(known) != of(wanted)
}

fn config(
    settings: &JoinOptions,
    subjects: &Subjects,
    of_namespace: &StreamSettings,
    described: &StreamDescription,
) -> Config {
    Config {
        name: subjects.stream(&of_namespace.namespace),
        description: Some(described.text()),
        subjects: vec![subjects.stored(&of_namespace.namespace, described.life.epoch, ">")],
        max_messages_per_subject: i64::try_from(held(of_namespace)).unwrap_or(i64::MAX),
        max_age: of_namespace.ttl,
        max_bytes: match settings.cluster.stream_max_bytes {
            0 => -1,
            bytes => i64::try_from(bytes).unwrap_or(i64::MAX),
        },
        discard: DiscardPolicy::Old,
        storage: match settings.storage() {
            Storage::File => StorageType::File,
            Storage::Memory => StorageType::Memory,
        },
        num_replicas: settings.cluster.stream_replicas.max(1),
        duplicate_window: DUPLICATES.min(of_namespace.ttl),
        allow_direct: true,
        republish: Some(Republish {
            source: subjects.stored(&of_namespace.namespace, described.life.epoch, ">"),
            destination: subjects.republished(described.life.epoch),
            headers_only: false,
        }),
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stream_says_of_itself_is_read_again() {
        // The text that version 0.1 writes. Later versions must be able to read it unchanged.
        let read = |text| StreamDescription::read(Some(7), text);
        let of_run = |run| StreamDescription { life: StreamIncarnation { epoch: 7, run: RunId(run) }, size_min: 60 };
        assert_eq!(read("touchline format=1 size_min=60"), Ok(of_run(0)));
        assert_eq!(of_run(0).text(), "touchline format=1 size_min=60");
        assert_eq!(read("touchline format=1 new=x size_min=60 more"), Ok(of_run(0)), "what is new is passed over");
        assert_eq!(read("touchline format=1 size_min=60 run=000000002a"), Ok(of_run(42)));
        assert_eq!(of_run(42).text(), "touchline format=1 size_min=60 run=000000002a");
        assert!(read("touchline format=2 size_min=60").is_err_and(|reason| reason.contains("later version")));
        for foreign in ["", "orders of the shop", "touchline", "touchline format=1", "touchline size_min=60"] {
            assert!(read(foreign).is_err(), "{foreign}");
        }
        assert!(
            StreamDescription::read(None, "touchline format=1 size_min=60").is_err(),
            "its subjects are of something else"
        );
    }
}
