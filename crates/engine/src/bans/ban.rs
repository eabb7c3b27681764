//! One ban, and the shared fact that stores it.

use serde::Deserialize;
use touchline_protocol::Disconnect;
use touchline_protocol::fact::{Fact, FactKey};

/// The kinds of shared facts that are bans.
const USER_BLOCK: &str = "user_block";
const TOKEN_REVOKE: &str = "token_revoke";
const USER_TOKENS_INVALIDATE: &str = "user_tokens_invalidate";

/// A ban of a user or of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ban {
    /// The user with this id may not connect.
    User(Box<str>),
    /// The token with this `jti` is not accepted.
    Token(Box<str>),
    /// Tokens of a user that were issued before a certain time are not accepted.
    TokensOfUser {
        /// The id of the user.
        user: Box<str>,
        /// Tokens issued before this time are not accepted, Unix seconds.
        issued_before_s: u32,
    },
}

/// Why a ban refuses or disconnects a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BanReason {
    /// The user is blocked.
    Blocked,
    /// The token was revoked.
    Revoked,
    /// The token was issued too early, or does not say when it was issued.
    Invalidated,
}

impl BanReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [BanReason; 3] = [BanReason::Blocked, BanReason::Revoked, BanReason::Invalidated];

    /// The reason's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            BanReason::Blocked => "blocked",
            BanReason::Revoked => "revoked",
            BanReason::Invalidated => "invalidated",
        }
    }

    /// The cause that the log shows.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            BanReason::Blocked => "the user is blocked (block_user)",
            BanReason::Revoked => "the token is revoked (revoke_token)",
            BanReason::Invalidated => "the user's tokens issued at this time are invalidated (invalidate_user_tokens)",
        }
    }

    /// The disconnect that ends the client's connection.
    pub(crate) fn disconnect(self) -> Disconnect {
        match self {
            BanReason::Blocked => Disconnect::FORCE_NO_RECONNECT,
            BanReason::Revoked | BanReason::Invalidated => Disconnect::INVALID_TOKEN,
        }
    }
}

/// Error: the fact is a ban whose value cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnreadableBan;

/// The JSON value of a fact of the kind [`USER_TOKENS_INVALIDATE`].
#[derive(Deserialize)]
struct InvalidationValue {
    issued_before: u64,
}

impl Ban {
    /// The ban that a fact stores; `None` = facts of this kind are not bans.
    ///
    /// # Errors
    /// The fact is a ban whose value cannot be read: it is damaged, or a later version wrote it.
    pub(super) fn of(fact: &Fact) -> Result<Option<Self>, UnreadableBan> {
        let Some(mut ban) = Ban::of_key(&fact.key) else { return Ok(None) };
        if let Ban::TokensOfUser { issued_before_s, .. } = &mut ban {
            let value: InvalidationValue = serde_json::from_str(&fact.value).map_err(|_| UnreadableBan)?;
            *issued_before_s = u32::try_from(value.issued_before).unwrap_or(u32::MAX);
        }
        Ok(Some(ban))
    }

    /// The shared fact that stores this ban. `expires_s`: when the ban ends, Unix seconds; 0 = never.
    pub fn fact(&self, expires_s: u64) -> Fact {
        let value = match self {
            Ban::User(_) | Ban::Token(_) => "{}".into(),
            Ban::TokensOfUser { issued_before_s, .. } => format!(r#"{{"issued_before":{issued_before_s}}}"#).into(),
        };
        Fact { key: self.key(), value, expires_s }
    }

    /// The key of the fact that stores this ban.
    pub fn key(&self) -> FactKey {
        let (kind, name) = match self {
            Ban::User(user) => (USER_BLOCK, user),
            Ban::Token(uid) => (TOKEN_REVOKE, uid),
            Ban::TokensOfUser { user, .. } => (USER_TOKENS_INVALIDATE, user),
        };
        FactKey { kind: kind.into(), name: name.clone() }
    }

    /// A ban with this key, without the parts that only the value stores; `None` = facts of this kind are not bans.
    pub fn of_key(key: &FactKey) -> Option<Self> {
        let name = key.name.clone();
        match &*key.kind {
            USER_BLOCK => Some(Ban::User(name)),
            TOKEN_REVOKE => Some(Ban::Token(name)),
            USER_TOKENS_INVALIDATE => Some(Ban::TokensOfUser { user: name, issued_before_s: 0 }),
            _ => None,
        }
    }

    /// For an invalidation of a user's tokens: tokens issued before this time are not accepted, Unix seconds. `None` =
    /// the fact is another ban, or cannot be read.
    pub fn issued_before_s(fact: &Fact) -> Option<u32> {
        match Ban::of(fact) {
            Ok(Some(Ban::TokensOfUser { issued_before_s, .. })) => Some(issued_before_s),
            _ => None,
        }
    }

    /// The user that the ban is for; `None` = the ban is for one token.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Ban::User(user) | Ban::TokensOfUser { user, .. } => Some(user),
            Ban::Token(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_is_the_fact_that_it_is_written_as() {
        let bans = [
            Ban::User("ann".into()),
            Ban::Token("7".into()),
            Ban::TokensOfUser { user: "ann".into(), issued_before_s: 17 },
        ];
        for ban in bans {
            let fact = ban.fact(0);
            assert_eq!(Ban::of(&fact), Ok(Some(ban.clone())));
            assert_eq!(Ban::of_key(&fact.key).map(|known| known.key()), Some(ban.key()));
        }
    }

    /// Databases contain these kinds and values, so later versions must be able to read them.
    #[test]
    fn facts_of_bans_keep_their_shape() {
        let of = |kind: &str, value: &str| Fact {
            key: FactKey { kind: kind.into(), name: "x".into() },
            value: value.into(),
            expires_s: 5,
        };
        assert_eq!(Ban::User("x".into()).fact(5), of("user_block", "{}"));
        assert_eq!(Ban::Token("x".into()).fact(5), of("token_revoke", "{}"));
        let invalidated = Ban::TokensOfUser { user: "x".into(), issued_before_s: 9 };
        assert_eq!(invalidated.fact(5), of("user_tokens_invalidate", r#"{"issued_before":9}"#));
        let later = of("user_tokens_invalidate", r#"{"issued_before":9,"by":"console"}"#);
        assert_eq!(Ban::of(&later), Ok(Some(invalidated)));
        assert_eq!(Ban::of(&of("user_tokens_invalidate", "{}")), Err(UnreadableBan));
        assert_eq!(Ban::of(&of("api_key", "{}")), Ok(None), "facts of other kinds are no bans");
    }
}
