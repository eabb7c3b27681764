//! What sessions, the server API and the registry ask of the home of a channel. The home answers every request.

use std::sync::Arc;

use touchline_protocol::publication::{Content, EncodedPush, Exclusion};
use touchline_protocol::stream::Offset;

use super::connection::ConnectionId;
use crate::namespace::RecoveryMode;

/// A request to the home of one channel.
#[derive(Debug)]
pub enum ChannelRequest {
    /// Adds a subscriber. The response contains the channel's position.
    Subscribe(Box<Subscribe>),
    /// Removes a subscriber.
    Unsubscribe {
        /// The connection that unsubscribes.
        connection: ConnectionId,
        /// Whether the subscriber has received the response to its subscribe. If not, the home may have refused the
        /// subscribe.
        is_answered: bool,
    },
    /// Sends a join or leave push to the subscribers that want such events.
    Announce(Arc<EncodedPush>),
    /// Appends a publication to the log and delivers it.
    Publish(Box<Publish>),
    /// Reads publications from the log.
    History(Box<History>),
    /// Drops the publications of the log and keeps the position.
    HistoryRemove,
}

impl ChannelRequest {
    /// The connection that subscribes or unsubscribes; `None` = it is another request.
    pub fn subscriber(&self) -> Option<ConnectionId> {
        match self {
            ChannelRequest::Subscribe(subscribe) => Some(subscribe.connection),
            ChannelRequest::Unsubscribe { connection, .. } => Some(*connection),
            _ => None,
        }
    }

    /// The offset and epoch from which the request continues; `None` = the request has none.
    pub(crate) fn position(&self) -> Option<(Offset, &str)> {
        match self {
            ChannelRequest::Subscribe(subscribe) => subscribe.recover.as_ref().map(|from| (from.offset, &*from.epoch)),
            ChannelRequest::History(history) => history.since.as_ref().map(|since| (since.offset, &*since.epoch)),
            _ => None,
        }
    }
}

/// A request that waits until its channel is live.
#[derive(Debug)]
pub struct WaitingRequest {
    pub(crate) request: ChannelRequest,
    /// The number of the first load that is requested after this request arrived; `None` = the home has not seen the
    /// request.
    pub(crate) first_load: Option<u64>,
}

impl WaitingRequest {
    /// The request that waits.
    pub fn request(&self) -> &ChannelRequest {
        &self.request
    }
}

impl From<ChannelRequest> for WaitingRequest {
    /// Wraps a request that the home has not seen yet.
    fn from(request: ChannelRequest) -> Self {
        WaitingRequest { request, first_load: None }
    }
}

/// A new subscriber.
#[derive(Debug)]
pub struct Subscribe {
    /// The connection that subscribes.
    pub connection: ConnectionId,
    /// The position from which the subscriber recovers; `None` = it does not recover.
    pub recover: Option<Recover>,
}

/// A position as a client or a backend states it. It need not be a position of the channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientPosition {
    /// The offset of the last publication that the client has; 0 = none.
    pub offset: Offset,
    /// The epoch; empty = the channel's current epoch.
    pub epoch: Box<str>,
}

/// The position from which a returning client recovers.
#[derive(Debug, Clone)]
pub struct Recover {
    /// The last offset that the client has received.
    pub offset: Offset,
    /// The epoch of the offset; empty = the current epoch.
    pub epoch: Box<str>,
    /// Whether the client recovers all missed publications, or the latest only.
    pub mode: RecoveryMode,
    /// The greatest number of missed publications. If there are more, the client does not recover.
    pub limit: usize,
    /// The greatest total size of missed publications, bytes of JSON. If they are larger, the client does not recover.
    pub size_max: usize,
}

/// A publication to append.
#[derive(Debug, Default)]
pub struct Publish {
    /// The content of the publication.
    pub content: Content,
    /// The subscribers that do not get it when it is delivered; `None` = everybody gets it.
    pub exclusion: Option<Box<Exclusion>>,
    /// Delivers the publication, but does not keep it in the log.
    pub skip_history: bool,
    /// The same key again within five minutes returns the first result and publishes nothing. Empty = no key.
    pub idempotency_key: Box<str>,
    /// The publication is dropped if its version is at or below the channel's version; 0 = unversioned.
    pub version: u64,
    /// The application's epoch of versions. Only versions of the same epoch are compared.
    pub version_epoch: Box<str>,
}

/// Which publications a history request reads.
#[derive(Debug, Default, Clone)]
pub struct History {
    /// The greatest number of publications; `None` = all, 0 = the position only.
    pub limit: Option<usize>,
    /// Only publications after this position (before it, if reversed); `None` = from the beginning (from the end).
    pub since: Option<ClientPosition>,
    /// Whether the newest publication comes first.
    pub reverse: bool,
    /// The size limit of the response's publications, bytes of JSON. The response ends before the publication that
    /// would exceed it, but has at least one. `None` = any size.
    pub size_max: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_of_the_subscriber_that_comes_or_goes() {
        let connection = ConnectionId { shard: 1, slot: 2, generation: 3 };
        let subscribe = || ChannelRequest::Subscribe(Box::new(Subscribe { connection, recover: None }));
        assert_eq!(subscribe().subscriber(), Some(connection));
        let unsubscribe = ChannelRequest::Unsubscribe { connection, is_answered: true };
        assert_eq!(unsubscribe.subscriber(), Some(connection));
        assert_eq!(WaitingRequest::from(subscribe()).request().subscriber(), Some(connection));
        assert_eq!(ChannelRequest::HistoryRemove.subscriber(), None);
    }
}
