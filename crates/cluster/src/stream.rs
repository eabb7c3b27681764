//! The stream of one namespace: how it is made, what it says of itself, and when it is changed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, Republish, StorageType, Stream};
use async_nats::jetstream::{Context, ErrorCode};

use crate::settings::{Settings, Storage, StreamSettings};
use crate::subject::Subjects;

/// How long an idempotency key holds.
const DUPLICATES: Duration = Duration::from_secs(300);
/// The format of streams that this version makes, and the highest that it uses.
const FORMAT: u32 = 1;
/// Bits of an epoch: so many are shown, as eight letters.
const EPOCH_BITS: u32 = 40;

/// One life of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    /// Its epoch, 40 bits: made with the stream, and never changed.
    pub(crate) epoch: u64,
    /// The least number of publications that a channel was ever allowed to hold: with fewer, nothing was pushed out by others.
    pub(crate) size_min: usize,
}

impl Life {
    fn new(size: usize) -> Self {
        Life { epoch: RandomState::new().hash_one(0) >> (u64::BITS - EPOCH_BITS), size_min: size }
    }

    /// What the stream says of itself.
    fn description(&self) -> String {
        format!("touchline format={FORMAT} size_min={}", self.size_min)
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
            Some(format) if format > FORMAT => return Err("a later version of this program has made it: run that version"),
            Some(_) => {}
            None => return Err(FOREIGN),
        }
        // Words that are not known here are of later versions, and may be passed over.
        let size_min = words.find_map(|word| word.strip_prefix("size_min=")?.parse().ok());
        match (epoch, size_min) {
            (Some(epoch), Some(size_min)) => Ok(Life { epoch, size_min }),
            _ => Err(FOREIGN),
        }
    }
}

/// What is seen of a stream at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The first sequence that it still has, and of an empty one the first that it will have.
    pub(crate) first: u64,
    /// As of [`Life::epoch`].
    pub(crate) epoch: u64,
    /// As of [`Life::size_min`].
    pub(crate) size_min: usize,
}

impl Seen {
    /// Out of what NATS says of it.
    pub(crate) fn of(subjects: &Subjects, namespace: &str, info: &Info) -> Option<Self> {
        let epoch = subjects.epoch_of(namespace, &info.config.subjects);
        let life = Life::read(epoch, info.config.description.as_deref().unwrap_or_default()).ok()?;
        Some(Seen { first: info.state.first_sequence, epoch: life.epoch, size_min: life.size_min })
    }
}

/// Opens a namespace's stream, made if need be; the first time one that differs from what is configured is changed.
///
/// # Errors
/// NATS's reason, as text, or why the stream can't be used.
pub(crate) async fn open(
    context: &Context,
    settings: &Settings,
    subjects: &Subjects,
    of_namespace: &StreamSettings,
    is_first: bool,
) -> Result<(Stream, Life), String> {
    let name = subjects.stream(&of_namespace.namespace);
    let found = match context.get_stream(&name).await {
        Err(error) if is_missing(&error.kind()) => {
            let made = config(settings, subjects, of_namespace, &Life::new(of_namespace.size));
            match context.create_stream(made).await {
                // Another node was first: its epoch holds.
                Err(error) if !matches!(error.kind(), CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST) =>
                {
                    return Err(error.to_string());
                }
                _ => context.get_stream(&name).await,
            }
        }
        found => found,
    };
    let mut stream = found.map_err(|error| error.to_string())?;
    let known = &stream.cached_info().config;
    let epoch = subjects.epoch_of(&of_namespace.namespace, &known.subjects);
    let life = Life::read(epoch, known.description.as_deref().unwrap_or_default());
    let mut life = life.map_err(|reason| format!("the stream {name} can't be used: {reason}"))?;
    if is_first {
        life.size_min = life.size_min.min(of_namespace.size);
        let mut wanted = config(settings, subjects, of_namespace, &life);
        // NATS can't change it.
        wanted.storage = known.storage;
        if differs(known, &wanted) {
            tracing::info!(stream = %name, "the stream is changed to what is configured");
            context.update_stream(&wanted).await.map_err(|error| error.to_string())?;
            stream = context.get_stream(&name).await.map_err(|error| error.to_string())?;
        }
    }
    Ok((stream, life))
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Whether a stream has to be changed: only what this program sets counts. A change without need is not harmless, since NATS then writes anew
/// what it knows of the stream.
fn differs(known: &Config, wanted: &Config) -> bool {
    let of = |config: &Config| {
        let republish = config.republish.as_ref().map(|republish| (republish.source.clone(), republish.destination.clone()));
        (
            (config.subjects.clone(), config.description.clone(), republish, config.allow_direct),
            (config.max_messages_per_subject, config.max_age, config.max_bytes, config.duplicate_window),
            (config.num_replicas, config.discard == DiscardPolicy::Old),
        )
    };
    of(known) != of(wanted)
}

fn config(settings: &Settings, subjects: &Subjects, of_namespace: &StreamSettings, life: &Life) -> Config {
    Config {
        name: subjects.stream(&of_namespace.namespace),
        description: Some(life.description()),
        subjects: vec![subjects.stored(&of_namespace.namespace, life.epoch, ">")],
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
            source: subjects.stored(&of_namespace.namespace, life.epoch, ">"),
            destination: subjects.republished(life.epoch),
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
        let read = |text| Life::read(Some(7), text);
        assert_eq!(read("touchline format=1 size_min=60"), Ok(Life { epoch: 7, size_min: 60 }));
        assert_eq!(Life { epoch: 7, size_min: 60 }.description(), "touchline format=1 size_min=60");
        assert_eq!(read("touchline format=1 new=x size_min=60 more"), Ok(Life { epoch: 7, size_min: 60 }), "what is new is passed over");
        assert!(read("touchline format=2 size_min=60").is_err_and(|reason| reason.contains("later version")));
        for foreign in ["", "orders of the shop", "touchline", "touchline format=1", "touchline size_min=60"] {
            assert!(read(foreign).is_err(), "{foreign}");
        }
        assert!(Life::read(None, "touchline format=1 size_min=60").is_err(), "its subjects are of something else");
    }
}
