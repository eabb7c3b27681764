//! Which node publishes a closed channel for the last time. All nodes that see the same nodes choose the same one
//! (rendezvous hashing: Thaler, Ravishankar 1998).

use crate::stable_hash::stable_hash;

/// How many of the other nodes in sight come before a node; 0 = it is this node's turn. If the nodes before it do
/// nothing, because they have died or have an earlier version, it becomes this node's turn.
pub fn finish_turn<'n>(channel: &str, node: &str, others: impl IntoIterator<Item = &'n str>) -> usize {
    let place = |name: &str| (stable_hash(&(channel, name)), name.to_owned());
    let own = place(node);
    others.into_iter().filter(|other| *other != node && place(other) < own).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_a_turn_of_its_own_and_channels_spread() {
        let nodes = ["a", "b", "c"];
        let mut first = [0; 3];
        for channel in 0..300 {
            let channel = channel.to_string();
            let mut turns: Vec<usize> = nodes.iter().map(|node| finish_turn(&channel, node, nodes)).collect();
            first[turns.iter().position(|turn| *turn == 0).expect("one is the first")] += 1;
            turns.sort_unstable();
            assert_eq!(turns, [0, 1, 2]);
        }
        assert!(first.iter().all(|count| *count > 50), "{first:?}");
        assert_eq!(finish_turn("a", "n", []), 0);
    }
}
