//! The shared facts of a node that has them from no database, with their names: what clients are judged by keeps only
//! hashes of them.

use std::collections::BTreeMap;
use std::ops::Bound;

use touchline_protocol::fact::{Fact, FactChange, FactKey};
use touchline_store::FactListing;

/// Facts that have ended may stand here, so many beside those that hold, before they are removed.
const ENDED: usize = 64;

/// What a node knows of shared facts, beside what clients are judged by.
#[derive(Default)]
pub(crate) struct KnownFacts {
    /// The revision up to which changes were reported.
    pub(crate) revision: u64,
    /// The facts with their names, where no database has them.
    pub(crate) names: FactNames,
}

/// Facts by their keys.
#[derive(Default)]
pub(crate) struct FactNames(BTreeMap<FactKey, Fact>);

impl FactNames {
    /// Takes these facts in the place of all others.
    pub(crate) fn replace(&mut self, facts: Vec<Fact>) {
        self.0 = facts.into_iter().map(|fact| (fact.key.clone(), fact)).collect();
    }

    /// Takes changes, in their order. `holding`: how many facts hold after them.
    pub(crate) fn change(&mut self, changes: Vec<FactChange>, holding: usize, now_s: u64) {
        for change in changes {
            match change {
                FactChange::Put(fact) => self.0.insert(fact.key.clone(), fact),
                FactChange::Remove(key) => self.0.remove(&key),
            };
        }
        // Not at each end: to look through all takes as long as there are many, so it is done when many have ended.
        if self.0.len() > 2 * holding + ENDED {
            self.0.retain(|_, fact| holds(fact, now_s));
        }
    }

    /// A page of the facts that hold, by kind and name.
    pub(crate) fn page(&self, listing: &FactListing) -> Vec<Fact> {
        let behind = (Bound::Excluded(listing.start()), Bound::Unbounded);
        let of_kind = |fact: &&Fact| listing.kind.as_ref().is_none_or(|kind| *kind == fact.key.kind);
        let facts = self.0.range(behind).map(|(_, fact)| fact).take_while(of_kind);
        facts.filter(|fact| holds(fact, listing.now_s)).take(listing.limit).cloned().collect()
    }
}

fn holds(fact: &Fact, now_s: u64) -> bool {
    fact.expires_s == 0 || fact.expires_s > now_s
}

#[cfg(test)]
mod tests {
    use touchline_engine::bans::Ban;

    use super::*;

    fn listed(names: &FactNames, kind: Option<&str>, after: FactKey, limit: usize) -> Vec<String> {
        let facts = names.page(&FactListing { kind: kind.map(Into::into), after, limit, now_s: 100 });
        facts.iter().map(|fact| format!("{} {}", fact.key.kind, fact.key.name)).collect()
    }

    fn user(name: &str, expires_s: u64) -> Fact {
        Ban::User(name.into()).fact(expires_s)
    }

    #[test]
    fn facts_are_listed_as_the_databases_list_them() {
        let mut names = FactNames::default();
        names.replace(vec![user("b", 0), user("ended", 100), Ban::Token("t".into()).fact(0)]);
        names.change(vec![FactChange::Put(user("a", 101)), FactChange::Put(user("c", 0))], 4, 100);
        names.change(vec![FactChange::Remove(user("c", 0).key)], 3, 100);
        let first = || FactKey { kind: "".into(), name: "".into() };
        assert_eq!(listed(&names, None, first(), 10), ["token_revoke t", "user_block a", "user_block b"]);
        assert_eq!(listed(&names, None, first(), 2), ["token_revoke t", "user_block a"]);
        assert_eq!(listed(&names, None, user("a", 0).key, 2), ["user_block b"]);
        assert_eq!(listed(&names, Some("user_block"), first(), 1), ["user_block a"]);
        assert_eq!(listed(&names, Some("token_revoke"), first(), 9), ["token_revoke t"]);
        assert_eq!(listed(&names, Some("user_block"), user("b", 0).key, 9), [""; 0]);
    }

    #[test]
    fn what_has_ended_takes_bounded_memory() {
        let mut names = FactNames::default();
        for number in 0..1_000_u64 {
            names.change(vec![FactChange::Put(user(&number.to_string(), number + 1))], 1, number);
            assert!(names.0.len() <= ENDED + 2);
        }
    }
}
