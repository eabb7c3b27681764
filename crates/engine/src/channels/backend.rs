//! What a channel's home and its log backend say to each other: commands of the home, and what becomes of requests.

use std::collections::VecDeque;

use bytes::Bytes;
use touchline_protocol::encode;
use touchline_protocol::publication::Exclusion;
use touchline_protocol::stored::{self, Unreadable};
use touchline_protocol::stream::{ChannelName, LoadId, NamespaceName, Offset, Retention, RunId};

use super::remembered_refusals::RefusedSubscribes;
use crate::namespace::{ChannelOptions, WATCH_CHANNEL_PREFIX};
use crate::request::{Publish, Response, WaitingRequest};

/// What gives a channel its order, and keeps its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogBackend {
    /// The channel's home: the log is in memory.
    Memory,
    /// The stream of its namespace in the cluster.
    Cluster,
    /// The primary database.
    Store,
}

/// What a channel's home wants done by a log backend, the cluster or the store.
#[derive(Debug)]
pub enum BackendCommand {
    /// Subscribe the node to a channel in the cluster, or end that. The answer is
    /// [`crate::request::BackendEvent::Subscribed`].
    SetInterest {
        /// The channel.
        channel: ChannelName,
        /// Whether the home wants the channel's publications.
        is_wanted: bool,
    },
    /// Read the log of a channel in the cluster. [`crate::request::BackendEvent::Loaded`] answers.
    Load {
        /// The channel.
        channel: ChannelName,
        /// Its namespace.
        namespace: NamespaceName,
        /// What to read.
        load: LoadId,
    },
    /// Read what the log of a channel in the cluster has behind an offset, if it has anything. An answer may stay away.
    Check {
        /// The channel.
        channel: ChannelName,
        /// Its namespace.
        namespace: NamespaceName,
        /// What to read.
        load: LoadId,
    },
    /// Read the log of a channel in the store. [`crate::request::BackendEvent::Loaded`] answers.
    LoadStored {
        /// The channel.
        channel: ChannelName,
        /// What to read.
        load: LoadId,
    },
    /// Send a payload that no log keeps to all nodes that have subscribed to the channel.
    Broadcast {
        /// The channel.
        channel: ChannelName,
        /// The payload.
        payload: Vec<u8>,
    },
    /// The store does not have what it acknowledged: it was set back to an earlier state. It begins a new run if its
    /// current run has the id `lost`.
    BeginRun {
        /// The channel.
        channel: ChannelName,
        /// The run that lost something.
        lost: RunId,
        /// From this offset on, nothing of the channel is of the lost run.
        first: Offset,
    },
    /// The same of a namespace's stream in the cluster.
    BeginStreamRun {
        /// The namespace.
        namespace: NamespaceName,
        /// The run that lost something; 0 = it is the stream's first run.
        lost: RunId,
    },
    /// Log that a payload of the channel cannot be read.
    Unreadable {
        /// The channel.
        channel: ChannelName,
        /// Why.
        unreadable: Unreadable,
    },
}

/// What became of a request that was submitted.
#[derive(Debug)]
pub enum Submitted {
    /// It is done; the response.
    Done(Response),
    /// It waits until the channel is live: submit it again after [`super::Channels::take_ready`] names the channel.
    Wait(WaitingRequest),
    /// The cluster must append a publication to the stream of the channel's namespace.
    Append {
        /// The namespace.
        namespace: NamespaceName,
        /// The payload.
        payload: Vec<u8>,
        /// As of [`crate::request::Publish::idempotency_key`].
        idempotency_key: Box<str>,
    },
    /// The cluster must remove the channel's publications from the stream of this namespace.
    Purge(NamespaceName),
    /// The store must append a publication to the channel's log.
    Store(DurablePublication),
    /// The store must remove the channel's publications.
    Remove,
}

/// A publication for the store.
#[derive(Debug, Clone)]
pub struct DurablePublication {
    /// As it is to come back.
    pub payload: Vec<u8>,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// As of [`crate::request::Publish::idempotency_key`].
    pub idempotency_key: Box<str>,
    /// As of [`crate::request::Publish::version`].
    pub version: u64,
    /// As of [`crate::request::Publish::version_epoch`].
    pub version_epoch: Box<str>,
    /// How much of its log the channel keeps.
    pub retention: Retention,
}

impl DurablePublication {
    /// The payload of a publication that was published at `time_ms`, Unix milliseconds.
    pub fn encode(publish: &Publish, time_ms: u64) -> Vec<u8> {
        let size = publish.content.data.len() + OBJECT_OVERHEAD;
        let write = |out: &mut Vec<u8>| encode::publication(out, &publish.content, None);
        match &publish.exclusion {
            None => stored::encode_publication(time_ms, size, write),
            Some(exclusion) => stored::encode_excluding(exclusion, time_ms, size, write),
        }
    }

    /// The payload of a publication, out of what a store keeps of it.
    pub fn payload(time_ms: u64, object: &[u8]) -> Bytes {
        if let Some((object, exclusion)) = Exclusion::take_from(object) {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&object);
            return stored::encode_excluding(&exclusion, time_ms, object.len(), write).into();
        }
        stored::encode_publication(time_ms, object.len(), |out| out.extend_from_slice(object)).into()
    }
}

/// Bytes that a publication's object has besides its data, at most.
const OBJECT_OVERHEAD: usize = 64;

/// What a home knows about the log backends.
#[derive(Debug, Default)]
pub(super) struct Backends {
    pub(super) has_cluster: bool,
    pub(super) has_store: bool,
    pub(super) is_linked: bool,
    /// When the link to the cluster came, Unix milliseconds.
    pub(super) linked_ms: u64,
    pub(super) commands: Vec<BackendCommand>,
    pub(super) ready: Vec<ChannelName>,
    /// The number of the last load that was requested, of all channels.
    pub(super) last_requested: u64,
    /// Channels whose log backend did not have an offset, with the time when it may be queried again, Unix
    /// milliseconds; in the order of the times.
    pub(super) resting: VecDeque<(u64, ChannelName)>,
    pub(super) refused: RefusedSubscribes,
}

impl Backends {
    /// The log backend of a channel with these options.
    pub(super) fn log_backend(&self, channel: &str, options: &ChannelOptions) -> LogBackend {
        match self {
            _ if channel.starts_with(WATCH_CHANNEL_PREFIX) => LogBackend::Memory,
            Backends { has_store: true, .. } if options.durable => LogBackend::Store,
            Backends { has_cluster: true, .. } => LogBackend::Cluster,
            _ => LogBackend::Memory,
        }
    }

    /// The number of the last load that was requested; 0 = none was.
    pub(super) fn last_requested(&self) -> u64 {
        self.last_requested
    }

    /// The number of the load that is requested next.
    pub(super) fn next_load(&self) -> u64 {
        self.last_requested + 1
    }

    /// Numbers the load that is requested now.
    pub(super) fn number_load(&mut self) -> u64 {
        self.last_requested = self.next_load();
        self.last_requested
    }
}

/// The payload of a [`crate::request::BackendEvent::Ephemeral`] that reports that the history of its channel was
/// removed.
pub fn clearing() -> Bytes {
    stored::encode_clear(Offset::END).into()
}

/// The payload that a log keeps in place of a history that is removed up to an offset.
pub fn removal(until: Offset) -> Vec<u8> {
    stored::encode_clear(until)
}
