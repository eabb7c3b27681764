//! Decides which of two claims of one name wins, by a total order that is the same on every node.

use std::cmp::Ordering;

use crate::clock::Stamp;
use crate::settings::ConflictPolicyKind;

/// The properties of a claim that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing<'a> {
    /// True if other nodes purged the claim's node while it was away, or the node is suspected to be dead. Such a claim
    /// never wins against another one.
    pub(crate) is_doubtful: bool,
    /// Raised when the backend decided for the claim, or when it took over the name from a node that was suspected to
    /// be dead.
    pub(crate) rank: u8,
    pub(crate) stamp: Stamp,
    pub(crate) node: &'a str,
}

/// Compares two claims. `Greater` = `a` wins.
pub(crate) fn compare(policy: ConflictPolicyKind, a: Standing<'_>, b: Standing<'_>) -> Ordering {
    let by_time = (a.stamp, a.node).cmp(&(b.stamp, b.node));
    let by_policy = match policy {
        ConflictPolicyKind::Newest | ConflictPolicyKind::Hook => by_time,
        ConflictPolicyKind::Oldest | ConflictPolicyKind::Reject => by_time.reverse(),
    };
    b.is_doubtful.cmp(&a.is_doubtful).then(a.rank.cmp(&b.rank)).then(by_policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_a_total_order() {
        let all: Vec<Standing<'_>> = (0..3)
            .flat_map(|rank| (0..3).flat_map(move |time| ["a", "b"].map(|node| (rank, time, node))))
            .flat_map(|(rank, time, node)| {
                [false, true].map(|is_doubtful| Standing { is_doubtful, rank, stamp: Stamp(time), node })
            })
            .collect();
        for policy in [
            ConflictPolicyKind::Newest,
            ConflictPolicyKind::Oldest,
            ConflictPolicyKind::Reject,
            ConflictPolicyKind::Hook,
        ] {
            for a in &all {
                for b in &all {
                    assert_eq!(compare(policy, *a, *b), compare(policy, *b, *a).reverse());
                    assert_eq!(compare(policy, *a, *b) == Ordering::Equal, a == b);
                    if !a.is_doubtful && b.is_doubtful {
                        assert_eq!(compare(policy, *a, *b), Ordering::Greater);
                    }
                }
            }
        }
    }
}
