//! Letters on their way to names that clients of this node have. The store keeps them; here is only which of them a
//! client has been given and has not acknowledged.

use std::collections::{BTreeSet, HashMap};

use touchline_registry::OwnerId;

use super::scope::ScopeId;

/// Letters that a client is given before it must acknowledge some.
const WINDOW: usize = 100;
/// Until a store that could not answer is asked again, milliseconds.
const RETRY_MS: u64 = 1_000;

/// A name of a scope.
pub(super) type Address = (ScopeId, Box<str>);

/// What the store is to be asked: letters to a name behind an id, at most so many.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) address: Address,
    pub(super) behind: u64,
    pub(super) limit: usize,
}

/// What a client has been given under one of its names.
#[derive(Debug)]
struct InboxWindow {
    owner: OwnerId,
    /// The last letter that it was given.
    behind: u64,
    /// Given, and not acknowledged.
    open: BTreeSet<u64>,
    /// The store was asked for so many.
    asked: Option<usize>,
    /// There may be more than it was given.
    has_more: bool,
}

/// The mailboxes of names that have letters, or may have.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    boxes: HashMap<Address, InboxWindow>,
    /// Whose a letter is.
    letters: HashMap<u64, Address>,
    /// Names whose letters could not be had, and when to try again; the first comes first.
    failed: Vec<(u64, Address)>,
}

impl Inbox {
    /// A client has come to a name, or there is a letter for the one that has it.
    pub(super) fn call(&mut self, address: Address, owner: OwnerId) -> Option<Fetch> {
        if self.boxes.get(&address).is_some_and(|mailbox| mailbox.owner != owner) {
            self.close(&address);
        }
        let new = || InboxWindow { owner, behind: 0, open: BTreeSet::new(), asked: None, has_more: false };
        let mailbox = self.boxes.entry(address.clone()).or_insert_with(new);
        mailbox.has_more = true;
        mailbox.ask(address)
    }

    /// A name has lost its client.
    pub(super) fn close(&mut self, address: &Address) {
        for id in self.boxes.remove(address).into_iter().flat_map(|mailbox| mailbox.open) {
            self.letters.remove(&id);
        }
    }

    /// The store has answered: who is to be given which of the letters, and what to ask next.
    pub(super) fn take<T>(
        &mut self,
        address: &Address,
        letters: Option<Vec<(u64, T)>>,
        now_ms: u64,
    ) -> (Vec<(OwnerId, u64, T)>, Option<Fetch>) {
        let Some(mailbox) = self.boxes.get_mut(address) else { return (Vec::new(), None) };
        let asked = mailbox.asked.take();
        let Some(letters) = letters else {
            mailbox.has_more = true;
            self.failed.push((now_ms + RETRY_MS, address.clone()));
            return (Vec::new(), None);
        };
        let mut given = Vec::with_capacity(letters.len());
        // As many as were asked for: there may be more, however much the client has acknowledged meanwhile.
        mailbox.has_more |= asked.is_none_or(|limit| letters.len() >= limit);
        for (id, letter) in letters {
            // An answer to a question of an earlier owner may hold what this one has already.
            if id > mailbox.behind {
                mailbox.behind = id;
                mailbox.open.insert(id);
                self.letters.insert(id, address.clone());
                given.push((mailbox.owner, id, letter));
            }
        }
        let fetch = mailbox.ask(address.clone());
        if mailbox.is_idle() {
            self.boxes.remove(address);
        }
        (given, fetch)
    }

    /// Those of some letters that a client was given.
    pub(super) fn given_to(&self, owner: OwnerId, ids: &[u64]) -> Vec<u64> {
        let is_its = |id: &u64| {
            self.letters.get(id).and_then(|address| self.boxes.get(address)).is_some_and(|b| b.owner == owner)
        };
        ids.iter().copied().filter(is_its).collect()
    }

    /// The store has thrown some letters away: what to ask next.
    pub(super) fn discarded(&mut self, ids: &[u64]) -> Vec<Fetch> {
        let mut fetches = Vec::new();
        for id in ids {
            let Some(address) = self.letters.remove(id) else { continue };
            let Some(mailbox) = self.boxes.get_mut(&address) else { continue };
            mailbox.open.remove(id);
            if mailbox.is_idle() {
                self.boxes.remove(&address);
            } else {
                fetches.extend(mailbox.ask(address));
            }
        }
        fetches
    }

    /// What to ask again.
    pub(super) fn tick(&mut self, now_ms: u64) -> Vec<Fetch> {
        let Inbox { boxes, failed, .. } = self;
        let due = failed.partition_point(|(at, _)| *at <= now_ms);
        failed
            .drain(..due)
            .filter_map(|(_, address)| boxes.get_mut(&address).and_then(|mailbox| mailbox.ask(address)))
            .collect()
    }

    /// When to try again, if anything failed.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.failed.first().map(|(at, _)| *at)
    }
}

impl InboxWindow {
    fn room(&self) -> usize {
        WINDOW.saturating_sub(self.open.len())
    }

    /// Nothing is known that a new one would not know.
    fn is_idle(&self) -> bool {
        self.open.is_empty() && self.asked.is_none() && !self.has_more
    }

    /// Asks the store if there may be more, and the client has acknowledged enough.
    fn ask(&mut self, address: Address) -> Option<Fetch> {
        if self.asked.is_some() || !self.has_more || self.room() < WINDOW / 2 {
            return None;
        }
        let limit = self.room();
        (self.asked, self.has_more) = (Some(limit), false);
        Some(Fetch { address, behind: self.behind, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: OwnerId = OwnerId([1; 16]);
    const TWO: OwnerId = OwnerId([2; 16]);

    /// The store's part: letters to one name.
    #[derive(Default)]
    struct Shelf(Vec<u64>);

    impl Shelf {
        fn answer(&self, fetch: &Fetch) -> Option<Vec<(u64, ())>> {
            Some(self.0.iter().filter(|id| **id > fetch.behind).take(fetch.limit).map(|id| (*id, ())).collect())
        }

        /// Does what is asked until nothing more is: ids in the order in which they were given.
        fn serve(&self, inbox: &mut Inbox, mut fetch: Option<Fetch>) -> Vec<u64> {
            let mut given = Vec::new();
            while let Some(next) = fetch.take() {
                let (some, more) = inbox.take(&address(), self.answer(&next), 0);
                given.extend(some.into_iter().map(|(_, id, ())| id));
                fetch = more;
            }
            given
        }
    }

    fn address() -> Address {
        (ScopeId(0), "bike".into())
    }

    #[test]
    fn what_is_acknowledged_while_the_store_is_asked_hides_no_letter() {
        let shelf = Shelf((1..=250).collect());
        let mut inbox = Inbox::default();
        let first = inbox.call(address(), ONE);
        let mut given = shelf.serve(&mut inbox, first);
        while given.len() < 250 {
            let open = given[given.len() - WINDOW..].to_vec();
            // The second half is acknowledged while the answer to the first is under way.
            let mut fetches = inbox.discarded(&open[..WINDOW / 2]);
            let fetch = fetches.pop().expect("there is room for more");
            assert!(fetches.is_empty() && inbox.discarded(&open[WINDOW / 2..]).is_empty(), "one question at a time");
            given.extend(shelf.serve(&mut inbox, Some(fetch)));
        }
        assert_eq!(given, shelf.0);
    }

    #[test]
    fn letters_come_in_order_within_a_window_and_nothing_remains() {
        let (mut inbox, mut shelf) = (Inbox::default(), Shelf((1..=250).collect()));
        let fetch = inbox.call(address(), ONE);
        let mut given = shelf.serve(&mut inbox, fetch);
        assert_eq!(given, (1..=100).collect::<Vec<_>>());
        let mut acknowledged = 0;
        while acknowledged < given.len() {
            let ids = inbox.given_to(ONE, &given[acknowledged..acknowledged + 25]);
            assert_eq!((ids.len(), inbox.given_to(TWO, &ids).len()), (25, 0), "they are nobody else's");
            acknowledged += 25;
            shelf.0.retain(|id| !ids.contains(id));
            for fetch in inbox.discarded(&ids) {
                given.extend(shelf.serve(&mut inbox, Some(fetch)));
            }
            assert!(given.len() - acknowledged <= WINDOW);
        }
        assert_eq!(given, (1..=250).collect::<Vec<_>>());
        assert!(inbox.boxes.is_empty() && inbox.letters.is_empty());
    }

    #[test]
    fn a_new_owner_begins_anew_and_an_old_one_can_acknowledge_nothing() {
        let (mut inbox, shelf) = (Inbox::default(), Shelf(vec![1, 2, 3]));
        let fetch = inbox.call(address(), ONE);
        assert_eq!(shelf.serve(&mut inbox, fetch), [1, 2, 3]);
        let fetch = inbox.call(address(), TWO);
        assert_eq!(shelf.serve(&mut inbox, fetch), [1, 2, 3]);
        assert_eq!((inbox.given_to(ONE, &[1]), inbox.given_to(TWO, &[1])), (vec![], vec![1]));
        inbox.close(&address());
        assert!(inbox.boxes.is_empty() && inbox.letters.is_empty());
    }

    #[test]
    fn a_letter_that_comes_during_a_question_is_asked_for_afterwards() {
        let (mut inbox, mut shelf) = (Inbox::default(), Shelf(vec![1]));
        let fetch = inbox.call(address(), ONE).expect("it asks");
        let answer = shelf.answer(&fetch);
        shelf.0.push(2);
        assert_eq!(inbox.call(address(), ONE), None, "one question at a time");
        let (given, fetch) = inbox.take(&address(), answer, 0);
        assert_eq!(given.len(), 1);
        assert_eq!(shelf.serve(&mut inbox, fetch), [2]);
    }

    #[test]
    fn what_could_not_be_had_is_asked_for_again() {
        let mut inbox = Inbox::default();
        let fetch = inbox.call(address(), ONE);
        assert_eq!(inbox.take::<()>(&address(), None, 500), (vec![], None));
        assert_eq!((inbox.next_deadline_ms(), inbox.tick(1_499)), (Some(1_500), vec![]));
        assert_eq!(inbox.tick(1_500), fetch.into_iter().collect::<Vec<_>>());
        assert_eq!(inbox.take::<()>(&address(), Some(vec![]), 0), (vec![], None));
        assert!(inbox.boxes.is_empty() && inbox.next_deadline_ms().is_none());
    }
}
