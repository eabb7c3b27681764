//! Messages in the inboxes of registered names.

use std::sync::Arc;

use bytes::Bytes;

use crate::refusal::StoreRefusal;

/// The maximum number of messages that are counted for one page of names, in addition to one for each name.
pub(crate) const COUNTED_MAX: usize = 100_000;
/// The maximum number of messages that are counted for one name.
pub(crate) const COUNTED_OF_NAME_MAX: usize = 1_000;
/// The maximum number of names that are examined for one page, whether they match the prefix or not.
pub(crate) const VISITED_MAX: usize = 10_000;
/// The maximum size of the messages in one page of an inbox, bytes. The last message may exceed it.
pub(crate) const LISTED_SIZE_MAX: usize = 1_048_576;
/// The number of characters at the end of a message that contain its time: the key and twenty digits.
pub(crate) const TIME_CHARS: u32 = 32;

/// A callback for the id of an inbox message that is on disk.
pub type OnQueued = Box<dyn FnOnce(Result<u64, StoreRefusal>) + Send>;

/// A message that was not acknowledged in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredMessage {
    /// The id of the message.
    pub id: u64,
    /// The scope of the name.
    pub scope: Box<str>,
    /// The name that the message was for.
    pub name: Box<str>,
    /// The earliest time at which it was deleted, Unix milliseconds.
    pub expires_ms: u64,
}

/// A message to a registered name, kept until the owner of the name acknowledges it.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// The scope of the name.
    pub scope: Arc<str>,
    /// The name that the message is for.
    pub name: Box<str>,
    /// The message, a JSON object.
    pub message: Bytes,
    /// When the message is deleted, Unix milliseconds.
    pub expires_ms: u64,
    /// The maximum number of messages in the inbox of the name.
    pub limit: usize,
}

/// The position of a name among all names with messages: ordered by scope, then by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxPlace {
    /// The scope of the name.
    pub scope: Box<str>,
    /// The registered name.
    pub name: Box<str>,
}

/// A request for names that have messages.
#[derive(Debug, Clone, Default)]
pub struct InboxSearch {
    /// Only names of this scope. `None` = all scopes.
    pub scope: Option<Box<str>>,
    /// Only names that begin with this text.
    pub prefix: Box<str>,
    /// Only names after this position. Both parts empty = from the first name on.
    pub after: InboxPlace,
    /// The maximum number of names in the page, at least 1.
    pub limit: usize,
}

impl InboxSearch {
    /// The maximum number of messages that are counted for each name. It is lower for larger pages.
    pub(crate) fn counted(&self) -> usize {
        (COUNTED_MAX / self.limit.max(1)).clamp(1, COUNTED_OF_NAME_MAX)
    }

    /// Whether a name is in the scope that is searched.
    pub(crate) fn is_of_scope(&self, place: &InboxPlace) -> bool {
        self.scope.as_ref().is_none_or(|scope| *scope == place.scope)
    }
}

/// A name and a summary of the messages that wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxSummary {
    /// The scope and the name.
    pub place: InboxPlace,
    /// The number of messages that were counted.
    pub waiting: u64,
    /// The total size of the counted messages, bytes.
    pub bytes: u64,
    /// True if there may be more messages than were counted.
    pub has_more: bool,
    /// When the oldest message was sent, Unix milliseconds. `None` = the message does not contain its time.
    pub oldest_ms: Option<u64>,
}

/// A page of names with messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxNames {
    /// The names with their summaries.
    pub names: Vec<InboxSummary>,
    /// The position after which the next page begins. `None` = this is the last page.
    pub next: Option<InboxPlace>,
}

/// A callback for a page of names with messages.
pub type OnInboxNames = Box<dyn FnOnce(Result<InboxNames, StoreRefusal>) + Send + Sync>;

/// A request for the messages of a name.
#[derive(Debug, Clone)]
pub struct InboxListing {
    /// The scope and the name.
    pub place: InboxPlace,
    /// Only messages with ids above this one.
    pub behind: u64,
    /// The maximum number of messages in the page.
    pub limit: usize,
}

/// A message that waits in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMessage {
    /// The id of the message.
    pub id: u64,
    /// The message, a JSON object.
    pub message: Bytes,
    /// The earliest time at which it is deleted, Unix milliseconds.
    pub expires_ms: u64,
}

/// A page of a name's messages, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxPage {
    /// The messages of the page.
    pub messages: Vec<WaitingMessage>,
    /// True if there may be more messages after these.
    pub has_more: bool,
}

impl InboxPage {
    /// Makes a page from the messages of a listing. If there are more, `messages` has one message beyond `limit`.
    pub(crate) fn of(mut messages: Vec<WaitingMessage>, limit: usize) -> Self {
        let mut size = 0;
        let mut fits = |message: &WaitingMessage| {
            let has_room = size < LISTED_SIZE_MAX;
            size += message.message.len();
            has_room
        };
        let kept = messages.iter().take(limit).take_while(|message| fits(message)).count();
        let has_more = messages.len() > kept;
        messages.truncate(kept);
        InboxPage { messages, has_more }
    }
}

/// A callback for a page of a name's messages.
pub type OnInboxPage = Box<dyn FnOnce(Result<InboxPage, StoreRefusal>) + Send + Sync>;

/// A request to delete messages of a name that have not been acknowledged.
#[derive(Debug, Clone)]
pub struct InboxDrop {
    /// The scope and the name.
    pub place: InboxPlace,
    /// Only messages with these ids. `None` = the oldest messages.
    pub ids: Option<Vec<u64>>,
    /// Only messages with ids up to this one.
    pub until: u64,
    /// The maximum number of messages to delete.
    pub limit: u64,
}

/// The result of deleting messages of an inbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedMessages {
    /// The number of deleted messages.
    pub count: u64,
    /// The highest id in the inbox before the deletion. 0 = the inbox was empty.
    pub top: u64,
}

/// A callback for the result of deleting messages.
pub type OnDropped = Box<dyn FnOnce(Result<DroppedMessages, StoreRefusal>) + Send>;

/// When a message was sent, Unix milliseconds. `end` is the last characters of the message, which contain its time.
pub(crate) fn sent_ms(end: &str) -> Option<u64> {
    end.rsplit_once("\"time\":")?.1.strip_suffix('}')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_message_is_its_last_field() {
        assert_eq!(sent_ms(r#""data":{"time":7},"time":1700000000000}"#), Some(1_700_000_000_000));
        assert_eq!([sent_ms(r#"{"data":1}"#), sent_ms(r#""time":x}"#), sent_ms("")], [None; 3]);
    }

    #[test]
    fn the_more_names_a_page_has_the_fewer_messages_of_each_are_counted() {
        let counted = |limit| InboxSearch { limit, ..InboxSearch::default() }.counted();
        assert_eq!([0, 1, 100, 1_000, 1_000_000].map(counted), [1_000, 1_000, 1_000, 100, 1]);
    }

    #[test]
    fn a_page_ends_behind_the_message_that_fills_it() {
        let message = |id, size| WaitingMessage { id, message: vec![b'x'; size].into(), expires_ms: 0 };
        let sizes = |page: &InboxPage| (page.messages.len(), page.has_more);
        let large = InboxPage::of(vec![message(1, 2 * LISTED_SIZE_MAX), message(2, 1)], 10);
        assert_eq!(sizes(&large), (1, true), "the first is there, however large it is");
        assert_eq!(sizes(&InboxPage::of(vec![message(1, 1), message(2, 1)], 2)), (2, false));
        assert_eq!(sizes(&InboxPage::of(vec![message(1, 1), message(2, 1), message(3, 1)], 2)), (2, true));
    }
}
