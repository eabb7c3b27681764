//! Whether a node has room for one more channel with reactions. Shards check this before they accept its first
//! reaction.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use touchline_lock::SharedLock;
use touchline_protocol::stream::ChannelName;

/// The channels in which shards may accept reactions.
#[derive(Debug, Default)]
pub struct ReactionAdmission {
    is_full: AtomicBool,
    /// The channels that the node has room for while it is full.
    known: SharedLock<BTreeSet<ChannelName>>,
}

impl ReactionAdmission {
    /// Whether reactions in a channel may be accepted.
    pub fn admits(&self, channel: &str) -> bool {
        !self.is_full.load(Relaxed) || self.known.read().contains(channel)
    }

    /// Notes that the node is full and has room only for these channels.
    pub fn fill(&self, known: impl IntoIterator<Item = ChannelName>) {
        *self.known.write() = known.into_iter().collect();
        self.is_full.store(true, Relaxed);
    }

    /// Notes that the node has room again.
    pub fn open(&self) {
        if self.is_full.swap(false, Relaxed) {
            *self.known.write() = BTreeSet::new();
        }
    }

    /// Whether the node is full.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_node_admits_the_channels_that_it_has() {
        let admission = ReactionAdmission::default();
        assert!(admission.admits("a"));
        admission.fill([ChannelName::from("a")]);
        assert!(admission.admits("a") && !admission.admits("b") && admission.is_full());
        admission.open();
        assert!(admission.admits("b") && !admission.is_full());
    }
}
