//! The stream of one namespace: how it is made, what it says of itself, and when it is changed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RawMessageErrorKind, Republish, StorageType, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use tokio::time::{Instant, sleep};
use touchline_protocol::stream::{IDEMPOTENCY_KEY_TTL_MS, RunId};

use crate::errors::StreamError;
use crate::incarnation::StreamIncarnation;
use crate::marks::Marks;
use crate::settings::{JoinOptions, Storage, StreamSettings};
use crate::subject::Subjects;

/// How long an idempotency key holds.
const DUPLICATES: Duration = Duration::from_millis(IDEMPOTENCY_KEY_TTL_MS);
/// The format of streams that this version makes, and the highest that it uses.
const FORMAT: u32 = 1;
/// How long a stream with replicas may end before what this node knows: a new leader answers before it has taken in all
/// that was acknowledged, and an old one that was cut off until it hears of the new one.
const LEADER_SETTLES: Duration = Duration::from_secs(3);
/// Between two looks at such a stream.
const LEADER_RECHECK: Duration = Duration::from_millis(200);
/// Bits of an epoch: so many are shown, as eight letters.
const EPOCH_BITS: u32 = 40;

/// What a stream says of itself, in its description and its subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamDescription {
    /// Its life: the epoch is a token of its subjects.
    pub(crate) life: StreamIncarnation,
    /// The least number of publications that a channel was ever allowed to hold: with fewer, nothing was pushed out by
    /// others.
    pub(crate) size_min: usize,
}

/// 40 random bits.
fn new_id() -> u64 {
    RandomState::new().hash_one(0) >> (u64::BITS - EPOCH_BITS)
}

impl StreamDescription {
    fn new(size: usize) -> Self {
        StreamDescription { life: StreamIncarnation { epoch: new_id(), run: RunId::default() }, size_min: size }
    }

    /// As the stream says it.
    fn text(&self) -> String {
        let run = if self.life.run.0 > 0 { format!(" run={:010x}", self.life.run.0) } else { String::new() };
        format!("touchline format={FORMAT} size_min={}{run}", self.size_min)
    }

    /// Reads that.
    ///
    /// # Errors
    /// When another program has made the stream, or a later version of this one.
    fn read(epoch: Option<u64>, description: &str) -> Result<Self, &'static str> {
        const FOREIGN: &str = "this program has not made it: rename or delete the stream, or set another cluster.name";
        let mut words = description.split(' ');
        let (Some("touchline"), Some(format)) = (words.next(), words.next()) else { return Err(FOREIGN) };
        match format.strip_prefix("format=").and_then(|number| number.parse::<u32>().ok()) {
            Some(format) if format > FORMAT => {
                return Err("a later version of this program has made it: run that version");
            }
            Some(_) => {}
            None => return Err(FOREIGN),
        }
        // Words that are not known here are of later versions, and may be passed over.
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

/// What is seen of a stream at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The first sequence that it still has, and of an empty one the first that it will have.
    pub(crate) first: u64,
    /// As of [`StreamDescription::life`].
    pub(crate) life: StreamIncarnation,
    /// As of [`StreamDescription::size_min`].
    pub(crate) size_min: usize,
    /// Its size is bounded: the oldest publications of all channels go where it is full.
    pub(crate) is_bounded: bool,
}

impl Snapshot {
    /// Out of what NATS says of it.
    pub(crate) fn of(subjects: &Subjects, namespace: &str, info: &Info) -> Option<Self> {
        let epoch = subjects.epoch_of(namespace, &info.config.subjects);
        let known = StreamDescription::read(epoch, info.config.description.as_deref().unwrap_or_default()).ok()?;
        let is_bounded = info.config.max_bytes > 0 || info.config.max_messages > 0;
        Some(Snapshot { first: info.state.first_sequence, life: known.life, size_min: known.size_min, is_bounded })
    }
}

/// Opens a namespace's stream, made if need be; the first time one that differs from what is configured is changed.
///
/// # Errors
/// NATS's reason, or why the stream can't be used.
pub(crate) async fn open(
    context: &Context,
    settings: &JoinOptions,
    subjects: &Subjects,
    of_namespace: &StreamSettings,
    is_first: bool,
) -> Result<(Stream, StreamDescription), StreamError> {
    let name = subjects.stream(&of_namespace.namespace);
    let found = match context.get_stream(&name).await {
        Err(error) if is_missing(&error.kind()) => {
            let made = config(settings, subjects, of_namespace, &StreamDescription::new(held(of_namespace)));
            match context.create_stream(made).await {
                // Another node was first: its epoch holds.
                Err(source) if !is_taken(&source.kind()) => {
                    return Err(StreamError::Create { stream: name, source });
                }
                _ => context.get_stream(&name).await,
            }
        }
        found => found,
    };
    let mut stream = found.map_err(|source| StreamError::Open { stream: name.clone(), source })?;
    let known = &stream.cached_info().config;
    let epoch = subjects.epoch_of(&of_namespace.namespace, &known.subjects);
    let described = StreamDescription::read(epoch, known.description.as_deref().unwrap_or_default());
    let mut described = described.map_err(|reason| StreamError::Foreign { stream: name.clone(), reason })?;
    if is_first {
        described.size_min = described.size_min.min(held(of_namespace));
        let mut wanted = config(settings, subjects, of_namespace, &described);
        // NATS can't change it.
        wanted.storage = known.storage;
        if differs(known, &wanted) {
            tracing::info!(stream = %name, "the stream is changed to what is configured");
            let refused = |source| StreamError::Update { stream: name.clone(), source };
            context.update_stream(&wanted).await.map_err(refused)?;
            let missed = |source| StreamError::Open { stream: name.clone(), source };
            stream = context.get_stream(&name).await.map_err(missed)?;
        }
    }
    Ok((stream, described))
}

/// Whether a stream that was just opened lacks what this node knew of it before. A stream with replicas that ends too
/// early is given [`LEADER_SETTLES`].
///
/// # Errors
/// NATS's reason.
pub(crate) async fn was_set_back(
    context: &Context,
    (stream, known): &(Stream, StreamDescription),
    marks: &Marks,
) -> Result<bool, StreamError> {
    if marks.has_left(known.life) {
        return Ok(true);
    }
    let Some(mark) = marks.of(known.life) else { return Ok(false) };
    let Config { name, num_replicas, .. } = &stream.cached_info().config;
    let mut last = stream.cached_info().state.last_sequence;
    let settled = Instant::now() + LEADER_SETTLES;
    while mark.is_lost_at(last) {
        if *num_replicas <= 1 || Instant::now() >= settled {
            return Ok(true);
        }
        sleep(LEADER_RECHECK).await;
        let missed = |source| StreamError::Open { stream: name.clone(), source };
        last = context.get_stream(name).await.map_err(missed)?.cached_info().state.last_sequence;
    }
    match stream.get_raw_message(mark.sequence()).await {
        Ok(found) => Ok(mark.is_replaced(Some(&found.payload))),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(mark.is_replaced(None)),
        Err(source) => Err(StreamError::Verify { stream: stream.cached_info().config.name.clone(), source }),
    }
}

/// Begins a new run of a stream, unless it is in another life than the known one.
///
/// # Errors
/// NATS's reason.
pub(crate) async fn begin_run(
    context: &Context,
    subjects: &Subjects,
    namespace: &str,
    (known_stream, known): &(Stream, StreamDescription),
) -> Result<(), StreamError> {
    let name = &known_stream.cached_info().config.name;
    let missed = |source| StreamError::Open { stream: name.clone(), source };
    let stream = context.get_stream(name).await.map_err(missed)?;
    let mut config = stream.cached_info().config.clone();
    let epoch = subjects.epoch_of(namespace, &config.subjects);
    let described = StreamDescription::read(epoch, config.description.as_deref().unwrap_or_default());
    let mut described = described.map_err(|reason| StreamError::Foreign { stream: name.clone(), reason })?;
    if described.life != known.life {
        return Ok(());
    }
    described.life.run = RunId(new_id().max(1));
    config.description = Some(described.text());
    let refused = |source| StreamError::Update { stream: name.clone(), source };
    context.update_stream(&config).await.map_err(refused)?;
    tracing::warn!(
        stream = %name,
        "the stream was set back to an earlier state: clients that saw what is lost begin anew"
    );
    Ok(())
}

/// Publications that the stream holds of a channel: one more than its history has. The offset of that one is where a
/// client stands that has missed as many as the history has.
fn held(of_namespace: &StreamSettings) -> usize {
    of_namespace.size.saturating_add(1)
}

fn is_taken(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether a stream has to be changed: only what this program sets counts. A change without need is not harmless, since
/// NATS then writes anew what it knows of the stream.
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
        // As version 0.1 writes it. Later versions must read it as it stands here.
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
