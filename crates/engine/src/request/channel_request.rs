//! What sessions, the server API and the registry ask of the home of a channel. Every request is answered.

use std::sync::Arc;

use touchline_protocol::publication::{Content, EncodedPush, Exclusion};
use touchline_protocol::stream::Offset;

use super::connection::ConnectionId;
use crate::namespace::RecoveryMode;

/// A request to the home of one channel.
#[derive(Debug)]
pub enum ChannelRequest {
    /// Adds a subscriber. The reply has the channel's position.
    Subscribe(Box<Subscribe>),
    /// Removes a subscriber.
    Unsubscribe {
        /// The subscriber.
        connection: ConnectionId,
        /// The subscriber has got the reply to its subscribe; else the subscribe may have been refused meanwhile.
        is_answered: bool,
    },
    /// Sends a join or leave push to the subscribers that want such events.
    Announce(Arc<EncodedPush>),
    /// Appends a publication.
    Publish(Box<Publish>),
    /// Reads publications.
    History(Box<History>),
    /// Drops the publications, keeps the position.
    HistoryRemove,
}

impl ChannelRequest {
    /// The subscriber that comes or goes; `None` = it is another request.
    pub fn subscriber(&self) -> Option<ConnectionId> {
        match self {
            ChannelRequest::Subscribe(subscribe) => Some(subscribe.connection),
            ChannelRequest::Unsubscribe { connection, .. } => Some(*connection),
            _ => None,
        }
    }

    /// The position from which the request continues, an offset and an epoch; `None` = it has none.
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
    /// The number of the first load that is requested after the request came; `None` = the home has not seen the
    /// request.
    pub(crate) first_load: Option<u64>,
}

impl WaitingRequest {
    /// The request.
    pub fn request(&self) -> &ChannelRequest {
        &self.request
    }
}

impl From<ChannelRequest> for WaitingRequest {
    /// A request that the home has not seen.
    fn from(request: ChannelRequest) -> Self {
        WaitingRequest { request, first_load: None }
    }
}

/// A new subscriber.
#[derive(Debug)]
pub struct Subscribe {
    /// The subscriber.
    pub connection: ConnectionId,
    /// The position from which it recovers; `None` = it does not recover.
    pub recover: Option<Recover>,
}

/// A position in the words of a client or of a backend, which need not be one of the channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientPosition {
    /// The offset; 0 = before the first publication.
    pub offset: Offset,
    /// The epoch; empty = the channel's current epoch.
    pub epoch: Box<str>,
}

/// The position from which a returning client recovers.
#[derive(Debug, Clone)]
pub struct Recover {
    /// The last offset that it has.
    pub offset: Offset,
    /// Its epoch; empty = the current one.
    pub epoch: Box<str>,
    /// All missed publications, or the latest only.
    pub mode: RecoveryMode,
    /// The greatest number of missed publications; if there are more, the client does not recover.
    pub limit: usize,
    /// The greatest size of missed publications, bytes of JSON; if they are larger, the client does not recover.
    pub size_max: usize,
}

/// A publication to append.
#[derive(Debug, Default)]
pub struct Publish {
    /// The content.
    pub content: Content,
    /// Who does not get it while it is delivered; `None` = everybody does.
    pub exclusion: Option<Box<Exclusion>>,
    /// Deliver it, but do not keep it.
    pub skip_history: bool,
    /// The same key again within five minutes returns the first result and publishes nothing. Empty = no key.
    pub idempotency_key: Box<str>,
    /// A version at or below the channel's is dropped; 0 = unversioned.
    pub version: u64,
    /// Versions compare within one epoch of the application.
    pub version_epoch: Box<str>,
}

/// Which publications are read.
#[derive(Debug, Default, Clone)]
pub struct History {
    /// How many at most; `None` = all, 0 = the position only.
    pub limit: Option<usize>,
    /// Behind this position (before it, if reversed).
    pub since: Option<ClientPosition>,
    /// Newest first.
    pub reverse: bool,
    /// Bytes of publications, JSON: the reply ends before the publication that exceeds them, but has at least one.
    /// `None` = any size.
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
