//! The responses of a channel's home.

use std::sync::Arc;

use touchline_protocol::stream::StreamPosition;
use touchline_protocol::{Error, Publication};

use crate::directory::DirectoryReply;
use crate::work::Work;

/// A response of a channel's home or of the directory.
#[derive(Debug)]
pub enum Response {
    /// The answer to [`super::ChannelRequest::Subscribe`].
    Subscribed(Subscribed),
    /// The answer to [`super::ChannelRequest::Publish`], with the publication's position; `None` = the channel has no
    /// history.
    Published(Option<StreamPosition>),
    /// The answer to [`super::ChannelRequest::History`].
    History {
        /// The publications that were read, in the requested order.
        publications: Vec<Arc<Publication>>,
        /// The channel's top: its last offset and epoch.
        position: StreamPosition,
    },
    /// The answer to any other [`super::ChannelRequest`].
    Done,
    /// The directory's answer to any [`crate::directory::DirectoryRequest`].
    Directory(DirectoryReply),
    /// The request was refused. Any request can get this answer.
    Refused(Error),
}

impl Response {
    /// The response when there is no memory for a large one: error 111 instead of the contents. A subscription begins
    /// nevertheless.
    pub(crate) fn without_contents(self) -> Self {
        match self {
            Response::History { .. } | Response::Directory(_) => Response::Refused(Error::TOO_MANY_REQUESTS),
            other => other,
        }
    }

    /// The reactions that a new subscriber gets after the reply; `None` = there are none.
    pub fn reactions(&self) -> Option<Arc<Publication>> {
        match self {
            Response::Subscribed(subscribed) => subscribed.reactions.clone(),
            _ => None,
        }
    }

    /// Whether the response contains recovered publications.
    pub(crate) fn has_recovered(&self) -> bool {
        matches!(self, Response::Subscribed(Subscribed { recovered: Some(Some(missed)), .. }) if !missed.is_empty())
    }

    /// The same response, but not recovered if the missed publications exceed `bytes` bytes of JSON.
    pub(crate) fn recovering_at_most(mut self, bytes: usize) -> Self {
        if let Response::Subscribed(Subscribed { recovered: Some(recovered), .. }) = &mut self {
            let size = recovered.iter().flatten().map(|publication| publication.size()).sum::<usize>();
            if size > bytes {
                *recovered = None;
            }
        }
        self
    }

    /// The cost of the reply for its requester in addition to the command itself, in units of commands. One unit stands
    /// for 8 publications, members or entries, for one copy of a message, or for 4,096 bytes. A small reply costs
    /// nothing.
    pub fn work(&self) -> u32 {
        match self {
            Response::Subscribed(subscribed) => {
                subscribed.recovered.iter().flatten().map(|missed| work_of(missed)).sum::<u32>()
                    + u32::from(subscribed.is_denied)
            }
            Response::History { publications, .. } => work_of(publications),
            Response::Directory(reply) => reply.work(),
            Response::Published(_) | Response::Done | Response::Refused(_) => 0,
        }
    }
}

fn work_of(publications: &[Arc<Publication>]) -> u32 {
    let bytes = publications.iter().map(|publication| publication.size()).sum();
    Work { items: publications.len(), bytes, ..Work::default() }.units()
}

/// The start of a subscription.
#[derive(Debug, Clone, Default)]
pub struct Subscribed {
    /// The channel's top. Every later publication will be delivered.
    pub position: StreamPosition,
    /// The result of recovery. Outer `None` = it was not requested, inner `None` = it is not possible; otherwise all
    /// missed publications.
    pub recovered: Option<Option<Vec<Arc<Publication>>>>,
    /// Whether the client's position is after the end of the log. The log backend was queried for it, now or a moment
    /// ago. That costs a unit of work.
    pub is_denied: bool,
    /// The reactions of the channel, which the subscriber gets after the reply; `None` = there are none.
    pub reactions: Option<Arc<Publication>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use touchline_protocol::publication::Content;

    fn publications(count: u64, bytes: usize) -> Vec<Arc<Publication>> {
        let content = Content { data: Bytes::from(format!("\"{}\"", "x".repeat(bytes))), ..Content::default() };
        (0..count).map(|_| Arc::new(Publication::encode("a", &content, None))).collect()
    }

    fn recovered(missed: Option<Option<Vec<Arc<Publication>>>>) -> Response {
        Response::Subscribed(Subscribed { recovered: missed, ..Subscribed::default() })
    }

    #[test]
    fn a_reply_without_room_loses_what_makes_it_large() {
        let history = || Response::History { publications: publications(1, 5), position: StreamPosition::default() };
        assert!(matches!(history().without_contents(), Response::Refused(Error::TOO_MANY_REQUESTS)));
        assert!(matches!(
            Response::Directory(Vec::new().into()).without_contents(),
            Response::Refused(Error::TOO_MANY_REQUESTS)
        ));
        assert!(matches!(recovered(None).without_contents(), Response::Subscribed(_)));
        assert!(matches!(Response::Refused(Error::EXPIRED).without_contents(), Response::Refused(Error::EXPIRED)));
        let has = [recovered(None), recovered(Some(None)), recovered(Some(Some(Vec::new()))), history()]
            .map(|response| response.has_recovered());
        assert_eq!((has, recovered(Some(Some(publications(1, 5)))).has_recovered()), ([false; 4], true));
    }

    #[test]
    fn what_is_recovered_has_so_many_bytes_or_is_not_recovered() {
        let size = 2 * publications(1, 5)[0].size();
        for (bytes, is_left) in [(size, true), (size - 1, false)] {
            let response = recovered(Some(Some(publications(2, 5)))).recovering_at_most(bytes);
            let Response::Subscribed(Subscribed { recovered: Some(missed), .. }) = response else {
                panic!("{response:?}")
            };
            assert_eq!(missed.map(|missed| missed.len()), is_left.then_some(2));
        }
        assert!(matches!(
            recovered(None).recovering_at_most(0),
            Response::Subscribed(Subscribed { recovered: None, .. })
        ));
        assert!(matches!(Response::Done.recovering_at_most(0), Response::Done));
    }

    #[test]
    fn a_reply_costs_by_what_was_read_and_what_it_holds() {
        let denied = Response::Subscribed(Subscribed { is_denied: true, ..Subscribed::default() });
        assert_eq!((denied.work(), recovered(None).work(), Response::Done.work()), (1, 0, 0));
        let (eight, large) = (publications(8, 5), publications(1, 3 * 4_096));
        assert_eq!((recovered(Some(Some(eight.clone()))).work(), recovered(Some(Some(large.clone()))).work()), (1, 3));
        let history = |publications| Response::History { publications, position: StreamPosition::default() }.work();
        assert_eq!((history(eight), history(large), history(publications(7, 5))), (1, 3, 0));
    }
}
