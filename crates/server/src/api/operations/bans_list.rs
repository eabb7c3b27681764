//! The operation `bans`: lists the bans of users, of tokens, and of tokens that were issued too early.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_engine::bans::Ban;
use touchline_protocol::Error;
use touchline_protocol::fact::{Fact, FactKey};
use touchline_store::{FactListing, StoreRefusal};

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields, plain};
use crate::backend::facts::FactBackend;
use crate::backend::store::refused;

/// The number of bans in one answer: the default, and the maximum.
const BANS_PAGE: usize = 100;
const BANS_PAGE_MAX: usize = 1_000;
// The default page size is allowed.
const _: () = assert!(BANS_PAGE <= BANS_PAGE_MAX);

/// Makes a ban of one kind from its name.
type BanOfName = fn(Box<str>) -> Ban;

/// The kinds of bans by the names that callers use, in the order of the list.
const KINDS: [(&str, BanOfName); 3] = [
    ("token", Ban::Token),
    ("user", Ban::User),
    ("issued_before", |user| Ban::TokensOfUser { user, issued_before_s: 0 }),
];

/// Returns the kind of facts that holds bans of this kind; None = the kind does not exist.
fn kind_of_facts(kind: &str) -> Option<Box<str>> {
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, ban)| ban("".into()).key().kind)
}

/// A request for a page of bans.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct BansRequest {
    /// Only bans of this kind: `user` (blocked users), `token` (revoked tokens), or `issued_before` (users whose early
    /// tokens are refused); empty = all kinds.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("enum" = ["", "user", "token", "issued_before"]))]
    kind: String,
    /// The greatest number of bans in the answer, up to 1,000; 0 = 100.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
    /// The `cursor` of the previous page; empty = the first page.
    #[serde(deserialize_with = "nullable")]
    cursor: String,
}

/// One ban: a blocked user, a revoked token, or a user whose early tokens are refused.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BanReply {
    /// The kind of the ban: `user`, `token` or `issued_before`.
    #[schemars(extend("enum" = ["user", "token", "issued_before"]))]
    kind: &'static str,
    /// The banned user, or the `jti` of the banned token.
    name: Box<str>,
    /// The time when the ban ends, in Unix seconds; absent = it does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_s: Option<u64>,
    /// Tokens of the user that were issued before this time are refused, in Unix seconds. Absent = the ban is of
    /// another kind, or a later version wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_before_s: Option<u32>,
}

/// One page of bans.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BansReply {
    /// The bans: first the revoked tokens, then the blocked users, then the users whose early tokens are refused. Each
    /// group is sorted by the bytes of the names.
    bans: Vec<BanReply>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// The operation `bans`.
pub(crate) struct BansOperation;

impl Operation for BansOperation {
    const NAME: &'static str = "bans";
    const SUMMARY: &'static str =
        "Lists blocked users, revoked tokens, and users whose early tokens are refused, sorted by kind and name";
    const RESULT: &'static str = "`bans`, each with `kind`, `name`, `until_s` (absent: it does not end), \
                                  `issued_before_s`; `cursor` (absent: last page)";
    const EXAMPLE: &'static str = r#"{"kind": "user", "limit": 10}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"bans": [{"kind": "user", "name": "42", "until_s": 4102444800}]}"#;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = BansRequest;
    type Reply = BansReply;

    async fn run(node: RequestNode<'_>, request: BansRequest) -> Result<BansReply, OperationError> {
        let BansRequest { kind, limit, cursor } = request;
        let limit = if limit == 0 { BANS_PAGE } else { limit.min(BANS_PAGE_MAX) };
        let kind = match &*kind {
            "" => None,
            kind => Some(kind_of_facts(kind).ok_or(OperationError::bad("kind"))?),
        };
        let after = key_of(&cursor, kind.as_deref())?;
        let now_s = node.clock.now_ms() / 1_000;
        let facts = page(node, FactListing { kind, after, limit, now_s }).await?;
        let cursor = facts.last().filter(|_| facts.len() >= limit).map(|last| cursor_of(&last.key));
        Ok(BansReply { bans: facts.into_iter().filter_map(shown).collect(), cursor })
    }
}

/// Loads a page of the facts that are bans, from the backend that keeps them.
async fn page(node: RequestNode<'_>, listing: FactListing) -> Result<Vec<Fact>, OperationError> {
    match (FactBackend::of(&node.generation().settings), node.store()) {
        (FactBackend::Primary, Some(store)) => {
            let (reply, facts) = oneshot::channel();
            store.facts(listing, Box::new(move |outcome| drop(reply.send(outcome))));
            Ok(facts.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)?)
        }
        _ => Ok(node.facts_known.lock().names.page(&listing)),
    }
}

/// Returns the key after which a page begins.
///
/// # Errors
/// 107 for a cursor that no answer for this kind can contain.
fn key_of(cursor: &str, kind: Option<&str>) -> Result<FactKey, OperationError> {
    plain("cursor", [cursor])?;
    if cursor.is_empty() {
        return Ok(FactKey { kind: "".into(), name: "".into() });
    }
    let (of_kind, name) = cursor.split_once(':').ok_or(OperationError::bad("cursor"))?;
    if kind.is_some_and(|kind| kind != of_kind) {
        return Err(OperationError::bad("cursor"));
    }
    Ok(FactKey { kind: of_kind.into(), name: name.into() })
}

fn cursor_of(key: &FactKey) -> String {
    [&*key.kind, &*key.name].join(":")
}

/// Returns a ban as callers see it; None = the fact is not a ban.
fn shown(fact: Fact) -> Option<BanReply> {
    let kind = match Ban::of_key(&fact.key)? {
        Ban::User(_) => "user",
        Ban::Token(_) => "token",
        Ban::TokensOfUser { .. } => "issued_before",
    };
    let until_s = Some(fact.expires_s).filter(|until_s| *until_s > 0);
    Some(BanReply { kind, issued_before_s: Ban::issued_before_s(&fact), name: fact.key.name, until_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_shown_under_the_name_that_it_is_asked_by() {
        for (kind, ban) in KINDS {
            let fact = ban("x".into()).fact(0);
            assert_eq!(kind_of_facts(kind), Some(fact.key.kind.clone()));
            let key = fact.key.clone();
            assert_eq!(key_of(&cursor_of(&key), Some(&key.kind)), Ok(key));
            assert_eq!(shown(fact).map(|shown| (shown.kind, shown.until_s)), Some((kind, None)));
        }
        let kinds: Vec<_> = KINDS.iter().filter_map(|(kind, _)| kind_of_facts(kind)).collect();
        assert!(kinds.is_sorted(), "they are listed in this order");
        assert!(key_of("user_block:a:b", None).is_ok_and(|key| &*key.name == "a:b"));
        for bad in ["x", "user_block:\0", "token_revoke:a"] {
            assert_eq!(key_of(bad, Some("user_block")), Err(OperationError::bad("cursor")), "{bad}");
        }
    }
}
