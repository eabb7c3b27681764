//! The bans as the shards of a node share them: all shards read, and one thread changes them occasionally.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use touchline_lock::{Lock, SharedLock};
use touchline_protocol::fact::{Fact, FactChange, FactKey};
use touchline_registry::HashSeed;

use super::ban::{Ban, BanReason};
use super::table::{BanCounts, BanTable};
use super::token::{ShownToken, TokenMark};

/// How much a node knows about the bans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanKnowledge {
    /// The bans have never been loaded. The node accepts no client.
    Waiting,
    /// The node knows all bans.
    Current,
    /// The node knows older bans only: it cannot reach the fact backend, which keeps them.
    CutOff,
}

/// Why a ban check refuses a client that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanRefusal {
    /// A ban covers the client's user or token.
    Banned(BanReason),
    /// The bans have never been loaded.
    Waiting,
    /// The node cannot reach the fact backend, and is configured to refuse new clients meanwhile.
    CutOff,
}

impl BanRefusal {
    /// All refusals, in the order of their numbers.
    pub const ALL: [BanRefusal; 5] = [
        BanRefusal::Banned(BanReason::Blocked),
        BanRefusal::Banned(BanReason::Revoked),
        BanRefusal::Banned(BanReason::Invalidated),
        BanRefusal::Waiting,
        BanRefusal::CutOff,
    ];

    fn number(self) -> usize {
        match self {
            BanRefusal::Banned(reason) => reason as usize,
            BanRefusal::Waiting => 3,
            BanRefusal::CutOff => 4,
        }
    }

    /// The refusal's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            BanRefusal::Banned(reason) => reason.as_str(),
            BanRefusal::Waiting => "waiting",
            BanRefusal::CutOff => "cut_off",
        }
    }

    /// The cause that the log shows.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            BanRefusal::Banned(reason) => reason.cause(),
            BanRefusal::Waiting => "the bans have not been loaded yet; the log says why if that lasts",
            BanRefusal::CutOff => {
                "the node is cut off from where bans are kept, and security.when_cut_off is refuse_new"
            }
        }
    }
}

/// The connections that new bans may affect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BanScope {
    /// Users whose connections must be checked.
    pub users: Vec<Box<str>>,
    /// Whether the connections of all users must be checked.
    pub is_everybody: bool,
}

/// The bans that a node knows, shared by its shards.
pub struct Bans {
    seed: HashSeed,
    table: SharedLock<BanTable>,
    /// The number of bans in the table. While it is 0, no check locks the table.
    entries: AtomicUsize,
    /// Increases with each change of the table.
    version: AtomicU64,
    /// When the next ban ends, Unix seconds.
    next_end_s: AtomicU32,
    knowledge: AtomicU8,
    /// Bans whose facts cannot be read. While there is one, the node does not know all bans.
    unreadable: Lock<BTreeSet<FactKey>>,
    has_unreadable: AtomicBool,
    refuses_when_cut_off: bool,
    /// The number of refused connects, indexed by [`BanRefusal`].
    refused: [AtomicU64; BanRefusal::ALL.len()],
    /// The number of connections that bans have ended, indexed by [`BanReason`].
    ended: [AtomicU64; BanReason::ALL.len()],
}

impl Bans {
    /// An empty table that has not been loaded yet. `refuses_when_cut_off`: the node accepts no client while it is cut
    /// off.
    pub fn new(seed: HashSeed, refuses_when_cut_off: bool) -> Self {
        Bans {
            seed,
            table: SharedLock::new(BanTable::new(seed)),
            entries: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            next_end_s: AtomicU32::new(u32::MAX),
            knowledge: AtomicU8::new(BanKnowledge::Waiting as u8),
            unreadable: Lock::default(),
            has_unreadable: AtomicBool::new(false),
            refuses_when_cut_off,
            refused: Default::default(),
            ended: Default::default(),
        }
    }

    /// An empty table that does not need to be loaded.
    pub fn none(seed: HashSeed) -> Self {
        let bans = Bans::new(seed, false);
        bans.set_knowledge(BanKnowledge::Current);
        bans
    }

    /// How much the node knows about the bans.
    pub fn knowledge(&self) -> BanKnowledge {
        match self.knowledge.load(Ordering::Relaxed) {
            known if known == BanKnowledge::Current as u8 => match self.has_unreadable.load(Ordering::Relaxed) {
                false => BanKnowledge::Current,
                true => BanKnowledge::CutOff,
            },
            known if known == BanKnowledge::CutOff as u8 => BanKnowledge::CutOff,
            _ => BanKnowledge::Waiting,
        }
    }

    /// The facts that are bans and cannot be read: they are damaged, or a later version wrote them.
    pub fn unreadable(&self) -> Vec<FactKey> {
        self.unreadable.lock().iter().cloned().collect()
    }

    /// The ban that a fact stores. An unreadable ban is remembered until its fact changes.
    fn read(&self, fact: &Fact) -> Option<Ban> {
        let ban = Ban::of(fact);
        if ban.is_err() {
            self.unreadable.lock().insert(fact.key.clone());
            self.has_unreadable.store(true, Ordering::Relaxed);
        }
        ban.ok().flatten()
    }

    /// Forgets that facts were unreadable: one fact, or all of them (`None`).
    fn forget_unreadable(&self, key: Option<&FactKey>) {
        if self.has_unreadable.load(Ordering::Relaxed) {
            let mut unreadable = self.unreadable.lock();
            unreadable.retain(|known| key.is_some_and(|key| key != known));
            self.has_unreadable.store(!unreadable.is_empty(), Ordering::Relaxed);
        }
    }

    fn set_knowledge(&self, knowledge: BanKnowledge) {
        self.knowledge.store(knowledge as u8, Ordering::Relaxed);
    }

    /// Why the node accepts no client at all now; `None` = it checks each client.
    pub fn holds_back(&self) -> Option<BanRefusal> {
        match self.knowledge() {
            BanKnowledge::Current => None,
            BanKnowledge::Waiting => Some(BanRefusal::Waiting),
            BanKnowledge::CutOff => self.refuses_when_cut_off.then_some(BanRefusal::CutOff),
        }
    }

    /// Notes that the node cannot reach the fact backend. The node keeps the bans that it knows.
    pub fn cut_off(&self) {
        if self.knowledge() != BanKnowledge::Waiting {
            self.set_knowledge(BanKnowledge::CutOff);
        }
    }

    /// Notes that the fact backend can be reached but cannot keep bans now. It may have kept some before, so the node
    /// counts as cut off. A node that still waits for its first bans stops waiting, unless it refuses clients while it
    /// is cut off.
    pub fn unsupported(&self) {
        if self.knowledge() != BanKnowledge::Waiting || !self.refuses_when_cut_off {
            self.set_knowledge(BanKnowledge::CutOff);
        }
    }

    /// Replaces all bans by those among `facts`. Returns the connections to check: all of them, and by name the users
    /// of bans that were not known.
    pub fn replace(&self, facts: &[Fact], now_s: u64) -> BanScope {
        let mut table = BanTable::new(self.seed);
        let mut users = Vec::new();
        self.forget_unreadable(None);
        {
            let known = self.table.read();
            for fact in facts.iter().filter(|fact| fact.expires_s == 0 || fact.expires_s > now_s) {
                let Some(ban) = self.read(fact) else { continue };
                table.put(&ban, fact.expires_s);
                users.extend(ban.user().filter(|_| !known.knows(&ban)).map(Box::from));
            }
        }
        let mut known = self.table.write();
        let before = std::mem::replace(&mut *known, table);
        self.publish(&known);
        drop(known);
        // The lock is released first: dropping a large table takes a while.
        drop(before);
        self.set_knowledge(BanKnowledge::Current);
        BanScope { users, is_everybody: true }
    }

    /// Applies changes of bans, in their order. Returns the connections to check.
    pub fn change(&self, changes: &[FactChange], now_s: u64) -> BanScope {
        let mut scope = BanScope::default();
        let mut table = self.table.write();
        for change in changes {
            self.forget_unreadable(Some(change.key()));
            match change {
                FactChange::Put(fact) if fact.expires_s == 0 || fact.expires_s > now_s => {
                    let Some(ban) = self.read(fact) else { continue };
                    table.put(&ban, fact.expires_s);
                    match ban.user() {
                        Some(user) => scope.users.push(user.into()),
                        None => scope.is_everybody = true,
                    }
                }
                FactChange::Put(Fact { key, .. }) | FactChange::Remove(key) => {
                    if let Some(ban) = Ban::of_key(key) {
                        table.remove(&ban);
                    }
                }
            }
        }
        self.publish(&table);
        scope
    }

    /// Removes the bans that have ended.
    pub fn expire(&self, now_s: u64) {
        if u64::from(self.next_end_s.load(Ordering::Relaxed)) <= now_s {
            let mut table = self.table.write();
            table.expire(now_s);
            self.publish(&table);
        }
    }

    fn publish(&self, table: &BanTable) {
        self.entries.store(table.counts().total(), Ordering::Release);
        self.next_end_s.store(table.next_end_s(), Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The version of the table: a different number after each change of the bans.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The ban that forbids a client to connect; `None` = no ban concerns it. `user`: empty = anonymous.
    pub fn judge(&self, user: &str, token: TokenMark, now_s: u64) -> Option<BanReason> {
        if self.entries.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.read().judge(user, token, now_s)
    }

    /// The mark of a token, for checks now and later. `now_s`: when the client shows the token, Unix seconds.
    pub fn mark(&self, token: ShownToken<'_>, now_s: u64) -> TokenMark {
        let jti = token.jti.filter(|jti| !jti.is_empty());
        TokenMark::new(jti.map(|jti| self.seed.sip().hash_one(jti)), token.issued_s(now_s))
    }

    /// Whether a ban can be added when at most `limit` bans are allowed: it replaces another one, or there is room.
    pub fn has_room(&self, ban: &Ban, limit: usize, now_s: u64) -> bool {
        self.expire(now_s);
        self.entries.load(Ordering::Relaxed) < limit || self.table.read().knows(ban)
    }

    /// Whether a ban with the same key is in force.
    pub fn knows(&self, ban: &Ban, now_s: u64) -> bool {
        self.expire(now_s);
        self.table.read().knows(ban)
    }

    /// How many bans there are, by kind.
    pub fn counts(&self) -> BanCounts {
        self.table.read().counts()
    }

    pub(crate) fn count_refused(&self, refusal: BanRefusal) {
        self.refused[refusal.number()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_ended(&self, reason: BanReason) {
        self.ended[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers of refused connects, by cause.
    pub fn refused(&self) -> impl Iterator<Item = (BanRefusal, u64)> {
        BanRefusal::ALL.into_iter().map(|refusal| (refusal, self.refused[refusal.number()].load(Ordering::Relaxed)))
    }

    /// The numbers of connections that bans have ended, by reason.
    pub fn ended(&self) -> impl Iterator<Item = (BanReason, u64)> {
        BanReason::ALL.into_iter().map(|reason| (reason, self.ended[reason as usize].load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for Bans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bans").field("knowledge", &self.knowledge()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bans() -> Bans {
        Bans::new(HashSeed::repeatable(7), true)
    }

    fn user(name: &str) -> Ban {
        Ban::User(name.into())
    }

    #[test]
    fn nobody_is_let_in_before_bans_are_loaded_or_while_cut_off_if_so_set() {
        let bans = bans();
        bans.cut_off();
        assert_eq!(bans.holds_back(), Some(BanRefusal::Waiting), "what was never known is not kept");
        bans.replace(&[], 1);
        assert_eq!(bans.holds_back(), None);
        bans.cut_off();
        assert_eq!(bans.holds_back(), Some(BanRefusal::CutOff));
        bans.replace(&[], 1);
        assert_eq!(bans.holds_back(), None);
        let lenient = Bans::new(HashSeed::repeatable(7), false);
        assert_eq!(lenient.holds_back(), Some(BanRefusal::Waiting));
        lenient.replace(&[], 1);
        lenient.cut_off();
        assert_eq!(lenient.holds_back(), None);
    }

    #[test]
    fn a_node_without_a_place_for_bans_forgets_none_and_waits_if_so_set() {
        for refuses in [false, true] {
            let bans = Bans::new(HashSeed::repeatable(7), refuses);
            bans.unsupported();
            assert_eq!(bans.holds_back(), refuses.then_some(BanRefusal::Waiting));
            assert_ne!(bans.knowledge(), BanKnowledge::Current);
            bans.replace(&[user("ann").fact(0)], 1);
            bans.unsupported();
            assert_eq!(bans.knowledge(), BanKnowledge::CutOff);
            assert_eq!(bans.judge("ann", TokenMark::NONE, 1), Some(BanReason::Blocked));
            bans.replace(&[], 1);
            assert_eq!(bans.knowledge(), BanKnowledge::Current);
        }
    }

    /// The unreadable ban may concern any user, so the node does not know all bans until the fact changes.
    #[test]
    fn a_ban_that_cannot_be_read_is_a_cut() {
        let bans = bans();
        let broken = |name: &str| {
            let ban = Ban::TokensOfUser { user: name.into(), issued_before_s: 5 };
            Fact { value: "{}".into(), ..ban.fact(0) }
        };
        bans.replace(&[broken("ann"), user("bob").fact(0)], 1);
        assert_eq!((bans.knowledge(), bans.counts().total()), (BanKnowledge::CutOff, 1));
        bans.change(&[FactChange::Put(broken("eve"))], 1);
        assert_eq!(bans.unreadable(), [broken("ann").key, broken("eve").key]);
        bans.change(&[FactChange::Remove(broken("ann").key)], 1);
        assert_eq!(bans.holds_back(), Some(BanRefusal::CutOff));
        bans.change(&[FactChange::Put(Ban::TokensOfUser { user: "eve".into(), issued_before_s: 5 }.fact(0))], 1);
        assert_eq!((bans.knowledge(), bans.unreadable().len()), (BanKnowledge::Current, 0));
        bans.change(&[FactChange::Put(broken("ann"))], 1);
        bans.cut_off();
        bans.replace(&[], 1);
        assert_eq!(bans.holds_back(), None);
    }

    #[test]
    fn a_load_replaces_what_was_known_and_tells_whom_it_bans_anew() {
        let bans = bans();
        let scope = bans.change(&[FactChange::Put(user("ann").fact(0)), FactChange::Put(user("bob").fact(0))], 1);
        assert_eq!(scope, BanScope { users: vec!["ann".into(), "bob".into()], is_everybody: false });
        let version = bans.version();
        let facts = [user("bob").fact(0), user("eve").fact(0), user("old").fact(5), Ban::Token("7".into()).fact(0)];
        let scope = bans.replace(&facts, 5);
        assert_eq!(scope, BanScope { users: vec!["eve".into()], is_everybody: true });
        assert!(bans.version() > version);
        let is_banned = |name| bans.judge(name, TokenMark::NONE, 5).is_some();
        assert_eq!(["ann", "bob", "eve", "old"].map(is_banned), [false, true, true, false]);
        assert_eq!(bans.counts().total(), 3);
    }

    #[test]
    fn changes_count_in_their_order_and_what_has_ended_is_removed() {
        let bans = bans();
        let put = |expires_s| FactChange::Put(user("ann").fact(expires_s));
        let scope = bans.change(&[put(0), FactChange::Remove(user("ann").key())], 10);
        assert_eq!((bans.judge("ann", TokenMark::NONE, 10), scope.users.len()), (None, 1));
        bans.change(&[put(0)], 10);
        assert_eq!(bans.change(&[put(9)], 10), BanScope::default(), "it has ended, so it bans nobody");
        assert_eq!(bans.judge("ann", TokenMark::NONE, 10), None);
        bans.change(&[put(20)], 10);
        bans.expire(19);
        assert_eq!(bans.counts().total(), 1);
        bans.expire(20);
        assert_eq!(bans.counts().total(), 0);
        let revoked = bans.change(&[FactChange::Put(Ban::Token("7".into()).fact(0))], 10);
        assert_eq!(revoked, BanScope { users: Vec::new(), is_everybody: true });
    }

    #[test]
    fn a_full_table_takes_what_it_knows_and_makes_room_by_what_has_ended() {
        let bans = bans();
        bans.change(&[FactChange::Put(user("ann").fact(0)), FactChange::Put(user("bob").fact(50))], 1);
        assert!(bans.has_room(&user("ann"), 2, 1) && !bans.has_room(&user("eve"), 2, 1));
        assert!(bans.has_room(&user("eve"), 3, 1) && bans.has_room(&user("eve"), 2, 50));
    }

    #[test]
    fn a_mark_is_of_its_token() {
        let bans = bans();
        bans.change(&[FactChange::Put(Ban::Token("7".into()).fact(0))], 1);
        let judge = |jti| bans.judge("ann", bans.mark(ShownToken { jti, iat_s: None }, 1), 1);
        assert_eq!([Some("7"), Some("8"), Some(""), None].map(judge), [Some(BanReason::Revoked), None, None, None]);
    }
}
