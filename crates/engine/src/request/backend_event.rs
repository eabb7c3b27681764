//! What the cluster and the store report to the home of a channel. The home does not answer these reports.

use bytes::Bytes;
use touchline_protocol::stream::{Epoch, Offset, Runs, StreamPosition};

/// A report of a log backend about one channel.
#[derive(Debug)]
pub enum BackendEvent {
    /// From the cluster: a payload that no log keeps. From the store: the channel's log was removed.
    Ephemeral(Bytes),
    /// From the cluster or the store: a publication that was appended to the log.
    Appended(Appended),
    /// From the store: another node has appended something in this epoch and run of the channel. The log's last offset
    /// is now at least the offset in this position.
    Advanced(StreamPosition),
    /// From the cluster: the node receives the channel's publications from now on.
    Subscribed,
    /// From the cluster or the store: the channel's log; `None` = the load failed.
    Loaded(Option<Box<Loaded>>),
}

/// A publication that a log backend has appended to a channel's log.
#[derive(Debug)]
pub struct Appended {
    /// The offset of the publication in its log.
    pub offset: Offset,
    /// The channel's last offset before this publication.
    pub previous: Offset,
    /// The channel's epoch, if it can change without a report; `None` = it cannot change that way. The epoch names no
    /// run if the run is not known.
    pub epoch: Option<Epoch>,
    /// The stored publication, as the log backend keeps it.
    pub payload: Bytes,
}

/// The part of a channel's log after the requested offset, from the cluster or the store.
#[derive(Debug)]
pub struct Loaded {
    /// The current epoch of the log.
    pub epoch: Epoch,
    /// The offset after which the log was requested.
    pub behind: Offset,
    /// The number of the load that was requested.
    pub number: u64,
    /// Offsets and payloads of the publications, oldest first.
    pub kept: Vec<(Offset, Bytes)>,
    /// The last offset of the channel.
    pub top: Offset,
    /// No publication after this offset is missing in `kept`.
    pub floor: Offset,
    /// Publications up to the floor are missing only because they have expired. A cache that has followed the channel
    /// within that time misses none of them.
    pub is_aged: bool,
    /// The runs that assigned the log's offsets.
    pub runs: Runs,
}
