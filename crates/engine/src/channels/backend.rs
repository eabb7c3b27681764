//! What a channel's home and its log backend exchange: commands of the home, and the outcomes of requests.

use std::collections::VecDeque;

use bytes::Bytes;
use touchline_protocol::encode;
use touchline_protocol::publication::Exclusion;
use touchline_protocol::stored::{self, Unreadable};
use touchline_protocol::stream::{ChannelName, LoadId, NamespaceName, Offset, Retention, RunId};

use super::remembered_refusals::RefusedSubscribes;
use crate::namespace::{ChannelOptions, WATCH_CHANNEL_PREFIX};
use crate::request::{Publish, Response, WaitingRequest};

/// What gives a channel's publications their order, and keeps its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogBackend {
    /// The channel's home orders the publications and keeps the log in memory.
    Memory,
    /// The stream of the channel's namespace in the cluster.
    Cluster,
    /// The primary database, through the store.
    Store,
}

/// A command of a channel's home to a log backend, the cluster or the store.
#[derive(Debug)]
pub enum BackendCommand {
    /// Subscribe the node to a channel in the cluster, or end that subscription.
    /// [`crate::request::BackendEvent::Subscribed`] answers.
    SetInterest {
        /// The channel to subscribe to.
        channel: ChannelName,
        /// Whether the home wants the channel's publications. `false` ends the subscription.
        is_wanted: bool,
    },
    /// Read the log of a channel in the cluster. [`crate::request::BackendEvent::Loaded`] answers.
    Load {
        /// The channel to read.
        channel: ChannelName,
        /// The namespace of the channel, which names the stream.
        namespace: NamespaceName,
        /// Which part of the log to read.
        load: LoadId,
    },
    /// Read what the log of a channel in the cluster has after an offset, if it has anything. There may be no answer.
    Check {
        /// The channel to check.
        channel: ChannelName,
        /// The namespace of the channel, which names the stream.
        namespace: NamespaceName,
        /// Which part of the log to read.
        load: LoadId,
    },
    /// Read the log of a channel in the store. [`crate::request::BackendEvent::Loaded`] answers.
    LoadStored {
        /// The channel to read.
        channel: ChannelName,
        /// Which part of the log to read.
        load: LoadId,
    },
    /// Send a payload that no log keeps to all nodes that have subscribed to the channel.
    Broadcast {
        /// The channel of the payload.
        channel: ChannelName,
        /// The payload to send.
        payload: Vec<u8>,
    },
    /// The store has lost acknowledged publications: it was restored to an earlier state. The store begins a new run if
    /// the id of its current run is `lost`.
    BeginRun {
        /// The channel whose publications are lost.
        channel: ChannelName,
        /// The id of the run that lost publications.
        lost: RunId,
        /// From this offset on, no publication of the channel belongs to the lost run.
        first: Offset,
    },
    /// The same for the stream of a namespace in the cluster.
    BeginStreamRun {
        /// The namespace of the stream.
        namespace: NamespaceName,
        /// The id of the run that lost publications; 0 = the stream's first run.
        lost: RunId,
    },
    /// Log that a payload of the channel cannot be read.
    Unreadable {
        /// The channel of the payload.
        channel: ChannelName,
        /// Why the payload cannot be read.
        unreadable: Unreadable,
    },
}

/// The outcome of a submitted request.
#[derive(Debug)]
pub enum Submitted {
    /// The request is done. This is the response.
    Done(Response),
    /// The request waits until the channel is live. Submit it again after [`super::Channels::take_ready`] names the
    /// channel.
    Wait(WaitingRequest),
    /// The cluster must append a publication to the stream of the channel's namespace.
    Append {
        /// The namespace of the channel, which names the stream.
        namespace: NamespaceName,
        /// The payload to append.
        payload: Vec<u8>,
        /// The key of [`crate::request::Publish::idempotency_key`].
        idempotency_key: Box<str>,
    },
    /// The cluster must remove the channel's publications from the stream of this namespace.
    Purge(NamespaceName),
    /// The store must append a publication to the channel's log.
    Store(DurablePublication),
    /// The store must remove the channel's publications.
    Remove,
}

/// A publication that the store has to append.
#[derive(Debug, Clone)]
pub struct DurablePublication {
    /// The payload, in the form in which the store has to return it.
    pub payload: Vec<u8>,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// The key of [`crate::request::Publish::idempotency_key`].
    pub idempotency_key: Box<str>,
    /// The version of [`crate::request::Publish::version`].
    pub version: u64,
    /// The epoch of [`crate::request::Publish::version_epoch`].
    pub version_epoch: Box<str>,
    /// How much of its log the channel keeps, and for how long.
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

    /// The payload of a publication, built from what a store keeps of it.
    pub fn payload(time_ms: u64, object: &[u8]) -> Bytes {
        if let Some((object, exclusion)) = Exclusion::take_from(object) {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(&object);
            return stored::encode_excluding(&exclusion, time_ms, object.len(), write).into();
        }
        stored::encode_publication(time_ms, object.len(), |out| out.extend_from_slice(object)).into()
    }
}

/// The greatest size of a publication's object in addition to its data, bytes.
const OBJECT_OVERHEAD: usize = 64;

/// What a home knows about the log backends.
#[derive(Debug, Default)]
pub(super) struct Backends {
    pub(super) has_cluster: bool,
    pub(super) has_store: bool,
    pub(super) is_linked: bool,
    /// When the link to the cluster was established, Unix milliseconds.
    pub(super) linked_ms: u64,
    pub(super) commands: Vec<BackendCommand>,
    pub(super) ready: Vec<ChannelName>,
    /// The number of the last requested load, over all channels.
    pub(super) last_requested: u64,
    /// Channels whose log backend did not have a requested offset, in the order of the time (Unix milliseconds) when it
    /// may be queried again.
    pub(super) resting: VecDeque<(u64, ChannelName)>,
    pub(super) refused: RefusedSubscribes,
}

impl Backends {
    /// The log backend that a channel with these options uses.
    pub(super) fn log_backend(&self, channel: &str, options: &ChannelOptions) -> LogBackend {
        match self {
            _ if channel.starts_with(WATCH_CHANNEL_PREFIX) => LogBackend::Memory,
            Backends { has_store: true, .. } if options.durable => LogBackend::Store,
            Backends { has_cluster: true, .. } => LogBackend::Cluster,
            _ => LogBackend::Memory,
        }
    }

    /// The number of the last requested load; 0 = none was requested.
    pub(super) fn last_requested(&self) -> u64 {
        self.last_requested
    }

    /// The number that the next requested load will get.
    pub(super) fn next_load(&self) -> u64 {
        self.last_requested + 1
    }

    /// Returns the number for a load that is requested now.
    pub(super) fn number_load(&mut self) -> u64 {
        self.last_requested = self.next_load();
        self.last_requested
    }
}

/// The payload of a [`crate::request::BackendEvent::Ephemeral`] that reports that the channel's history was removed.
pub fn clearing() -> Bytes {
    stored::encode_clear(Offset::END).into()
}

/// The payload that a log keeps instead of a history that was removed up to an offset.
pub fn removal(until: Offset) -> Vec<u8> {
    stored::encode_clear(until)
}
