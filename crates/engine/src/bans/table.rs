//! The bans that a node knows. Users and tokens are kept as hashes: an entry takes the same memory for every name.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use touchline_registry::{HashSeed, spare_capacity};

use super::ban::{Ban, BanReason};
use super::token::{TokenMark, mark_of};

/// The end time of a ban that does not end.
const NEVER: u32 = u32::MAX;

/// How many bans there are, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BanCounts {
    /// The number of blocked users.
    pub blocked_users: usize,
    /// The number of revoked tokens.
    pub revoked_tokens: usize,
    /// The number of users whose tokens are invalidated.
    pub invalidated_users: usize,
}

impl BanCounts {
    /// The number of all bans together.
    pub fn total(self) -> usize {
        self.blocked_users + self.revoked_tokens + self.invalidated_users
    }

    fn of(&mut self, kind: EndKind) -> &mut usize {
        match kind {
            EndKind::User => &mut self.blocked_users,
            EndKind::Token => &mut self.revoked_tokens,
            EndKind::TokensOfUser => &mut self.invalidated_users,
        }
    }
}

/// The bans of one user. Times are Unix seconds; an end time of 0 = there is no such ban.
#[derive(Debug, Clone, Copy)]
struct UserBans {
    hash: u64,
    blocked_until_s: u32,
    invalid_until_s: u32,
    issued_before_s: u32,
}

/// A revoked token.
#[derive(Debug, Clone, Copy)]
struct RevokedToken {
    jti: u64,
    until_s: u32,
}

/// The kind of ban that an entry of `ends` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EndKind {
    User,
    Token,
    TokensOfUser,
}

/// The bans that a node knows, found by hashes.
pub(super) struct BanTable {
    seed: HashSeed,
    users: HashTable<UserBans>,
    tokens: HashTable<RevokedToken>,
    /// The bans that have an end time: the time (Unix seconds), the kind and the hash.
    ends: BTreeSet<(u32, EndKind, u64)>,
    counts: BanCounts,
}

impl BanTable {
    /// An empty table of bans.
    pub(super) fn new(seed: HashSeed) -> Self {
        BanTable {
            seed,
            users: HashTable::new(),
            tokens: HashTable::new(),
            ends: BTreeSet::new(),
            counts: BanCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> BanCounts {
        self.counts
    }

    /// When the next ban ends, Unix seconds; [`u32::MAX`] = no ban ends.
    pub(super) fn next_end_s(&self) -> u32 {
        self.ends.first().map_or(NEVER, |(end_s, ..)| *end_s)
    }

    /// Adds a ban; it replaces an earlier one with the same key. `expires_s`: when it ends, Unix seconds; 0 = never.
    pub(super) fn put(&mut self, ban: &Ban, expires_s: u64) {
        let until_s = if expires_s == 0 { NEVER } else { u32::try_from(expires_s).unwrap_or(NEVER) };
        let (kind, hash) = self.place_of(ban);
        let before_s = self.set_end(kind, hash, until_s);
        if let (Ban::TokensOfUser { issued_before_s, .. }, Some(user)) = (ban, self.user_mut(hash)) {
            user.issued_before_s = *issued_before_s;
        }
        if before_s == 0 {
            *self.counts.of(kind) += 1;
        }
        if until_s != NEVER {
            self.ends.insert((until_s, kind, hash));
        }
    }

    /// Removes the ban that has the same key as `ban`.
    pub(super) fn remove(&mut self, ban: &Ban) {
        let (kind, hash) = self.place_of(ban);
        self.remove_at(kind, hash);
    }

    /// Removes the bans that have ended.
    pub(super) fn expire(&mut self, now_s: u64) {
        while let Some((end_s, kind, hash)) =
            self.ends.first().copied().filter(|(end_s, ..)| u64::from(*end_s) <= now_s)
        {
            self.ends.remove(&(end_s, kind, hash));
            self.remove_at(kind, hash);
        }
    }

    /// Whether there is a ban with the same key.
    pub(super) fn knows(&self, ban: &Ban) -> bool {
        let (kind, hash) = self.place_of(ban);
        self.end_of(kind, hash) != 0
    }

    /// The ban that forbids a client to connect; `None` = no ban concerns it. An empty user is anonymous, and never
    /// blocked.
    pub(super) fn judge(&self, user: &str, token: TokenMark, now_s: u64) -> Option<BanReason> {
        let holds = |until_s: u32| until_s == NEVER || u64::from(until_s) > now_s;
        let known = if user.is_empty() || self.users.is_empty() { None } else { self.user(self.hash(user)) };
        if known.is_some_and(|known| holds(known.blocked_until_s)) {
            return Some(BanReason::Blocked);
        }
        if let Some(jti) = token.jti()
            && holds(self.end_of(EndKind::Token, jti))
        {
            return Some(BanReason::Revoked);
        }
        let is_early = |known: &UserBans| holds(known.invalid_until_s) && token.iat_s() < known.issued_before_s;
        (token.is_shown() && known.is_some_and(is_early)).then_some(BanReason::Invalidated)
    }

    fn hash(&self, name: &str) -> u64 {
        self.seed.sip().hash_one(name)
    }

    fn place_of(&self, ban: &Ban) -> (EndKind, u64) {
        match ban {
            Ban::User(user) => (EndKind::User, self.hash(user)),
            Ban::Token(uid) => (EndKind::Token, mark_of(self.hash(uid))),
            Ban::TokensOfUser { user, .. } => (EndKind::TokensOfUser, self.hash(user)),
        }
    }

    fn user(&self, hash: u64) -> Option<&UserBans> {
        self.users.find(hash, |known| known.hash == hash)
    }

    fn user_mut(&mut self, hash: u64) -> Option<&mut UserBans> {
        self.users.find_mut(hash, |known| known.hash == hash)
    }

    /// When a ban ends, Unix seconds; 0 = there is no such ban.
    fn end_of(&self, kind: EndKind, hash: u64) -> u32 {
        match kind {
            EndKind::User => self.user(hash).map_or(0, |known| known.blocked_until_s),
            EndKind::TokensOfUser => self.user(hash).map_or(0, |known| known.invalid_until_s),
            EndKind::Token => {
                self.tokens.find(spread(hash), |known| known.jti == hash).map_or(0, |known| known.until_s)
            }
        }
    }

    /// Sets when a ban ends; adds the ban if it is not there. Returns its previous end time; 0 = there was no such ban.
    fn set_end(&mut self, kind: EndKind, hash: u64, until_s: u32) -> u32 {
        let before_s = match kind {
            EndKind::Token => {
                let vacant = RevokedToken { jti: hash, until_s: 0 };
                let entry = self.tokens.entry(spread(hash), |known| known.jti == hash, |known| spread(known.jti));
                std::mem::replace(&mut entry.or_insert(vacant).into_mut().until_s, until_s)
            }
            EndKind::User | EndKind::TokensOfUser => {
                let vacant = UserBans { hash, blocked_until_s: 0, invalid_until_s: 0, issued_before_s: 0 };
                let entry = self.users.entry(hash, |known| known.hash == hash, |known| known.hash);
                let known = entry.or_insert(vacant).into_mut();
                let end_s = if kind == EndKind::User { &mut known.blocked_until_s } else { &mut known.invalid_until_s };
                std::mem::replace(end_s, until_s)
            }
        };
        self.ends.remove(&(before_s, kind, hash));
        before_s
    }

    fn remove_at(&mut self, kind: EndKind, hash: u64) {
        if self.end_of(kind, hash) == 0 {
            return;
        }
        *self.counts.of(kind) -= 1;
        self.set_end(kind, hash, 0);
        match kind {
            EndKind::Token => {
                if let Ok(entry) = self.tokens.find_entry(spread(hash), |known| known.jti == hash) {
                    entry.remove();
                }
                if let Some(capacity) = spare_capacity(self.tokens.len(), self.tokens.capacity()) {
                    self.tokens.shrink_to(capacity, |known| spread(known.jti));
                }
            }
            EndKind::User | EndKind::TokensOfUser => {
                let is_empty =
                    |known: &UserBans| known.hash == hash && known.blocked_until_s == 0 && known.invalid_until_s == 0;
                if let Ok(entry) = self.users.find_entry(hash, is_empty) {
                    entry.remove();
                }
                if let Some(capacity) = spare_capacity(self.users.len(), self.users.capacity()) {
                    self.users.shrink_to(capacity, |known| known.hash);
                }
            }
        }
    }
}

/// A hash for the table of tokens. The table also uses the highest bits of a hash, and these are zeros in a mark.
fn spread(jti: u64) -> u64 {
    jti.rotate_left(8) | jti & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bans::ShownToken;

    fn table() -> BanTable {
        BanTable::new(HashSeed::repeatable(7))
    }

    fn mark(table: &BanTable, token: ShownToken<'_>) -> TokenMark {
        TokenMark::new(token.jti.map(|jti| table.hash(jti)), token.iat_s)
    }

    #[test]
    fn each_ban_concerns_whom_it_names() {
        let mut table = table();
        let (one, two) =
            (ShownToken { jti: Some("1"), iat_s: Some(90) }, ShownToken { jti: Some("2"), iat_s: Some(100) });
        let (one, two, bare) = (mark(&table, one), mark(&table, two), mark(&table, ShownToken::default()));
        table.put(&Ban::User("ann".into()), 0);
        table.put(&Ban::Token("1".into()), 0);
        table.put(&Ban::TokensOfUser { user: "bob".into(), issued_before_s: 100 }, 0);
        let judge = |user, mark| table.judge(user, mark, 1_000);
        assert_eq!(judge("ann", TokenMark::NONE), Some(BanReason::Blocked));
        assert_eq!(judge("ann", two), Some(BanReason::Blocked));
        assert_eq!((judge("eve", one), judge("", one)), (Some(BanReason::Revoked), Some(BanReason::Revoked)));
        assert_eq!((judge("eve", two), judge("eve", bare), judge("", TokenMark::NONE)), (None, None, None));
        assert_eq!(judge("bob", two), None, "it was issued at that very second");
        assert_eq!(judge("bob", bare), Some(BanReason::Invalidated), "without iat it is older than every time");
        assert_eq!(judge("bob", TokenMark::NONE), None, "no token, no ban of tokens");
        let early = mark(&table, ShownToken { jti: None, iat_s: Some(99) });
        assert_eq!(judge("bob", early), Some(BanReason::Invalidated));
    }

    #[test]
    fn a_ban_ends_at_its_time_before_it_is_removed() {
        let mut table = table();
        let user = Ban::User("ann".into());
        table.put(&user, 50);
        assert_eq!(table.next_end_s(), 50);
        assert_eq!(table.judge("ann", TokenMark::NONE, 49), Some(BanReason::Blocked));
        assert_eq!(table.judge("ann", TokenMark::NONE, 50), None);
        table.expire(49);
        assert_eq!(table.counts().total(), 1);
        table.expire(50);
        assert_eq!((table.counts().total(), table.next_end_s(), table.users.len()), (0, NEVER, 0));
    }

    #[test]
    fn the_last_ban_of_a_key_counts() {
        let mut table = table();
        let user = Ban::User("ann".into());
        for (expires_s, end_s) in [(50, 50), (0, NEVER), (70, 70), (60, 60)] {
            table.put(&user, expires_s);
            assert_eq!((table.next_end_s(), table.counts().blocked_users), (end_s, 1));
        }
        table.remove(&user);
        table.remove(&user);
        assert_eq!((table.next_end_s(), table.counts(), table.knows(&user)), (NEVER, BanCounts::default(), false));
    }

    #[test]
    fn the_two_bans_of_a_user_do_not_touch_each_other() {
        let mut table = table();
        let tokens = Ban::TokensOfUser { user: "ann".into(), issued_before_s: 9 };
        table.put(&Ban::User("ann".into()), 50);
        table.put(&tokens, 60);
        table.remove(&Ban::User("ann".into()));
        let bare = mark(&table, ShownToken::default());
        assert_eq!(table.judge("ann", bare, 10), Some(BanReason::Invalidated));
        table.put(&Ban::User("ann".into()), 50);
        table.expire(50);
        assert_eq!(table.judge("ann", bare, 50), Some(BanReason::Invalidated));
        table.expire(60);
        assert_eq!((table.counts(), table.users.len()), (BanCounts::default(), 0));
    }

    /// Compares the table with a plain list after random puts, removals and ends.
    #[test]
    fn a_table_is_what_was_put_into_it() {
        let mut random = fastrand::Rng::with_seed(4711);
        let mut table = table();
        let mut expected = std::collections::BTreeMap::new();
        let ban_of = |number: u32| {
            let name = (number / 3).to_string().into();
            match number % 3 {
                0 => Ban::User(name),
                1 => Ban::Token(name),
                _ => Ban::TokensOfUser { user: name, issued_before_s: 500 },
            }
        };
        for now_s in 1..20_000_u64 {
            let number = random.u32(..600);
            match random.u32(..3) {
                0 => {
                    table.remove(&ban_of(number));
                    expected.remove(&number);
                }
                _ => {
                    let expires_s = if random.bool() { 0 } else { now_s + random.u64(1..500) };
                    table.put(&ban_of(number), expires_s);
                    expected.insert(number, expires_s);
                }
            }
            table.expire(now_s);
            expected.retain(|_, expires_s| *expires_s == 0 || *expires_s > now_s);
            assert_eq!(table.counts().total(), expected.len());
            let number = random.u32(..600);
            assert_eq!(table.knows(&ban_of(number)), expected.contains_key(&number));
        }
        assert!(expected.len() > 100, "the test does something");
    }
}
