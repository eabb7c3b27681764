//! Messages in the inboxes of registered names.

use std::sync::Arc;

use bytes::Bytes;

use crate::refusal::StoreRefusal;

/// Messages that are counted for one page of names, beyond one for each name.
pub(crate) const COUNTED_MAX: usize = 100_000;
/// Messages of one name that are counted.
pub(crate) const COUNTED_OF_NAME_MAX: usize = 1_000;
/// Names that are looked at for one page, whether they begin as they should or not.
pub(crate) const VISITED_MAX: usize = 10_000;
/// Bytes of messages that are read for one page of an inbox; the last may end beyond it.
pub(crate) const LISTED_SIZE_MAX: usize = 1_048_576;
/// Characters at the end of a message that hold its time: its key and twenty digits.
pub(crate) const TIME_CHARS: u32 = 32;

/// Takes the id of an inbox message that is on disk.
pub type OnQueued = Box<dyn FnOnce(Result<u64, StoreRefusal>) + Send>;

/// A message that nobody has acknowledged in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredMessage {
    /// Its id.
    pub id: u64,
    /// The name's scope.
    pub scope: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// When it was deleted at the earliest, Unix milliseconds.
    pub expires_ms: u64,
}

/// A message to a registered name, kept until the owner of the name acknowledges it.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// The name's scope.
    pub scope: Arc<str>,
    /// The name.
    pub name: Box<str>,
    /// The message, a JSON object.
    pub message: Bytes,
    /// When the message is deleted, Unix milliseconds.
    pub expires_ms: u64,
    /// Number of messages that the inbox of the name may hold.
    pub limit: usize,
}

/// The place of a name among all names with messages: by scope, then by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxPlace {
    /// The scope.
    pub scope: Box<str>,
    /// The name.
    pub name: Box<str>,
}

/// Asks for names with messages.
#[derive(Debug, Clone, Default)]
pub struct InboxSearch {
    /// Only names of this scope; none = of all.
    pub scope: Option<Box<str>>,
    /// Only names that begin with this.
    pub prefix: Box<str>,
    /// Names behind this place; both empty = from the first on.
    pub after: InboxPlace,
    /// Names of the page, 1 at least.
    pub limit: usize,
}

impl InboxSearch {
    /// How many messages of each name are counted: the more names, the fewer.
    pub(crate) fn counted(&self) -> usize {
        (COUNTED_MAX / self.limit.max(1)).clamp(1, COUNTED_OF_NAME_MAX)
    }

    /// Whether a name is of the scope that is searched.
    pub(crate) fn is_of_scope(&self, place: &InboxPlace) -> bool {
        self.scope.as_ref().is_none_or(|scope| *scope == place.scope)
    }
}

/// A name, and what is known of the messages that wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxSummary {
    /// The name.
    pub place: InboxPlace,
    /// Messages that were counted.
    pub waiting: u64,
    /// Their bytes.
    pub bytes: u64,
    /// There may be more than were counted.
    pub has_more: bool,
    /// When the oldest was sent, Unix milliseconds; none = it does not say.
    pub oldest_ms: Option<u64>,
}

/// A page of names with messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxNames {
    /// The names.
    pub names: Vec<InboxSummary>,
    /// Behind which place the next page begins; none = there is no more.
    pub next: Option<InboxPlace>,
}

/// Takes a page of names with messages.
pub type OnInboxNames = Box<dyn FnOnce(Result<InboxNames, StoreRefusal>) + Send + Sync>;

/// Asks for the messages of a name.
#[derive(Debug, Clone)]
pub struct InboxListing {
    /// The name.
    pub place: InboxPlace,
    /// Messages with ids above this.
    pub behind: u64,
    /// Messages of the page.
    pub limit: usize,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingMessage {
    /// Its id.
    pub id: u64,
    /// The message, a JSON object.
    pub message: Bytes,
    /// When it is deleted at the earliest, Unix milliseconds.
    pub expires_ms: u64,
}

/// A page of the messages of a name, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxPage {
    /// The messages.
    pub messages: Vec<WaitingMessage>,
    /// There may be more behind them.
    pub has_more: bool,
}

impl InboxPage {
    /// The messages of a listing, with one more than it may have if there are more.
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

/// Takes a page of the messages of a name.
pub type OnInboxPage = Box<dyn FnOnce(Result<InboxPage, StoreRefusal>) + Send + Sync>;

/// Deletes messages of a name that nobody has acknowledged.
#[derive(Debug, Clone)]
pub struct InboxDrop {
    /// The name.
    pub place: InboxPlace,
    /// Only these; none = the oldest.
    pub ids: Option<Vec<u64>>,
    /// Messages with ids up to this one.
    pub until: u64,
    /// Messages that are deleted at most.
    pub limit: u64,
}

/// What was deleted of an inbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedMessages {
    /// How many messages.
    pub count: u64,
    /// The highest id that the name had before; 0 = it had no message.
    pub top: u64,
}

/// Takes what was deleted of an inbox.
pub type OnDropped = Box<dyn FnOnce(Result<DroppedMessages, StoreRefusal>) + Send>;

/// When a message was sent, Unix milliseconds. `end`: its last characters, where its time stands.
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
