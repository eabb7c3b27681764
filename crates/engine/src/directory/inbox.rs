//! The inbox messages of names that clients of this node own. The store keeps the messages. The inbox knows only which
//! of them were delivered to a client and not acknowledged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use touchline_registry::OwnerId;

use super::scope::ScopeId;

/// The greatest number of messages that are delivered to a client before it must acknowledge some.
pub(super) const WINDOW: usize = 100;
/// How long to wait after a failed load before asking the store again, milliseconds.
const RETRY_MS: u64 = 1_000;

/// Messages of a name that were deleted without an acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DroppedIds {
    /// All messages with ids up to this one.
    UpTo(u64),
    /// The messages with these ids.
    These(Vec<u64>),
}

impl DroppedIds {
    fn has(&self, id: u64) -> bool {
        match self {
            DroppedIds::UpTo(last) => id <= *last,
            DroppedIds::These(ids) => ids.contains(&id),
        }
    }
}

/// A name together with its scope.
pub(super) type InboxAddress = (ScopeId, Box<str>);

/// A request to the store: messages of a name with ids above `behind`, at most `limit`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) address: InboxAddress,
    pub(super) behind: u64,
    pub(super) limit: usize,
}

/// The state of delivery to the owner of one name.
#[derive(Debug)]
struct InboxWindow {
    owner: OwnerId,
    /// The id of the last delivered message; 0 = none was delivered.
    behind: u64,
    /// The ids of delivered messages that are not acknowledged.
    open: BTreeSet<u64>,
    /// The limit of the load under way; `None` = no load is under way.
    requested: Option<usize>,
    /// Whether the store may have messages that were not delivered.
    has_more: bool,
    /// What was deleted during the load under way. The load may still bring these messages.
    dropped: Vec<DroppedIds>,
}

/// The names that have, or may have, undelivered or unacknowledged messages.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    windows: BTreeMap<InboxAddress, InboxWindow>,
    /// The name of each delivered message that is not acknowledged, by the message's id.
    addresses: BTreeMap<u64, InboxAddress>,
    /// Names whose load failed, with the time of the next attempt, Unix milliseconds. The earliest comes first.
    failed: VecDeque<(u64, InboxAddress)>,
}

impl Inbox {
    /// Handles that a client has become the owner of a name, or that the store has a new message for the name.
    pub(super) fn open(&mut self, address: InboxAddress, owner: OwnerId) -> Option<Fetch> {
        if self.windows.get(&address).is_some_and(|window| window.owner != owner) {
            self.close(&address);
        }
        let new = || InboxWindow {
            owner,
            behind: 0,
            open: BTreeSet::new(),
            requested: None,
            has_more: false,
            dropped: Vec::new(),
        };
        let window = self.windows.entry(address.clone()).or_insert_with(new);
        window.has_more = true;
        window.next_load(address)
    }

    /// Handles that a name has lost its owner.
    pub(super) fn close(&mut self, address: &InboxAddress) {
        for id in self.windows.remove(address).into_iter().flat_map(|window| window.open) {
            self.addresses.remove(&id);
        }
    }

    /// Handles messages that the store has loaded (`None` = the load failed). Returns the messages to deliver with
    /// their owner, and the next load.
    pub(super) fn handle_loaded<T>(
        &mut self,
        address: &InboxAddress,
        messages: Option<Vec<(u64, T)>>,
        now_ms: u64,
    ) -> (Vec<(OwnerId, u64, T)>, Option<Fetch>) {
        let Some(window) = self.windows.get_mut(address) else { return (Vec::new(), None) };
        let requested = window.requested.take();
        let dropped = std::mem::take(&mut window.dropped);
        let Some(messages) = messages else {
            window.has_more = true;
            self.failed.push_back((now_ms + RETRY_MS, address.clone()));
            return (Vec::new(), None);
        };
        let mut delivered = Vec::with_capacity(messages.len());
        // If the load reached its limit, there may be more messages, however many the client has acknowledged
        // meanwhile.
        window.has_more |= requested.is_none_or(|limit| messages.len() >= limit);
        for (id, message) in messages {
            // A load for an earlier owner may contain messages that this owner already has.
            if id > window.behind {
                window.behind = id;
                if dropped.iter().any(|dropped| dropped.has(id)) {
                    continue;
                }
                window.open.insert(id);
                self.addresses.insert(id, address.clone());
                delivered.push((window.owner, id, message));
            }
        }
        let fetch = window.next_load(address.clone());
        if window.is_idle() {
            self.windows.remove(address);
        }
        (delivered, fetch)
    }

    /// Those of the messages that were delivered to this client.
    pub(super) fn delivered_to(&self, owner: OwnerId, ids: &[u64]) -> Vec<u64> {
        let is_of_owner = |id: &u64| {
            self.addresses.get(id).and_then(|address| self.windows.get(address)).is_some_and(|b| b.owner == owner)
        };
        ids.iter().copied().filter(is_of_owner).collect()
    }

    /// Handles that the store has discarded some messages. Returns the next loads.
    pub(super) fn discarded(&mut self, ids: &[u64]) -> Vec<Fetch> {
        let mut fetches = Vec::new();
        for id in ids {
            let Some(address) = self.addresses.remove(id) else { continue };
            let Some(window) = self.windows.get_mut(&address) else { continue };
            window.open.remove(id);
            if window.is_idle() {
                self.windows.remove(&address);
            } else {
                fetches.extend(window.next_load(address));
            }
        }
        fetches
    }

    /// Handles that messages of a name were deleted: they are no longer delivered. Returns the next load.
    pub(super) fn dropped(&mut self, address: InboxAddress, dropped: DroppedIds) -> Option<Fetch> {
        let window = self.windows.get_mut(&address)?;
        let gone: Vec<u64> = window.open.iter().copied().filter(|id| dropped.has(*id)).collect();
        for id in gone {
            window.open.remove(&id);
            self.addresses.remove(&id);
        }
        if window.requested.is_some() {
            window.dropped.push(dropped);
        } else if window.is_idle() {
            self.windows.remove(&address);
            return None;
        }
        window.next_load(address)
    }

    /// Returns the loads that failed before and are due again.
    pub(super) fn tick(&mut self, now_ms: u64) -> Vec<Fetch> {
        let Inbox { windows, failed, .. } = self;
        let due = failed.partition_point(|(at, _)| *at <= now_ms);
        failed
            .drain(..due)
            .filter_map(|(_, address)| windows.get_mut(&address).and_then(|window| window.next_load(address)))
            .collect()
    }

    /// When the next failed load is attempted again, Unix milliseconds; `None` = no load has failed.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.failed.front().map(|(at, _)| *at)
    }
}

impl InboxWindow {
    fn room(&self) -> usize {
        WINDOW.saturating_sub(self.open.len())
    }

    /// Whether the window has no more state than a new one.
    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.requested.is_none() && !self.has_more
    }

    /// The next load, if the store may have more messages and the client has acknowledged enough.
    fn next_load(&mut self, address: InboxAddress) -> Option<Fetch> {
        if self.requested.is_some() || !self.has_more || self.room() < WINDOW / 2 {
            return None;
        }
        let limit = self.room();
        (self.requested, self.has_more) = (Some(limit), false);
        Some(Fetch { address, behind: self.behind, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: OwnerId = OwnerId([1; 16]);
    const TWO: OwnerId = OwnerId([2; 16]);

    /// A store with messages for one name, represented by their ids.
    #[derive(Default)]
    struct FakeStore(Vec<u64>);

    impl FakeStore {
        fn load(&self, fetch: &Fetch) -> Option<Vec<(u64, ())>> {
            Some(self.0.iter().filter(|id| **id > fetch.behind).take(fetch.limit).map(|id| (*id, ())).collect())
        }

        /// Executes loads until none is left. Returns the ids in the order of their delivery.
        fn serve(&self, inbox: &mut Inbox, mut fetch: Option<Fetch>) -> Vec<u64> {
            let mut delivered = Vec::new();
            while let Some(next) = fetch.take() {
                let (some, more) = inbox.handle_loaded(&address(), self.load(&next), 0);
                delivered.extend(some.into_iter().map(|(_, id, ())| id));
                fetch = more;
            }
            delivered
        }
    }

    fn address() -> InboxAddress {
        (ScopeId(0), "bike".into())
    }

    #[test]
    fn what_is_acknowledged_during_a_load_hides_no_message() {
        let store = FakeStore((1..=250).collect());
        let mut inbox = Inbox::default();
        let first = inbox.open(address(), ONE);
        let mut delivered = store.serve(&mut inbox, first);
        while delivered.len() < 250 {
            let open = delivered[delivered.len() - WINDOW..].to_vec();
            // The second half is acknowledged while the load after the first half is under way.
            let mut fetches = inbox.discarded(&open[..WINDOW / 2]);
            let fetch = fetches.pop().expect("there is room for more");
            assert!(fetches.is_empty() && inbox.discarded(&open[WINDOW / 2..]).is_empty(), "one load at a time");
            delivered.extend(store.serve(&mut inbox, Some(fetch)));
        }
        assert_eq!(delivered, store.0);
    }

    #[test]
    fn messages_come_in_order_within_a_window_and_nothing_remains() {
        let (mut inbox, mut store) = (Inbox::default(), FakeStore((1..=250).collect()));
        let fetch = inbox.open(address(), ONE);
        let mut delivered = store.serve(&mut inbox, fetch);
        assert_eq!(delivered, (1..=100).collect::<Vec<_>>());
        let mut acknowledged = 0;
        while acknowledged < delivered.len() {
            let ids = inbox.delivered_to(ONE, &delivered[acknowledged..acknowledged + 25]);
            assert_eq!((ids.len(), inbox.delivered_to(TWO, &ids).len()), (25, 0), "they belong to no other client");
            acknowledged += 25;
            store.0.retain(|id| !ids.contains(id));
            for fetch in inbox.discarded(&ids) {
                delivered.extend(store.serve(&mut inbox, Some(fetch)));
            }
            assert!(delivered.len() - acknowledged <= WINDOW);
        }
        assert_eq!(delivered, (1..=250).collect::<Vec<_>>());
        assert!(inbox.windows.is_empty() && inbox.addresses.is_empty());
    }

    #[test]
    fn a_new_owner_begins_anew_and_an_old_one_can_acknowledge_nothing() {
        let (mut inbox, store) = (Inbox::default(), FakeStore(vec![1, 2, 3]));
        let fetch = inbox.open(address(), ONE);
        assert_eq!(store.serve(&mut inbox, fetch), [1, 2, 3]);
        let fetch = inbox.open(address(), TWO);
        assert_eq!(store.serve(&mut inbox, fetch), [1, 2, 3]);
        assert_eq!((inbox.delivered_to(ONE, &[1]), inbox.delivered_to(TWO, &[1])), (vec![], vec![1]));
        inbox.close(&address());
        assert!(inbox.windows.is_empty() && inbox.addresses.is_empty());
    }

    #[test]
    fn a_message_that_comes_during_a_load_is_loaded_afterwards() {
        let (mut inbox, mut store) = (Inbox::default(), FakeStore(vec![1]));
        let fetch = inbox.open(address(), ONE).expect("the inbox loads");
        let loaded = store.load(&fetch);
        store.0.push(2);
        assert_eq!(inbox.open(address(), ONE), None, "one load at a time");
        let (delivered, fetch) = inbox.handle_loaded(&address(), loaded, 0);
        assert_eq!(delivered.len(), 1);
        assert_eq!(store.serve(&mut inbox, fetch), [2]);
    }

    #[test]
    fn what_is_dropped_is_not_delivered_and_makes_room() {
        let (mut inbox, mut store) = (Inbox::default(), FakeStore((1..=250).collect()));
        let fetch = inbox.open(address(), ONE);
        assert_eq!(store.serve(&mut inbox, fetch).len(), WINDOW);
        // These were delivered; the client need not acknowledge them any more.
        store.0.retain(|id| *id > 60);
        let fetch = inbox.dropped(address(), DroppedIds::UpTo(60)).expect("there is room for more");
        assert_eq!((fetch.behind, fetch.limit), (100, 60));
        assert_eq!(inbox.delivered_to(ONE, &[60, 61]), [61]);
        // The load has already read the messages that are deleted now.
        let loaded = store.load(&fetch);
        store.0.retain(|id| ![101, 103].contains(id));
        assert_eq!(inbox.dropped(address(), DroppedIds::These(vec![101, 103])), None);
        let (delivered, fetch) = inbox.handle_loaded(&address(), loaded, 0);
        let ids: Vec<u64> = delivered.iter().map(|(_, id, ())| *id).collect();
        assert_eq!((ids.len(), &ids[..3]), (58, &[102, 104, 105][..]));
        assert_eq!(fetch, None, "the window is full");
        let fetch = inbox.dropped(address(), DroppedIds::UpTo(250));
        store.0.clear();
        assert_eq!(store.serve(&mut inbox, fetch), [0; 0]);
        assert!(inbox.windows.is_empty() && inbox.addresses.is_empty(), "nothing remains");
        assert_eq!(inbox.dropped(address(), DroppedIds::UpTo(250)), None);
    }

    #[test]
    fn what_comes_after_a_drop_is_delivered() {
        let (mut inbox, mut store) = (Inbox::default(), FakeStore(vec![1, 2]));
        let fetch = inbox.open(address(), ONE).expect("the inbox loads");
        let loaded = store.load(&fetch);
        store.0 = vec![3];
        assert_eq!(inbox.dropped(address(), DroppedIds::UpTo(2)), None);
        assert_eq!(inbox.open(address(), ONE), None, "one load at a time");
        let (delivered, fetch) = inbox.handle_loaded(&address(), loaded, 0);
        assert_eq!(delivered, []);
        assert_eq!(store.serve(&mut inbox, fetch), [3]);
    }

    #[test]
    fn a_failed_load_is_repeated() {
        let mut inbox = Inbox::default();
        let fetch = inbox.open(address(), ONE);
        assert_eq!(inbox.handle_loaded::<()>(&address(), None, 500), (vec![], None));
        assert_eq!((inbox.next_deadline_ms(), inbox.tick(1_499)), (Some(1_500), vec![]));
        assert_eq!(inbox.tick(1_500), fetch.into_iter().collect::<Vec<_>>());
        assert_eq!(inbox.handle_loaded::<()>(&address(), Some(vec![]), 0), (vec![], None));
        assert!(inbox.windows.is_empty() && inbox.next_deadline_ms().is_none());
    }
}
