//! The shared facts, with their names, of a node that has no database of them. The table by which the node judges
//! clients keeps only hashes of the names.

use std::collections::BTreeMap;
use std::ops::Bound;

use touchline_protocol::fact::{Fact, FactChange, FactKey};
use touchline_store::FactListing;

/// How many facts that have ended may remain, beyond the number of facts that hold, before they are removed.
const ENDED: usize = 64;

/// What a node knows of shared facts, apart from the table by which it judges clients.
#[derive(Default)]
pub(crate) struct KnownFacts {
    /// The revision up to which changes were reported.
    pub(crate) revision: u64,
    /// The facts with their names; empty if a database has them.
    pub(crate) names: FactNames,
}

/// Facts by their keys.
#[derive(Default)]
pub(crate) struct FactNames(BTreeMap<FactKey, Fact>);

impl FactNames {
    /// Replaces all facts by these.
    pub(crate) fn replace(&mut self, facts: Vec<Fact>) {
        self.0 = facts.into_iter().map(|fact| (fact.key.clone(), fact)).collect();
    }

    /// Applies changes in their order. `holding`: how many facts hold after them.
    pub(crate) fn change(&mut self, changes: Vec<FactChange>, holding: usize, now_s: u64) {
        for change in changes {
            match change {
                FactChange::Put(fact) => self.0.insert(fact.key.clone(), fact),
                FactChange::Remove(key) => self.0.remove(&key),
            };
        }
        // Looking through all facts takes time in proportion to their number. So it happens only after many facts have
        // ended.
        if self.0.len() > 2 * holding + ENDED {
            self.0.retain(|_, fact| holds(fact, now_s));
        }
    }

    /// Returns a page of the facts that hold, ordered by kind and name.
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
