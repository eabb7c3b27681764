//! What the cluster and the store report to the home of a channel. Nothing is answered.

use bytes::Bytes;
use touchline_protocol::stream::{Epoch, Offset, Runs, StreamPosition};

/// A report of a log backend about one channel.
#[derive(Debug)]
pub enum BackendEvent {
    /// From the cluster: the payload of something that no log keeps. From the store: the channel's log was removed.
    Ephemeral(Bytes),
    /// From the cluster or the store: a publication that it has appended.
    Appended(Appended),
    /// From the store: another node has appended something in this epoch and run of the channel, whose last offset is
    /// this or higher.
    Advanced(StreamPosition),
    /// From the cluster: the node gets the channel's publications from now on.
    Subscribed,
    /// From the cluster or the store: the channel's log; `None` = the load failed.
    Loaded(Option<Box<Loaded>>),
}

/// A publication that a log backend has appended.
#[derive(Debug)]
pub struct Appended {
    /// Its offset.
    pub offset: Offset,
    /// The channel's offset before it.
    pub previous: Offset,
    /// The channel's epoch, if it may change without a report; `None` = it does not. Without a run if the run is not
    /// known.
    pub epoch: Option<Epoch>,
    /// What was published.
    pub payload: Bytes,
}

/// The log of a channel behind the requested offset, from the cluster or the store.
#[derive(Debug)]
pub struct Loaded {
    /// The epoch.
    pub epoch: Epoch,
    /// The offset behind which the log was requested.
    pub behind: Offset,
    /// The number of the load.
    pub number: u64,
    /// Offsets and payloads, oldest first.
    pub kept: Vec<(Offset, Bytes)>,
    /// The channel's last offset.
    pub top: Offset,
    /// No publication behind this offset is missing in `kept`.
    pub floor: Offset,
    /// Publications up to the floor are missing because of their age only: a cache that follows the channel for a
    /// shorter time misses none.
    pub is_aged: bool,
    /// The runs that assigned its offsets.
    pub runs: Runs,
}
