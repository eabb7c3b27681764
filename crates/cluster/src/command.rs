//! The commands to the cluster's thread, and the callbacks for their results.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::FactChange;
use touchline_protocol::stream::{ChannelName, NamespaceName, Offset, RunId, StreamPosition};

use crate::errors::{FactError, StreamError};
use crate::room::OutgoingCharge;
use crate::settings::StreamSettings;
use crate::telling::OutsideBatch;
use crate::types::StreamLoad;

/// A callback for the position of a stored publication, or for why it is not known to be stored.
pub type OnStreamAppended = Box<dyn FnOnce(Result<StreamPosition, StreamError>) + Send>;
/// A callback for the removal of a history, or for why not all of it was removed.
pub type OnPurged = Box<dyn FnOnce(Result<(), StreamError>) + Send>;
/// A callback for the change of a shared fact, or for why it is not known to be changed.
pub type OnFactChanged = Box<dyn FnOnce(Result<(), FactError>) + Send>;
/// A callback that is called when all streams are open.
pub type OnStreamsSet = Box<dyn FnOnce() + Send>;
/// A callback for the replies of other nodes.
pub type OnGathered = Box<dyn FnOnce(Vec<Bytes>) + Send>;
/// Returns whether a reply is sufficient, so that the gathering does not wait for the other nodes.
pub type IsEnough = fn(&[u8]) -> bool;

/// The bytes of a message, and their charge.
pub(crate) type ChargedBytes = (Bytes, OutgoingCharge);

/// A publication that JetStream stores.
pub(crate) struct StreamAppend {
    pub(crate) channel: ChannelName,
    pub(crate) namespace: NamespaceName,
    pub(crate) payload: ChargedBytes,
    /// A repeated id is stored only once. Empty = no id.
    pub(crate) id: Box<str>,
    pub(crate) done: OnStreamAppended,
}

/// The removal of the history of a channel.
pub(crate) struct HistoryRemoval {
    pub(crate) channel: ChannelName,
    pub(crate) namespace: NamespaceName,
    /// Makes the payload of the marker from the last offset that is removed.
    pub(crate) marker: fn(Offset) -> Vec<u8>,
    /// The charge ends with the removal.
    pub(crate) charge: OutgoingCharge,
}

/// A command of the node, which the handle sends to the thread.
pub(crate) enum ClusterCommand {
    ScopeMessage {
        scope: Arc<str>,
        to: Option<Arc<str>>,
        message: ChargedBytes,
    },
    DirectoryMessage {
        to: Arc<str>,
        message: ChargedBytes,
    },
    Broadcast {
        message: ChargedBytes,
    },
    Gather {
        message: ChargedBytes,
        nodes: usize,
        is_enough: IsEnough,
        done: OnGathered,
    },
    /// The reply to another node's message, under the subject that the message names.
    Reply {
        subject: String,
        message: ChargedBytes,
    },
    PublishEphemeral {
        channel: ChannelName,
        payload: ChargedBytes,
    },
    SetInterest {
        channel: ChannelName,
        is_wanted: bool,
    },
    Load(StreamLoad),
    CheckSoon,
    BeginRun {
        namespace: NamespaceName,
        lost: RunId,
    },
    Append(StreamAppend),
    Purge {
        removal: HistoryRemoval,
        done: OnPurged,
    },
    ChangeFact {
        change: FactChange,
        charge: OutgoingCharge,
        done: OnFactChanged,
    },
    Tell(OutsideBatch),
    SetStreams {
        streams: Vec<StreamSettings>,
        done: OnStreamsSet,
    },
    SetConfiguration(u32),
    SetRoom {
        connect_rate: u32,
        draining: bool,
    },
    Leave {
        done: std::sync::mpsc::Sender<()>,
    },
}
