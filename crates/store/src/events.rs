//! What the store reports to its owner.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::{ChannelName, LoadId, StreamPosition};

use crate::inbox::ExpiredMessage;
use crate::publication::StoredHistory;

/// Takes every event of the store.
pub(crate) type EventSink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// What the store reports to its owner.
#[derive(Debug)]
pub enum StoreEvent {
    /// A publication is on disk. The publications of one channel come in the order of their offsets.
    Appended {
        /// The channel.
        channel: ChannelName,
        /// The publication's position.
        position: StreamPosition,
        /// The payload of the [`crate::Append`].
        payload: Bytes,
    },
    /// All results of one commit, or of one refused request, have been reported. An owner that batches
    /// [`StoreEvent::Appended`] and the results of [`crate::OnAppended`] acts on the batch now.
    BatchReported,
    /// The result of [`crate::Store::load`].
    Loaded {
        /// The channel.
        channel: ChannelName,
        /// The load that this answers.
        load: LoadId,
        /// The channel's history; none = it cannot be read now.
        history: Option<StoredHistory>,
    },
    /// Another node has stored publications.
    Advanced {
        /// The channel.
        channel: ChannelName,
        /// The channel's last offset, or an earlier one, with the channel's epoch and the run.
        position: StreamPosition,
    },
    /// Another node has removed the history of a channel.
    Cleared {
        /// The channel.
        channel: ChannelName,
    },
    /// Notifications of other nodes may have been missed: any channel may have new publications.
    Missed,
    /// What is known of the shared facts. It comes only if [`crate::PrimaryOptions::has_facts`] is set, except for
    /// changes that this node has made.
    Facts(FactsEvent),
    /// A message was put into the inbox of a name.
    MessageQueued {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
    },
    /// Messages were deleted that nobody has acknowledged in time. Of nodes that share the database, one reports each.
    MessagesExpired(Vec<ExpiredMessage>),
    /// The result of [`crate::Store::inbox_messages`].
    InboxMessages {
        /// The name's scope.
        scope: Arc<str>,
        /// The name.
        name: Box<str>,
        /// Ids and messages, oldest first; none = they cannot be read now.
        messages: Option<Vec<(u64, Bytes)>>,
    },
}
