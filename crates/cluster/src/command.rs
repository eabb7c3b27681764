//! Commands to the thread of the cluster, and the callbacks that take their results.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::FactChange;
use touchline_protocol::stream::{ChannelName, NamespaceName, Offset, RunId, StreamPosition};

use crate::errors::{FactError, StreamError};
use crate::settings::StreamSettings;
use crate::telling::OutsideBatch;
use crate::types::StreamLoad;

/// Takes the position of a publication that the cluster has; or why it is not known to be
/// stored.
pub type OnStreamAppended = Box<dyn FnOnce(Result<StreamPosition, StreamError>) + Send>;
/// Takes whether a history is removed, or why not all of it is.
pub type OnPurged = Box<dyn FnOnce(Result<(), StreamError>) + Send>;
/// Takes whether a shared fact is changed, or why it is not known to be.
pub type OnFactChanged = Box<dyn FnOnce(Result<(), FactError>) + Send>;
/// Takes that all streams are open.
pub type OnStreamsSet = Box<dyn FnOnce() + Send>;
/// Takes the replies of other nodes.
pub type OnGathered = Box<dyn FnOnce(Vec<Bytes>) + Send>;
/// Whether a reply is enough, so that the gathering does not wait for the other nodes.
pub type IsEnough = fn(&[u8]) -> bool;

/// What a node wants of the cluster, as its handle sends it to the thread.
pub(crate) enum ClusterCommand {
    ScopeMessage { scope: Arc<str>, to: Option<Arc<str>>, message: Bytes },
    DirectoryMessage { to: Arc<str>, message: Bytes },
    Broadcast { message: Bytes },
    Gather { message: Bytes, nodes: usize, is_enough: IsEnough, done: OnGathered },
    PublishEphemeral { channel: ChannelName, payload: Bytes },
    SetInterest { channel: ChannelName, is_wanted: bool },
    Load(StreamLoad),
    CheckSoon,
    BeginRun { namespace: NamespaceName, lost: RunId },
    Append { channel: ChannelName, namespace: NamespaceName, payload: Bytes, id: Box<str>, done: OnStreamAppended },
    Purge { channel: ChannelName, namespace: NamespaceName, marker: fn(Offset) -> Vec<u8>, done: OnPurged },
    ChangeFact { change: FactChange, done: OnFactChanged },
    Tell(OutsideBatch),
    SetStreams { streams: Vec<StreamSettings>, done: OnStreamsSet },
    SetConfiguration(u32),
    Leave { done: std::sync::mpsc::Sender<()> },
}
