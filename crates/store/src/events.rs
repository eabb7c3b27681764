//! The events that the store reports to its owner.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::{ChannelName, LoadId, StreamPosition};

use crate::inbox::ExpiredMessage;
use crate::publication::StoredHistory;

/// The function that receives every event of the store.
pub(crate) type EventSink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// An event that the store reports to its owner.
#[derive(Debug)]
pub enum StoreEvent {
    /// A publication is on disk. The publications of one channel are reported in the order of their offsets.
    Appended {
        /// The channel of the publication.
        channel: ChannelName,
        /// The publication's position.
        position: StreamPosition,
        /// The payload from the [`crate::Append`].
        payload: Bytes,
    },
    /// All results of one commit, or of one refused request, have been reported. An owner that batches
    /// [`StoreEvent::Appended`] and the results of [`crate::OnAppended`] processes the batch now.
    BatchReported,
    /// The result of [`crate::Store::load`].
    Loaded {
        /// The channel that was loaded.
        channel: ChannelName,
        /// The load that this event answers.
        load: LoadId,
        /// The channel's history. `None` = it cannot be read now.
        history: Option<StoredHistory>,
    },
    /// Another node has stored publications.
    Advanced {
        /// The channel of the publications.
        channel: ChannelName,
        /// The channel's last offset, or an earlier one, with the channel's epoch and the run.
        position: StreamPosition,
    },
    /// Another node has removed the history of a channel.
    Cleared {
        /// The channel whose history was removed.
        channel: ChannelName,
    },
    /// Notifications from other nodes may have been lost. Any channel may have new publications.
    Missed,
    /// A change in what is known about the shared facts. It is sent only if [`crate::PrimaryOptions::has_facts`] is
    /// set, except for changes that this node made.
    Facts(FactsEvent),
    /// A message was put into the inbox of a name.
    MessageQueued {
        /// The scope of the name.
        scope: Arc<str>,
        /// The name whose inbox has a new message.
        name: Box<str>,
    },
    /// Messages were deleted because the owner of the name did not acknowledge them in time. If several nodes share the
    /// database, only one node reports each message.
    MessagesExpired(Vec<ExpiredMessage>),
    /// The result of [`crate::Store::inbox_messages`].
    InboxMessages {
        /// The scope of the name.
        scope: Arc<str>,
        /// The name whose messages were read.
        name: Box<str>,
        /// The ids and messages, oldest first. `None` = they cannot be read now.
        messages: Option<Vec<(u64, Bytes)>>,
    },
}
